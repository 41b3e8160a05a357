"""Gangs that are nominated to their nodes (bind: nominated), on a control plane with native gangs."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.extensions.bound_gangs import GANG, SETTINGS, Scene
from tests.support import create_namespace, delete, install_definitions
from tests.sweeper.at_work import template
from tests.sweeper.mortal import AFTER, BEFORE, Death, sweep_until
from webhook.kube.objects import Pod
from webhook.sweeper.observe.plans import nominated_node, pinned_node
from webhook.workloads.pod_group_names import NOMINATED_PREFIX, bind_group_name

NAME: Final = bind_group_name({}, GANG, "", "default-scheduler", NOMINATED_PREFIX)


@pytest.fixture
def scene(native_cluster: Cluster) -> Iterator[Scene]:
    install_definitions(native_cluster)
    made = Scene(native_cluster, create_namespace(native_cluster), NAME)
    made.add_nodes(6)
    yield made
    made.clear()


def nodes(scene: Scene) -> dict[str, str]:
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in scene.pods()}


def released_as(scene: Scene) -> dict[str, tuple[str | None, str | None]]:
    """By pod the node that it is pinned to, and the one that it is nominated to."""
    pods = [msgspec.convert(each, Pod) for each in scene.pods()]
    return {pod.metadata.name: (pinned_node(pod), nominated_node(pod)) for pod in pods}


def test_a_gang_is_bound_where_it_was_nominated_and_no_pod_is_pinned(scene: Scene) -> None:
    scene.add("a", "b", "c")
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})
    plan = scene.planned()
    assert nodes(scene) == plan
    assert released_as(scene) == {name: (None, node) for name, node in plan.items()}
    assert scene.minimum() == 3


def test_where_a_planned_node_is_taken_the_gang_is_bound_and_its_placement_is_corrected(scene: Scene) -> None:
    scene.cluster.stop("kube-scheduler")
    try:
        scene.add("a", "b", "c")
        with scene.sweeping() as until:
            until("the PodGroup to be made", lambda: scene.minimum() == 3)
        taken = scene.planned()["a"]
        thief = template(8, gated=False, nodeName=taken)
        scene.api.request("POST", scene.pods_path, body={**thief, "metadata": {"name": "thief"}})
    finally:
        scene.cluster.start("kube-scheduler")
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() >= {"a", "b", "c"})
        there = {name: node for name, node in nodes(scene).items() if name != "thief"}
        until("the Placement to be corrected", lambda: scene.planned() == there)
    assert taken not in there.values()


def test_no_pod_leaves_the_domain_that_its_gang_requires(scene: Scene) -> None:
    """The other block has free nodes, and the gang waits until its own has again."""
    scene.add_nodes(3, first=10, block="other")
    scene.cluster.stop("kube-scheduler")
    try:
        scene.add("a", "b", "c", **{keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})
        with scene.sweeping() as until:
            until("the PodGroup to be made", lambda: scene.minimum() == 3)
        block, plan = own_block(scene, scene.planned()["a"]), scene.planned()
        for node in (block - set(plan.values())) | {plan["a"]}:
            thief = template(8, gated=False, nodeName=node)
            scene.api.request("POST", scene.pods_path, body={**thief, "metadata": {"name": f"thief-{node}"}})
    finally:
        scene.cluster.start("kube-scheduler")
    scene.cluster.wait_for("kube-scheduler to refuse the gang", lambda: any(map(scene.is_tried, "abc")), 60)
    assert not scene.bound() & {"a", "b", "c"}, "as three nodes of the other block are free"
    delete(scene.api, f"{scene.pods_path}/thief-{plan['a']}")
    scene.cluster.wait_for("all to be bound", lambda: scene.bound() >= {"a", "b", "c"}, 60)
    assert {node for name, node in nodes(scene).items() if name in "abc"} <= block


def own_block(scene: Scene, node: str) -> set[str]:
    """The nodes of the scene that are in one block with this one."""
    key = keys.PRERELEASE_TOPOLOGY[0]
    items = scene.api.json("GET", "/api/v1/nodes")["items"]
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in items}
    return {
        name
        for name in labels
        if name.startswith(f"{scene.namespace}-") and labels[name].get(key) == labels[node][key]
    }


def test_a_replacement_is_pinned_and_joins_the_gang(scene: Scene) -> None:
    scene.add("a", "b", "c")
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})
        delete(scene.api, f"{scene.pods_path}/b")
        scene.add("replacement")
        until("the replacement to be bound", lambda: scene.bound() == {"a", "c", "replacement"})
    pinned, nominated = released_as(scene)["replacement"]
    assert (pinned, nominated) == (nodes(scene)["replacement"], None)


def test_a_gang_with_slices_is_pinned(scene: Scene) -> None:
    request = {keys.SLICE_TOPOLOGY_ANNOTATION: "block", keys.SLICE_SIZE_ANNOTATION: "3"}
    scene.add("a", "b", "c", **request)
    with scene.sweeping() as until:
        until("all to be bound", lambda: scene.bound() == {"a", "b", "c"})
    assert {name: pinned for name, (pinned, _) in released_as(scene).items()} == nodes(scene)


def test_whichever_write_the_sweeper_dies_at_the_next_one_binds_the_gang(scene: Scene) -> None:
    scene.add("a", "b", "c")
    undisturbed = scene.mortal()
    assert sweep_until(undisturbed, SETTINGS, lambda: scene.bound() == {"a", "b", "c"}, 60)
    # Progress is written when a pass finds any, and what another test has left is deleted meanwhile.
    writes = [each for each in undisturbed.writes if "status of gang" not in each and "DELETE" not in each]
    group = f"POST {scene.group_path.rpartition('/')[0]} #1"
    assert (writes[0], writes[-1]) == ("POST placement gang-train #1", group)
    of_pods = {f"PATCH {what} {name} #1" for what in ("status of", "pod") for name in ("a", "b", "c")}
    assert set(writes[1:-1]) == of_pods, "each pod is nominated and released before the PodGroup is there"
    writes = [writes[0], "PATCH status of b #1", "PATCH pod b #1", group]
    for death in [Death(moment, write) for write in writes for moment in (BEFORE, AFTER)]:
        for name in ("a", "b", "c"):
            delete(scene.api, f"{scene.pods_path}/{name}")
        with scene.sweeping() as until:
            until("nothing to be left", lambda: scene.minimum() == -1 and not scene.pods())
        scene.add("a", "b", "c")
        assert not sweep_until(scene.mortal(death), SETTINGS, lambda: False, 60), death
        with scene.sweeping() as until:
            until(f"all to be bound after {death}", lambda: scene.bound() == {"a", "b", "c"})
        assert scene.minimum() == 3


def test_where_kubernetes_own_gangs_are_off_each_pod_is_pinned(cluster: Cluster) -> None:
    install_definitions(cluster)
    plain = Scene(cluster, create_namespace(cluster), NAME)
    plain.add_nodes()
    plain.add("a", "b", "c")
    with plain.sweeping() as until:
        until("all to be bound", lambda: plain.bound() == {"a", "b", "c"})
    assert {name: pinned for name, (pinned, _) in released_as(plain).items()} == nodes(plain)
    plain.clear()
