"""The Helm chart installs what overlays and components install, and refuses values that cannot be meant."""

import argparse
import base64
import contextlib
import io
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.go_programs import HELM
from hack.local.install import SYSTEM, WEBHOOKS, system_node
from hack.local.pki import FileAuthority
from hack.releases import chart, chart_arguments
from hack.releases.merged import More, Value, template
from tests.support import clean, delete, exists
from webhook.configuration.cluster import KEY, NAME
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import default, from_document, parse
from webhook.configuration.keys import API_VERSION, KEYS, KIND
from webhook.configuration.settings import BadNodes

IMAGES = ("images.topogate=topogate", "images.labeler=topogate-labeler")
"""The names that the base has; they stand for no registry, and are not refused for that."""

SHIPPED = chart.MANIFESTS.parent / "webhook/configuration/shipped-configuration.yaml"
CLASS = "check-capacity.autoscaling.x-k8s.io"

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
    ("base", ("scale-up",), (f"config.scaleUp.provisioningClass={CLASS}",), "1.36.0"),
    ("base", ("in-process-gate",), ("inProcessGate.enabled=true",), "1.36.0"),
    ("base", ("falldio",), ("falldio=label",), "1.36.0"),
    ("base", ("falldio-resource",), ("falldio=resource",), "1.36.0"),
    ("base", ("labeler-gce",), ("labeler.source=gce",), "1.36.0"),
    ("base", ("labeler-eks",), ("labeler.source=eks",), "1.36.0"),
    ("base", ("labeler-nfd",), ("labeler.source=nfd",), "1.36.0"),
    ("base", ("labeler-extended-resources",), ("labeler.extendedResources=true",), "1.36.0"),
    (
        "overlays/strict",
        ("in-process-gate", "cert-manager", "ui", "falldio", "labeler-extended-resources"),
        (
            "strict.enabled=true",
            "inProcessGate.enabled=true",
            "certManager.enabled=true",
            "ui.enabled=true",
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


def read(objects: dict[chart.Identity, dict[str, Any]]) -> dict[chart.Identity, dict[str, Any]]:
    """The objects with the configuration as a document, without the keys that only values have here."""
    key = ("ConfigMap", SYSTEM, NAME)
    document = yaml.safe_load(objects[key]["data"][KEY])
    for section in ("scaleUp", "binding"):
        document.pop(section, None)
    return objects | {key: document}


@pytest.mark.promise("O340")
@pytest.mark.usefixtures("control_plane")
def test_the_chart_gives_the_objects_of_the_overlay() -> None:
    faults = []
    for overlay, components, values, version in TABLE:
        wanted, found = read(chart.rendered(overlay, components)), read(templated(values, version))
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
    ("config=gatePrefix: x", "/config"),
    ("config.gatePrefix=example.com/x", "hack/chart"),
    ("config.gpus.resources={example.com/gpu}", "hack/chart"),
    ("config.namespaces.rules.team.maximumTier=low", "hack/chart"),
    ("strict.enabled=true", "config.gangs.native=leave", "hack/chart"),
    ("config.tiers[0].name=only", "/config/tiers/0"),
    ("config.tier=x", "tier"),
    ("config.gangs.setle=5s", "setle"),
    ("config.gangs.settle=soon", "/config/gangs/settle"),
    ("config.placement.mode=widest", "/config/placement/mode"),
    ("config.scaleUp.pods=0", "/config/scaleUp/pods"),
    ("labeler.config=sources: udev", "labeler.config: sources must be a list, not text"),
    (
        "labeler.config=sources: [udev]\ninterval: often",
        "labeler.config: interval must be a number, not text",
    ),
    ("labeler.config=sources: [[udev]]", "sources[0] must be a name, or one name with options, not a list"),
    ("falldio=label", "config.gangs.settle=1s", "which would replace yours"),
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
    ("webhook.extraArgs[0]=--no-such-flag", "/webhook/extraArgs/0"),
    ("webhook.extraArgs[0]=--bind=0.0.0.0:high", "/webhook/extraArgs/0"),
    ("webhook.extraArgs[0]=--interval=5", "/webhook/extraArgs/0"),
    ("webhook.extraArgs=--bind=:8443", "/webhook/extraArgs"),
    ("sweeper.extraArgs={--interval,5}", "/sweeper/extraArgs/0"),
    ("sweeper.extraArgs={--interval=soon}", "/sweeper/extraArgs/0"),
    ("sweeper.extraArgs={--leader-election=no}", "/sweeper/extraArgs/0"),
    ("sweeper.extraArgs={--interval=5,--mode=worst-fit}", "/sweeper/extraArgs/1"),
    ("tasks.extraArgs={--metrics-port=65536}", "/tasks/extraArgs/0"),
    ("certs.extraArgs={--days=5000}", "/certs/extraArgs/0"),
    ("ui.extraArgs={--cluster-nam=x}", "/ui/extraArgs/0"),
    ("labeler.extraArgs={--oneshot}", "/labeler/extraArgs/0"),
    ("labeler.extraArgs={--interval=0}", "/labeler/extraArgs/0"),
    ("allocator.extraArgs={--shares=0}", "/allocator/extraArgs/0"),
    ("sweeper=null", "sweeper"),
    ("sweeper.resources=null", "resources"),
    ("images=null", "images"),
    ("strict=null", "strict"),
    ("config=null", "config"),
]


VALUES_OF_FLAGS: Final = (
    "", "0", "1", "5", "0.5", "5.", ".5", "-1", "1e3", "nan", "x", "30", "30.5", "31", "1000", "1001", "3650",
    "4000", "65535", "65536", "99999", "0.0.0.0:8443", ":0", "a:", "90s", "0s", "2h", "debug", "text", "no",
    "best-fit", "keep-whole", "intel", "two words",
)  # fmt: skip


def is_parsed(parser: argparse.ArgumentParser, argument: str) -> bool:
    """Whether a program takes this argument beside those that it needs, and does not end with it."""
    needed = [
        f"{each.option_strings[0]}=x" for each in parser._actions if each.required and each.option_strings
    ]
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            parser.parse_args([*needed, argument])
    except SystemExit:
        return False
    return True


@pytest.mark.promise("O382")
@pytest.mark.parametrize("program", chart_arguments.PARSERS)
def test_the_chart_takes_no_argument_that_the_program_refuses_and_some_of_each_option(program: str) -> None:
    parser, pattern = chart_arguments.PARSERS[program](), re.compile(chart_arguments.pattern(program))
    wrong, without = [], []
    for name in (name for action in parser._actions for name in action.option_strings):
        arguments = [name, *(f"{name}={value}" for value in VALUES_OF_FLAGS)]
        taken = [each for each in arguments if pattern.fullmatch(each)]
        wrong += [each for each in taken if not is_parsed(parser, each)]
        without += [] if taken else [name]
    assert wrong == []
    assert set(without) <= {"-h", "-n", *chart_arguments.NEVER}


@pytest.mark.promise("O342", "O382")
@pytest.mark.usefixtures("control_plane")
def test_a_value_that_cannot_be_meant_is_refused_with_its_name() -> None:
    faults = []
    for *values, expected in WRONG:
        result = run(*TEMPLATE, "--namespace=kube-system", values=[*IMAGES, *values])
        if not result.returncode or expected not in result.stderr or "nil pointer" in result.stderr:
            faults.append(f"{values}: {result.stderr or 'is taken'}")
    assert faults == []


WRONG_ITEMS: Final[tuple[tuple[str, Any], ...]] = (
    ("tiers", [{"name": {"x": 1}, "priorityClassName": "x"}]),
    ("tiers", [{"name": "x", "priorityClassName": 5}]),
    ("tiers", [{"name": "x", "priorityClassName": "x", "nam": "x"}]),
    ("models", [{"name": ["H100"], "labels": {"a": "b"}}]),
    ("models", [{"name": "H100", "aliases": "H", "labels": {"a": "b"}}]),
    ("models", [{"name": "H100", "labels": {"a": True}}]),
    ("models", [{"name": "H100", "labels": {"a": "b"}, "resources": "nvidia.com/gpu"}]),
    ("namespaces.rules", {"team": "high"}),
    ("namespaces.rules", {"team": {"defaultTier": ["high"]}}),
    ("namespaces.rules", {"team": {"defaultModel": 5}}),
    ("namespaces.rules", {"team": {"default": "x"}}),
    ("topology.levels", {"block": 5}),
    ("fairOrder.weights", {"team-a": "three"}),
    ("fairOrder.modelCosts", {"H100": []}),
    ("scaleUp.parameters", {"a": 1}),
    ("schedulers", ["x"]),
)
"""Keys of the configuration with items of another type, and a key that there is not."""


def nested(path: str, value: Any) -> dict[str, Any]:
    """The document with one value at a path."""
    section, _, name = path.partition(".")
    return {section: {name: value} if name else value}


def with_configuration(document: dict[str, Any], folder: Path) -> "subprocess.CompletedProcess[str]":
    (folder / "values.yaml").write_text(json.dumps({"config": document}))
    return run(*TEMPLATE, "--namespace=kube-system", f"--values={folder / 'values.yaml'}")


@pytest.mark.promise("O382")
@pytest.mark.usefixtures("control_plane")
def test_a_configuration_of_another_shape_is_refused_as_the_programs_would_refuse_it(tmp_path: Path) -> None:
    """Each key with a value of another type, and items of other types."""
    others = [(key.path, "x" if key.kind.schema.get("type") == "object" else {"x": 1}) for key in KEYS]
    faults = []
    for path, value in (*others, *WRONG_ITEMS):
        document = nested(path, value)
        with pytest.raises(ConfigurationError):
            from_document({"apiVersion": API_VERSION, "kind": KIND, **document}, "the configuration")
        result = with_configuration(document, tmp_path)
        if not result.returncode or "nil pointer" in result.stderr:
            faults.append(f"{path}: {value}: {result.stderr or 'is taken'}")
    assert faults == []


@pytest.mark.usefixtures("control_plane")
def test_a_configuration_with_every_key_is_taken(tmp_path: Path) -> None:
    document: dict[str, Any] = {}
    for key in KEYS:
        value = default(key)
        for section, part in nested(key.path, "example.com/a" if value is None else value).items():
            if isinstance(part, dict) and section in document:
                document[section] |= part
            else:
                document[section] = part
    document["topology"]["levels"] = {"block": "example.com/block", "host": ["example.com/host"]}
    for name in ("models", "tiers"):
        del document[name]
    document["namespaces"]["rules"] = {"team": {"defaultTier": "low", "defaultModel": "H100"}, "*": {}}
    document["gpus"]["resources"] = parse(SHIPPED.read_text()).policy.gpu_resources
    result = with_configuration(document, tmp_path)
    assert result.returncode == 0, result.stderr


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


@pytest.mark.promise("O341")
@pytest.mark.usefixtures("control_plane")
def test_images_that_are_not_named_are_refused_with_the_command_that_names_them() -> None:
    result = run(*TEMPLATE, "--namespace=kube-system", values=[])
    assert result.returncode != 0
    assert "--set images.topogate=YOUR-REGISTRY/topogate:TAG" in result.stderr
    assert "hack/image build" in result.stderr


@pytest.mark.promise("O350")
@pytest.mark.usefixtures("control_plane")
def test_the_gate_of_the_api_server_is_refused_before_kubernetes_1_36() -> None:
    arguments = (*TEMPLATE, "--namespace=kube-system", "--kube-version=1.35.2")
    result = run(*arguments, values=[*IMAGES, "inProcessGate.enabled=true"])
    assert result.returncode != 0
    assert (
        "inProcessGate.enabled needs Kubernetes 1.36 or newer, and the cluster has v1.35.2" in result.stderr
    )


@pytest.mark.promise("O350")
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
            "sweeper.extraArgs={--log-level=debug}",
            "webhook.replicas=3",
            "nodeSelector.pool=system",
            "imagePullSecrets[0].name=registry",
            "tolerations[0].operator=Exists",
            "labeler.facts=a: 1",
        )
    )
    sweeper = found["Deployment", SYSTEM, "sweeper"]["spec"]["template"]["spec"]
    assert sweeper["containers"][0]["resources"]["limits"] == {"memory": "2Gi"}
    assert "--log-level=debug" in sweeper["containers"][0]["args"]
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


@pytest.mark.promise("O343")
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


@pytest.mark.promise("O367")
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


@pytest.mark.promise("R303")
@pytest.mark.usefixtures("control_plane")
def test_runbooks_open_at_the_address_that_is_given() -> None:
    base = "https://git.example.com/topogate/blob/v0.1.0/docs"
    shipped = runbooks()
    assert all(each.startswith("docs/operators/runbooks.md#") for each in shipped)
    for end in ("", "/"):
        given = runbooks(f"monitoring.runbookBase={base}{end}")
        assert given == [base + each.removeprefix("docs") for each in shipped]


def runbooks(*values: str) -> list[str]:
    """The runbook of each alert."""
    found = templated(("monitoring.enabled=true", *values))["PrometheusRule", SYSTEM, "topogate"]
    rules = [rule for group in found["spec"]["groups"] for rule in group["rules"]]
    return [rule["annotations"]["runbook_url"] for rule in rules]


@pytest.mark.usefixtures("control_plane")
def test_a_value_of_the_configuration_changes_that_key_alone() -> None:
    (map_,) = (
        each["data"][KEY]
        for name, each in templated(("config.gangs.settle=1m", "config.nodeHealth.failures=4")).items()
        if name == ("ConfigMap", SYSTEM, NAME)
    )
    shipped = parse(SHIPPED.read_text())
    settings = replace(shipped.settings, settle_seconds=60.0, bad_nodes=BadNodes(failures=4))
    assert parse(map_) == replace(shipped, settings=settings)


def test_a_list_that_options_extend_is_written_once() -> None:
    text = template({"a": [1, 2]}, {".Values.x": {"a": [1, 2, 3]}, ".Values.y": {"a": [1, 2, 4]}})
    assert text.count("- 1") == 1
    assert "{{- if .Values.x }}\n  - 3\n{{- end }}\n{{- if .Values.y }}\n  - 4\n{{- end }}" in text


def test_braces_of_others_templates_are_given_out_as_they_are() -> None:
    assert template({"a": "{{ $x }}", "b": Value("c"), "d": [More("e")]}, {}) == (
        "a: '{{ \"{{\" }} $x }}'\nb: {{ c }}\nd:\n{{- with e }}{{ toYaml . | nindent 2 }}{{- end }}\n"
    )
