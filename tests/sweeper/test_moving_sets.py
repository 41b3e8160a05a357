"""JobSets and LeaderWorkerSets that are moved: in memory, and on the real API server.

There, Jobs and StatefulSets are real, and recreate the evicted pods. The test does what the controllers of
the sets do: LeaderWorkerSet's creates the StatefulSet of the workers again, as that ends with the leader.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.support import register_nodes, wait_for_pods
from tests.sweeper.at_work import Pods, create_job, create_pod, named, run_all, sweep, template
from tests.sweeper.cluster import places
from tests.sweeper.moves import MOVABLE, Scattered, change_leader, moved
from tests.sweeper.preemptions import member
from tests.sweeper.sets import JOB_KEY, affinity, begin_jobset, define, exclusive, lws_pod, make, replicated
from webhook.configuration.settings import MoveLimits, Settings
from webhook.kube.objects import Node, Pod
from webhook.sweeper.decide.reservations import MOVE
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
NO_JOB_KEY: Final = {name: value for name, value in JOBSET_LABELS.items() if name != JOB_KEY}
GONE: Final = {"train", "other"}


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


def exclusive_job(node: str = "") -> list[Pod]:
    """A Job that wants a block without pods of other JobSets: on a node, or gated."""
    metadata = {
        "labels": {marks.JOBSET_NAME_LABEL: "own", JOBSET_UID: "2", JOB_KEY: "theirs"},
        "annotations": {marks.JOBSET_EXCLUSIVE: BLOCK},
    }
    near = affinity(JOB_KEY, "theirs", BLOCK, namespaceSelector={})
    return [member("own", 0, node, metadata=metadata, affinity=near)]


@pytest.mark.promise("O418")
def test_a_set_is_not_moved_into_the_domain_of_another_job() -> None:
    """kube-scheduler would refuse its pods there, by the anti-affinity that JobSet writes."""
    made = running(JOBSET_LABELS, MOVABLE)
    made.adopt(exclusive_job("n3"))
    exclusive(made.placing)
    assert moved(made.one()) == [(["train-0", "train-1"], ["n7", "n8"])]


@pytest.mark.promise("O419")
@pytest.mark.parametrize(
    ("labels", "happen", "nodes"),
    [
        (JOBSET_LABELS, lambda _: None, set[str]()),
        (JOBSET_LABELS, change_leader, set[str]()),
        (NO_JOB_KEY, lambda _: None, {"n3"}),
    ],
)
def test_no_job_takes_the_domain_in_which_nodes_are_reserved_for_a_moved_set(
    labels: dict[str, str], happen: Callable[[Scattered], None], nodes: set[str]
) -> None:
    """Its anti-affinity would keep the recreated pods out of their place, unless they lack the label."""
    made = running(labels, MOVABLE)
    made.runs("other", "n3", annotations={}, priority=3000)
    made.runs("taker", "n7", "n8", annotations={}, priority=3000)
    (order,) = made.one().plans
    made.written(order)
    made.cluster.pods = [pod for pod in made.cluster.pods if pod.metadata.name.split("-")[0] not in GONE]
    happen(made)
    made.one()
    assert made.placing.ledger.nodes(MOVE) == {"n4", "n5"}
    exclusive(made.placing)
    made.cluster.pods += exclusive_job()
    made.sizes["own"] = 1
    assert set(places(made.one()).values()) == nodes


# --- at work ------------------------------------------------------------------------------------------

Controller = Callable[[Pods], None]
"""What the controller of a set does, given the pods."""


class Announced:
    """Collects Events: the gang of the pod, by its name, and the note."""

    def __init__(self) -> None:
        self.moved: set[tuple[str, str]] = set()

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        if reason is EventReason.GANG_MOVED:
            self.moved.add((pod.metadata.name.partition("-")[0], note))

    def announce_on_node(self, node: Node, reason: EventReason, note: str) -> None:
        """Events of nodes do not matter here."""


def job_set(cluster: Cluster, namespace: str, defined: list[str]) -> Controller:
    """Two Jobs of a pod each, which recreate their pods by themselves."""
    body = template(8, annotations=MOVABLE)
    create = begin_jobset(cluster, namespace, defined, [replicated(name, 1, body) for name in "ab"])
    for number in range(2):
        create(number)
    return lambda _: None


def leader_worker_set(cluster: Cluster, namespace: str, defined: list[str]) -> Controller:
    """A group of two, whose worker follows its leader."""
    define(cluster, defined, "LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1")
    pods = {"size": 2, "workerTemplate": {"spec": lws_pod(1, 2)["spec"]}}
    spec = {"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": pods}
    make(cluster, namespace, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)
    sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"

    def create(name: str, index: int, owners: list[dict[str, Any]]) -> None:
        body = lws_pod(index, 2)
        body["metadata"]["annotations"] |= MOVABLE
        labels = body["metadata"]["labels"]
        spec = {"serviceName": "train", "replicas": 1, "selector": {"matchLabels": labels}, "template": body}
        spec["ordinals"] = {"start": index}
        metadata = {"name": name, "ownerReferences": owners}
        cluster.api().request("POST", sets, body={"metadata": metadata, "spec": spec})

    create("train", 0, [])

    def follow(pods: Pods) -> None:
        made = {each["metadata"]["name"] for each in cluster.api().json("GET", sets)["items"]}
        for leader in pods:
            metadata = leader["metadata"]
            if metadata["name"] == "train-0" and "train-0" not in made:
                owner = {"apiVersion": "v1", "kind": "Pod", "name": "train-0", "uid": metadata["uid"]}
                create("train-0", 1, [{**owner, "controller": True}])

    return follow


def nodes_of(pods: Pods, prefix: str) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in named(pods, prefix))


@pytest.mark.promise("O419")
@pytest.mark.parametrize("begin", [job_set, leader_worker_set])
def test_a_set_is_evicted_as_a_whole_and_its_recreated_pods_get_the_reserved_place(
    definitions: Cluster,
    namespace: str,
    defined: list[str],
    begin: Callable[[Cluster, str, list[str]], Controller],
) -> None:
    grid = nodes.grid(nodes.Shape(nodes=6, blocks=2, subblocks=1))
    register_nodes(definitions, [each for each in grid if each.name in FIRST])
    controller = begin(definitions, namespace, defined)

    def until(is_done: Callable[[Pods], bool]) -> Callable[[Pods], bool]:
        def holds(pods: Pods) -> bool:
            controller(pods)
            return is_done(pods)

        return holds

    before = sweep(definitions, namespace, SETTINGS, until(lambda pods: run_all(pods, "train", 2)), "train")
    register_nodes(definitions, [each for each in grid if each.name in SECOND])
    pin = {"kubernetes.io/hostname": SECOND[2]}
    create_pod(definitions.api(), namespace, "fixed", template(8, gated=False, nodeSelector=pin))
    wait_for_pods(
        definitions, namespace, lambda pods: run_all(pods, "fixed", 1), "the pod in the other block"
    )
    required = template(8, annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})
    create_job(definitions.api(), namespace, "large", 3, required)
    announced = Announced()
    both_run = until(lambda pods: run_all(pods, "large", 3) and run_all(pods, "train", 2))
    pods = sweep(definitions, namespace, MOVING, both_run, "the move", announcer=announced)
    assert nodes_of(pods, "large") == FIRST
    assert nodes_of(pods, "train") == SECOND[:2]
    uids = [{pod["metadata"]["uid"] for pod in named(some, "train")} for some in (before, pods)]
    assert uids[0].isdisjoint(uids[1])
    assert {name for name, _ in announced.moved} == {"train", "large"}
    assert all("GPU hours since its start" in note for _, note in announced.moved)
