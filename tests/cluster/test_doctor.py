"""`topogate doctor` on a real installation: well when it is, and a sentence with a remedy when it is not."""

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from hack.local import nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.install import Installation, facts_of, system_node
from hack.local.nodes import SimulatedNode
from labeler.contract import keys
from tests.releases.helm import TEMPLATE, run
from tests.stolen_tokens import as_
from tests.support import create_namespace, register_nodes
from webhook.admission.certificates import issue
from webhook.cli.main import main
from webhook.configuration.cluster import KEY, path_of
from webhook.inquiry.doctor import CHECKS, examine
from webhook.inquiry.enforcement import GUARDS, ISSUER_GUARDS
from webhook.inquiry.findings import State
from webhook.inquiry.memory_limit import needed
from webhook.kube.client import JSON_PATCH, MERGE_PATCH, Api, ApiError

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/topogate"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Installation]:
    """topogate as its manifests say, on two labelled nodes, with a namespace that is opted in."""
    grid = nodes.grid(nodes.Shape(nodes=2, blocks=1, subblocks=1))
    installation = Installation(module_cluster)
    register_nodes(module_cluster, [system_node()], labelled=False)
    installation.apply(facts_of(grid))
    installation.start()
    register_nodes(module_cluster, grid, labelled=True)
    for node in grid:  # as NVIDIA's GPU feature discovery does
        label_node(installation.api, node.name, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    create_namespace(module_cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    module_cluster.wait_for("a leading sweeper", lambda: states(installation)["leader"] is State.WELL)
    yield installation
    installation.stop()


def label_node(api: Api, name: str, labels: dict[str, str | None], annotations: Any = None) -> None:
    """Set labels and annotations of a Node; None removes one."""
    body = {"metadata": {"labels": labels, "annotations": annotations or {}}}
    api.request("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=MERGE_PATCH)


@contextlib.contextmanager
def patched(installed: Installation, path: str, field: str, value: Any, before: Any) -> Iterator[None]:
    """An object with another value in one field."""

    def write(content: Any) -> None:
        patch = [{"op": "replace", "path": field, "value": content}]
        installed.api.request("PATCH", path, body=patch, content_type=JSON_PATCH)

    write(value)
    try:
        yield
    finally:
        write(before)


def states(installed: Installation, now: datetime | None = None) -> dict[str, State]:
    """The worst state of each check."""
    order = list(State)
    found: dict[str, State] = {}
    for each in examine(installed.api, now):
        found[each.check] = max(found.get(each.check, State.WELL), each.state, key=order.index)
    return found


@pytest.mark.promise("O210")
def test_a_whole_installation_gates_holds_its_guards_and_has_a_leader(installed: Installation) -> None:
    found = states(installed)
    # Of the programs as pods kwok says what it likes: they run as processes here.
    wanted = found.keys() - {"programs"}
    assert {name: found[name] for name in wanted} == dict.fromkeys(wanted, State.WELL)
    assert wanted >= {
        "version", "clock", "definitions", "classes", "bundle", "certificate", "admission", "leader",
        "guards", "nodes", "models", "cards", "labeler", "allocator", "gangs",
    }  # fmt: skip


def test_the_docs_name_every_check() -> None:
    rows = (ROOT / "docs" / "operators" / "doctor.md").read_text().split("| check | looks at |")[1]
    named = [name for row in rows.split("\n\n")[0].splitlines() for name in re.findall("`([a-z-]+)`", row)]
    assert sorted(named) == sorted(CHECKS)


def test_the_guards_are_all_that_every_installation_has() -> None:
    documents = (
        each
        for path in (ROOT / "manifests" / "base").glob("*.yaml")
        for each in yaml.safe_load_all(path.read_text())
    )
    bindings = {
        each["metadata"]["name"] for each in documents if each["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert {*GUARDS, *ISSUER_GUARDS} == bindings


@pytest.mark.promise("O210")
def test_the_command_prints_a_line_a_finding_and_exits_with_a_status_for_scripts(
    installed: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["doctor", "-o", "json", "--kubeconfig", str(installed.cluster.kubeconfig)])
    found = json.loads(capsys.readouterr().out)
    assert status == int(any(each["state"] == "ill" for each in found))
    assert not any(each["state"] == "unknown" for each in found)
    assert {each["check"] for each in found} >= {"admission", "leader", "guards"}


@pytest.mark.promise("O210")
def test_the_pod_of_helm_test_may_check_everything_and_create_pods_as_dry_runs_alone(
    installed: Installation,
) -> None:
    shown = run(*TEMPLATE, "--show-only=templates/doctor.tpl")
    objects = [each for each in yaml.safe_load_all(shown.stdout) if each["kind"] != "Pod"]
    text = yaml.safe_dump_all(objects)
    installed.cluster.kubectl("apply", "-f", "-", stdin=text)
    try:
        doctor = as_(installed.cluster, "topogate-doctor")
        pod = {"metadata": {"name": "of-the-doctor"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}

        def refusal() -> str:
            try:
                doctor.json("POST", "/api/v1/namespaces/default/pods", body=pod)
            except ApiError as error:
                return error.message
            installed.cluster.kubectl("delete", "pod", "of-the-doctor", "--now")
            return ""

        wait = installed.cluster.wait_for
        wait("pods to be refused", lambda: "may create pods as dry runs alone" in refusal())
        by_doctor = {(each.check, each.state) for each in examine(doctor)}
        assert by_doctor == {(each.check, each.state) for each in examine(installed.api)}
        assert not any(state is State.UNKNOWN for _, state in by_doctor)
    finally:
        installed.cluster.kubectl("delete", "--wait=false", "-f", "-", stdin=text)


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


@pytest.mark.parametrize("guard", ["topogate-tasks", "topogate-certs-webhook"])
def test_a_guard_that_only_warns_is_named(installed: Installation, guard: str) -> None:
    path, before = f"{BINDINGS}/{guard}", ["Deny"]
    assert installed.api.json("GET", path)["spec"]["validationActions"] == before
    with patched(installed, path, "/spec/validationActions", ["Audit"], before):
        (finding,) = (each for each in examine(installed.api) if each.check == "guards")
    assert (finding.state, guard in finding.sentence) == (State.ILL, True)


@pytest.mark.promise("O350")
@pytest.mark.parametrize(
    ("minor", "state"), [("31", State.ILL), ("32", State.WELL), ("36+", State.WELL)], ids=str
)
def test_kubernetes_before_1_32_is_too_old(minor: str, state: State) -> None:
    class Server:
        def json(self, method: str, path: str, **_: Any) -> dict[str, str]:
            if path != "/version":
                raise ApiError(403, "Forbidden", "of no interest here")
            return {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"}

    server: Any = Server()
    (finding,) = (each for each in examine(server) if each.check == "version")
    assert finding.state is state


class Noted(Api):
    """A client that notes what it sends."""

    sent: ClassVar[list[str]] = []

    def request(self, method: str, path: str, **options: Any) -> bytes:
        self.sent.append(f"{method} {path} {options.get('query')}")
        return super().request(method, path, **options)


@pytest.mark.promise("O210")
def test_the_doctor_changes_nothing(installed: Installation) -> None:
    assert list(examine(Noted.connect(installed.cluster.kubeconfig, user_agent="test")))
    acts = [each for each in Noted.sent if not each.startswith("GET ")]
    tried = [each for each in acts if each.endswith("{'dryRun': 'All'}")]
    asked = [each for each in acts if "/selfsubject" in each]
    assert tried, acts
    assert asked, "what you may do"
    assert acts == [each for each in acts if each in (*tried, *asked)]


@pytest.mark.promise("O210")
def test_who_may_read_nothing_gets_a_sentence_and_an_exit_status(
    installed: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = installed.api.json("POST", path, body={"spec": {}})["status"]["token"]
    (tmp_path / "token").write_text(token)
    installed.cluster.write_token_kubeconfig(tmp_path / "kubeconfig", tmp_path / "token")
    assert main(["doctor", "--kubeconfig", str(tmp_path / "kubeconfig")]) == 3
    assert "you are not allowed to check" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hard", "state"), [({"pods": "0"}, State.UNKNOWN), ({"pods": "1"}, State.WELL)], ids=["full", "roomy"]
)
def test_a_quota_that_forbids_the_trial_pod_is_no_fault_of_the_webhook(
    installed: Installation, hard: dict[str, str], state: State
) -> None:
    namespace = opted_in_of(installed)
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    installed.api.request("POST", quotas, body={"metadata": {"name": "q"}, "spec": {"hard": hard}})
    try:
        installed.cluster.wait_for(
            "the quota to be counted", lambda: "used" in installed.api.json("GET", f"{quotas}/q")["status"]
        )
        assert states(installed)["admission"] is state
    finally:
        installed.api.request("DELETE", f"{quotas}/q")


def test_a_program_that_is_scaled_to_nothing_or_gone_is_ill(installed: Installation) -> None:
    deployments = "/apis/apps/v1/namespaces/topogate-system/deployments"
    with patched(installed, f"{deployments}/tasks", "/spec/replicas", 0, 1):
        installed.cluster.wait_for("no replica", lambda: "tasks: 0 of 0" in programs_finding(installed))
    body = installed.api.json("GET", f"{deployments}/certs")
    installed.api.request("DELETE", f"{deployments}/certs")
    try:
        assert "deployment/certs does not exist" in programs_finding(installed)
    finally:
        made = {"metadata": {"name": "certs", "labels": body["metadata"]["labels"]}, "spec": body["spec"]}
        installed.api.request("POST", deployments, body=made)


def programs_finding(installed: Installation) -> str:
    """What is ill of the programs."""
    findings = [
        each for each in examine(installed.api) if each.check == "programs" and each.state is State.ILL
    ]
    return "; ".join(each.sentence for each in findings)


def opted_in_of(installed: Installation) -> str:
    query = {"labelSelector": f"{keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}"}
    return str(installed.api.json("GET", "/api/v1/namespaces", query=query)["items"][0]["metadata"]["name"])


def test_a_namespace_that_is_going_away_is_not_the_one_that_is_tried(installed: Installation) -> None:
    body = {
        "metadata": {
            "name": "a-first",
            "labels": {keys.INJECTION_LABEL: keys.INJECTION_ENABLED},
            "finalizers": ["topogate.io/test"],
        }
    }
    path = "/api/v1/namespaces/a-first"
    installed.api.request("POST", "/api/v1/namespaces", body=body)
    try:
        installed.api.request("DELETE", path)
        (admission,) = [each for each in examine(installed.api) if each.check == "admission"]
    finally:
        patch = [{"op": "remove", "path": "/metadata/finalizers"}]
        installed.api.request("PATCH", path, body=patch, content_type=JSON_PATCH)
    assert admission.state is State.WELL, admission.sentence


def test_a_webhook_that_does_not_answer_is_seen_by_a_pod_without_gate(installed: Installation) -> None:
    body = installed.api.json("GET", CONFIGURATION)
    url = body["webhooks"][0]["clientConfig"]["url"]
    nobody = "https://127.0.0.1:9/mutate"
    with patched(installed, CONFIGURATION, "/webhooks/0/clientConfig/url", nobody, url):
        # The API server takes up a changed configuration within seconds.
        installed.cluster.wait_for("a pod without gate", lambda: states(installed)["admission"] is State.ILL)


@pytest.mark.parametrize(("days", "state"), [(0, State.WELL), (365, State.ILL)], ids=["today", "in a year"])
def test_a_certificate_is_ill_when_it_has_ended(installed: Installation, days: int, state: State) -> None:
    found = states(installed, datetime.now(UTC) + timedelta(days=days))
    assert (found["certificate"], found["clock"]) == (state, State.ODD if days else State.WELL)


def test_a_certificate_for_another_address_is_ill(installed: Installation) -> None:
    url = installed.api.json("GET", CONFIGURATION)["webhooks"][0]["clientConfig"]["url"]
    other = url.replace("127.0.0.1", "127.0.0.2")
    with patched(installed, CONFIGURATION, "/webhooks/0/clientConfig/url", other, url):
        (finding,) = (each for each in examine(installed.api) if each.check == "certificate")
    assert (finding.state, finding.sentence.endswith("is not for 127.0.0.2")) == (State.ILL, True)


def test_a_bundle_that_has_not_signed_what_the_webhook_serves_is_ill(installed: Installation) -> None:
    before = installed.api.json("GET", CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"]
    other = base64.b64encode(issue(("webhook.topogate-system.svc",)).authority).decode()
    with patched(installed, CONFIGURATION, "/webhooks/0/clientConfig/caBundle", other, before):
        (finding,) = (each for each in examine(installed.api) if each.check == "certificate")
    assert (finding.state, "has not signed" in finding.sentence) == (State.ILL, True)


def test_a_configuration_that_cannot_be_read_is_reported_with_a_remedy(installed: Installation) -> None:
    before = installed.api.json("GET", path_of())["data"][KEY]
    with patched(installed, path_of(), f"/data/{KEY}", "nonsense: true", before):
        found = {each.check: each for each in examine(installed.api)}
    assert (found["classes"].state, bool(found["classes"].remedy)) == (State.ILL, True)
    others = ("bind", "claims", "scale-up")
    assert {found[check].state for check in others} == {State.UNKNOWN}
    for check in ("classes", *others):
        assert "the configuration cannot be used" in found[check].sentence


def test_a_labeler_that_does_not_become_ready_somewhere_is_reported(installed: Installation) -> None:
    node = SimulatedNode("silent", ("b", "s", "h"), False, 8)
    with installed.cluster.paused("kwok"):  # so nobody starts its pods
        installed.api.request("POST", "/api/v1/nodes", body=node.manifest(node.topology_labels))
        try:
            installed.cluster.wait_for("a labeler", lambda: states(installed)["labeler"] is State.ODD)
            (finding,) = (each for each in examine(installed.api) if each.check == "labeler")
        finally:
            installed.api.request("DELETE", "/api/v1/nodes/silent")
    assert "ready on" in finding.sentence
    assert "describe daemonset/labeler" in finding.remedy


def test_a_class_that_is_not_there_is_named(installed: Installation) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body = installed.api.json("GET", f"{path}/gpu-high-priority")
    installed.api.request("DELETE", f"{path}/gpu-high-priority")
    try:
        (finding,) = (each for each in examine(installed.api) if each.check == "classes")
    finally:
        made = {"metadata": {"name": body["metadata"]["name"]}, "value": body["value"]}
        installed.api.request("POST", path, body=made)
    assert (finding.state, "gpu-high-priority" in finding.sentence) == (State.ILL, True)


def test_a_bundle_that_cannot_be_read_is_ill(installed: Installation) -> None:
    before = installed.api.json("GET", CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"]
    assert base64.b64decode(before).startswith(b"-----BEGIN CERTIFICATE")
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    kind = "application/json-patch+json"
    installed.api.request("PATCH", CONFIGURATION, body=patch, content_type=kind)
    try:
        assert states(installed)["bundle"] is State.ILL
    finally:
        back = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": before}]
        installed.api.request("PATCH", CONFIGURATION, body=back, content_type=kind)


def test_a_lease_that_nobody_renews_means_that_no_sweeper_leads(installed: Installation) -> None:
    assert states(installed, datetime.now(UTC) + timedelta(minutes=10))["leader"] is State.ILL


@pytest.mark.promise("O310")
def test_a_gpu_node_without_topology_labels_is_a_named_finding(installed: Installation) -> None:
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


@pytest.mark.promise("O310")
@pytest.mark.parametrize("name", [None, "nvidia-fff0"], ids=["no model", "an id instead of a name"])
def test_a_gpu_node_without_a_model_is_a_named_finding(installed: Installation, name: str | None) -> None:
    node, product = "node-b0-s0-h00", "nvidia.com/gpu.product"
    before = installed.api.json("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"][product]
    label_node(installed.api, node, {product: None, keys.GPU_MODEL_LABEL: name})
    try:
        (finding,) = (each for each in examine(installed.api) if each.check == "models")
    finally:
        label_node(installed.api, node, {product: before, keys.GPU_MODEL_LABEL: None})
    assert finding.state is State.ODD
    assert finding.sentence.startswith("1 of 2 GPU nodes have no label for their GPU model")
    assert finding.sentence.endswith(f": {node}")


def test_a_node_of_several_models_has_models(installed: Installation) -> None:
    node, product = "node-b0-s0-h00", "nvidia.com/gpu.product"
    before = installed.api.json("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"][product]
    has = f"{keys.GPU_HAS_MODEL_PREFIX}A100-PCIe-40GB"
    label_node(installed.api, node, {product: None, has: "true"})
    try:
        assert states(installed)["models"] is State.WELL
    finally:
        label_node(installed.api, node, {product: before, has: None})


@pytest.mark.promise("O310")
def test_a_node_with_a_broken_gpu_is_a_finding_with_the_gpu_and_its_fault(
    installed: Installation,
) -> None:
    node, fault = "node-b0-s0-h00", "0000:18:00.0: it does not answer on its bus"
    label_node(installed.api, node, {keys.GPU_BROKEN_LABEL: "1"}, {keys.BROKEN_GPUS_ANNOTATION: fault})
    try:
        (finding,) = (each for each in examine(installed.api) if each.check == "cards")
    finally:
        label_node(installed.api, node, {keys.GPU_BROKEN_LABEL: None}, {keys.BROKEN_GPUS_ANNOTATION: None})
    assert (finding.state, finding.sentence) == (State.ODD, f"node {node} has 1 broken GPU: {fault}")


@pytest.mark.promise("O310")
@pytest.mark.parametrize(
    ("offers", "named"),
    [(None, ""), ("card0=nvidia.com/gpu:1,card3=nvidia.com/gpu:0", ": card3")],
    ids=["of any device plugin", "of topogate's allocator"],
)
def test_a_node_whose_device_plugin_has_unhealthy_devices_is_a_named_finding(
    installed: Installation, offers: str | None, named: str
) -> None:
    node, resource = "node-b0-s0-h00", "nvidia.com/gpu"

    def write(usable: str) -> None:
        body = {"status": {"capacity": {resource: "8"}, "allocatable": {resource: usable}}}
        installed.api.request("PATCH", f"/api/v1/nodes/{node}/status", body=body, content_type=MERGE_PATCH)

    write("7")
    label_node(installed.api, node, {}, {keys.OFFERED_CARDS_ANNOTATION: offers})
    try:
        (finding,) = (each for each in examine(installed.api) if each.check == "cards")
    finally:
        write("8")
        label_node(installed.api, node, {}, {keys.OFFERED_CARDS_ANNOTATION: None})
    assert finding.state is State.ODD
    assert finding.sentence == f"node {node} has 1 of 8 devices of {resource} unusable{named}"


@pytest.mark.promise("O348")
def test_a_memory_limit_that_the_cluster_outgrows_is_reported_before_it_kills_the_sweeper(
    installed: Installation,
) -> None:
    path = "/apis/apps/v1/namespaces/topogate-system/deployments/sweeper"
    field = "/spec/template/spec/containers/0/resources/limits/memory"
    with patched(installed, path, field, "130Mi", "2048Mi"):
        (finding,) = (each for each in examine(installed.api) if each.check == "memory")
    assert finding.state is State.ODD
    assert "130Mi" in finding.sentence
    assert "docs/operators/sizing.md" in finding.remedy


@pytest.mark.parametrize(
    ("nodes", "pods", "measured"), [(5000, 60_000, 280), (20_000, 110_000, 532), (65_000, 210_000, 1082)]
)
def test_what_the_doctor_takes_a_sweeper_to_need_is_above_what_was_measured(
    nodes: int, pods: int, measured: int
) -> None:
    assert measured < needed(nodes, pods) / 1e6 < 1.25 * measured


@pytest.mark.promise("O348")
def test_the_shipped_limit_is_near_at_no_size_that_the_docs_call_supported() -> None:
    documents = yaml.safe_load_all((ROOT / "manifests/base/sweeper.yaml").read_text())
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) * 2**20
    assert needed(65_000, 210_000) < 0.8 * limit
