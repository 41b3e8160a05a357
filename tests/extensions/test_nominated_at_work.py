"""Gangs that are nominated to their nodes (bind: nominated), on a control plane with native gangs."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from hack.local.cluster import Cluster
from tests.extensions.bound_gangs import GANG, SETTINGS, Scene
from tests.support import create_namespace, install_definitions
from tests.sweeper.mortal import sweep_until
from webhook.kube.objects import Pod
from webhook.sweeper.observe.plans import nominated_node, pinned_node
from webhook.workloads.pod_group_names import NOMINATED_PREFIX, bind_group_name

NAME: Final = bind_group_name({}, GANG, "", "default-scheduler", NOMINATED_PREFIX)


@pytest.fixture
def scene(native_cluster: Cluster) -> Iterator[Scene]:
    install_definitions(native_cluster)
    made = Scene(native_cluster, create_namespace(native_cluster), NAME)
    made.add_nodes()
    yield made
    made.clear()


def nodes(scene: Scene) -> dict[str, str]:
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in scene.pods()}


def released_as(scene: Scene) -> dict[str, tuple[str | None, str | None]]:
    """By pod the node that it is pinned to, and the one that it is nominated to."""
    pods = [msgspec.convert(each, Pod) for each in scene.pods()]
    return {pod.metadata.name: (pinned_node(pod), nominated_node(pod)) for pod in pods}


@pytest.mark.promise("R283")
def test_a_gang_is_bound_where_it_was_nominated_and_no_pod_is_pinned(scene: Scene) -> None:
    """Each pod is nominated and released before the PodGroup is there."""
    scene.add("a", "b", "c")
    api = scene.mortal()
    assert sweep_until(api, SETTINGS, lambda: scene.bound() == {"a", "b", "c"}, 60)
    plan = scene.planned()
    assert nodes(scene) == plan
    assert released_as(scene) == {name: (None, node) for name, node in plan.items()}
    assert scene.minimum() == 3
    # Progress is written when a pass finds any, and what another test has left is deleted meanwhile.
    writes = [each for each in api.writes if "status of gang" not in each and "DELETE" not in each]
    group = f"POST {scene.group_path.rpartition('/')[0]} #1"
    assert (writes[0], writes[-1]) == ("POST placement gang-train #1", group)
    of_pods = {f"PATCH {what} {name} #1" for what in ("status of", "pod") for name in ("a", "b", "c")}
    assert set(writes[1:-1]) == of_pods
