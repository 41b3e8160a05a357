"""Replicas that are spread over the domains of a level, together or one by one."""

from typing import Any

import msgspec
import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.sweeper.at_work import Pods, run_all, sweep, template
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.pods import gather_all
from webhook.configuration.settings import Settings
from webhook.kube.client import STRATEGIC_MERGE_PATCH
from webhook.kube.objects import Pod
from webhook.placement import PlacementError, Spread
from webhook.sweeper.observe.gang_requests import spread_of

REQUEST = keys.SPREAD_TOPOLOGY_ANNOTATION
SETTINGS = Settings(settle_seconds=0, patience_seconds=0)


def replica(name: str, requested: str | None, node: str = "", owner: str = "web-1", **metadata: Any) -> Pod:
    """A pod of a Deployment, gated or on a node."""
    owners = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    annotations = {} if requested is None else {REQUEST: requested}
    return gpu_pod(
        name, node=node, metadata={"ownerReferences": owners, "annotations": annotations, **metadata}
    )


def blocks(*sizes: int, pods: tuple[Pod, ...] = ()) -> Nodes:
    """Blocks b0, b1, ... of so many nodes of two GPUs."""
    made = Nodes(sum(sizes), *pods, gpus=2)
    names = iter(list(made.nodes))
    for block, size in enumerate(sizes):
        for name in (next(names) for _ in range(size)):
            labels = dict(zip(keys.GCE_TOPOLOGY, (f"b{block}", "s", name), strict=True))
            metadata = msgspec.structs.replace(made.nodes[name].metadata, labels=labels)
            made.nodes[name] = msgspec.structs.replace(made.nodes[name], metadata=metadata)
    return made


def placed(cluster: Nodes, placing: Placing | None = None) -> dict[str, str]:
    """Pod -> block."""
    found = places((placing or Placing(cluster, SETTINGS)).one())
    return {pod: cluster.nodes[node].metadata.labels[keys.GCE_TOPOLOGY[0]] for pod, node in found.items()}


# --- the request -------------------------------------------------------------------------------------


@pytest.mark.promise("R48")
@pytest.mark.parametrize(
    ("value", "requested"),
    [
        (None, None),
        ("block", Spread("block")),
        ("subblock:2", Spread("subblock", 2)),
        (f"{keys.HOSTNAME_LABEL}:1", Spread(keys.HOSTNAME_LABEL, 1)),
    ],
)
def test_the_request_is_a_level_and_perhaps_the_most_in_a_domain(
    value: str | None, requested: Spread | None
) -> None:
    assert spread_of(value) == requested


@pytest.mark.promise("R52")
@pytest.mark.parametrize(
    "value", ["", ":2", "block:", "block:0", "block:-1", "block:two", "block:1:2", "block: 2"]
)
def test_what_is_no_request_is_reported_and_not_ignored(value: str) -> None:
    with pytest.raises(PlacementError, match="is neither a level, as block, nor"):
        spread_of(value)
    (gang,) = gather_all(replica("w", value))
    assert "is neither a level" in gang.fault


# --- replicas of a Deployment, each a gang of its own --------------------------------------------------


@pytest.mark.promise("R48")
@pytest.mark.parametrize(
    ("requested", "expected"),
    [(None, [6]), ("block", [2, 2, 2]), ("block:2", [2, 2, 2]), ("block:4", [2, 4])],
)
def test_replicas_that_come_at_once_are_spread(requested: str | None, expected: list[int]) -> None:
    found = placed(blocks(3, 3, 3, pods=tuple(replica(f"w{number}", requested) for number in range(6))))
    assert sorted(list(found.values()).count(block) for block in set(found.values())) == expected


@pytest.mark.promise("R62")
def test_a_replica_that_comes_alone_counts_those_of_its_owner_that_run() -> None:
    run = (replica("a", "block", "n0"), replica("b", "block", "n2"))
    assert placed(blocks(2, 2, 2, pods=(*run, replica("new", "block")))) == {"new": "b2"}


@pytest.mark.promise("R62")
@pytest.mark.parametrize(
    "other",
    [
        replica("c", "block:1", "n4", owner="web-2"),
        replica("c", "block:1", "n4", namespace="elsewhere"),
        replica("c", "block:1", "n4", deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
    ids=["another revision", "another namespace", "one that ends"],
)
def test_others_do_not_count(other: Pod) -> None:
    run = (replica("a", "block:1", "n0"), replica("b", "block:1", "n2"))
    assert placed(blocks(2, 2, 2, pods=(*run, other, replica("new", "block:1")))) == {"new": "b2"}


@pytest.mark.promise("R62")
@pytest.mark.parametrize(("requested", "expected"), [(None, 5), ("block", 4)])
def test_nodes_without_topology_labels_are_left_out_of_a_spread(requested: str | None, expected: int) -> None:
    cluster = blocks(1, 1, pods=tuple(replica(f"w{number}", requested) for number in range(5)))
    cluster.nodes["bare"] = Nodes(1, gpus=2).nodes["n0"]
    metadata = msgspec.structs.replace(cluster.nodes["bare"].metadata, name="bare", uid="bare")
    cluster.nodes["bare"] = msgspec.structs.replace(cluster.nodes["bare"], metadata=metadata)
    found = places(Placing(cluster, SETTINGS).one())
    assert len(found) == expected
    assert ("bare" in found.values()) == (requested is None)


@pytest.mark.promise("R48")
def test_a_replica_waits_while_every_domain_has_as_many_as_it_may_and_is_placed_when_one_has_left() -> None:
    run = (replica("a", "block:1", "n0"), replica("b", "block:1", "n2"))
    cluster = blocks(2, 2, pods=(*run, replica("new", "block:1")))
    placing = Placing(cluster, SETTINGS)
    (outcome,) = placing.one().outcomes
    assert (
        "at most 1 per block beside the 2 that are placed, does not fit; each block with capacity has"
        in outcome.reason
    )
    cluster.pods.remove(run[0])
    assert placed(cluster, placing) == {"new": "b0"}


# --- replicas of a gang ----------------------------------------------------------------------------------


def member(rank: int, requested: str, node: str = "") -> Pod:
    """A pod of a StatefulSet."""
    owners = [{"kind": "StatefulSet", "name": "web", "uid": "web", "controller": True}]
    return gpu_pod(
        f"web-{rank}", node=node, metadata={"ownerReferences": owners, "annotations": {REQUEST: requested}}
    )


@pytest.mark.promise("R62")
def test_the_pods_of_a_gang_are_spread_together_and_a_replaced_one_is_placed_where_fewest_are() -> None:
    found = placed(blocks(2, 2, 2, pods=tuple(member(rank, "block") for rank in range(3))))
    assert sorted(found.values()) == ["b0", "b1", "b2"]
    again = (member(0, "block", "n0"), member(1, "block"), member(2, "block", "n4"))
    assert placed(blocks(2, 2, 2, pods=again)) == {"web-1": "b1"}


# --- on the real API server, with Kubernetes' own controllers ---------------------------------------------


@pytest.mark.promise("R62")
def test_the_replicas_of_a_deployment_are_spread_and_those_of_its_scale_up_as_well(
    two_subblocks: Cluster, namespace: str
) -> None:
    body = template(2, annotations={REQUEST: "subblock"})
    body["metadata"]["labels"] = {"app": "web"}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": body}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    api = two_subblocks.api()
    api.request("POST", path, body={"metadata": {"name": "web"}, "spec": spec})

    def subblocks(count: int) -> list[str]:
        def run(pods: Pods) -> bool:
            return len(pods) == count and run_all(pods, "web", count)

        pods = sweep(two_subblocks, namespace, Settings(), run, f"{count} replicas to run")
        return sorted(pod["spec"]["nodeName"].rpartition("-")[0] for pod in pods)

    assert subblocks(2) == ["node-b0-s0", "node-b0-s1"]
    api.request("PATCH", f"{path}/web", body={"spec": {"replicas": 6}}, content_type=STRATEGIC_MERGE_PATCH)
    assert subblocks(6) == ["node-b0-s0"] * 3 + ["node-b0-s1"] * 3
