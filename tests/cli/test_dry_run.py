"""`lint --cluster` and `simulate` ask a cluster's own admission by dry run, or say why they could not."""

import json
from pathlib import Path
from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.cli.jobs import job
from tests.cli.unusual_server import Answer, Server, serving
from tests.support import create_namespace, install_definitions, register_nodes
from webhook.cli.main import main

NODE: dict[str, Any] = {
    "metadata": {"name": "n", "uid": "n", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
    "spec": {},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "cpu": "8", "memory": "64Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
EMPTY: Answer = (200, {"metadata": {}, "items": []})


class Dry(Server):
    """Has one node and nothing else, and answers so to pods that are to be created."""

    def __init__(self, created: Answer) -> None:
        super().__init__({"/nodes": (200, {"metadata": {}, "items": [NODE]})})
        self.created = created

    def answer(self, path: str) -> Answer:
        self.asked.append(path)
        if "dryRun=All" in path:
            return self.created
        found = self.answers.get(path.partition("?")[0].removeprefix("/api/v1"))
        return found or (
            (404, {"message": "none"}) if "configmaps" in path or "deployments" in path else EMPTY
        )


def refused(status: int, message: str) -> Answer:
    return status, {"kind": "Status", "reason": "Refused", "message": message, "code": status}


def stored(*gates: str) -> Answer:
    """The pod of the manifest, as it is stored."""
    spec = {**job()["spec"]["template"]["spec"], "schedulingGates": [{"name": gate} for gate in gates]}
    return 201, {"kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


def asked(
    command: list[str], created: Answer, folder: Path, capsys: pytest.CaptureFixture[str], **annotations: str
) -> tuple[int, str, str]:
    file = folder / "job.json"
    file.write_text(json.dumps(job(8, 1, None, **annotations)))
    server = Dry(created)
    with serving(server, folder) as kubeconfig:
        status = main([*command, str(file), "--kubeconfig", str(kubeconfig), "-n", "team"])
    assert [each for each in server.asked if "/namespaces/team/pods?dryRun=All" in each]
    out, err = capsys.readouterr()
    return status, out, err


LINT, SIMULATE = ["lint", "--cluster"], ["simulate"]


@pytest.mark.promise("R240")
@pytest.mark.parametrize("command", [LINT, SIMULATE], ids=["lint", "simulate"])
def test_what_another_webhook_of_the_cluster_refuses_is_reported_in_its_words(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = refused(403, 'admission webhook "images.example" denied the request: no image of this registry')
    status, out, _ = asked(command, answer, tmp_path, capsys)
    assert status == 1
    assert "no image of this registry" in out


@pytest.mark.promise("R240")
@pytest.mark.parametrize("command", [LINT, SIMULATE], ids=["lint", "simulate"])
@pytest.mark.parametrize(
    "answer",
    [
        refused(403, 'pods is forbidden: User "u" cannot create resource "pods" in API group ""'),
        refused(400, 'admission webhook "old.example" does not support dry run'),
        refused(400, "the dryRun feature is disabled"),
        refused(405, "the server does not allow this method on the requested resource"),
    ],
    ids=["no right", "a webhook without dry run", "a server without dry run", "a proxy"],
)
def test_where_the_cluster_takes_no_dry_run_the_policy_decides_and_a_note_explains_it(
    command: list[str], answer: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = asked(command, answer, tmp_path, capsys)
    assert status == 0
    assert f"note: decided by topogate's policy, not by a dry run: {answer[1]['message']}" in err
    status, out, _ = asked(command, answer, tmp_path, capsys, gpu_model="h1000")
    assert (status, "did you mean H100" in out) == (1, True)


@pytest.mark.parametrize("command", [LINT, SIMULATE], ids=["lint", "simulate"])
def test_a_namespace_that_is_not_opted_in_is_reported(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = asked(command, stored(), tmp_path, capsys)
    assert status == 1
    assert f"kubectl label namespace team {keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}" in out


def test_a_pod_that_the_cluster_holds_is_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = asked(SIMULATE, stored(keys.GATE), tmp_path, capsys)
    assert (status, "  train-0  n\n" in out) == (0, True), err
    assert asked(LINT, stored(keys.GATE), tmp_path, capsys)[:2] == (0, "")


@pytest.mark.parametrize("command", [LINT, SIMULATE], ids=["lint", "simulate"])
def test_a_server_s_own_fault_is_no_answer(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = asked(command, refused(500, "etcd is away"), tmp_path, capsys)
    assert (status, "etcd is away" in err) == (1, True)


@pytest.mark.promise("R240")
def test_a_real_api_server_takes_the_dry_run_and_stores_nothing(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install_definitions(cluster)
    register_nodes(cluster, nodes.grid(nodes.Shape(nodes=4, blocks=2, subblocks=1)))
    namespace = create_namespace(cluster)
    (tmp_path / "job.json").write_text(json.dumps(job(8, 2)))
    words = [str(tmp_path / "job.json"), "--kubeconfig", str(cluster.kubeconfig), "-n", namespace]
    assert main(["simulate", *words]) == 1, "nothing gates pods in this cluster"
    assert "is not opted in" in capsys.readouterr().out
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}}
    api = cluster.api()
    api.request("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", body=quota)
    cluster.wait_for(
        "the quota to be counted",
        lambda: "used" in api.json("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/q")["status"],
    )
    assert main(["lint", "--cluster", *words]) == 1
    assert "exceeded quota: q" in capsys.readouterr().out
    assert api.json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"] == []
