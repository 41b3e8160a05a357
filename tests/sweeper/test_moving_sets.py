"""A JobSet that is moved, on the real API server, with Events for both sides.

Its Jobs are real, and recreate the evicted pods; its own controller has nothing to do then.
"""

from typing import Final

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.support import register_nodes, wait_for_pods
from tests.sweeper.at_work import Pods, create_job, create_pod, named, run_all, sweep, template
from tests.sweeper.sets import begin_jobset, replicated
from webhook.configuration.settings import MoveLimits, Settings
from webhook.kube.objects import Node, Pod

SETTINGS: Final = Settings(settle_seconds=30, patience_seconds=30)
MOVING: Final = Settings(
    settle_seconds=30, patience_seconds=30, moves=MoveLimits(is_on=True, after_seconds=0.0)
)
MOVABLE: Final = {keys.MOVABLE_ANNOTATION: "true"}
FIRST, SECOND = [f"node-b0-s0-h0{n}" for n in range(3)], [f"node-b1-s0-h0{n}" for n in range(3)]


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
