"""JobSets and LeaderWorkerSets that are moved, in memory; and a JobSet on the real API server.

There, its Jobs are real, and recreate the evicted pods; its own controller has nothing to do then.
"""

from typing import Final

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.support import register_nodes, wait_for_pods
from tests.sweeper.at_work import Pods, create_job, create_pod, named, run_all, sweep, template
from tests.sweeper.moves import MOVABLE, Scattered, moved
from tests.sweeper.preemptions import member
from tests.sweeper.sets import JOB_KEY, affinity, begin_jobset, exclusive, lws_pod, replicated
from webhook.configuration.settings import MoveLimits, Settings
from webhook.kube.objects import Node, Pod
from webhook.workloads import marks

SETTINGS: Final = Settings(settle_seconds=30, patience_seconds=30)
MOVING: Final = Settings(
    settle_seconds=30, patience_seconds=30, moves=MoveLimits(is_on=True, after_seconds=0.0)
)
FIRST, SECOND = [f"node-b0-s0-h0{n}" for n in range(3)], [f"node-b1-s0-h0{n}" for n in range(3)]
BLOCK: Final = keys.GCE_TOPOLOGY[0]
LWS_LABELS: Final = lws_pod(0, 2)["metadata"]["labels"]
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
JOBSET_LABELS: Final = {marks.JOBSET_NAME_LABEL: "train", JOBSET_UID: "1", JOB_KEY: "mine"}


def running(labels: dict[str, str], annotations: dict[str, str]) -> Scattered:
    """A pair of pods with these marks of a set in one of three blocks; another gang needs a whole block."""
    made = Scattered(3, 3, 3)
    metadata = {"labels": labels, "annotations": annotations}
    pods = [
        member(f"train-{number}", 0, f"n{number}", metadata={**metadata, "uid": f"train-{number}"})
        for number in range(2)
    ]
    made.adopt(pods)
    made.runs("fixed", "n6", annotations={}, priority=3000)
    made.waits("large", 3)
    return made


@pytest.mark.promise("O418")
@pytest.mark.parametrize(
    ("labels", "asks_for_domain"),
    [(JOBSET_LABELS, marks.JOBSET_EXCLUSIVE), (LWS_LABELS, marks.LWS_EXCLUSIVE)],
)
def test_a_set_is_moved_unless_it_wants_a_domain_of_its_own(
    labels: dict[str, str], asks_for_domain: str
) -> None:
    made = running(labels, MOVABLE)
    made.runs("other", "n3", annotations={}, priority=3000)
    assert moved(made.one()) == [(["train-0", "train-1"], ["n4", "n5"])]
    made = running(labels, MOVABLE | {asks_for_domain: BLOCK})
    made.runs("other", "n3", annotations={}, priority=3000)
    assert moved(made.one()) == []


@pytest.mark.promise("O418")
def test_a_set_is_not_moved_into_the_domain_of_another_job() -> None:
    """kube-scheduler would refuse its pods there, by the anti-affinity that JobSet writes."""
    made = running(JOBSET_LABELS, MOVABLE)
    metadata = {
        "labels": {marks.JOBSET_NAME_LABEL: "own", JOBSET_UID: "2", JOB_KEY: "theirs"},
        "annotations": {marks.JOBSET_EXCLUSIVE: BLOCK},
    }
    near = affinity(JOB_KEY, "theirs", BLOCK, namespaceSelector={})
    made.adopt([member("own", 0, "n3", metadata=metadata, affinity=near)])
    exclusive(made.placing)
    assert moved(made.one()) == [(["train-0", "train-1"], ["n7", "n8"])]


# --- at work ------------------------------------------------------------------------------------------


class Announced:
    """Collects Events: the gang of the pod, by its name, and the note."""

    def __init__(self) -> None:
        self.moved: set[tuple[str, str]] = set()

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        if reason is EventReason.GANG_MOVED:
            self.moved.add((pod.metadata.name.partition("-")[0], note))

    def announce_on_node(self, node: Node, reason: EventReason, note: str) -> None:
        """Events of nodes do not matter here."""


def nodes_of(pods: Pods, prefix: str) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in named(pods, prefix))


@pytest.mark.promise("O419")
def test_a_jobset_is_evicted_as_a_whole_and_its_recreated_pods_get_the_reserved_place(
    definitions: Cluster, namespace: str, defined: list[str]
) -> None:
    grid = nodes.grid(nodes.Shape(nodes=6, blocks=2, subblocks=1))
    register_nodes(definitions, [each for each in grid if each.name in FIRST])
    body = template(8, annotations=MOVABLE)
    create = begin_jobset(definitions, namespace, defined, [replicated(name, 1, body) for name in "ab"])
    for number in range(2):
        create(number)
    before = sweep(definitions, namespace, SETTINGS, lambda pods: run_all(pods, "train", 2), "train")
    register_nodes(definitions, [each for each in grid if each.name in SECOND])
    pin = {"kubernetes.io/hostname": SECOND[2]}
    create_pod(definitions.api(), namespace, "fixed", template(8, gated=False, nodeSelector=pin))
    wait_for_pods(
        definitions, namespace, lambda pods: run_all(pods, "fixed", 1), "the pod in the other block"
    )
    required = template(8, annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})
    create_job(definitions.api(), namespace, "large", 3, required)
    announced = Announced()

    def both_run(pods: Pods) -> bool:
        return run_all(pods, "large", 3) and run_all(pods, "train", 2)

    pods = sweep(definitions, namespace, MOVING, both_run, "the move", announcer=announced)
    assert nodes_of(pods, "large") == FIRST
    assert nodes_of(pods, "train") == SECOND[:2]
    uids = [{pod["metadata"]["uid"] for pod in named(some, "train")} for some in (before, pods)]
    assert uids[0].isdisjoint(uids[1])
    assert {name for name, _ in announced.moved} == {"train", "large"}
    assert all("GPU hours since its start" in note for _, note in announced.moved)
