"""Parts of a gang that name levels or slices of their own: all placed in one plan, or none."""

import random
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import GPU, Nodes, Placing, gpu_pod, places
from tests.sweeper.launchers import TOLERATION, node, placing
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.sets import exclusive
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.placement import Slice
from webhook.sweeper.observe.gang_requests import GangPart
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.workloads import marks

REQUIRED, SIZE, SLICES = (
    keys.REQUIRED_TOPOLOGY_ANNOTATION,
    keys.SLICE_SIZE_ANNOTATION,
    keys.SLICE_TOPOLOGY_ANNOTATION,
)


def grid(*slot_counts: list[int]) -> list[Node]:
    """For each block, nodes of 8 GPUs in each of its subblocks; named b0s1h2."""
    return [
        node(f"b{b}s{s}h{h}", f"b{b}/s{s}/h{h}", gpus=8)
        for b, subblocks in enumerate(slot_counts)
        for s, count in enumerate(subblocks)
        for h in range(count)
    ]


def part(
    job: int, count: int, request: dict[str, str], gpus: int = 8, on: list[str] | None = None, **more: Any
) -> list[Pod]:
    """The pods of one Job of a JobSet; more: other fields of their specs."""
    made = []
    for index in range(count):
        labels = {
            marks.JOBSET_NAME_LABEL: "train",
            marks.JOB_GLOBAL_INDEX: str(job),
            marks.JOB_INDEX_KEY: str(index),
        }
        amounts = {GPU: str(gpus)}
        spec: dict[str, Any] = {
            "containers": [{"name": "c", "resources": {"limits": amounts, "requests": amounts}}],
            "tolerations": [TOLERATION],
            **more,
        }
        if on is not None and index < len(on):
            spec |= {"nodeName": on[index], "schedulingGates": []}
        made.append(
            decode(pod_json(f"j{job}-{index}", metadata={"labels": labels, "annotations": request}, **spec))
        )
    return made


def found(nodes: list[Node], *pods: Pod) -> dict[str, str]:
    return places(placing(nodes, *pods, owner_facts=OwnerFacts(len(pods))).one())


def where(placed: dict[str, str], job: int, length: int) -> set[str]:
    return {name[:length] for pod, name in placed.items() if pod.startswith(f"j{job}-")}


BLOCK, SUBBLOCK = 2, 4
"""How much of a node's name is its domain."""


@pytest.mark.promise("R68")
def test_each_part_is_in_one_domain_of_the_level_that_it_names() -> None:
    placed = found(
        grid([2, 2, 2], [1, 1, 1]), *part(0, 2, {REQUIRED: "subblock"}), *part(1, 4, {REQUIRED: "block"})
    )
    assert len(placed) == 6
    assert len(where(placed, 0, SUBBLOCK)) == 1
    assert where(placed, 1, BLOCK) == {"b0"}
    assert where(placed, 0, BLOCK) == {"b0"}, "near to the other, where all of it fits"


@pytest.mark.promise("R68")
def test_parts_lie_apart_where_no_block_holds_all_of_them() -> None:
    placed = found(grid([2, 2], [2]), *part(0, 2, {REQUIRED: "subblock"}), *part(1, 4, {REQUIRED: "block"}))
    assert where(placed, 1, BLOCK) == {"b0"}
    assert where(placed, 0, SUBBLOCK) == {"b1s0"}


def test_the_smaller_part_is_placed_first_where_the_larger_would_take_its_only_place() -> None:
    # The larger fits into block b0 alone; taken first, it would leave the smaller no subblock of two nodes.
    placed = found(grid([3, 1, 1]), *part(0, 3, {REQUIRED: "block"}), *part(1, 2, {REQUIRED: "subblock"}))
    assert where(placed, 1, SUBBLOCK) == {"b0s0"}
    assert len(placed) == 5


def test_parts_share_the_block_of_the_whole_gang_though_each_alone_would_fill_a_smaller_one() -> None:
    placed = found(grid([2, 3], [2]), *part(0, 2, {REQUIRED: "subblock"}), *part(1, 2, {REQUIRED: "block"}))
    assert where(placed, 0, BLOCK) == where(placed, 1, BLOCK) == {"b0"}


def test_a_part_lies_in_another_block_where_the_block_of_the_whole_gang_has_no_domain_for_it() -> None:
    nodes = grid([1, 1, 1, 1], [2])
    placed = found(nodes, *part(0, 2, {REQUIRED: "subblock"}), *part(1, 2, {REQUIRED: "block"}))
    assert (where(placed, 0, BLOCK), where(placed, 1, BLOCK)) == ({"b1"}, {"b0"})


OWN = {"matchLabels": {marks.JOBSET_NAME_LABEL: "train"}}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": keys.ZONE_LABEL, "labelSelector": OWN}
        ]
    }
}


@pytest.mark.promise("R68")
@pytest.mark.parametrize("more", [{}, {"affinity": APART}], ids=["", "with rules on other pods"])
def test_none_of_it_is_placed_where_one_part_does_not_fit(more: dict[str, Any]) -> None:
    made = placing(
        grid([1, 1, 1, 1]),
        *part(0, 2, {REQUIRED: "block"}, **more),
        *part(1, 2, {REQUIRED: "subblock"}, **more),
        owner_facts=OwnerFacts(4),
    )
    orders = made.one()
    assert not orders.plans
    assert "one subblock" in orders.outcomes[0].reason


SAME_LEVEL = ({REQUIRED: "block"}, {REQUIRED: "block"})
DIFFERENT_LEVELS = ({REQUIRED: "block"}, {REQUIRED: "subblock"})


@pytest.mark.promise("R70", "O199")
@pytest.mark.parametrize(
    ("requests", "expected"), [(SAME_LEVEL, True), (DIFFERENT_LEVELS, False)], ids=["alike", "unlike"]
)
def test_a_gang_in_parts_preempts_nobody(requests: tuple[dict[str, str], ...], expected: bool) -> None:
    lesser = gpu_pod("lesser", gpus=8, node="b0s0h0", priority=1)
    pods = [each for job, request in enumerate(requests) for each in part(job, 1, request, priority=10)]
    plans = placing(grid([2]), lesser, *pods, owner_facts=OwnerFacts(2)).one().plans
    assert [plan.preempts for plan in plans] == [True] * expected


@pytest.mark.promise("R70")
@pytest.mark.parametrize(
    ("requests", "expected"), [(SAME_LEVEL, True), (DIFFERENT_LEVELS, False)], ids=["alike", "unlike"]
)
def test_a_gang_in_parts_holds_no_node(requests: tuple[dict[str, str], ...], expected: bool) -> None:
    other = gpu_pod("other", gpus=8, node="b0s0h0")
    pods = [each for job, request in enumerate(requests) for each in part(job, 1, request)]
    cluster = Nodes(0, other, *pods)
    cluster.nodes = {each.metadata.name: each for each in grid([2])}
    made = Placing(cluster, Settings(reserve_seconds=0, preempt=False))
    made.owner_facts = lambda _: OwnerFacts(2)
    made.one()
    assert bool(made.reserved) == expected


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (GangPart(frozenset({"a"}), "block"), "the pod that requires one block"),
        (GangPart(frozenset({"a", "b"}), "block"), "the 2 pods that require one block"),
        (GangPart(frozenset({"a"}), None, ("host",)), "the pod that prefers one host"),
        (
            GangPart(frozenset({"a", "b"}), slices=(Slice("host", 2),)),
            "the 2 pods that form slices of 2 a host",
        ),
        (GangPart(frozenset({"a"})), "the pod that names no level"),
    ],
)
def test_a_part_is_named_by_its_number_of_pods_and_what_they_request(made: GangPart, name: str) -> None:
    assert made.name == name


@pytest.mark.promise("R68")
def test_a_part_may_have_slices_and_resources_of_its_own() -> None:
    sliced = {SLICES: "subblock", SIZE: "2"}
    placed = found(
        grid([3, 3], [3]),
        *part(0, 4, sliced),
        *part(1, 2, {REQUIRED: "block", SLICES: "host", SIZE: "1"}, gpus=4),
    )
    assert len(placed) == 6
    for first in (0, 2):
        assert placed[f"j0-{first}"][:SUBBLOCK] == placed[f"j0-{first + 1}"][:SUBBLOCK]


@pytest.mark.promise("R67")
def test_a_request_on_some_pods_alone_applies_to_all() -> None:
    placed = found(grid([2], [3]), *part(0, 2, {REQUIRED: "block"}), *part(1, 1, {}))
    assert set(placed.values()) == {"b1s0h0", "b1s0h1", "b1s0h2"}


def test_a_recreated_pod_returns_to_the_domain_of_its_part() -> None:
    there = part(0, 2, {REQUIRED: "subblock"}, on=["b1s0h0"])
    others = part(1, 2, {REQUIRED: "block"}, on=["b0s0h0", "b0s0h1"])
    assert found(grid([3, 3], [2, 2]), *there, *others) == {"j0-1": "b1s0h1"}


@pytest.mark.promise("R70")
def test_more_parts_than_are_served_are_refused_in_a_sentence() -> None:
    pods = [
        each
        for job, level in enumerate(("block", "subblock", "host", "node", keys.HOSTNAME_LABEL))
        for each in part(job, 1, {REQUIRED: level})
    ]
    orders = placing(grid([9]), *pods, owner_facts=OwnerFacts(5)).one()
    assert orders.outcomes[0].reason == "its pods name levels or slices in 5 ways; at most 4"


def test_parts_that_want_one_domain_together_have_their_own_levels_inside_it() -> None:
    own = {marks.JOBSET_EXCLUSIVE: keys.PRERELEASE_TOPOLOGY[0]}
    pods = [*part(0, 2, {**own, REQUIRED: "block"}), *part(0, 4, {**own, REQUIRED: "subblock"})[2:]]
    of_one = [with_labels(each, {marks.JOBS_OF_JOBSET: "1"}) for each in pods]
    placed = places(
        exclusive(placing(grid([2, 1], [1, 1, 1, 1], [2, 2]), *of_one, owner_facts=OwnerFacts(4))).one()
    )
    assert where(placed, 0, BLOCK) == {"b2"}
    assert placed["j0-2"][:SUBBLOCK] == placed["j0-3"][:SUBBLOCK]


def test_pods_of_one_domain_of_their_own_request_the_same_where_there_are_several() -> None:
    own = {marks.JOBSET_EXCLUSIVE: keys.PRERELEASE_TOPOLOGY[1], REQUIRED: "block"}
    pods = [*part(0, 1, own), *part(0, 2, {**own, REQUIRED: "host"})[1:], *part(1, 1, own)]
    of_two = [with_labels(each, {marks.JOBS_OF_JOBSET: "2"}) for each in pods]
    orders = exclusive(placing(grid([9]), *of_two, owner_facts=OwnerFacts(3))).one()
    assert orders.outcomes[0].reason == "the pods of one exclusive domain name different levels or slices"


def with_labels(pod: Pod, labels: dict[str, str]) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, labels={**pod.metadata.labels, **labels})
    return msgspec.structs.replace(pod, metadata=metadata)


@pytest.mark.promise("R68")
def test_whatever_the_cluster_all_parts_have_what_they_request_or_nobody_has_a_place() -> None:
    for seed in range(20):
        check_parts(seed)


def check_parts(seed: int) -> None:
    dice = random.Random(seed)
    slot_counts = [[dice.randint(0, 3) for _ in range(3)] for _ in range(3)]
    small, large = dice.randint(1, 3), dice.randint(1, 5)
    placed = found(
        grid(*slot_counts), *part(0, small, {REQUIRED: "subblock"}), *part(1, large, {REQUIRED: "block"})
    )
    assert bool(placed) == _is_possible(slot_counts, small, large)
    if placed:
        assert len(placed) == small + large == len(set(placed.values()))
        assert len(where(placed, 0, SUBBLOCK)) == len(where(placed, 1, BLOCK)) == 1


def _is_possible(slot_counts: list[list[int]], small: int, large: int) -> bool:
    """By trying every pair of domains."""
    return any(
        slot_counts[b][s] >= small and sum(slot_counts[other]) - small * (other == b) >= large
        for b in range(3)
        for s in range(3)
        for other in range(3)
    )
