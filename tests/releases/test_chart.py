"""The Helm chart installs what overlays and components install, and refuses values that cannot be meant."""

import base64
import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.go_programs import HELM
from hack.local.install import SYSTEM, WEBHOOKS, system_node
from hack.local.pki import FileAuthority
from hack.releases import chart
from hack.releases.merged import More, Value, template
from tests.support import clean, delete, exists

IMAGES = ("images.topogate=topogate", "images.labeler=topogate-labeler")
"""The names that the base has; they stand for no registry, and are not refused for that."""

TABLE: list[tuple[str, tuple[str, ...], tuple[str, ...], str]] = [
    # overlay, components, values, Kubernetes
    ("overlays/default", (), (), "1.36.0"),
    ("overlays/cert-manager", (), ("certManager.enabled=true",), "1.36.0"),
    ("overlays/strict", (), ("strict.enabled=true",), "1.36.0"),
    ("base", ("ui",), ("ui.enabled=true",), "1.36.0"),
    ("base", ("monitoring",), ("monitoring.enabled=true",), "1.36.0"),
    ("base", ("reader",), ("reader.enabled=true",), "1.36.0"),
    ("base", ("allocator",), ("allocator.enabled=true",), "1.36.0"),
    ("base", ("allocator", "allocator-before-1.36"), ("allocator.enabled=true",), "1.35.4"),
    ("base", ("scale-up",), ("scaleUp.enabled=true",), "1.36.0"),
    ("base", ("nominated-binding",), ("nominatedBinding.enabled=true",), "1.36.0"),
    ("base", ("in-process-gate",), ("inProcessGate.enabled=true",), "1.36.0"),
    ("base", ("falldio",), ("falldio=label",), "1.36.0"),
    ("base", ("falldio-resource",), ("falldio=resource",), "1.36.0"),
    ("base", ("labeler-gce",), ("labeler.source=gce",), "1.36.0"),
    ("base", ("labeler-eks",), ("labeler.source=eks",), "1.36.0"),
    ("base", ("labeler-nfd",), ("labeler.source=nfd",), "1.36.0"),
    ("base", ("labeler-extended-resources",), ("labeler.extendedResources=true",), "1.36.0"),
    (
        "overlays/strict",
        ("in-process-gate", "cert-manager", "ui", "scale-up", "falldio", "labeler-extended-resources"),
        (
            "strict.enabled=true",
            "inProcessGate.enabled=true",
            "certManager.enabled=true",
            "ui.enabled=true",
            "scaleUp.enabled=true",
            "falldio=label",
            "labeler.extendedResources=true",
        ),
        "1.36.0",
    ),
]


TEMPLATE = ("template", "topogate", str(chart.CHART))


def run(*arguments: str, values: Sequence[str] = IMAGES) -> "subprocess.CompletedProcess[str]":
    sets = [word for each in values for word in ("--set", each)]
    return subprocess.run([str(HELM.build()), *arguments, *sets], capture_output=True, text=True, check=False)


def templated(values: Sequence[str] = (), version: str = "1.36.0") -> dict[chart.Identity, dict[str, Any]]:
    """The objects of the chart with these values beside the images."""
    arguments = (*TEMPLATE, "--namespace=kube-system")
    result = run(*arguments, f"--kube-version={version}", values=[*IMAGES, *values])
    assert result.returncode == 0, result.stderr
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    objects = [each for each in yaml.load_all(result.stdout, loader) if each]
    found = {chart._identity(each): each for each in objects}
    assert len(found) == len(objects)
    return found


@pytest.mark.usefixtures("control_plane")
def test_the_chart_gives_the_objects_of_the_overlay() -> None:
    faults = []
    for overlay, components, values, version in TABLE:
        wanted, found = chart.rendered(overlay, components), templated(values, version)
        differing = sorted(
            name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
        )
        faults += [f"{' '.join((overlay, *components))}: {' '.join(name)}" for name in differing]
    assert faults == []


@pytest.mark.usefixtures("control_plane")
def test_the_chart_is_the_one_that_the_manifests_give() -> None:
    """Failed? Run hack/chart."""
    there = {
        str(path.relative_to(chart.CHART)): path.read_text()
        for path in chart.CHART.rglob("*")
        if path.is_file()
    }
    assert there == chart.contents()


WRONG = [
    ("images.topogate=", "images.topogate is"),
    ("images.labeler=REGISTRY/topogate-labeler:v1", "images.labeler is"),
    ("ui.enabled=yes", "/ui/enabled"),
    ("monitoring.runbookBase=git.example.com", "/monitoring/runbookBase"),
    ("sweper.replicas=3", "sweper"),
    ("webhook.replicas=0", "/webhook/replicas"),
    ("sweeper.resources.limits.memory=lots", "/sweeper/resources/limits/memory"),
    ("labeler.source=azure", "/labeler/source"),
    ("falldio=true", "/falldio"),
    ("policy=gate: [x", "policy is no YAML"),
    ("policy=gatePrefix: example.com/", "hack/chart"),
    ("falldio=label", "policy=kind: AdmissionPolicy", "which would replace yours"),
    ("labeler.source=gce", "labeler.config=sources: [udev]", "which would replace labeler.config"),
    ("labeler.config=sources: [udev", "labeler.config is no YAML"),
    ("labeler.config=interval: 5", "labeler.config names no sources"),
    ("labeler.config=sources: [udev]\nintervall: 5", "labeler.config: there is no key intervall"),
    ("labeler.facts=a: [x", "labeler.facts is no YAML"),
    ("images.topogate=YOUR-REGISTRY/topogate:v1", "images.topogate is"),
    ("createNamespaces=null", "createNamespaces"),
    ("sweeper.resources.limits.memory=1.2.3Mi", "/sweeper/resources/limits/memory"),
    ("sweeper.resources.limits.memory=2mi", "/sweeper/resources/limits/memory"),
    ("sweeper.resources.limits.memoy=2Gi", "memoy"),
    ("imagePullSecrets[0].nam=registry", "/imagePullSecrets/0"),
    ("nodeSelector.a b=c", "a b"),
    ("nodeSelector.zone=a b", "/nodeSelector/zone"),
    ("tolerations[0].efect=NoSchedule", "efect"),
    ("tolerations[0].effect=NoScedule", "/tolerations/0/effect"),
    ("webhook.extraArgs[0]=", "/webhook/extraArgs/0"),
    ("sweeper=null", "sweeper"),
    ("sweeper.resources=null", "resources"),
    ("images=null", "images"),
    ("strict=null", "strict"),
    ("policy=null", "policy"),
]


@pytest.mark.usefixtures("control_plane")
def test_a_value_that_cannot_be_meant_is_refused_with_its_name() -> None:
    faults = []
    for *values, expected in WRONG:
        result = run(*TEMPLATE, "--namespace=kube-system", values=[*IMAGES, *values])
        if not result.returncode or expected not in result.stderr or "nil pointer" in result.stderr:
            faults.append(f"{values}: {result.stderr or 'is taken'}")
    assert faults == []


@pytest.mark.usefixtures("control_plane")
def test_every_amount_of_kubernetes_is_taken() -> None:
    amounts = ["1", "500m", "1.5", ".5", "2Gi", "512Mi", "64k", "1e9", "2E"]
    sets = [f"--set-string=sweeper.resources.limits.a/{n}={each}" for n, each in enumerate(amounts)]
    result = run(*TEMPLATE, *sets)
    assert result.returncode == 0, result.stderr


@pytest.mark.usefixtures("control_plane")
def test_a_limit_can_be_taken_away() -> None:
    found = templated(["sweeper.resources.limits=null", "webhook.resources.limits.memory=null"])
    (sweeper, webhook) = (
        found["Deployment", "topogate-system", name]["spec"]["template"]["spec"]["containers"][0]["resources"]
        for name in ("sweeper", "webhook")
    )
    assert "limits" not in sweeper
    assert "memory" not in (webhook.get("limits") or {})


@pytest.mark.usefixtures("control_plane")
def test_images_that_are_not_named_are_refused_with_the_command_that_names_them() -> None:
    result = run(*TEMPLATE, "--namespace=kube-system", values=[])
    assert result.returncode != 0
    assert "--set images.topogate=YOUR-REGISTRY/topogate:TAG" in result.stderr
    assert "hack/image build" in result.stderr


@pytest.mark.usefixtures("control_plane")
def test_the_gate_of_the_api_server_is_refused_before_kubernetes_1_36() -> None:
    arguments = (*TEMPLATE, "--namespace=kube-system", "--kube-version=1.35.2")
    result = run(*arguments, values=[*IMAGES, "inProcessGate.enabled=true"])
    assert result.returncode != 0
    assert (
        "inProcessGate.enabled needs Kubernetes 1.36 or newer, and the cluster has v1.35.2" in result.stderr
    )


@pytest.mark.usefixtures("control_plane")
def test_kubernetes_before_1_32_is_refused() -> None:
    arguments = (*TEMPLATE, "--namespace=kube-system", "--kube-version=1.31.9")
    result = run(*arguments)
    assert result.returncode != 0
    assert "kubeVersion: >=1.32.0-0" in result.stderr


@pytest.mark.usefixtures("control_plane")
def test_a_release_is_not_stored_in_a_namespace_that_the_chart_makes() -> None:
    result = run(*TEMPLATE, f"--namespace={SYSTEM}")
    assert result.returncode != 0
    assert "createNamespaces=false" in result.stderr
    there = run(
        "template",
        "topogate",
        str(chart.CHART),
        f"--namespace={SYSTEM}",
        values=[*IMAGES, "createNamespaces=false"],
    )
    assert there.returncode == 0, there.stderr
    assert "kind: Namespace\n" not in there.stdout


@pytest.mark.usefixtures("control_plane")
def test_values_reach_the_pods() -> None:
    found = templated(
        (
            "sweeper.resources.limits.memory=2Gi",
            "sweeper.extraArgs={--interval=5}",
            "webhook.replicas=3",
            "nodeSelector.pool=system",
            "imagePullSecrets[0].name=registry",
            "tolerations[0].operator=Exists",
            "labeler.facts=a: 1",
        )
    )
    sweeper = found["Deployment", SYSTEM, "sweeper"]["spec"]["template"]["spec"]
    assert sweeper["containers"][0]["resources"]["limits"] == {"memory": "2Gi"}
    assert "--interval=5" in sweeper["containers"][0]["args"]
    assert sweeper["nodeSelector"] == {"pool": "system"}
    assert sweeper["tolerations"] == [{"operator": "Exists"}]
    assert sweeper["imagePullSecrets"] == [{"name": "registry"}]
    assert found["Deployment", SYSTEM, "webhook"]["spec"]["replicas"] == 3
    labeler = found["DaemonSet", "topogate-labeler", "labeler"]["spec"]["template"]["spec"]
    assert labeler["imagePullSecrets"] == [{"name": "registry"}]
    assert "pool" not in labeler["nodeSelector"]
    assert found["ConfigMap", "topogate-labeler", "labeler"]["data"]["facts.yaml"] == "a: 1"


@pytest.fixture(scope="module")
def released(module_cluster: Cluster) -> Iterator[Cluster]:
    """The chart, installed on a control plane; its pods stand on a simulated node."""
    nodes.register(module_cluster.api(), [system_node()])
    remove_definitions(module_cluster)
    result = run("install", "topogate", str(chart.CHART), *of(module_cluster))
    assert result.returncode == 0, result.stderr
    yield module_cluster
    clean(module_cluster)


def remove_definitions(cluster: Cluster) -> None:
    """Remove what tests of the manifests leave: Helm takes over no definition that another tool has made."""
    api, path = cluster.api(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    ours = [
        f"{path}/{each['metadata']['name']}"
        for each in api.json("GET", path)["items"]
        if each["spec"]["group"] in ("topogate.io", "falldio.com")
    ]
    for each in ours:
        delete(api, each)
    cluster.wait_for("the definitions to be gone", lambda: not any(exists(api, each) for each in ours))


def of(cluster: Cluster) -> tuple[str, ...]:
    return (f"--kubeconfig={cluster.kubeconfig}", "--namespace=kube-system")


def test_helm_installs_the_objects_of_the_default_overlay(released: Cluster) -> None:
    wanted = chart.rendered("overlays/default")
    result = run("get", "manifest", "topogate", *of(released), values=())
    assert {chart._identity(each) for each in yaml.safe_load_all(result.stdout) if each} == wanted.keys()
    for name in ("webhook", "sweeper", "tasks"):
        released.kubectl("get", "deployment", name, "-n", SYSTEM)


def test_an_upgrade_keeps_the_authority_that_was_issued_and_the_plans(released: Cluster) -> None:
    path = "/webhooks/0/clientConfig/caBundle"
    bundle = base64.b64encode(FileAuthority.create("test").pem).decode()
    issued = json.dumps([{"op": "add", "path": path, "value": bundle}])
    released.kubectl("patch", "mutatingwebhookconfiguration", "topogate", "--type=json", "-p", issued)
    plan = {
        "apiVersion": "topogate.io/v1alpha1",
        "kind": "Placement",
        "metadata": {"name": "kept"},
        "spec": {},
    }
    released.kubectl("create", "-n", "default", "-f", "-", stdin=yaml.safe_dump(plan))
    more = [*IMAGES, "sweeper.resources.limits.memory=1Gi", "monitoring.enabled=false"]
    result = run("upgrade", "topogate", str(chart.CHART), *of(released), values=more)
    assert result.returncode == 0, result.stderr
    assert authority_of(released) == bundle
    released.kubectl("get", "placement", "kept", "-n", "default")


def test_values_stay_by_reuse_and_a_rollback_brings_back_what_was(released: Cluster) -> None:
    bundle = authority_of(released)
    before = revision_of(released)
    reused = run(
        "upgrade",
        "topogate",
        str(chart.CHART),
        "--reuse-values",
        *of(released),
        values=["webhook.replicas=3"],
    )
    assert reused.returncode == 0, reused.stderr
    assert replicas_of(released, "webhook") == 3
    assert replicas_of(released, "sweeper") == 2
    back = run("rollback", "topogate", str(before), *of(released), values=())
    assert back.returncode == 0, back.stderr
    assert replicas_of(released, "webhook") == 2
    assert authority_of(released) == bundle


def test_a_second_release_is_refused_with_the_first_one_s_name(released: Cluster) -> None:
    for name, namespace in (("other", "kube-system"), ("topogate", "default")):
        where = (f"--kubeconfig={released.kubeconfig}", f"--namespace={namespace}")
        result = run("install", name, str(chart.CHART), *where)
        assert result.returncode != 0
        assert "already, as release topogate of namespace kube-system" in result.stderr
        assert "helm upgrade topogate CHART --namespace kube-system" in result.stderr


def revision_of(cluster: Cluster) -> int:
    listed = run("list", "--output=json", *of(cluster), values=())
    return int(json.loads(listed.stdout)[0]["revision"])


def replicas_of(cluster: Cluster, name: str) -> int:
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{name}"
    return int(cluster.api().json("GET", path)["spec"]["replicas"])


def authority_of(cluster: Cluster) -> str:
    return str(cluster.api().json("GET", WEBHOOKS)["webhooks"][0]["clientConfig"].get("caBundle", ""))


@pytest.mark.usefixtures("control_plane")
def test_runbooks_open_at_the_address_that_is_given() -> None:
    base = "https://git.example.com/topogate/blob/v0.1.0/docs"
    shipped = runbooks()
    assert all(each.startswith("docs/operators/runbooks-") for each in shipped)
    for end in ("", "/"):
        given = runbooks(f"monitoring.runbookBase={base}{end}")
        assert given == [base + each.removeprefix("docs") for each in shipped]


def runbooks(*values: str) -> list[str]:
    """The runbook of each alert."""
    found = templated(("monitoring.enabled=true", *values))["PrometheusRule", SYSTEM, "topogate"]
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    return [rule["annotations"]["runbook_url"] for rule in rules]


@pytest.mark.usefixtures("control_plane")
def test_further_arguments_override_those_of_options() -> None:
    found = templated(("scaleUp.enabled=true", "sweeper.extraArgs={--scale-up-requests=3}"))
    (container, *_) = found["Deployment", SYSTEM, "sweeper"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == "--scale-up-requests=3"
    assert "--scale-up-requests=10" in container["args"]


def test_a_list_that_options_extend_is_written_once() -> None:
    text = template({"a": [1, 2]}, {".Values.x": {"a": [1, 2, 3]}, ".Values.y": {"a": [1, 2, 4]}})
    assert text.count("- 1") == 1
    assert "{{- if .Values.x }}\n  - 3\n{{- end }}\n{{- if .Values.y }}\n  - 4\n{{- end }}" in text


def test_braces_of_others_templates_are_given_out_as_they_are() -> None:
    assert template({"a": "{{ $x }}", "b": Value("c"), "d": [More("e")]}, {}) == (
        "a: '{{ \"{{\" }} $x }}'\nb: {{ c }}\nd:\n{{- with e }}{{ toYaml . | nindent 2 }}{{- end }}\n"
    )
