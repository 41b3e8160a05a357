"""GPUs by claims, as people see them: how many nodes have, and how many are used."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.devices.bodies import (
    DRIVER,
    claim,
    claim_spec,
    collections,
    device_class,
    exactly,
    given,
    gpu,
    gpus,
    nodes,
    pod,
    slice_of,
    supply,
    template,
)
from webhook.configuration.settings import Settings
from webhook.devices.device_counts import devices_of, gpu_classes
from webhook.extensions.device_claims import CLASSES, COLLECTIONS
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.resource_adder import ResourceAdder
from webhook.kube.devices import ResourceClaim
from webhook.kube.objects import Pod
from webhook.placement import Snapshot
from webhook.scheduling.gpus import Counting
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.pass_measurements import take_stock
from webhook.ui.live import Artist, Scene

COUNTING = Counting(("nvidia.com/gpu",))
SPEC = claim_spec(exactly(1))


def used(name: str, pod_name: str, **more: Any) -> ResourceClaim:
    """A claim that a pod uses."""
    made = claim(name, SPEC, **more)
    reserved = [{"resource": "pods", "name": pod_name, "uid": f"uid-{pod_name}"}]
    body = msgspec.to_builtins(made)
    body["status"]["reservedFor"] = reserved
    return msgspec.convert(body, ResourceClaim)


ALTERNATIVES = {"name": "r", "firstAvailable": [
    {"name": "large", "deviceClassName": "gpu", "count": 2},
    {"name": "small", "deviceClassName": "gpu", "count": 4},
]}  # fmt: skip


@pytest.mark.promise("O65")
@pytest.mark.parametrize(
    ("requests", "given_to", "count"),
    [
        ([exactly(4)], {}, 4),
        ([exactly(4), exactly(2, name="s", kind="nic")], {}, 4),
        ([exactly(4, adminAccess=True)], {}, 0),
        ([exactly(None)], {}, 1),
        ([exactly(None)], {"a": ["r"] * 8}, 8),
        ([ALTERNATIVES], {}, 2),
        ([ALTERNATIVES], {"a": ["r/small"] * 4}, 4),
        ([exactly(1), exactly(2, name="s", kind="nic")], {"a": ["r", "s", "s"]}, 1),
        ([exactly(4)], {"b": ["r"] * 4}, 0),
    ],
    ids=[
        "so many as it asks for", "none of other classes", "none for admin access", "one for all of a node",
        "all of a node once given", "the first alternative", "the alternative that was given",
        "given ones of the class alone", "those of a shared claim for the first that has it",
    ],
)  # fmt: skip
def test_a_pod_s_claims_count_by_the_devices_that_they_ask_for_or_were_given(
    requests: list[Any], given_to: dict[str, list[str]], count: int
) -> None:
    made = claim("c", claim_spec(*requests))
    if given_to:
        ((owner, results),) = given_to.items()
        body = msgspec.to_builtins(used("c", owner)) | {"spec": claim_spec(*requests)}
        devices = [{"request": each, "device": str(number)} for number, each in enumerate(results)]
        body["status"]["allocation"] = {"devices": {"results": devices}}
        made = msgspec.convert(body, ResourceClaim)
    known = supply(claims=(made,))
    assert devices_of(pod("a", "c"), known, lambda name: name == "gpu") == count


def test_a_claim_that_is_not_there_is_not_counted() -> None:
    assert devices_of(pod("a", "c"), supply(), lambda _: True) is None


def test_a_claim_yet_to_be_made_counts_by_its_template() -> None:
    known = supply(templates=(template("t", claim_spec(exactly(3))),))
    assert devices_of(pod("a", "t", template=True), known, lambda _: True) == 3


def snapshot_of(objects: Any, settings: Settings) -> Snapshot:
    """The nodes, as everybody sees them who counts GPUs."""
    snapshotter = Snapshotter(objects, settings)
    adder = ResourceAdder(settings, objects.read_collections)
    return snapshotter.snapshot(adder.completed(snapshotter.view()))


def counted(objects: Any, settings: Settings | None = None) -> dict[str, tuple[int, int]]:
    """GPUs of each node, and how many of them are free."""
    snapshot = snapshot_of(objects, settings or Settings())
    return {
        name: (COUNTING.gpus(state.node.allocatable), COUNTING.gpus(state.free))
        for name, state in snapshot.nodes.items()
    }


def cluster(*pods: Any, **supplied: Any) -> Any:
    """What a sweeper would read of a cluster with the nodes n and m."""
    slices = supplied.pop("slices", (gpus("n", 8), gpus("m", 4)))
    known = collections(*slices, **supplied)
    return SimpleNamespace(
        pod_items=lambda: pods,
        node_items=lambda: nodes("n", "m"),
        current_placements=dict,
        storage=lambda _: None,
        namespace_labels=lambda: None,
        read_collections=lambda asked: {each: known[each] for each in asked},
    )


@pytest.mark.promise("R146", "O200")
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


@pytest.mark.promise("R146")
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


@pytest.mark.promise("R146")
@pytest.mark.parametrize(
    ("patterns", "found"),
    [(("*gpu*",), ["gpu", f"x.{DRIVER}"]), (("nic",), ["nic"]), ((), [])],
    ids=["a pattern", "a name", "none"],
)
def test_the_classes_of_gpus_are_found_by_name(patterns: tuple[str, ...], found: list[str]) -> None:
    assert gpu_classes(["nic", "gpu", f"x.{DRIVER}"], patterns) == found


@pytest.mark.promise("R146")
def test_a_gpu_of_which_a_partition_was_given_is_free() -> None:
    whole = device_class("whole", 'device.attributes["gpu.example.com"].kind == "whole"')
    there = slice_of("n", [gpu("g0", kind="whole"), gpu("p0", kind="part")])
    runs = pod("p", "c", node="n")
    settings = Settings(gpu_device_classes=frozenset({"whole"}))
    for device, free in (("p0", 1), ("g0", 0)):
        claims = (used("c", "p", given=given(device, pool="n")),)
        found = counted(cluster(runs, slices=(there,), classes=(whole,), claims=claims), settings)
        assert found["n"] == (1, free), device


def drawn(*pods: Pod, classes: bool = True) -> Scene:
    """What the page, `topogate map` and `topogate gangs` show of node n with 8 devices, and of these pods."""
    known = collections(gpus("n", 8), claims=(used("c", "p", given=given("g0", pool="n")),))
    if not classes:
        known[CLASSES] = {}
    reading = ClusterReading(
        pods,
        nodes("n"),
        {},
        lambda _: OwnerFacts(1),
        read_objects=known.get,
    )
    return Artist(reading, Settings(), COUNTING).scene()


@pytest.mark.promise("R146")
@pytest.mark.parametrize(("classes", "expected"), [(True, [(8, 1)]), (False, [])])
def test_devices_are_gpus_on_the_page_and_the_map(classes: bool, expected: list[tuple[int, int]]) -> None:
    tiles = drawn(pod("p", "c", node="n"), classes=classes).picture.nodes.values()
    assert [(tile.gpus, tile.used) for tile in tiles] == expected


@pytest.mark.promise("R146")
def test_devices_are_gpus_in_the_metrics() -> None:
    claims = (used("c", "p", given=given("g0", pool="n")),)
    snapshot = snapshot_of(cluster(pod("p", "c", node="n"), claims=claims), Settings())
    stock = take_stock(snapshot, COUNTING)
    assert {
        use: sum(n for (_, each), n in stock.gpus.items() if each == use) for use in ("used", "free")
    } == {
        "used": 1,
        "free": 11,
    }


@pytest.mark.promise("R146")
def test_gpus_that_a_pod_with_claims_waits_for_are_not_counted_as_wanted() -> None:
    scene = drawn(pod("p", "c", node="n"), pod("waits", "d"))
    (row,) = (row for row in scene.gangs if row.waiting)
    assert (row.name, row.gpus) == ("waits", 0)
    assert sum(domain.waiting for domain in scene.picture.domains) == 0


@pytest.mark.promise("R125")
@pytest.mark.parametrize(
    ("classes", "claims", "is_read"),
    [((), (), False), (("nic",), (), False), (("gpu",), (), True), ((), ("c",), True)],
    ids=["no class", "a class of no GPUs", "a class of GPUs", "a pod with claims"],
)
def test_without_a_class_of_gpus_devices_are_read_for_pods_with_claims_alone(
    classes: tuple[str, ...], claims: tuple[str, ...], is_read: bool
) -> None:
    objects = cluster(pod("p", *claims))
    known, read = objects.read_collections(COLLECTIONS), set[Any]()
    known[CLASSES] = {name: device_class(name) for name in classes}

    def read_collections(asked: Any) -> Any:
        read.update(asked)
        return {each: known[each] for each in asked}

    objects.read_collections = read_collections
    snapshot_of(objects, Settings())
    assert read == (set(COLLECTIONS) if is_read else {CLASSES})
