"""A gang is built again when its pods or the size that its owner declares change, and only then."""

from dataclasses import replace
from typing import Any

import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.observe.gangs import OWN_ERROR, GangCache, GangKey, OwnerFacts, PodGang, gang_of
from webhook.workloads import marks

KEY = GangKey("ns", "Job", "g", "g")
GPU = {"limits": {"nvidia.com/gpu": "1"}}


def pod(name: str, **annotations: str) -> Pod:
    containers = [{"name": "c", "resources": GPU}]
    return decode(pod_json(name, metadata={"annotations": annotations}, containers=containers))


PODS = [pod("a"), pod("b")]
OWNER = OwnerFacts(size=2)


def given(change: dict[str, Any]) -> tuple[GangKey, list[Pod], list[Pod], OwnerFacts]:
    return KEY, change.get("gated", PODS), change.get("released", []), change.get("owner", OWNER)


def passes(cache: GangCache, *asked: dict[str, Any]) -> list[PodGang]:
    """The gang in passes one after the other."""
    found = []
    for each in asked:
        found.append(cache.gang_of(*given(each)))
        cache.end_pass()
    return found


def broken(*_: object) -> PodGang:
    raise KeyError("not foreseen")


@pytest.mark.promise("S2")
def test_what_is_wrong_with_one_gang_stops_no_other_and_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = GangCache()

    def of_bad(key: GangKey) -> OwnerFacts:
        if key.name == "bad":
            raise KeyError("not foreseen")
        return OWNER

    asking = cache.asking(of_bad)
    bad, good = GangKey("ns", "Job", "bad", "bad"), KEY
    first = {key: cache.gang_of(key, PODS, [], asking(key)) for key in (bad, good)}
    assert (first[bad].fault, first[good].fault) == (OWN_ERROR, "")
    cache.end_pass()
    assert not cache.gang_of(bad, PODS, [], OWNER).fault, "it is asked about again"
    monkeypatch.setattr("webhook.sweeper.observe.gangs.gang_of", broken)
    assert cache.gang_of(GangKey("ns", "Job", "c", "c"), PODS, [], OWNER).fault == OWN_ERROR


def test_nodes_stay_reserved_for_a_gang_that_could_not_be_made_in_a_pass() -> None:
    placing = Placing(Nodes(2, *PODS), Settings(settle_seconds=0, reserve_share=1.0))
    view = placing.view()
    snapshot = placing.snapshotter.snapshot(view)
    gang = replace(placing.gangs()[0], fault=OWN_ERROR)
    placing.remember([gang], view, snapshot)
    placing.reserve(gang.key, ["n0"])
    pass_input = placing.given(view, snapshot, 1)
    (outcome,) = placing.place([gang], pass_input).outcomes
    assert (outcome.reason, outcome.cause) == (OWN_ERROR, Cause.INTERNAL_ERROR)
    assert placing.reserved == {"n0"}


def test_a_gang_of_which_nothing_has_changed_is_the_very_same() -> None:
    first, second, third = passes(GangCache(), {}, {"gated": list(PODS)}, {})
    assert first is second is third
    assert first == gang_of(KEY, PODS, [], OWNER)


@pytest.mark.parametrize(
    "change",
    [
        {"gated": PODS[:1]},
        {"gated": PODS[:1], "released": PODS[1:]},
        {"gated": [PODS[0], pod("b", **{keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})]},
        {"owner": OwnerFacts(size=1)},
        {"owner": OwnerFacts(size=2, minimum=1)},
        {"owner": OwnerFacts(size=2, staged=True)},
        {"owner": OwnerFacts(size=2, is_cut=True)},
    ],
    ids=["a pod gone", "a pod released", "another wish", "size", "minimum", "staged", "cut"],
)
def test_a_gang_is_built_again_when_something_of_it_changes(change: dict[str, Any]) -> None:
    _, second = passes(GangCache(), {}, change)
    assert second == gang_of(*given(change))


def test_of_a_gang_that_lacks_pods_it_is_asked_each_time_why() -> None:
    complaints = iter([("", ""), ("2026-01-01T00:00:00Z", "quota")])
    owner = OwnerFacts(size=3, blocked=lambda: next(complaints))
    first, second = passes(GangCache(), {"owner": owner}, {"owner": owner})
    assert (first.blocked_reason, second.blocked_reason) == ("", "quota")


def test_of_pods_without_devices_it_is_asked_each_time_whether_others_have_some() -> None:
    answers = iter([None, False])
    plain = decode(pod_json("a", metadata={"labels": dict.fromkeys(marks.CPU_POD_LABELS, "x")}))
    asked = {"gated": [plain], "owner": OwnerFacts(size=1, devices=lambda: next(answers))}
    assert [each.alone for each in passes(GangCache(), asked, asked)] == [False, True]
