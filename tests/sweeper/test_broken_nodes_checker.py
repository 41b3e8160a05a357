"""What a soak says of broken nodes: see hack/soaks/broken.py."""

import json
import random
from typing import Any, cast

import pytest

from hack.soaks.broken import MANY, NOTICED_SECONDS, PROVING_SECONDS, BrokenGpus
from webhook.extensions.node_health.avoided_nodes import NAME
from webhook.kube.client import Api, ApiError
from webhook.kube.state_config_map import path_of
from webhook.workloads import marks

NODES = [f"n{number}" for number in range(10)]


class Avoided:
    """Stands for an API server that has the sweeper's ConfigMap."""

    nodes: tuple[str, ...] = ()

    def json(self, _: str, path: str) -> dict[str, Any]:
        if path != path_of(NAME):
            raise ApiError(404, "NotFound", "nobody leads")
        entry = {"by": "*", "model": "", "gangs": 2, "cause": "", "last": 0, "until": 1}
        return {"data": {"avoided": json.dumps([{"node": name, **entry} for name in self.nodes])}}


class Scene:
    """A judge of two broken nodes, and the time."""

    def __init__(self, count: int = 20) -> None:
        self.now = 0.0
        self.api = Avoided()
        self.broken = BrokenGpus(cast(Api, self.api), NODES, count, random.Random(1), lambda: self.now)
        self.names = sorted(self.broken.names)
        self.good = next(name for name in NODES if name not in self.names)

    @property
    def faults(self) -> list[str]:
        """What is wrong, without when."""
        return [fault.split(": ", 1)[1] for fault in self.broken.faults]

    def failed_on(
        self,
        job: str,
        *bad: str,
        ran: str | None = None,
        label: bool = True,
        seconds: float = PROVING_SECONDS,
        leader: str = "one",
    ) -> None:
        """Pods of a Job fail on nodes, and one runs to its end on another, under a leader or none."""
        for node in bad:
            self.broken.failed_gangs.pod(pod(job, node, "Failed", label=label))
        self.broken.failed_gangs.leads(leader)
        for phase in ("Running", "Succeeded"):
            self.broken.failed_gangs.pod(pod(job, ran or self.good, phase, label=label))
            if phase == "Running":
                self.now += seconds
                self.broken.failed_gangs.leads(leader)

    def look(self, seconds: float = 0.0) -> None:
        """Judge now, and once more so much later."""
        self.broken.look()
        self.now += seconds
        self.broken.look()


def pod(job: str, node: str, phase: str, *, label: bool) -> dict[str, Any]:
    labels = {marks.JOB_NAME_LABEL: job} if label else {}
    metadata = {"name": job, "namespace": "soak", "uid": f"{job}-{node}", "labels": labels}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


def test_a_node_where_nothing_failed_must_not_be_avoided() -> None:
    scene = Scene()
    scene.api.nodes = scene.names[0], scene.good
    scene.look()
    assert scene.faults == [f"all avoids ['{scene.good}'], where no pod has failed"]


def test_no_more_than_a_share_of_the_nodes_may_be_avoided() -> None:
    scene = Scene(count=10)
    scene.api.nodes = tuple(scene.names)
    scene.look()
    assert scene.faults == ["all avoids 2 nodes, more than 1"]


def test_a_node_on_which_many_gangs_failed_must_have_been_avoided() -> None:
    scene = Scene()
    scene.api.nodes = (scene.names[0],)
    for number in range(MANY):
        for node in scene.names:
            scene.failed_on(f"{node}-job-{number}", node)
    scene.look(NOTICED_SECONDS + 1)
    (fault,) = scene.faults
    assert fault.startswith(
        f"{MANY} gangs failed on {scene.names[1]} and ran elsewhere, and it is not avoided"
    )
    assert f"soak/{scene.names[1]}-job-0" in fault


def test_a_node_that_is_avoided_in_time_is_no_fault() -> None:
    scene = Scene()
    for number in range(MANY):
        scene.failed_on(f"job-{number}", scene.names[0])
    scene.look(NOTICED_SECONDS - 1)
    scene.api.nodes = (scene.names[0],)
    scene.look(100.0)
    assert (scene.faults, scene.broken.found, scene.broken.with_failed_gangs) == ([], 1, MANY)


@pytest.mark.parametrize(
    "how",
    ["on both nodes", "ran nowhere", "ran a moment", "nobody led", "no Job", "one gang again"],
)
def test_pods_that_prove_nothing_of_a_node_mark_none(how: str) -> None:
    scene = Scene()
    one, other = scene.names
    for number in range(MANY):
        match how:
            case "on both nodes":
                scene.failed_on(f"job-{number}", one, other)
            case "ran nowhere":
                scene.failed_on(f"job-{number}", one, ran=one)
            case "ran a moment":
                scene.failed_on(f"job-{number}", one, seconds=PROVING_SECONDS - 1)
            case "nobody led":
                scene.failed_on(f"job-{number}", one, leader="")
            case "no Job":
                scene.failed_on(f"pod-{number}", one, label=False)
            case "one gang again":
                scene.failed_on("job", one)
    scene.look(NOTICED_SECONDS + 1)
    assert scene.faults == []
