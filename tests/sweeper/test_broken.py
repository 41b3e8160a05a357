"""What is left of a gang that others have preempted: when it goes, in memory."""

from collections.abc import Iterable, Sequence

import msgspec
import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing
from tests.sweeper.test_preempting import member, plan
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.observe.gangs import OwnerSays, gather
from webhook.sweeper.repair.broken import Broken
from webhook.sweeper.settings import Settings

SETTINGS = Settings(broken_seconds=30)


def nothing_against_it(pods: Sequence[Pod], ordered: Iterable[Pod] = ()) -> str:
    return ""


class Half:
    """The Job low, of two pods: one on n1, and one that was on n0 and has been made again."""

    def __init__(self, priority: int = 100) -> None:
        self.cluster = Nodes(2)
        self.left = member("low", 1, "n1")
        self.anew = member("low", 2)
        self.other = member("other", 0, "n0", priority=priority)
        self.cluster.pods = [self.left, self.anew, self.other]
        self.cluster.placements = self.plan()
        self.clock = Clock()
        self.broken = Broken(SETTINGS, nothing_against_it, self.clock)
        self.cause: Cause | None = Cause.NO_ROOM

    def plan(self) -> dict[str, Placement]:
        _, made = plan("low", {"ns-low-0": "n0", "ns-low-1": "n1"})
        status = msgspec.structs.replace(made.status, complete=True)
        gang = Placing(self.cluster, SETTINGS).view().gang_of(self.left)
        return {gang.placement_key: msgspec.structs.replace(made, status=status)}

    def look(self, size: int | None = 2) -> list[str]:
        """The names of those that go, after so long that nothing is new."""
        self.once(size)
        self.clock.now += SETTINGS.broken_seconds
        return self.once(size)

    def once(self, size: int | None = 2) -> list[str]:
        view = Placing(self.cluster, SETTINGS).view()
        gangs = gather(view.gated, view.mates, lambda _: OwnerSays(size=size), view.gang_of)
        orders = self.broken.look(view, gangs, lambda _: self.cause)
        assert all(order.for_others and order.may_run for order in orders.evictions)
        return [order.pod.metadata.name for order in orders.evictions]


def test_what_is_left_goes_once_it_has_been_so_for_some_time() -> None:
    half = Half()
    assert half.once() == []
    half.clock.now += SETTINGS.broken_seconds
    assert half.once() == ["low-1"]


def test_it_goes_also_where_the_one_that_took_the_place_is_gone_by_then() -> None:
    half = Half()
    assert half.once() == []
    half.cluster.pods.remove(half.other)
    half.clock.now += SETTINGS.broken_seconds
    assert half.once() == ["low-1"]


def test_a_gang_that_lost_its_pod_to_nobody_more_important_stays() -> None:
    assert Half(priority=1).look() == []


@pytest.mark.parametrize("cause", [None, Cause.INCOMPLETE, Cause.HINDERED, Cause.OTHER_GATE])
def test_a_gang_whose_new_pods_wait_for_another_reason_stays(cause: Cause | None) -> None:
    half = Half()
    half.cause = cause
    assert half.look() == []


def test_a_gang_that_has_enough_stays() -> None:
    assert Half().look(size=1) == []


def test_a_gang_that_never_ran_whole_is_not_broken() -> None:
    half = Half()
    ((key, made),) = half.cluster.placements.items()
    half.cluster.placements[key] = msgspec.structs.replace(
        made, status=msgspec.structs.replace(made.status, complete=False)
    )
    assert half.look() == []


def test_whose_job_would_fail_for_it_stays_and_is_told() -> None:
    half = Half()
    half.broken = Broken(SETTINGS, lambda pods, ordered=(): "its Job would fail", half.clock)
    assert half.look() == []
