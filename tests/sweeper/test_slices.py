"""Slices: consecutive ranks in one domain, also when some of them are lost, finished or not made yet."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.pods import decode, job_pod, pod_json
from tests.sweeper.slices import cluster, places_of
from webhook.kube.objects import Node, Pod
from webhook.placement import PlacementError
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.workloads import marks

LEVEL, SIZE = keys.SLICE_TOPOLOGY_ANNOTATION, keys.SLICE_SIZE_ANNOTATION
PAIRS = {LEVEL: "subblock", SIZE: "2"}


def worker(rank: int, asked: dict[str, str], cpu: str = "1", ranked: bool = True) -> Pod:
    """A gated pod of a gang; cpu: what it asks for."""
    labels = {marks.JOB_INDEX_KEY: str(rank)} if ranked else {}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    annotations = {keys.GANG_ANNOTATION: "g", **asked}
    return decode(
        pod_json(f"p{rank}", containers=[container], metadata={"labels": labels, "annotations": annotations})
    )


def gang_of(*pods: Pod, size: int | None = None, staged: bool = False) -> PodGang:
    (gang,) = gather(pods, [], lambda _: OwnerFacts(size, staged))
    return gang


def placed(gang: PodGang, nodes: list[Node], on: dict[int, str] | None = None) -> dict[str, str] | str:
    """Pod -> node of the pods that have none yet, or why they have no place. on: rank -> node of the rest."""
    found = places_of(gang, nodes, {f"uid-p{rank}": node for rank, node in (on or {}).items()})
    return found if isinstance(found, str) else {uid.removeprefix("uid-"): at for uid, at in found.items()}


def subblocks(found: dict[str, str] | str) -> dict[str, str]:
    assert isinstance(found, dict), found
    return {pod: node[0] for pod, node in found.items()}


# --- the request ------------------------------------------------------------------------------------


@pytest.mark.promise("R46")
def test_each_run_of_ranks_shares_a_domain_where_without_the_request_it_would_not() -> None:
    nodes = cluster(a1=3, b1=3)
    wished = subblocks(placed(gang_of(*(worker(rank, PAIRS) for rank in range(4))), nodes))
    assert wished == {"p0": "a", "p1": "a", "p2": "b", "p3": "b"}
    free = subblocks(placed(gang_of(*(worker(rank, {}) for rank in range(4))), nodes))
    assert free["p2"] != free["p3"]


@pytest.mark.promise("R50")
@pytest.mark.parametrize("level", ["subblock", keys.GCE_TOPOLOGY[1], keys.PRERELEASE_TOPOLOGY[1]])
def test_a_level_is_named_as_in_the_other_topology_requests(level: str) -> None:
    pods = [worker(rank, {LEVEL: level, SIZE: "2"}) for rank in range(4)]
    assert subblocks(placed(gang_of(*pods), cluster(a1=3, b1=3)))["p3"] == "b"


def test_kueues_own_names_are_left_to_kueue() -> None:
    asked = {
        "kueue.x-k8s.io/podset-slice-required-topology": "subblock",
        "kueue.x-k8s.io/podset-slice-size": "2",
    }
    assert gang_of(*(worker(rank, asked) for rank in range(4))).slices == ()


@pytest.mark.promise("R52", "R46")
@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({LEVEL: "subblock"}, f"{LEVEL} needs {SIZE}"),
        ({SIZE: "2"}, f"{SIZE} needs {LEVEL}"),
        ({LEVEL: "subblock", SIZE: "0"}, f"{SIZE}: '0' is not a positive integer"),
        ({LEVEL: "subblock", SIZE: "-2"}, f"{SIZE}: '-2' is not a positive integer"),
        ({LEVEL: "subblock", SIZE: "9" * 500}, f"{SIZE}: '{'9' * 40}' is not a positive integer"),
        ({LEVEL: "subblock", SIZE: "9" * 5000}, f"annotation {SIZE} of pod p0 is longer than topogate reads"),
        ({LEVEL: "rack", SIZE: "2"}, 'no level "rack"'),
        ({LEVEL: "subblock,host", SIZE: "4"}, "names 2 levels and .* 1 sizes; write one size for each level"),
        ({LEVEL: "subblock", SIZE: "4,2"}, "names 1 levels and .* 2 sizes"),
        ({LEVEL: "subblock,host", SIZE: "4,"}, f"{SIZE}: '' is not a positive integer"),
        ({LEVEL: "subblock,host", SIZE: "2,4"}, "slices of 2 in a subblock do not divide into slices of 4"),
        ({LEVEL: "host,subblock", SIZE: "4,2"}, "slices of 2 do not divide into slices of 4"),
        ({LEVEL: "subblock,", SIZE: "4,2"}, 'no level ""'),
        ({LEVEL: "subblock", SIZE: "3"}, "4 pods do not divide into slices of 3"),
        (
            {**PAIRS, keys.REQUIRED_TOPOLOGY_ANNOTATION: "host"},
            "slices are at a level above the required host",
        ),
    ],
    ids=[
        "no size",
        "no level",
        "zero",
        "negative",
        "long",
        "too long",
        "no such level",
        "one size short",
        "one level short",
        "an empty size",
        "larger inside",
        "finer around",
        "an empty level",
        "no multiple",
        "above",
    ],
)
def test_a_request_for_slices_that_cannot_be_meant_is_reported_and_not_ignored(
    asked: dict[str, str], complaint: str
) -> None:
    with pytest.raises(PlacementError, match=complaint):
        placed(gang_of(*(worker(rank, asked) for rank in range(4)), size=4), cluster(a1=3, b1=3))


def test_pods_with_different_slices_are_parts_with_slices_of_their_own() -> None:
    gang = gang_of(worker(0, PAIRS), worker(1, {**PAIRS, SIZE: "4"}))
    assert not gang.problems
    assert not gang.slices
    assert sorted(part.slices[0].size for part in gang.parts) == [2, 4]


@pytest.mark.promise("R54")
def test_pods_without_ranks_make_slices_of_any() -> None:
    gang = gang_of(*(worker(rank, PAIRS, ranked=False) for rank in range(4)))
    assert gang.problems == ("the pods have no ranks: any 2 of them form a slice",)
    found = subblocks(placed(gang, cluster(a1=3, b1=3)))
    assert sorted(found.values()) == ["a", "a", "b", "b"]


NESTED = {LEVEL: "subblock,host", SIZE: "4,2"}


@pytest.mark.promise("R46")
def test_slices_in_slices_share_a_domain_each() -> None:
    found = placed(gang_of(*(worker(rank, NESTED) for rank in range(8))), cluster(a1=3, a2=3, b1=3, b2=3))
    assert isinstance(found, dict)
    assert [found[f"p{rank}"] for rank in range(8)] == ["a1", "a1", "a2", "a2", "b1", "b1", "b2", "b2"]


def test_a_leader_stands_beside_slices_in_slices() -> None:
    pods = [worker(0, NESTED, cpu="3"), *(worker(rank, NESTED) for rank in range(1, 5))]
    found = placed(gang_of(*pods), cluster(a1=2, a2=2, b1=3))
    assert found == {"p0": "b1", "p1": "a1", "p2": "a1", "p3": "a2", "p4": "a2"}


def test_the_layer_in_which_slices_in_slices_are_short_is_named() -> None:
    sentence = placed(gang_of(*(worker(rank, NESTED) for rank in range(8))), cluster(a1=3, a2=3, b1=3, b2=1))
    assert (
        "in slices of 4 per subblock, 2 per host; capacity for 1 of 2 subblock slices, 3 of 4 host slices"
        in sentence
    )


@pytest.mark.parametrize(("lost", "home"), [(0, "a1"), (3, "a2"), (5, "b1")])
def test_a_replaced_pod_returns_to_its_innermost_slice(lost: int, home: str) -> None:
    seats = dict(enumerate(("a1", "a1", "a2", "a2", "b1", "b1", "b2", "b2")))
    del seats[lost]
    nodes = cluster(a1=2, a2=2, b1=2, b2=2, a3=2, c1=1)
    assert placed(gang_of(*(worker(rank, NESTED) for rank in range(8))), nodes, seats) == {f"p{lost}": home}


def test_an_inner_slice_that_is_lost_whole_is_placed_together_in_the_domain_of_the_outer_one() -> None:
    gang = gang_of(*(worker(rank, NESTED) for rank in range(4)))
    found = placed(gang, cluster(a1=2, a2=1, a3=1, a4=2, b1=2), {0: "a1", 1: "a1"})
    assert found == {"p2": "a4", "p3": "a4"}


# --- gangs that are there in part ------------------------------------------------------------------------


@pytest.mark.promise("R59")
@pytest.mark.parametrize(("lost", "home"), [(0, "a"), (1, "a"), (2, "b"), (3, "b")])
def test_a_replaced_pod_returns_to_the_domain_of_its_slice(lost: int, home: str) -> None:
    seats = {0: "a1", 1: "a2", 2: "b1", 3: "b2"}
    del seats[lost]
    gang = gang_of(*(worker(rank, PAIRS) for rank in range(4)))
    assert subblocks(placed(gang, cluster(a1=1, a2=1, b1=1, b2=1, a3=1, b3=1, c1=1), seats)) == {
        f"p{lost}": home
    }


def test_a_replaced_pod_waits_when_the_domain_of_its_slice_is_full() -> None:
    gang = gang_of(*(worker(rank, PAIRS) for rank in range(4)))
    found = placed(gang, cluster(a1=1, b1=2, c1=9), {0: "a1", 2: "b1", 3: "b1"})
    assert isinstance(found, str)
    assert "capacity for" in found


def test_a_slice_that_is_lost_whole_is_placed_anywhere_together() -> None:
    gang = gang_of(*(worker(rank, PAIRS) for rank in range(4)))
    found = subblocks(placed(gang, cluster(a1=2, b1=1, c1=1, d1=2), {0: "a1", 1: "a1"}))
    assert found == {"p2": "d", "p3": "d"}


def test_a_pod_that_fails_when_its_mates_have_finished_is_placed_all_the_same() -> None:
    """Finished pods are seen no more, so nothing shows the domain of the slice."""
    assert placed(gang_of(worker(3, PAIRS), size=1), cluster(a1=1)) == {"p3": "a1"}


@pytest.mark.promise("R59")
def test_several_that_are_left_of_one_slice_still_share_a_domain() -> None:
    fours = {LEVEL: "subblock", SIZE: "4"}
    gang = gang_of(worker(4, fours), worker(6, fours), worker(0, fours), size=3)
    found = subblocks(placed(gang, cluster(a1=1, a2=1, b1=1, c1=1, c2=1), {0: "a1"}))
    assert found == {"p4": "c", "p6": "c"}, "apart, they would have left more capacity whole"


@pytest.mark.promise("R59")
def test_what_is_left_of_several_slices_is_placed_near_its_neighbours() -> None:
    gang = gang_of(worker(0, PAIRS), worker(1, PAIRS), worker(2, PAIRS), worker(5, PAIRS), size=4)
    found = placed(gang, cluster(a1=2, b1=2), {0: "a1"})
    assert isinstance(found, dict)
    assert set(found) == {"p1", "p2", "p5"}


@pytest.mark.promise("R59")
def test_what_is_left_of_several_slices_takes_the_places_beside_those_that_run() -> None:
    gang = gang_of(worker(0, PAIRS), worker(2, PAIRS), worker(5, PAIRS), size=3)
    for near, far in (("a", "b"), ("b", "a")):
        nodes = cluster(**{f"{near}1": 1, f"{near}2": 1, f"{near}3": 1, f"{far}1": 1, f"{far}2": 1})
        assert subblocks(placed(gang, nodes, {0: f"{near}1"})) == {"p2": near, "p5": near}


@pytest.mark.parametrize("there", range(1, 5))
def test_pods_that_come_one_after_the_other_keep_their_slices(there: int) -> None:
    seats = dict(enumerate(("a1", "a1", "b1", "b1")[: there - 1]))
    gang = gang_of(*(worker(rank, PAIRS) for rank in range(there)), size=4, staged=True)
    found = subblocks(placed(gang, cluster(a1=2, b1=2), seats))
    if there % 2 == 0:
        assert found == {f"p{there - 1}": seats[there - 2][0]}


# --- a leader --------------------------------------------------------------------------------------------

LED: list[Any] = [worker(0, PAIRS, cpu="3"), *(worker(rank, PAIRS) for rank in range(1, 5))]
"""A leader of 3 cpus, and workers of 1: slices are of ranks 1 and 2, 3 and 4."""


@pytest.mark.promise("R54")
def test_a_leader_that_differs_from_the_workers_stands_beside_the_slices() -> None:
    found = subblocks(placed(gang_of(*LED), cluster(a1=3, b1=3, c1=3)))
    assert found["p1"] == found["p2"]
    assert found["p3"] == found["p4"]


@pytest.mark.parametrize(("lost", "home"), [(1, "b"), (2, "b"), (3, "c"), (4, "c")])
def test_a_replaced_worker_returns_to_its_slice_as_counted_without_the_leader(lost: int, home: str) -> None:
    seats = {0: "a1", 1: "b1", 2: "b1", 3: "c1", 4: "c1"}
    del seats[lost]
    assert subblocks(placed(gang_of(*LED), cluster(a1=3, b1=2, c1=2, d1=3), seats)) == {f"p{lost}": home}


def with_equal_leader() -> PodGang:
    gang = gang_of(*(worker(rank, PAIRS) for rank in range(5)), size=5)
    return replace(gang, key=replace(gang.key, kind="LeaderWorkerSet"))


@pytest.mark.promise("R54")
def test_a_leader_that_asks_for_what_its_workers_ask_stands_beside_the_slices() -> None:
    found = subblocks(placed(with_equal_leader(), cluster(a1=1, b1=2, c1=2)))
    assert found["p1"] == found["p2"]
    assert found["p3"] == found["p4"]
    assert found["p0"] == "a"


@pytest.mark.parametrize(("lost", "home"), [(0, "d"), (1, "b"), (2, "b"), (3, "c"), (4, "c")])
def test_a_replaced_pod_of_such_a_gang_returns_to_its_slice(lost: int, home: str) -> None:
    seats = {0: "a1", 1: "b1", 2: "b1", 3: "c1", 4: "c1"}
    del seats[lost]
    nodes = cluster(a1=1, b1=2, c1=2, d1=1) if lost else cluster(b1=2, c1=2, d1=1)
    assert subblocks(placed(with_equal_leader(), nodes, seats)) == {f"p{lost}": home}


def test_a_replaced_leader_is_placed_anywhere() -> None:
    seats = {1: "b1", 2: "b1", 3: "c1", 4: "c1"}
    assert placed(gang_of(*LED), cluster(b1=2, c1=2, d1=3), seats) == {"p0": "d1"}


def test_workers_that_come_after_their_leader_make_slices() -> None:
    found = subblocks(placed(gang_of(*LED, size=5, staged=True), cluster(a1=3, b1=2, c1=2), {0: "a1"}))
    assert found["p1"] == found["p2"]
    assert found["p3"] == found["p4"]


def test_an_indexed_jobs_ranks_make_slices() -> None:
    pods = [job_pod(rank, annotations=PAIRS) for rank in range(4)]
    (gang,) = gather(pods, [], lambda _: OwnerFacts(4))
    assert question(gang, pods, {}).gang.slices == gang.slices != ()


# --- whatever is there -------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=50)
@given(data=st.data(), size=st.integers(1, 4), slices=st.integers(1, 3), led=st.booleans())
def test_a_gang_of_which_some_pods_run_or_have_finished_always_gets_an_answer(
    data: st.DataObject, size: int, slices: int, led: bool
) -> None:
    """Never a contradiction that nobody can resolve; and while no pod has finished, all slices are kept."""
    asked = {LEVEL: "subblock", SIZE: str(size)}
    count = size * slices
    pods = [worker(0, asked, cpu="3")] if led else []
    pods += [worker(rank, asked) for rank in range(led, count + led)]
    homes = {0: "d"} if led else {}
    homes |= {rank: "abc"[(rank - led) // size] for rank in range(led, count + led)}
    fates = {rank: data.draw(st.sampled_from(("waits", "runs", "finished"))) for rank in homes}
    there = [pod for pod, fate in zip(pods, fates.values(), strict=True) if fate != "finished"]
    if not any(fate == "waits" for fate in fates.values()):
        return
    on = {rank: f"{homes[rank]}1" for rank, fate in fates.items() if fate == "runs"}
    gang = gang_of(*there, size=len(there) + data.draw(st.integers(0, 1)), staged=not on)
    found = subblocks(placed(gang, cluster(a1=4, b1=4, c1=4, d1=4), on))
    assert found.keys() == {f"p{rank}" for rank, fate in fates.items() if fate == "waits"}
    if "finished" not in fates.values() and (not led or 0 in on):
        for rank, home in homes.items():
            mates = [other for other in on if other >= led and (other - led) // size == (rank - led) // size]
            if mates and rank >= led and f"p{rank}" in found:
                assert found[f"p{rank}"] == home


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    data=st.data(),
    inner=st.integers(1, 3),
    times=st.integers(2, 3),
    slices=st.integers(1, 2),
    led=st.booleans(),
)
def test_a_gang_in_slices_in_slices_of_which_some_run_or_have_finished_always_gets_an_answer(
    data: st.DataObject, inner: int, times: int, slices: int, led: bool
) -> None:
    """And while no pod has finished, each pod that waits is with the mates of its slices that run."""
    outer = inner * times
    asked = {LEVEL: "subblock,host", SIZE: f"{outer},{inner}"}
    pods = [worker(0, asked, cpu="3")] if led else []
    pods += [worker(rank, asked) for rank in range(led, outer * slices + led)]
    homes = {0: "d1"} if led else {}
    for rank in range(outer * slices):
        homes[rank + led] = "ab"[rank // outer] + "123"[rank % outer // inner]
    ways = ("waits", "runs", "finished")
    fates = {rank: data.draw(st.sampled_from(ways[:2] if led and not rank else ways)) for rank in homes}
    there = [pod for pod, fate in zip(pods, fates.values(), strict=True) if fate != "finished"]
    if not any(fate == "waits" for fate in fates.values()):
        return
    on = {rank: homes[rank] for rank, fate in fates.items() if fate == "runs"}
    gang = gang_of(*there, size=len(there) + data.draw(st.integers(0, 1)), staged=not on)
    slot_counts = {f"{subblock}{host}": 9 for subblock in "abc" for host in "123"}
    found = placed(gang, cluster(**slot_counts, d1=4), on)
    assert isinstance(found, dict), found
    assert found.keys() == {f"p{rank}" for rank, fate in fates.items() if fate == "waits"}
    if "finished" in fates.values() or (led and 0 not in on):
        return
    for rank in range(led, outer * slices + led):
        if f"p{rank}" in found:
            for size, length in ((outer, 1), (inner, 2)):
                mates = [
                    other for other in on if other >= led and (other - led) // size == (rank - led) // size
                ]
                if mates:
                    assert found[f"p{rank}"][:length] == homes[rank][:length]
