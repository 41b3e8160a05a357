"""What a soak says of volumes: see hack/soaks/mounts.py."""

from collections.abc import Sequence
from typing import Any

import pytest

from hack.soaks.crowd import OURS
from hack.soaks.ledger import Ledger
from hack.soaks.mounts import ATTACHED, DRIVER, FOR_ONE_POD, LOCAL, ON_NODE, SINGLE
from labeler.contract import keys


def volume(name: str, *nodes: str, driver: str = "") -> dict[str, Any]:
    there = {"key": keys.HOSTNAME_LABEL, "operator": "In", "values": list(nodes)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [there]}]}
    spec: dict[str, Any] = {"nodeAffinity": {"required": required}} if nodes else {}
    return {"metadata": {"name": name}, "spec": spec | ({"csi": {"driver": driver}} if driver else {})}


def claim(name: str, volume: str, class_name: str = "", mode: str = "ReadWriteOnce") -> dict[str, Any]:
    spec = {"volumeName": volume, "storageClassName": class_name, "accessModes": [mode]}
    return {"metadata": {"name": name, "namespace": OURS}, "spec": spec}


def pod(name: str, node: str, *claims: str, bound: bool = True, phase: str = "Running") -> dict[str, Any]:
    """A pod that was sent to a node."""
    wanted = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [wanted]}]}
    return {
        "metadata": {"name": name, "namespace": OURS, "uid": name, "resourceVersion": "5"},
        "spec": {
            "nodeName": node if bound else "",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            "containers": [{}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": each}} for each in claims],
        },
        "status": {"phase": phase},
    }


class Reported:
    """A ledger that gets pods first, and claims and volumes later, as its watches may report them."""

    def __init__(self) -> None:
        self.ledger = Ledger(frozenset({OURS}))

    def of(
        self,
        pods: Sequence[dict[str, Any]],
        claims: Sequence[dict[str, Any]] = (),
        volumes: Sequence[dict[str, Any]] = (),
        *,
        late: bool = True,
    ) -> list[str]:
        """What is found of the volumes of these."""
        entries = [
            {"name": each["metadata"]["name"], "uid": each["metadata"]["uid"], "node": node_of(each)}
            for each in pods
        ]
        self.ledger.plan("ADDED", {"metadata": {"resourceVersion": "1"}, "spec": {"pods": entries}})
        if late:
            self._pods(pods)
        for each in volumes:
            self.ledger.volume("ADDED", each)
        for each in claims:
            self.ledger.volume_claim("ADDED", each)
        if not late:
            self._pods(pods)
        self.ledger.settle()
        return self.ledger.faults + self.ledger.mounts.faults

    def _pods(self, pods: Sequence[dict[str, Any]]) -> None:
        for each in pods:
            self.ledger.pod("MODIFIED", each)


def node_of(pod: dict[str, Any]) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


@pytest.mark.parametrize("late", [True, False], ids=["claims read later", "claims read before"])
@pytest.mark.parametrize("bound", [True, False], ids=["bound", "released"])
@pytest.mark.parametrize(
    ("what", "most"), [(DRIVER, ATTACHED), (LOCAL, ON_NODE[LOCAL]), (SINGLE, ON_NODE[SINGLE])]
)
def test_more_volumes_than_a_node_may_have_are_named(what: str, most: int, bound: bool, late: bool) -> None:
    for count in (most, most + 1):
        names = [f"c{number}" for number in range(count)]
        pods = [pod(f"p-{name}", "n", name, bound=bound) for name in names]
        if what == DRIVER:
            claims = [claim(name, f"v-{name}") for name in names]
            volumes = [volume(f"v-{name}", driver=DRIVER) for name in names]
        else:
            claims = [claim(name, "", what) for name in names]
            volumes = []
        faults = Reported().of(pods, claims, volumes, late=late)
        expected = f"n has {count} volumes of {what} in use, of {most}"
        assert [expected in fault for fault in faults[-1:]] == [True] * (count > most)


@pytest.mark.parametrize(("node", "faults"), [("n", 0), ("m", 1)])
def test_a_pod_that_is_bound_elsewhere_than_its_volume_is_named(node: str, faults: int) -> None:
    reported = Reported()
    found = reported.of([pod("p", node, "c")], [claim("c", "v", LOCAL)], [volume("v", "n")])
    assert len(found) == faults
    assert reported.ledger.mounts.judged == 1


@pytest.mark.parametrize(
    ("pods", "mode", "faults"),
    [
        (["p", "q"], FOR_ONE_POD, 1),
        (["p", "q"], "ReadWriteOnce", 0),
        (["p", "-p", "q"], FOR_ONE_POD, 0),
        (["p", "p"], FOR_ONE_POD, 0),
    ],
    ids=["at once", "for a node", "one after the other", "the same"],
)
def test_two_pods_on_a_claim_for_one_are_named(pods: list[str], mode: str, faults: int) -> None:
    versions = [
        pod(name.lstrip("-"), "n", "c", phase="Succeeded" if name.startswith("-") else "Running")
        for name in pods
    ]
    reported = Reported()
    found = reported.of(versions, [claim("c", "v", SINGLE, mode)], [volume("v", "n")])
    assert len(found) == faults
    assert reported.ledger.mounts.handovers == ("q" in pods)
