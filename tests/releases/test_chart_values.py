"""The chart refuses values that cannot be meant, and passes the others on to the objects."""

import argparse
import contextlib
import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.local.install import SYSTEM
from hack.releases import chart, chart_arguments
from tests.configuration.wrong import MODELS, WRONG_AFTER_HEAD, WRONG_FAIR_ORDER
from tests.releases.helm import IMAGES, TEMPLATE, run, templated
from webhook.configuration.schema import DEFAULTS
from webhook.configuration.shipped_configuration import shipped_configuration

AT_SCHEDULING: Final = "requiredDuringSchedulingIgnoredDuringExecution"
TIER: Final = ("config.tiers[0].name=a", "config.tiers[0].priorityClassName=x")

WRONG: Final[list[tuple[str, ...]]] = [
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
    ("config.tiers[3].name=fourth", "config.tiers[3].priorityClassName is missing"),
    (*TIER, "config.tiers[1].name=b", "config.tiers[1].priorityClassName is missing"),
    ("config.tiers[0].nam=only", "/config/tiers/0"),
    ("config.gangs.settle=soon", "/config/gangs/settle"),
    ("config.topology.levels.block=example.com/block", "/config/topology/levels"),
    (*TIER, "config.tiers[1].name=a", "config.tiers[1].priorityClassName=y", "tiers[1].name: a occurs twice"),
    ("config.namespaces.rules.a.defaultTier=top", "config.namespaces.rules.a.defaultTier: there is no top"),
    ("labeler.config=sources: [udev]", "/labeler/config"),
    ("labeler.config.sources=udev", "/labeler/config/sources"),
    ("labeler.config.sources={}", "/labeler/config/sources"),
    ("labeler.config.sources={udef}", "/labeler/config/sources/0"),
    ("labeler.config.sources[0].udev.ignore-integratd=true", "ignore-integratd"),
    ("labeler.config.sources=null", "sources"),
    ("labeler.config.interval=often", "/labeler/config/interval"),
    ("labeler.config.intervall=5", "intervall"),
    ("labeler.config.levels={rack}", "/labeler/config/levels/0"),
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
    ("webhook.podLabels.app=a b", "/webhook/podLabels/app"),
    (r"webhook.podLabels.app\.kubernetes\.io/name=x", "app.kubernetes.io/name"),
    ("sweeper.podAnnotations.a=5", "/sweeper/podAnnotations/a"),
    ("tasks.priorityClassName=High", "/tasks/priorityClassName"),
    ("ui.nodeSelector.zone=a b", "/ui/nodeSelector/zone"),
    ("labeler.tolerations[0].efect=NoSchedule", "efect"),
    ("certs.affinity.nodeAfinity.a=b", "nodeAfinity"),
    ("webhook.topologySpreadConstraints[0].maxSkew=1", "/webhook/topologySpreadConstraints/0"),
    ("sweeper.env[0].name=NODE_NAME", "/sweeper/env/0/name"),
    ("sweeper.env[0].value=x", "/sweeper/env/0"),
    ("allocator.serviceAccount.name=x", "/allocator/serviceAccount"),
    ("labeler.replicas=2", "replicas"),
    ("sweeper.resources.limits.memory=-1", "/sweeper/resources/limits/memory"),
    (
        "webhook.resources.limits.memory=64Mi",
        "webhook.resources: the request of memory is 96Mi, which is above",
    ),
    (
        "tasks.resources.requests.cpu=2",
        "tasks.resources.limits.cpu=1500m",
        "tasks.resources: the request of cpu",
    ),
    (
        "tolerations[0].operator=Exists",
        "tolerations[0].key=a",
        "tolerations[0].value=b",
        "/tolerations/0/value",
    ),
    ("tolerations[0].effect=NoSchedule", "/tolerations/0"),
    ("tolerations[0].key=a", "tolerations[0].tolerationSeconds=5", "/tolerations/0"),
    ("ui.env[0].name=A", "ui.env[0].value=b", "ui.env[0].valueFrom.fieldRef.fieldPath=c", "/ui/env/0"),
    (f"ui.affinity.nodeAffinity.{AT_SCHEDULING}.nodeSelectorTerms={{}}", "/ui/affinity/nodeAffinity"),
    (f"ui.affinity.podAntiAffinity.{AT_SCHEDULING}[0].topologyKey=a b", "/ui/affinity/podAntiAffinity"),
    ("monitoring.kind=Prometheus", "/monitoring/kind"),
    ("monitoring.labels.release=a b", "/monitoring/labels/release"),
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
    ("config.tiers=null", "'tiers'"),
    ("config.models=null", "'models'"),
    ("sweeper.extraArgs={--config=/etc/x}", "/sweeper/extraArgs/0"),
    ("tasks.extraArgs={--metrics-port=8081}", "/tasks/extraArgs/0"),
    ("ui.extraArgs={--bind=0.0.0.0:8443}", "/ui/extraArgs/0"),
    ("labeler.config.levels={x.io/rack,x.io/host}", "there is no x.io/host"),
    ("ui.env[0].name=A", "ui.env[0].value=b", "ui.env[1].name=A", "ui.env[1].value=c", "env[1].name: A"),
    (
        "config.namespaces.rules.a.defaultTier=top",
        "config.namespaces.rules.b.defaultModel=X",
        "images.topogate=",
        "there is no top; there are low, medium, high.\n- config.namespaces.rules.b.defaultModel",
    ),
]


VALUES_OF_FLAGS: Final = (
    "", "0", "1", "5", "0.5", "5.", ".5", "-1", "1e3", "nan", "x", "30", "30.5", "31", "1000", "1001", "3650",
    "4000", "65535", "65536", "99999", "0.0.0.0:8443", "[::]:8090", ":0", "a:", "90s", "0s", "2h",
    "debug", "text", "no", "best-fit", "headroom", "intel", "two words",
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


@pytest.mark.promise("O342")
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


@pytest.mark.promise("O342")
@pytest.mark.usefixtures("control_plane")
def test_a_value_that_cannot_be_meant_is_refused_with_its_name() -> None:
    faults = []
    for *values, expected in WRONG:
        result = run(*TEMPLATE, "--namespace=kube-system", values=[*IMAGES, *values])
        if not result.returncode or expected not in result.stderr or "nil pointer" in result.stderr:
            faults.append(f"{values}: {result.stderr or 'is taken'}")
    assert faults == []


def with_configuration(document: dict[str, Any], folder: Path) -> "subprocess.CompletedProcess[str]":
    (folder / "values.yaml").write_text(json.dumps({"config": document}))
    return run(*TEMPLATE, "--namespace=kube-system", f"--values={folder / 'values.yaml'}")


@pytest.mark.usefixtures("control_plane")
def test_a_configuration_with_every_key_is_taken(tmp_path: Path) -> None:
    document = json.loads(json.dumps(DEFAULTS))
    document["topology"]["levels"] = [{"block": "example.com/block"}, {"host": ["example.com/host"]}]
    document["fairOrder"]["accountLabel"] = "example.com/team"
    for name in ("models", "tiers"):
        del document[name]
    document["namespaces"]["rules"] = {"team": {"defaultTier": "low", "defaultModel": "H100"}, "*": {}}
    document["gpus"]["resources"] = shipped_configuration().policy.gpu_resources
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


POD_VALUES: Final[dict[str, Any]] = {
    "tolerations": [{"key": "pool", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {AT_SCHEDULING: {"nodeSelectorTerms": [{}]}}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}
    ],
    "priorityClassName": "other-priority",
}


@pytest.mark.promise("O416")
@pytest.mark.usefixtures("control_plane")
@pytest.mark.parametrize("program", chart_arguments.PARSERS)
def test_each_program_takes_values_for_its_pods_beside_those_of_its_manifest(
    program: str, tmp_path: Path
) -> None:
    more: dict[str, Any] = {
        "nodeSelector": {"pool": "system"},
        "podLabels": {"team": "platform"},
        "podAnnotations": {"example.com/a": "b"},
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "serviceAccount": {"annotations": {"example.com/role": "x"}},
    }
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps({program: POD_VALUES | more}))
    enabled = ("ui.enabled=true", "allocator.enabled=true")
    before, after = templated(enabled), templated(enabled, file=file)
    ((name, workload),) = ((name, each) for name, each in after.items() if is_program(name, program))
    template, shipped = workload["spec"]["template"], before[name]["spec"]["template"]
    pod, shipped_pod = template["spec"], shipped["spec"]
    assert POD_VALUES.items() <= pod.items()
    assert pod["nodeSelector"] == shipped_pod.get("nodeSelector", {}) | more["nodeSelector"]
    assert template["metadata"]["labels"] == shipped["metadata"]["labels"] | more["podLabels"]
    assert template["metadata"]["annotations"].items() >= more["podAnnotations"].items()
    container, shipped_container = pod["containers"][0], shipped_pod["containers"][0]
    assert container["env"] == [*shipped_container.get("env", []), *more["env"]]
    account = after["ServiceAccount", name[1], program]
    assert account["metadata"]["annotations"] == more["serviceAccount"]["annotations"]
    others = {each for each in before if before[each] != after[each]}
    assert others == {name, ("ServiceAccount", name[1], program)}


def is_program(name: tuple[str, str, str], program: str) -> bool:
    return name[0] in ("Deployment", "DaemonSet") and name[2] == program


@pytest.mark.usefixtures("control_plane")
def test_a_service_monitor_scrapes_the_same_ports_of_the_same_pods_as_the_pod_monitor() -> None:
    pods = templated(("monitoring.enabled=true",))
    services = templated(("monitoring.enabled=true", "monitoring.kind=ServiceMonitor"))
    monitors = [each for name, each in pods.items() if name[0] == "PodMonitor"]
    assert monitors
    assert not any(name[0] == "PodMonitor" for name in services)
    for each in monitors:
        name = each["metadata"]["name"]
        found = services["ServiceMonitor", SYSTEM, name]["spec"]
        assert found["endpoints"] == each["spec"]["podMetricsEndpoints"]
        assert found.get("namespaceSelector") == each["spec"].get("namespaceSelector")
        (service,) = (
            other
            for (kind, *_), other in services.items()
            if kind == "Service"
            and found["selector"]["matchLabels"].items() <= other["metadata"].get("labels", {}).items()
        )
        (namespace,) = found.get("namespaceSelector", {}).get("matchNames", [SYSTEM])
        assert service["metadata"]["namespace"] == namespace
        assert service["spec"]["selector"] == each["spec"]["selector"]["matchLabels"]
        ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
        assert ports == {endpoint["port"]: endpoint["port"] for endpoint in found["endpoints"]}


@pytest.mark.usefixtures("control_plane")
@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_all_monitors_and_alerts_get_the_labels_by_which_prometheus_selects_them(kind: str) -> None:
    values = (
        "monitoring.enabled=true",
        f"monitoring.kind={kind}",
        "allocator.enabled=true",
        "ui.enabled=true",
    )
    before, after = templated(values), templated((*values, "monitoring.labels.release=stack"))
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {name for name in before if name[0] in (kind, "PrometheusRule")}
    assert {each["metadata"]["labels"]["release"] for name, each in after.items() if name in changed} == {
        "stack"
    }


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


OF_TIERS: Final = "tiers[0].priorityClassName: is missing"
"""What the chart takes from the shipped tier at that place."""
OF_YAML: Final = ("written twice", "a key must be text", "cannot be read", "must be text; quote it")
"""Faults of a document's text, which Helm reads by itself; a key without a value has its default there."""


@pytest.mark.promise("O342")
@pytest.mark.usefixtures("control_plane")
def test_a_configuration_that_the_programs_refuse_is_refused_by_the_chart(tmp_path: Path) -> None:
    wrong = WRONG_AFTER_HEAD | {f"{MODELS}fairOrder: {key}": fault for key, fault in WRONG_FAIR_ORDER.items()}
    documents = [
        yaml.safe_load(text)
        for text, fault in wrong.items()
        if not any(words in fault for words in (*OF_YAML, OF_TIERS, "not nothing"))
    ]
    assert len(documents) > 90
    answers = [(list(each)[-1], with_configuration(each, tmp_path)) for each in documents]
    assert [key for key, each in answers if not each.returncode] == []
    # Of a key that must not be called so, Helm shows the key alone.
    unnamed = [key for key, each in answers if key not in each.stderr.replace("invalid propertyName", key)]
    assert unnamed == []
