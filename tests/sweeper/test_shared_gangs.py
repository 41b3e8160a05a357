"""Pods of several controllers in one gang: where that is wrong, its reason, an Event and explain say so."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from labeler.contract import keys
from tests.sweeper.cluster import gpu_pod
from webhook.configuration.shipped_configuration import shipped_configuration
from webhook.kube.objects import Pod
from webhook.sweeper.decide.admission_followup import warn_of_manifests
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, PodGang, gather
from webhook.sweeper.observe.membership import LostOwner, key_of
from webhook.workloads.owners import OwnerRules

SIZES = {"Job/a": 2, "Job/b": 2, "Job/c": 1, "JobSet/s": 4}
GANG = {keys.GANG_ANNOTATION: "g"}


def pods_of(
    controller: str, count: int, annotations: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> list[Pod]:
    """So many pods of a controller, "Kind/name", of none for ""."""
    kind, _, name = controller.partition("/")
    reference = {"apiVersion": "x/v1", "kind": kind, "name": name, "uid": controller, "controller": True}
    metadata: dict[str, Any] = {
        "annotations": annotations,
        "labels": labels or {},
        "ownerReferences": [reference] if controller else [],
        "creationTimestamp": f"2026-01-01T00:00:0{len(name)}Z",
    }
    return [gpu_pod(f"{name or 'alone'}-{number}", metadata=metadata) for number in range(count)]


def facts(key: GangKey) -> OwnerFacts:
    return OwnerFacts(SIZES.get(f"{key.kind}/{key.name}"))


def gang_of(*pods: Pod) -> PodGang:
    (gang,) = gather(pods, [], facts)
    return gang


def of(size: int) -> dict[str, str]:
    return {**GANG, keys.GANG_SIZE_ANNOTATION: str(size)}


MORE = (
    "topogate.io/gang-size is 2, but more pods{of} are in this gang: give each gang a topogate.io/gang "
    "of its own, or correct the size"
)
NO_SIZE = (
    "pods of {of} are in this gang: state how many it has in all by topogate.io/gang-size, or give each "
    "gang a name of its own"
)
IN_JOBSET = {"jobset.sigs.k8s.io/jobset-name": "s"}
OLD, NEW = {"pod-template-hash": "1f"}, {"pod-template-hash": "2f"}
CASES: dict[str, tuple[Sequence[Pod], str]] = {
    "two copies": (
        [*pods_of("Job/a", 2, of(2)), *pods_of("Job/b", 2, of(2))], MORE.format(of=" of Job/a, Job/b"),
    ),
    "two copies of which half has come": (
        [*pods_of("Job/a", 1, of(2)), *pods_of("Job/b", 1, of(2))], MORE.format(of=" of Job/a, Job/b"),
    ),
    "three copies": (
        [*pods_of("Job/a", 2, of(2)), *pods_of("Job/b", 2, of(2)), *pods_of("Job/c", 1, of(2))],
        MORE.format(of=" of Job/a, Job/b, Job/c"),
    ),
    "pods without a controller": (pods_of("", 3, of(2)), MORE.format(of="")),
    "a launcher and workers that state their sum": (
        [*pods_of("Job/c", 1, of(3)), *pods_of("Job/a", 2, of(3))], "",
    ),
    "two controllers without a size": (
        [*pods_of("Job/a", 2, GANG), *pods_of("Job/b", 2, GANG)], NO_SIZE.format(of="Job/a, Job/b"),
    ),
    "a PodGroup that nobody created": (
        [
            *pods_of("Job/a", 2, {}, {"scheduling.x-k8s.io/pod-group": "g"}),
            *pods_of("Flow/f", 2, {}, {"scheduling.x-k8s.io/pod-group": "g"}),
        ],
        NO_SIZE.format(of="Flow/f, Job/a"),
    ),
    "Jobs of one JobSet": (
        [*pods_of("Job/a", 2, GANG, IN_JOBSET), *pods_of("Job/b", 2, GANG, IN_JOBSET)], "",
    ),
    "a part of a JobSet": (pods_of("Job/a", 2, of(2), IN_JOBSET), ""),
    "two revisions of a Deployment": (
        [*pods_of("ReplicaSet/w-1f", 1, GANG, OLD), *pods_of("ReplicaSet/w-2f", 1, GANG, NEW)], "",
    ),
    "a Job of its own": (pods_of("Job/a", 2, {}), ""),
}  # fmt: skip


@pytest.mark.promise("R334")
@pytest.mark.parametrize(("pods", "sentence"), CASES.values(), ids=CASES)
def test_a_gang_that_controllers_share_by_mistake_has_that_reason(pods: Sequence[Pod], sentence: str) -> None:
    gang = gang_of(*pods)
    assert gang.wrongly_shared == sentence
    assert [each for each in gang.problems if "in this gang" in each] == ([sentence] if sentence else [])


def test_who_creates_a_controller_again_by_its_name_shares_nothing_with_the_deleted_one() -> None:
    old, new = pods_of("Job/a", 2, of(2)), pods_of("Job/a", 2, of(2))
    lost = LostOwner("its controller Job/a is deleted")
    gangs = gather(
        [*old, *new], [], facts, lost_owner=lambda pod: lost if any(pod is each for each in old) else None
    )
    assert [gang.wrongly_shared for gang in gangs] == [""]


def test_operators_may_group_pods_of_several_controllers() -> None:
    pods = [*pods_of("Flow/f", 1, {}, {"release": "r"}), *pods_of("Flow/g", 1, {}, {"release": "r"})]
    rules = OwnerRules(("release",))
    (gang,) = gather(pods, [], facts, lambda pod: key_of(pod, rules))
    assert gang.wrongly_shared == ""


ALONE = (
    "topogate.io/gang-size 4 has no effect: such pods are placed one by one; name their gang by "
    "topogate.io/gang"
)
SIZED = {keys.GANG_SIZE_ANNOTATION: "4"}


@pytest.mark.promise("R334")
@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (pods_of("ReplicaSet/w-1f", 1, SIZED, OLD)[0], ALONE),
        (pods_of("Pod/driver", 1, SIZED, {"spark-role": "executor"})[0], ALONE),
        (pods_of("", 1, SIZED)[0], ALONE),
        (pods_of("ReplicaSet/w-1f", 1, {keys.GANG_SIZE_ANNOTATION: "1"}, OLD)[0], ""),
        (pods_of("ReplicaSet/w-1f", 1, {}, OLD)[0], ""),
        (pods_of("Job/a", 1, SIZED)[0], ""),
        (pods_of("ReplicaSet/w-1f", 1, {**GANG, **SIZED}, OLD)[0], ""),
    ],
    ids=["replica", "Spark executor", "bare", "of one", "without a size", "of a Job", "named"],
)
def test_a_size_on_a_pod_of_no_gang_has_that_warning_and_the_pod_waits_for_no_others(
    pod: Pod, sentence: str
) -> None:
    gang = gang_of(pod)
    assert gang.wrongly_shared == sentence
    assert [each for each in gang.problems if "no effect" in each] == ([sentence] if sentence else [])
    warnings, _ = warn_of_manifests([gang], shipped_configuration().policy, {})
    assert [each.note for each in warnings if "one by one" in each.note] == ([sentence] if sentence else [])
    assert not sentence or gang.size == 1


@pytest.mark.promise("R334")
def test_the_owner_of_the_newest_pods_gets_one_event() -> None:
    first, second = pods_of("Job/a", 2, of(2)), pods_of("Job/longer", 2, of(2))
    gang = gang_of(*second, *first)
    warnings, known = warn_of_manifests([gang], shipped_configuration().policy, {})
    assert [(each.pod.metadata.name, each.note) for each in warnings] == [("longer-0", gang.wrongly_shared)]
    more = gang_of(*second, *first, *pods_of("", 1, of(2)))
    assert warn_of_manifests([more], shipped_configuration().policy, known)[0] == ()
