"""When the copy of the cluster is complete, and what of our own writes it adds to it, in memory."""

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.extensions.node_health.failing import ended
from tests.sweeper.preemptions import plan
from webhook.kube.collection import Listing
from webhook.kube.decoding import key_of
from webhook.kube.placements import Placement
from webhook.sweeper.decide.kubelet_refusals import NOT_ADMITTED, refused_at
from webhook.sweeper.observe.cache import _BUDGETS, _FAILED, BUDGETS_SECONDS, ClusterCache


def empty() -> ClusterCache:
    nobody: Any = None  # nothing is asked of the API server before start()
    return ClusterCache(nobody)


def written(version: int) -> Placement:
    _, made = plan("g", {"uid": "n0"})
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, resource_version=str(version))
    )


def shown(cache: ClusterCache, version: int, *there: Placement) -> None:
    cache.placements._replace(Listing(str(version), {each.key: each for each in there}))


def test_a_placement_counts_from_our_write_on_until_a_later_copy_is_without_it() -> None:
    cache, mine = empty(), written(7)
    shown(cache, 6)
    cache.written(mine)
    assert cache.current_placements() == {mine.key: mine}
    shown(cache, 6)  # an older list says nothing of it
    assert cache.current_placements() == {mine.key: mine}
    shown(cache, 8)  # written and removed between two watches
    assert cache.current_placements() == {}


def test_a_placement_that_a_watch_showed_and_took_away_before_we_noted_it_does_not_count() -> None:
    cache, mine = empty(), written(7)
    shown(cache, 6)
    cache.placements._apply("ADDED", mine.key, mine)
    cache.placements._apply("DELETED", mine.key, written(8))
    cache.written(mine)
    assert cache.current_placements() == {}


def test_what_a_watch_showed_of_a_placement_before_we_noted_an_earlier_write_counts() -> None:
    cache, mine, later = empty(), written(7), written(8)
    shown(cache, 6)
    cache.placements._apply("ADDED", mine.key, mine)
    cache.placements._apply("MODIFIED", mine.key, later)
    cache.written(mine)
    assert cache.current_placements()[mine.key] is later


def test_what_we_wrote_counts_before_what_the_watch_shows_of_it_earlier() -> None:
    cache, before, after = empty(), written(7), written(9)
    shown(cache, 8, before)
    cache.written(after)
    assert cache.current_placements()[after.key] is after


@pytest.mark.promise("O322")
def test_what_we_wrote_after_the_backup_of_a_restored_etcd_is_gone() -> None:
    cache, mine = empty(), written(107)
    shown(cache, 106)
    cache.written(mine)
    assert cache.current_placements() == {mine.key: mine}
    shown(cache, 50)  # the informer takes an older list only from an API server that stays at it
    assert cache.current_placements() == {}


@pytest.mark.parametrize("are_read", [True, False])
def test_no_leader_acts_before_the_budgets_are_read_or_have_been_waited_for(
    are_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    cache = empty()
    cache._started_at = now
    budgets = cache.watches.prepare(_BUDGETS, lambda *_: None)
    for each in (cache.pods, cache.nodes, cache.placements):
        each._synced.set()
    monkeypatch.setattr(type(cache.owners), "synced", True)
    assert cache.synced, "who looks only, as the page, waits for no budgets"
    assert not cache.is_for_leaders
    if are_read:
        budgets._synced.set()
    else:
        now += BUDGETS_SECONDS
    assert cache.is_for_leaders


@pytest.mark.parametrize(
    ("is_watched", "started", "refused"),
    [(True, 10_800, 0), (True, 5, 5), (False, 600, 600)],
    ids=["seen to fail after hours", "seen to fail at its start", "failed before this process"],
)
def test_a_refusal_has_the_time_of_the_start_only_where_no_better_one_is_known(
    is_watched: bool, started: int, refused: int
) -> None:
    """A kubelet that is restarted may refuse pods that have run, and their start stays as it was."""
    cache, now = empty(), int(time.time())
    copy = cache.watches.prepare(_FAILED, cache._failed_event)
    at = datetime.fromtimestamp(now - started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"phase": "Failed", "reason": NOT_ADMITTED, "startTime": at}
    pod = ended("p", "n0", status=status)
    if is_watched:
        copy._replace(Listing("1", {}))
        copy._synced.set()
        copy._apply("ADDED", key_of(pod), pod)
    else:
        copy._replace(Listing("1", {key_of(pod): pod}))
    (found,) = cache.take_failed()
    assert refused_at(found, now) == now - refused
