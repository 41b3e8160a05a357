"""GPUs that are had by claims, as people are told of them: how many nodes have, and how many are used."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.devices.bodies import (
    DRIVER,
    claim,
    claim_spec,
    device_class,
    exactly,
    given,
    gpu,
    gpus,
    nodes,
    pod,
    slice_of,
    supply,
)
from webhook.devices.counted import gpu_classes
from webhook.kube.devices import ResourceClaim
from webhook.scheduling.gpus import Counting
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.settings import Settings

COUNTING = Counting(("nvidia.com/gpu",))
SPEC = claim_spec(exactly(1))


def used(name: str, pod_name: str, **more: Any) -> ResourceClaim:
    """A claim that a pod uses."""
    made = claim(name, SPEC, **more)
    reserved = [{"resource": "pods", "name": pod_name, "uid": f"uid-{pod_name}"}]
    body = msgspec.to_builtins(made)
    body["status"]["reservedFor"] = reserved
    return msgspec.convert(body, ResourceClaim)


def counted(objects: Any, settings: Settings | None = None) -> dict[str, tuple[int, int]]:
    """GPUs of each node, and how many of them are free."""
    snapshotter = Snapshotter(objects, settings or Settings())
    snapshot = snapshotter.snapshot(snapshotter.view())
    return {
        name: (COUNTING.gpus(state.node.allocatable), COUNTING.gpus(state.free))
        for name, state in snapshot.nodes.items()
    }


def cluster(*pods: Any, **supplied: Any) -> Any:
    """What a sweeper would read of a cluster with the nodes n and m."""
    slices = supplied.pop("slices", (gpus("n", 8), gpus("m", 4)))
    known = supply(*slices, **supplied)
    return SimpleNamespace(
        pod_items=lambda: pods,
        node_items=lambda: nodes("n", "m"),
        current_placements=dict,
        storage=lambda _: None,
        namespace_labels=lambda: None,
        device_classes=lambda: known.classes,
        supply=lambda is_wanted: known if is_wanted else None,
    )


def test_devices_of_a_gpu_class_are_the_gpus_of_their_node() -> None:
    assert counted(cluster()) == {"n": (8, 8), "m": (4, 4)}


def test_what_a_pod_has_been_given_is_used() -> None:
    claims = (
        used("c", "p", given=given("g0", "g1", pool="n")),
        claim("held", SPEC, given=given("g2", pool="n")),
    )
    there = pod("p", "c", node="n"), pod("q", node="n")
    assert counted(cluster(*there, claims=claims)) == {"n": (8, 6), "m": (4, 4)}


def test_a_claim_that_two_pods_use_counts_once() -> None:
    body = msgspec.to_builtins(used("c", "p", given=given("g0", pool="n")))
    body["status"]["reservedFor"] = [{"uid": "uid-p"}, {"uid": "uid-q"}]
    both = pod("p", "c", node="n"), pod("q", "c", node="n")
    shared = msgspec.convert(body, ResourceClaim)
    assert counted(cluster(*both, claims=(shared,))) == {"n": (8, 7), "m": (4, 4)}


def test_devices_of_other_classes_are_no_gpus() -> None:
    nic = slice_of("n", [gpu("nic")], driver="nic.example.com")
    other = device_class("nic", 'device.driver == "nic.example.com"')
    assert counted(cluster(slices=(nic, gpus("m", 4)), classes=(other,))) == {"n": (0, 0), "m": (4, 4)}
    assert counted(
        cluster(slices=(nic,), classes=(other,)), Settings(gpu_device_classes=frozenset({"nic"}))
    ) == {
        "n": (1, 1),
        "m": (0, 0),
    }


@pytest.mark.parametrize(
    ("patterns", "found"),
    [(("*gpu*",), ["gpu", f"x.{DRIVER}"]), (("nic",), ["nic"]), ((), [])],
    ids=["a pattern", "a name", "none"],
)
def test_the_classes_of_gpus_are_told_by_name(patterns: tuple[str, ...], found: list[str]) -> None:
    assert gpu_classes(["nic", "gpu", f"x.{DRIVER}"], patterns) == found
