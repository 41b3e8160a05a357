"""From a gang to its plan: time stamps that only grow, spreads, owners, and what is kept of earlier plans."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.pods import job_pod
from webhook.kube.objects import Metadata
from webhook.kube.placements import Placement, PlacementSpec, PlannedPod
from webhook.placement import Topology
from webhook.sweeper import plan
from webhook.sweeper.gangs import OwnerSays, gather
from webhook.sweeper.plan import Timestamps

NOW = 1_764_000_000_000_000_000


@settings(derandomize=True)
@given(st.lists(st.integers(-(10**15), 10**15), min_size=2))
def test_time_stamps_grow_whatever_the_clock_does(steps: list[int]) -> None:
    stamps, now, found = Timestamps(), NOW, []
    for step in steps:
        now += step
        found.append(stamps.next(now))
    assert found == sorted(set(found))


def test_time_stamps_go_on_above_what_pods_carry() -> None:
    stamps = Timestamps()
    written = str(NOW + 10**12)
    stamps.saw([{}, {keys.GAS_TIMESTAMP_ANNOTATION: written}], NOW)
    assert stamps.next(NOW) == NOW + 10**12 + 1


@pytest.mark.parametrize(
    "value", ["", "soon", "-5", "²", "9" * 19, "9" * 20, "9" * 5000], ids=lambda value: value[:25]
)
def test_a_time_stamp_that_is_none_is_passed_over(value: str) -> None:
    stamps = Timestamps()
    stamps.saw([{keys.GAS_TIMESTAMP_ANNOTATION: value}], NOW)
    assert stamps.next(NOW) == NOW


def labels(block: str, subblock: str, host: str) -> dict[str, str]:
    return dict(zip(keys.PRERELEASE_TOPOLOGY, (block, subblock, host), strict=True))


def test_a_spread_counts_domains_by_their_whole_path() -> None:
    nodes = {"a": labels("b0", "s0", "h0"), "b": labels("b0", "s1", "h0"), "c": labels("b1", "s0", "h0")}
    assert plan.spread(nodes, nodes, Topology()) == "2 blocks, 3 subblocks, 3 hosts, 3 nodes"


def test_pods_on_one_node_are_spread_over_one_of_each() -> None:
    assert (
        plan.spread(["a", "a"], {"a": labels("b", "s", "h")}, Topology())
        == "1 block, 1 subblock, 1 host, 1 node"
    )


def test_nodes_without_labels_are_domains_of_their_own() -> None:
    assert plan.spread(["a", "b"], {}, Topology()) == "2 blocks, 2 subblocks, 2 hosts, 2 nodes"


def test_a_new_plan_keeps_entries_of_pods_that_are_there_and_drops_the_others() -> None:
    (gang,) = gather([job_pod(1)], [job_pod(0)], lambda _: OwnerSays(2))
    before = Placement(
        metadata=Metadata(name="p"),
        spec=PlacementSpec(
            pods=[
                PlannedPod(name="train-0", uid="ns-train-0", node="n0"),
                PlannedPod(name="train-1", uid="an earlier one", node="n1"),
            ]
        ),
    )
    spec = plan.plan_spec(gang, before, [PlannedPod(name="train-1", uid="ns-train-1", node="n2")])
    assert [(planned.uid, planned.node) for planned in spec.pods] == [
        ("ns-train-0", "n0"),
        ("ns-train-1", "n2"),
    ]


def test_a_plan_goes_on_preempting_as_long_as_it_keeps_entries_that_do() -> None:
    (gang,) = gather([job_pod(1)], [job_pod(0)], lambda _: OwnerSays(2))
    earlier = PlannedPod(name="train-0", uid="ns-train-0", node="n0")
    before = Placement(metadata=Metadata(name="p"), spec=PlacementSpec(preempts=True, pods=[earlier]))
    added = [PlannedPod(name="train-1", uid="ns-train-1", node="n2")]
    assert plan.plan_spec(gang, before, added).preempts
    assert not plan.plan_spec(gang, Placement(metadata=before.metadata), added).preempts


def test_a_gangs_placement_belongs_to_the_gangs_controller() -> None:
    (gang,) = gather([job_pod(0)], [], lambda _: OwnerSays(1))
    assert plan.plan_metadata(gang)["ownerReferences"] == [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "ns-train"}
    ]


def test_a_gang_of_several_controllers_belongs_to_none_of_them() -> None:
    both = {keys.GANG_ANNOTATION: "both"}
    (gang,) = gather(
        [job_pod(0, "a", annotations=both), job_pod(0, "b", annotations=both)], [], lambda _: OwnerSays(2)
    )
    assert "ownerReferences" not in plan.plan_metadata(gang)
