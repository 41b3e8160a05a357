"""`topogate doctor` on a real installation: well when it is, and a sentence with a remedy when it is not."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation, facts_of, system_node
from labeler.contract import keys
from tests.support import create_namespace
from webhook.cli.main import main
from webhook.inquiry.doctor import GUARDS, State, examine
from webhook.kube.client import MERGE_PATCH

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/topogate"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Installation]:
    """topogate as its manifests say, on two labelled nodes, with a namespace that is opted in."""
    grid = nodes.grid(nodes.Shape(nodes=2, blocks=1, subblocks=1))
    installation = Installation(module_cluster)
    nodes.register(module_cluster.api(), [system_node()], labelled=False)
    installation.apply(facts_of(grid))
    installation.start()
    nodes.register(module_cluster.api(), grid, labelled=True)
    create_namespace(module_cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    module_cluster.wait_for("a leading sweeper", lambda: states(installation)["leader"] is State.WELL)
    yield installation
    installation.stop()


def states(installed: Installation, now: datetime | None = None) -> dict[str, State]:
    """The worst state of each check."""
    order = list(State)
    found: dict[str, State] = {}
    for each in examine(installed.api, now):
        found[each.check] = max(found.get(each.check, State.WELL), each.state, key=order.index)
    return found


def test_a_whole_installation_gates_holds_its_guards_and_has_a_leader(installed: Installation) -> None:
    found = states(installed)
    wanted = ("version", "definitions", "certificate", "admission", "leader", "guards", "nodes", "gangs")
    assert {name: found[name] for name in wanted} == dict.fromkeys(wanted, State.WELL)


def test_the_command_prints_a_line_a_finding_and_its_status_tells_scripts(
    installed: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["doctor", "-o", "json", "--kubeconfig", str(installed.cluster.kubeconfig)])
    found = json.loads(capsys.readouterr().out)
    assert status == int(any(each["state"] == "ill" for each in found))
    assert {each["check"] for each in found} >= {"admission", "leader", "guards"}


def test_a_guard_that_is_not_bound_is_named(installed: Installation) -> None:
    body = installed.api.json("GET", f"{BINDINGS}/{GUARDS[0]}")
    installed.api.request("DELETE", f"{BINDINGS}/{GUARDS[0]}")
    try:
        (finding,) = (each for each in examine(installed.api) if each.check == "guards")
    finally:
        metadata = {"name": GUARDS[0]}
        installed.api.request("POST", BINDINGS, body={**body, "metadata": metadata})
    assert finding.state is State.ILL
    assert GUARDS[0] in finding.sentence
    assert finding.remedy


def test_a_webhook_that_does_not_answer_is_seen_by_a_pod_without_gate(installed: Installation) -> None:
    body = installed.api.json("GET", CONFIGURATION)
    url = body["webhooks"][0]["clientConfig"]["url"]
    patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": "https://127.0.0.1:9/mutate"}]
    back = [{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": url}]
    kind = "application/json-patch+json"
    installed.api.request("PATCH", CONFIGURATION, body=patch, content_type=kind)
    try:
        # The API server takes up a changed configuration within seconds.
        installed.cluster.wait_for("a pod without gate", lambda: states(installed)["admission"] is State.ILL)
    finally:
        installed.api.request("PATCH", CONFIGURATION, body=back, content_type=kind)


@pytest.mark.parametrize(("days", "state"), [(0, State.WELL), (365, State.ILL)], ids=["today", "in a year"])
def test_a_certificate_is_ill_when_it_has_ended(installed: Installation, days: int, state: State) -> None:
    assert states(installed, datetime.now(UTC) + timedelta(days=days))["certificate"] is state


def test_a_bundle_that_cannot_be_read_is_ill(installed: Installation) -> None:
    before = installed.api.json("GET", CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"]
    assert base64.b64decode(before).startswith(b"-----BEGIN CERTIFICATE")
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    kind = "application/json-patch+json"
    installed.api.request("PATCH", CONFIGURATION, body=patch, content_type=kind)
    try:
        assert states(installed)["certificate"] is State.ILL
    finally:
        back = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": before}]
        installed.api.request("PATCH", CONFIGURATION, body=back, content_type=kind)


def test_a_lease_that_nobody_renews_means_that_no_sweeper_leads(installed: Installation) -> None:
    assert states(installed, datetime.now(UTC) + timedelta(minutes=10))["leader"] is State.ILL


def test_a_gpu_node_without_topology_labels_is_odd_and_named(installed: Installation) -> None:
    path = "/api/v1/nodes/node-b0-s0-h00"
    labels = dict.fromkeys(keys.PRERELEASE_TOPOLOGY)
    before = installed.api.json("GET", path)["metadata"]["labels"]
    body = {"metadata": {"labels": labels}}
    installed.api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
    try:
        (finding,) = (each for each in examine(installed.api) if each.check == "nodes")
    finally:
        back = {"metadata": {"labels": {key: before[key] for key in labels}}}
        installed.api.request("PATCH", path, body=back, content_type=MERGE_PATCH)
    assert finding.state is State.ODD
    assert "node-b0-s0-h00" in finding.sentence
