"""From the first day to the last: installed, used, upgraded under load, and gone without a trace."""

import json
import threading
from collections.abc import Iterator

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation, facts_of, system_node
from labeler.contract import keys
from tests.cluster.jobs import all_run, create_job, create_task, gates
from tests.support import create_namespace, register_nodes, wait_for_pods
from webhook.cli.main import main
from webhook.kube.client import ApiError

SHAPE = nodes.Shape(nodes=8, blocks=2, subblocks=2, gpus=8, intel=0)
GPUS = "nvidia.com/gpu"
MOST_GANGS = 14
"""Of the load. All of them, and the gangs before and after, run at one time."""


@pytest.fixture
def installation(cluster: Cluster) -> Iterator[Installation]:
    """topogate with the gate in-process, so that no pod comes past it while the webhook is replaced."""
    grid = nodes.grid(SHAPE)
    made = Installation(cluster, components=("in-process-gate",), image_tag="first")
    register_nodes(cluster, [system_node()], labelled=False)
    made.apply(facts_of(grid))
    made.start()
    register_nodes(cluster, grid, labelled=True)
    yield made
    made.stop()


class Load(threading.Thread):
    """Creates a gang of two whenever it can, until it is stopped or the nodes would be full."""

    def __init__(self, installation: Installation, namespace: str) -> None:
        super().__init__(daemon=True)
        self._installation, self._namespace = installation, namespace
        self._stopping = threading.Event()
        self.created = 0
        self.refused: list[str] = []

    def run(self) -> None:
        while not self._stopping.wait(0.5) and self.created < MOST_GANGS:
            try:
                create_job(self._installation.api, self._namespace, f"load-{self.created}", 2, {GPUS: 1})
                self.created += 1
            except ApiError as error:
                self.refused.append(str(error))

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def all_objects(cluster: Cluster) -> list[str]:
    """Every object of every kind, as "kind/namespace/name"."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    listed = [kind for kind in kinds if not kind.startswith(("events", "componentstatuses"))]
    items = json.loads(cluster.kubectl("get", ",".join(listed), "-A", "-o", "json").stdout)["items"]
    metadata = [(item["kind"], item["metadata"]) for item in items]
    return [f"{kind}/{each.get('namespace', '')}/{each['name']}" for kind, each in metadata]


@pytest.mark.promise("O231", "O227")
@pytest.mark.kubernetes("1.36")
def test_installed_used_upgraded_under_load_and_uninstalled_without_a_trace(
    installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, api = installation.cluster, installation.api
    namespace = create_namespace(cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    create_job(api, namespace, "before", 2, {GPUS: 8})
    create_task(api, namespace, "task")
    wait_for_pods(cluster, namespace, all_run(3), "the first gang and a task to run")

    # upgraded under load
    load = Load(installation, namespace)
    load.start()
    try:
        installation.image_tag = "second"
        installation.apply(facts_of(nodes.grid(SHAPE)))
        installation.stop()
        cluster.wait_for("gangs made while nothing of topogate runs", lambda: load.created > 4)
        installation.start()
        create_job(api, namespace, "after", 2, {GPUS: 8})
    finally:
        load.stop()
    assert load.refused == []
    count = 3 + 2 + 2 * load.created
    pods = wait_for_pods(cluster, namespace, all_run(count), "every gang to run")
    planned = api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements")["items"]
    assert {pod["metadata"]["uid"] for pod in pods} == {
        entry["uid"] for plan in planned for entry in plan["spec"]["pods"]
    }

    def tags() -> set[str]:
        return {
            container["image"].rpartition(":")[2]
            for pod in api.json("GET", "/api/v1/namespaces/topogate-system/pods")["items"]
            if "deletionTimestamp" not in pod["metadata"]
            for container in pod["spec"]["containers"]
        }

    cluster.wait_for("the pods of the first version to be gone", lambda: tags() == {"second"})

    # and uninstalled, as docs/operators/install.md#uninstall says
    create_job(api, namespace, "too-large", 40, {GPUS: 8})
    wait_for_pods(cluster, namespace, lambda pods: len(gates(pods)) == 40, "a gang that has to wait")
    for kind, name in (
        ("mutatingwebhookconfiguration", "topogate"),
        ("mutatingadmissionpolicybinding", "topogate-gate"),
        ("mutatingadmissionpolicy", "topogate-gate"),
    ):
        cluster.kubectl("delete", kind, name)
    installation.stop()
    assert main(["drain", "--kubeconfig", str(cluster.kubeconfig), "--release", "--yes"]) == 0
    output = capsys.readouterr()
    assert "40 pods released, 0 still wait." in output.out
    assert f"Job {namespace}/task has the gate in its template" in output.err
    cluster.kubectl("delete", "gputasks", "--all", "--all-namespaces", "--cascade=orphan")
    cluster.kubectl("delete", "-k", str(installation.folder), "--ignore-not-found", "--timeout=120s")

    def what_is_left() -> list[str]:
        return [each for each in all_objects(cluster) if "topogate" in each]

    cluster.wait_for("nothing of topogate to be left", lambda: not what_is_left())
    assert gates(api.json("GET", "/api/v1/pods")["items"]) == []
    running = [
        pod
        for pod in api.json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        if pod["status"]["phase"] == "Running"
    ]
    assert {pod["metadata"]["uid"] for pod in pods} <= {pod["metadata"]["uid"] for pod in running}


@pytest.mark.promise("O231")
def test_after_its_namespace_was_deleted_first_the_docs_release_what_waits_and_remove_the_rest(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/operators/install.md, `If it was removed in another order`."""
    made = Installation(cluster)
    made.apply(facts_of(nodes.grid(SHAPE)))
    namespace = create_namespace(cluster)
    container = {"name": "c", "image": "i"}
    spec = {"containers": [container], "schedulingGates": [{"name": keys.GATE}]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api().request("POST", pods, body={"metadata": {"name": "waits"}, "spec": spec})
    create_task(cluster.api(), namespace, "task")
    cluster.kubectl("delete", "namespace", "topogate-system", "--timeout=120s")

    assert main(["drain", "--kubeconfig", str(cluster.kubeconfig), "--release"]) == 0
    assert "MutatingWebhookConfiguration topogate exists" in capsys.readouterr().err
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "topogate")
    assert main(["drain", "--kubeconfig", str(cluster.kubeconfig), "--release", "--yes"]) == 0
    assert "1 pod released, 0 still wait." in capsys.readouterr().out
    cluster.kubectl("delete", "-k", str(made.folder), "--ignore-not-found", "--timeout=120s")
    left = [each for each in all_objects(cluster) if "topogate" in each]
    assert left == []
    assert gates(cluster.api().json("GET", pods)["items"]) == []
