"""The reason of a gang that waits only because its owner is unknown says so, and what to write."""

from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import register_nodes
from tests.sweeper.at_work import Pods, create_pod, named, run_all, sweep, template
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod

SETTINGS = Settings(settle_seconds=0, patience_seconds=0, reserve_seconds=1e6)
NOTE = "nothing is known of Flow.example.com"


def step(number: int, kind: str = "Flow", gang: str = "o", **annotations: str) -> Pod:
    owner = {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "name": gang,
        "uid": f"uid-{gang}",
        "controller": True,
    }
    metadata = {"ownerReferences": [owner], "annotations": annotations}
    return gpu_pod(f"{gang}-{number}", metadata={**metadata, "uid": f"{gang}-{number}"})


def reasons(count: int, *pods: Pod) -> dict[str, str]:
    """By gang, why it waits on so many nodes of a GPU each."""
    orders = Placing(Nodes(count, *pods), SETTINGS).one()
    return {each.gang.key.name: each.reason for each in orders.outcomes}


@pytest.mark.promise("R230")
def test_there_is_a_note_where_some_of_its_pods_could_run() -> None:
    reason = reasons(2, *(step(number) for number in range(3)))["o"]
    assert "capacity for 2 of 3" in reason
    assert NOTE in reason
    assert "gangs.looseOwners: [Flow.example.com]" in reason
    assert "gangs.owners: [Flow.example.com]" in reason
    assert f'{keys.GANG_MIN_SIZE_ANNOTATION}: "1"' in reason


@pytest.mark.promise("R230")
@pytest.mark.parametrize(
    ("count", "pods"),
    [
        pytest.param(0, [step(0), step(1)], id="there is no capacity for any"),
        pytest.param(0, [step(0)], id="it has one pod"),
        pytest.param(
            1,
            [step(n, **{keys.GANG_ANNOTATION: "o"}) for n in range(3)],
            id="its author says that it is a gang",
        ),
        pytest.param(1, [step(n, "StatefulSet") for n in range(3)], id="its owner is known"),
        pytest.param(
            1, [step(n, **{keys.GANG_MIN_SIZE_ANNOTATION: "2"}) for n in range(3)], id="it has a minimum"
        ),
    ],
)
def test_there_is_no_note_where(count: int, pods: list[Pod]) -> None:
    (reason,) = reasons(count, *pods).values()
    assert "nothing is known" not in reason


def test_a_gang_that_asks_the_same_gets_a_note_on_its_own_owner() -> None:
    pods = [step(n, gang="a") for n in range(3)] + [step(n, "StatefulSet", "b") for n in range(3)]
    reason = reasons(2, *pods)
    assert NOTE in reason["a"]
    assert "nothing is known" not in reason["b"]


@pytest.fixture
def four_nodes(definitions: Cluster, namespace: str) -> Cluster:
    register_nodes(definitions, nodes.grid(nodes.Shape(nodes=4, blocks=1, subblocks=1)))
    return definitions


def running(pods: Pods) -> int:
    return sum(each["status"]["phase"] == "Running" for each in named(pods, "serve"))


def test_of_the_replicas_of_a_replication_controller_as_many_run_as_fit(
    four_nodes: Cluster, namespace: str
) -> None:
    body = template(8)
    body["metadata"]["labels"] = {"app": "serve"}
    spec = {"replicas": 6, "selector": {"app": "serve"}, "template": body}
    path = f"/api/v1/namespaces/{namespace}/replicationcontrollers"
    four_nodes.api().request("POST", path, body={"metadata": {"name": "serve"}, "spec": spec})
    pods = sweep(four_nodes, namespace, Settings(), lambda pods: running(pods) == 4, "four to run", 40)
    assert len(named(pods, "serve")) == 6


def owned_by(kind: str, group: str, number: int, uid: str) -> dict[str, Any]:
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": "fan", "uid": uid, "controller": True}
    body = template(8)
    body["metadata"]["ownerReferences"] = [owner]
    return body


@pytest.mark.parametrize(
    ("kind", "group", "settings"),
    [
        pytest.param("Workflow", "argoproj.io", {}, id="a known one"),
        pytest.param(
            "Flow", "example.com", {"loose_owners": frozenset({"Flow.example.com"})}, id="a named one"
        ),
    ],
)
def test_of_the_steps_of_an_owner_as_many_run_as_fit(
    four_nodes: Cluster, namespace: str, kind: str, group: str, settings: dict[str, Any]
) -> None:
    api = four_nodes.api()
    # The collector knows no such kind, so it leaves the pods alone.
    for number in range(6):
        create_pod(api, namespace, f"serve-{number}", owned_by(kind, group, number, f"uid-{namespace}"))
    sweep(four_nodes, namespace, Settings(**settings), lambda pods: running(pods) == 4, "four to run", 40)


def test_steps_of_an_owner_that_is_named_run_together_or_not_at_all(
    four_nodes: Cluster, namespace: str
) -> None:
    api = four_nodes.api()
    create_pod(api, namespace, "busy", template(8, gated=False))
    settings = Settings(gang_owners=frozenset({"Workflow.argoproj.io"}), settle_seconds=1, patience_seconds=2)
    for number in range(4):
        body = owned_by("Workflow", "argoproj.io", number, f"uid-{namespace}")
        create_pod(api, namespace, f"serve-{number}", body)
    gone: list[str] = []
    passes = 0

    def done(pods: Pods) -> bool:
        nonlocal passes
        passes += 1
        if passes < 20:
            assert not running(pods)
        elif not gone:
            gone.append("busy")
            api.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/busy")
        return run_all(pods, "serve", 4)

    sweep(four_nodes, namespace, settings, done, "all to run", 60)
