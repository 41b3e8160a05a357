"""A planned node that stops taking a gang's pods before their release: the gang is planned again at once."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.sweeper.at_work import create_job, run_all, sweep, template
from tests.sweeper.cluster import GPU, Nodes, Placing, gpu_pod, places
from tests.sweeper.mortal import AFTER, Death, MortalApi, sweep_until
from webhook.configuration.settings import Settings
from webhook.kube.client import MERGE_PATCH
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.placement import Topology
from webhook.sweeper.decide.plan import with_valid_plans, without_overbooked
from webhook.sweeper.decide.refusing_nodes import RefusingNodes
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.observe.view import View

BLOCK, RACK, HOST = keys.PRERELEASE_TOPOLOGY
TAINT: Final = {"key": "maintenance", "value": "true"}
TOLERATION: Final = {"key": "spot", "operator": "Exists"}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY: Final = {
    "nodeAffinity": {
        REQUIRED: {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "image", "operator": "NotIn", "values": ["old"]}]}
            ]
        }
    }
}


def member(name: str, node: str = "", *, gpus: int = 1, **spec: Any) -> Pod:
    """A pod of a gang of two that wants one block; node: where it has been released to."""
    annotations = {
        keys.GANG_ANNOTATION: "train",
        keys.GANG_SIZE_ANNOTATION: "2",
        keys.REQUIRED_TOPOLOGY_ANNOTATION: "block",
    }
    affinity: dict[str, Any] = AFFINITY
    if node:
        pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [pin]}}}
        spec["schedulingGates"] = []
    return gpu_pod(
        name, gpus=gpus, nodeSelector={"pool": "train"}, affinity=affinity, tolerations=[TOLERATION],
        metadata={"annotations": annotations}, **spec,
    )  # fmt: skip


class Planned(Placing):
    """Passes on two blocks of two nodes (n0 and n1, n2 and n3); the gang is planned for the first one."""

    def __init__(self, *pods: Pod) -> None:
        super().__init__(Nodes(4, *pods), Settings(settle_seconds=0))
        for number in range(4):
            block = f"b{number // 2}"
            labels = {BLOCK: block, RACK: f"{block}-r", HOST: f"h{number}", "pool": "train"}
            self.cluster.label(f"n{number}", labels)
        self.is_checked = False
        (plan,) = self.one().plans
        assert places_of(plan.entries) == {"a": "n0", "b": "n1"}
        metadata = Metadata(namespace="ns", name=plan.gang.key.placement_name, uid="u")
        placement = Placement(metadata=metadata, spec=PlacementSpec(size=2, pods=list(plan.entries)))
        self.cluster.placements = {placement.key: placement}
        self.is_checked = True

    def view(self) -> View:
        """With the plans that hold, as in a pass."""
        view, sent = super().view(), SentReleases()
        if not self.is_checked:
            return view
        view = with_valid_plans(view, Topology(), RefusingNodes(), sent)
        return without_overbooked(view, self.snapshotter.snapshot(view), sent)

    def change(self, name: str, **fields: Mapping[str, Any]) -> None:
        """Change a node, field by field of its metadata, spec or status."""
        node = msgspec.to_builtins(self.cluster.nodes[name])
        for part, changes in fields.items():
            node[part] = {**node.get(part, {}), **changes}
        self.cluster.nodes[name] = msgspec.convert(node, Node)


def places_of(entries: Any) -> dict[str, str]:
    return {entry.name: entry.node for entry in entries}


LOST: Final[Mapping[str, Callable[[Planned], object]]] = {
    "deleted": lambda at: at.cluster.nodes.pop("n1"),
    "being deleted": lambda at: at.change("n1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    "cordoned": lambda at: at.change("n1", spec={"unschedulable": True}),
    "not ready": lambda at: at.change("n1", status={"conditions": [{"type": "Ready", "status": "False"}]}),
    "tainted": lambda at: at.change("n1", spec={"taints": [{**TAINT, "effect": "NoSchedule"}]}),
    "drained by a taint": lambda at: at.change("n1", spec={"taints": [{**TAINT, "effect": "NoExecute"}]}),
    "about to be removed": lambda at: at.change(
        "n1", spec={"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}
    ),
    "of another pool": lambda at: at.cluster.label("n1", {BLOCK: "b0", RACK: "b0-r", HOST: "h1"}),
    "excluded by affinity": lambda at: at.cluster.label(
        "n1", {BLOCK: "b0", RACK: "b0-r", HOST: "h1", "pool": "train", "image": "old"}
    ),
    "moved to another block": lambda at: at.cluster.label(
        "n1", {BLOCK: "b2", RACK: "b2-r", HOST: "h1", "pool": "train"}
    ),
    "moved to another subblock": lambda at: at.cluster.label(
        "n1", {BLOCK: "b0", RACK: "b0-s", HOST: "h1", "pool": "train"}
    ),
    "without its topology labels": lambda at: at.cluster.label("n1", {"pool": "train"}),
    "without GPUs": lambda at: at.change("n1", status={"allocatable": {GPU: "0", "pods": "110"}}),
}
STILL_USABLE: Final[Mapping[str, Callable[[Planned], object]]] = {
    "tolerated": lambda at: at.change("n1", spec={"taints": [{"key": "spot", "effect": "NoExecute"}]}),
    "discouraged": lambda at: at.change("n1", spec={"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}),
    "with more labels": lambda at: at.cluster.label(
        "n1", {BLOCK: "b0", RACK: "b0-r", HOST: "h1", "pool": "train", "image": "new"}
    ),
}


@pytest.mark.promise("O372")
@pytest.mark.parametrize("what", LOST)
def test_a_gang_of_which_no_pod_is_released_moves_as_a_whole_when_a_node_of_its_plan_is(what: str) -> None:
    """Its pods on the other node would be released at once, and hold it in vain."""
    passes = Planned(member("a"), member("b"))
    LOST[what](passes)
    assert places(passes.one()) == {"a": "n2", "b": "n3"}


@pytest.mark.promise("O372")
@pytest.mark.parametrize("what", LOST)
def test_of_a_gang_that_is_partly_released_the_others_are_planned_again_when_their_node_is(what: str) -> None:
    passes = Planned(member("a"), member("b"))
    passes.cluster.pods[0] = member("a", "n0")
    passes.change("n0", status={"allocatable": {GPU: "2", "pods": "110"}})
    LOST[what](passes)
    assert places(passes.one()) == {"b": "n0"}, "beside the pod that is released"


@pytest.mark.promise("O372")
@pytest.mark.parametrize("what", STILL_USABLE)
def test_a_plan_holds_when_a_node_of_it_is(what: str) -> None:
    passes = Planned(member("a"), member("b"))
    STILL_USABLE[what](passes)
    assert passes.view().planned.keys() == {"uid-a", "uid-b"}
    assert not passes.one().plans


@pytest.mark.promise("O372")
def test_a_plan_is_replaced_when_a_node_of_it_was_replaced_by_another_of_its_name() -> None:
    passes = Planned(member("a"), member("b"))
    passes.change("n1", metadata={"uid": "another"})
    assert places(passes.one()) == {"a": "n0", "b": "n1"}, "which is as near"


@pytest.mark.promise("O372")
def test_a_plan_that_a_dead_sweeper_left_is_replaced_by_the_next_one_after_a_node_of_it_has_moved(
    two_subblocks: Cluster, namespace: str
) -> None:
    api, settings = two_subblocks.api(), Settings()
    body = template(8, annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"})
    create_job(api, namespace, "train", 2, body)
    first = mortal(two_subblocks)
    first.prepare(Death(AFTER, "POST placement job-train #1"))
    assert not sweep_until(first, settings, lambda: False, 60), "it dies before it has released a pod"
    (placement,) = api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements")["items"]
    planned = {entry["uid"]: entry["node"] for entry in placement["spec"]["pods"]}
    moved = min(planned.values())
    api.request("PATCH", f"/api/v1/nodes/{moved}", body={"metadata": {"labels": {RACK: "elsewhere"}}},
                content_type=MERGE_PATCH)  # fmt: skip
    pods = sweep(two_subblocks, namespace, settings, lambda all_: run_all(all_, "train", 2), "the gang")
    assert {pod["metadata"]["uid"] for pod in pods} == planned.keys(), "none was recreated"
    assert moved not in {pod["spec"]["nodeName"] for pod in pods}


def mortal(cluster: Cluster) -> MortalApi:
    api = MortalApi.connect(cluster.kubeconfig, user_agent="test-sweeper")
    assert isinstance(api, MortalApi)
    return api
