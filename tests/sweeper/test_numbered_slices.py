"""Which slice a pod is of: by the number that its controller writes, also once other pods have finished."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.slices import cluster, places_of
from tests.workloads.objects import BY_NAME, JOBSET, LWS, SET, read
from webhook.kube.objects import Pod
from webhook.placement import PlacementError
from webhook.sweeper.observe.gangs import GangKey, PodGang, gather
from webhook.sweeper.observe.owner_sizes import facts_of
from webhook.workloads.pod_sets import OwnedPods, PodPositions
from webhook.workloads.ranks import Rank

JOB, PYTORCH = "jobs.batch", "pytorchjobs.kubeflow.org"


def template(size: int, cpu: int = 1, inner: int = 0) -> dict[str, Any]:
    """A pod template with slices of this size; inner: of slices within them, on one host each."""
    levels, sizes = ("subblock,host", f"{size},{inner}") if inner else ("subblock", str(size))
    asked = {keys.SLICE_TOPOLOGY_ANNOTATION: levels, keys.SLICE_SIZE_ANNOTATION: sizes}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
    return {"metadata": {"annotations": asked}, "spec": {"containers": [container]}}


def job(
    size: int, parallelism: int, completions: int | None = None, cpu: int = 1, inner: int = 0
) -> dict[str, Any]:
    count = parallelism if completions is None else completions
    body = template(size, cpu, inner)
    return {
        "parallelism": parallelism, "completions": count, "completionMode": "Indexed", "template": body,
    }  # fmt: skip


def jobset(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {"replicatedJobs": [{"name": f"r{n}", "template": {"spec": each}} for n, each in enumerate(jobs)]}


def owner(kind: str, spec: dict[str, Any], status: dict[str, Any] | None = None) -> OwnedPods:
    found: OwnedPods = BY_NAME[kind].pods(read(kind, spec, status or {}, {}))
    return found


def pod(owned: OwnedPods, rank: Rank) -> Pod:
    """The pod with this rank, as its controller creates it; its uid is its rank."""
    of = next(each for each in owned.sets if PodPositions([each]).position(rank) is not None)
    group, index = rank[-2] if of.groups is not None else None, rank[-1]
    assert isinstance(index, int)
    assert group is None or isinstance(group, int)
    return Pod(of.metadata_of(group, index, namespace="ns", uid=str(rank)), of.template.spec)


def gang_of(owned: OwnedPods, ranks: Iterable[Rank], kind: str = "Job") -> PodGang:
    (gang,) = gather(
        [pod(owned, rank) for rank in ranks],
        [],
        lambda _: facts_of([owned]),
        lambda _: GangKey("ns", kind, "x", "u"),
    )
    return gang


def placed(gang: PodGang, nodes: Mapping[str, int], on: Mapping[Rank, str] | None = None) -> dict[str, str]:
    """uid -> subblock of the pods that wait. on: the subblock of the others, all on its first node."""
    found = places_of(gang, cluster(**nodes), {str(rank): f"{at}1" for rank, at in (on or {}).items()})
    assert isinstance(found, dict), found
    return {uid: node[0] for uid, node in found.items()}


def numbers(*ranks: int) -> list[Rank]:
    return [(rank,) for rank in ranks]


# --- pods that have finished --------------------------------------------------------------------------


@pytest.mark.promise("R59")
def test_an_evicted_gang_of_which_pods_have_finished_is_placed_again_and_keeps_its_whole_slices() -> None:
    owned = owner(JOB, job(4, 8), {"succeeded": 2})
    found = placed(gang_of(owned, numbers(*range(2, 8))), {"a1": 3, "b1": 4})
    assert {found[f"({rank},)"] for rank in range(4, 8)} == {"b"}


@pytest.mark.promise("R59")
def test_pods_of_two_slices_are_not_one_slice() -> None:
    owned = owner(JOB, job(4, 8), {"succeeded": 4})
    found = placed(gang_of(owned, numbers(2, 3, 6, 7)), {"a1": 2, "b1": 2})
    assert len(found) == 4


@pytest.mark.promise("R59")
def test_what_is_left_of_one_slice_stays_together() -> None:
    owned = owner(JOB, job(4, 8), {"succeeded": 5})
    assert set(placed(gang_of(owned, numbers(4, 5, 7)), {"a1": 2, "b1": 2, "c1": 3}).values()) == {"c"}


def test_a_job_of_more_completions_than_run_at_once_starts_again_with_those_that_are_left() -> None:
    owned = owner(JOB, job(4, 8, 16), {"succeeded": 2})
    found = placed(gang_of(owned, numbers(1, 2, 3, 4, 6, 7, 8, 9)), {"a1": 3, "b1": 3, "c1": 2})
    assert len(found) == 8


@pytest.mark.parametrize(
    ("kind", "spec", "status"),
    [
        (JOB, job(4, 6), {}),
        (SET, {"replicas": 6, "podManagementPolicy": "Parallel", "template": template(4)}, {}),
    ],
    ids=["a Job", "a StatefulSet"],
)
def test_a_gang_whose_size_does_not_divide_into_slices_is_reported(
    kind: str, spec: dict[str, Any], status: dict[str, Any]
) -> None:
    gang = gang_of(owner(kind, spec, status), numbers(*range(6)))
    with pytest.raises(PlacementError, match="6 pods do not divide into slices of 4"):
        placed(gang, {"a1": 9})


def test_a_job_without_indexes_of_which_pods_have_succeeded_is_placed_again() -> None:
    spec = {**job(4, 8), "completionMode": "NonIndexed"}
    owned = owner(JOB, spec, {"succeeded": 2})
    pods = [
        Pod(each.metadata_of(None, n, namespace="ns", uid=str(n)), each.template.spec)
        for each in owned.sets
        for n in range(6)
    ]
    (gang,) = gather(pods, [], lambda _: facts_of([owned]), lambda _: GangKey("ns", "Job", "x", "u"))
    assert len(placed(gang, {"a1": 3, "b1": 3})) == 6


# --- a pod that is replaced ---------------------------------------------------------------------------


STATEFUL = {
    "replicas": 8,
    "podManagementPolicy": "Parallel",
    "ordinals": {"start": 1},
    "template": template(4),
}
ROLES = {
    "Master": {"replicas": 1, "template": template(4)},
    "Worker": {"replicas": 7, "template": template(4)},
}
REPLACED: dict[str, tuple[OwnedPods, str, list[Rank], list[Rank]]] = {
    "of a Job": (owner(JOB, job(4, 8)), "Job", numbers(0, 1), numbers(*range(8))),
    "of a StatefulSet that begins at 1": (owner(SET, STATEFUL), "StatefulSet", [], numbers(*range(1, 9))),
    "of the second Job of a JobSet": (
        owner(JOBSET, jobset(job(4, 4), job(4, 4))),
        "JobSet",
        [(0, 0), (0, 1)],
        [(n, index) for n in range(2) for index in range(4)],
    ),
    "beside a driver of a JobSet that has finished": (
        owner(JOBSET, jobset(job(4, 1, cpu=3), job(4, 8))),
        "JobSet",
        [(0, 0), (1, 1)],
        [(1, index) for index in range(8)],
    ),
    "behind a Job of a JobSet between the workers": (
        owner(JOBSET, jobset(job(4, 4), job(4, 1, cpu=3), job(4, 4))),
        "JobSet",
        [],
        [(n, index) for n in (0, 2) for index in range(4)],
    ),
    "of a Job that completes more pods than run at once": (
        owner(JOBSET, jobset(job(4, 4, 8), job(4, 4))),
        "JobSet",
        [(0, 0)],
        [(0, 4), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)],
    ),
    "of a LeaderWorkerSet whose leader is away": (
        owner(LWS, {"leaderWorkerTemplate": {"size": 9, "workerTemplate": template(4)}}),
        "LeaderWorkerSet",
        numbers(0),
        numbers(*range(9)),
    ),
    "of a LeaderWorkerSet whose leader is away and requests more": (
        owner(
            LWS,
            {
                "leaderWorkerTemplate": {
                    "size": 9,
                    "leaderTemplate": template(4, 3),
                    "workerTemplate": template(4),
                }
            },
        ),
        "LeaderWorkerSet",
        numbers(0),
        numbers(*range(1, 9)),
    ),
    "of a PyTorchJob whose master is a worker too": (
        owner(PYTORCH, {"pytorchReplicaSpecs": ROLES}),
        "TrainingJob",
        [("master", 0)],
        [("master", 0), *(("worker", index) for index in range(7))],
    ),
}
"""The owner, the kind of its gang, the pods that have finished or are away, and all that count in slices."""


@pytest.mark.promise("R59")
@pytest.mark.parametrize("name", REPLACED)
def test_a_pod_returns_to_the_slice_that_it_was_in_when_its_gang_began(name: str) -> None:
    owned, kind, gone, ranks = REPLACED[name]
    whole = gang_of(owned, [rank for each in owned.sets for rank in each.ranks], kind)
    first = placed(whole, {"a1": 4, "b1": 4, "c1": 3})
    for lost in ranks:
        if lost in gone or str(lost) not in first:
            continue
        left = [rank for rank in ranks if rank not in gone]
        on = {rank: first[str(rank)] for rank in left if rank != lost and str(rank) in first}
        again = placed(gang_of(owned, on.keys() | {lost}, kind), {"a1": 9, "b1": 9, "c1": 9}, on)
        assert again[str(lost)] == first[str(lost)], lost


@pytest.mark.promise("R59")
def test_pods_count_apart_from_those_that_have_to_complete_before_them() -> None:
    first, then = (
        {"name": "a", "template": {"spec": job(4, 1)}},
        {"name": "b", "template": {"spec": job(4, 8)}},
    )
    after = {**then, "dependsOn": [{"name": "a", "status": "Complete"}]}
    status = {"replicatedJobsStatus": [{"name": "a", "succeeded": 1}]}
    owned = owner(JOBSET, {"replicatedJobs": [first, after]}, status)
    ranks: list[Rank] = [(1, index) for index in range(8)]
    began = placed(gang_of(owned, ranks, "JobSet"), {"a1": 4, "b1": 4})
    assert len({began[str(rank)] for rank in ranks[:4]}) == 1
    on = {rank: began[str(rank)] for rank in ranks if rank != (1, 3)}
    assert placed(gang_of(owned, ranks, "JobSet"), {"a1": 9, "b1": 9}, on)["(1, 3)"] == began["(1, 3)"]


@pytest.mark.promise("R59")
def test_a_leader_and_a_worker_that_are_replaced_at_once_find_their_places() -> None:
    """Or the sentence says why not: the leader is like the workers, but of no slice."""
    owned = owner(LWS, {"leaderWorkerTemplate": {"size": 5, "workerTemplate": template(2)}})
    gang = gang_of(owned, numbers(*range(5)), "LeaderWorkerSet")
    on: dict[Rank, str] = {(1,): "a", (3,): "b", (4,): "b"}
    assert placed(gang, {"a1": 2, "b1": 2, "c1": 1}, on) == {"(0,)": "c", "(2,)": "a"}
    refused = places_of(gang, cluster(a1=1, b1=2, c1=9), {str(rank): f"{at}1" for rank, at in on.items()})
    assert isinstance(refused, str)
    assert "outside the slice's domain: 1" in refused


# --- whatever has finished ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Drawn:
    """A gang, what each of its pods does, and the ranks of its workers in order."""

    owned: OwnedPods
    kind: str
    fates: Mapping[Rank, str]
    workers: Sequence[Rank]

    def gang(self) -> PodGang:
        return gang_of(
            self.owned, [rank for rank, fate in self.fates.items() if fate != "finished"], self.kind
        )

    def mates(self, rank: Rank, size: int) -> set[Rank]:
        """The pods of its slice."""
        first = self.workers.index(rank) // size * size
        return set(self.workers[first : first + size])


@st.composite
def drawn_gangs(draw: st.DrawFn, size: int, inner: int) -> _Drawn:
    slices, led = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    kind = draw(st.sampled_from(["Job", "StatefulSet", "JobSet"]))
    count = size * slices
    if kind == "JobSet":
        first = draw(st.integers(0, count))
        parts = [job(size, led, cpu=3, inner=inner)] if led else []
        parts += [job(size, n, inner=inner) for n in (first, count - first)]
        owned = owner(JOBSET, jobset(*parts))
    elif kind == "Job":
        owned = owner(JOB, job(size, count, count + draw(st.integers(0, 3)), inner=inner))
    else:
        start, body = draw(st.integers(0, 3)), template(size, inner=inner)
        spec = {"replicas": count, "podManagementPolicy": "Parallel", "ordinals": {"start": start}}
        owned = owner(SET, {**spec, "template": body})
    ranks = [rank for each in owned.sets for rank in each.ranks]
    fates = {rank: draw(st.sampled_from(("waits", "runs", "finished"))) for rank in ranks}
    return _Drawn(owned, kind, fates, ranks[led if kind == "JobSet" else 0 :])


@settings(derandomize=True, deadline=None, max_examples=100)
@given(data=st.data(), inner=st.integers(0, 2), times=st.integers(2, 4))
def test_a_gang_that_its_controller_describes_always_gets_an_answer_and_keeps_its_slices(
    data: st.DataObject, inner: int, times: int
) -> None:
    """Each pod that waits joins the mates of its slice that run; if none has finished, they stay together."""
    size = max(1, inner) * times
    drawn = data.draw(drawn_gangs(size, inner))
    waiting = {rank for rank, fate in drawn.fates.items() if fate == "waits"}
    if not waiting:
        return
    homes = {rank: "abc"[at // size] for at, rank in enumerate(drawn.workers)}
    on = {rank: homes.get(rank, "d") for rank, fate in drawn.fates.items() if fate == "runs"}
    found = placed(drawn.gang(), {f"{subblock}1": 30 for subblock in "abcd"}, on)
    assert found.keys() == set(map(str, waiting))
    for rank in waiting & homes.keys():
        mates = drawn.mates(rank, size)
        if mates & on.keys():
            assert found[str(rank)] == homes[rank]
        elif mates <= waiting:
            assert len({found[str(mate)] for mate in mates}) == 1
