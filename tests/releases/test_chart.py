"""The Helm chart installs what overlays and components install, and can be upgraded and taken back."""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import LABELER, SYSTEM, system_node
from hack.local.pki import FileAuthority
from hack.releases import chart
from hack.releases.overlays import identity_of, rendered
from tests.releases.helm import (
    IMAGES,
    Objects,
    authority_of,
    of,
    remove_definitions,
    replicas_of,
    revision_of,
    run,
    templated,
    uninstall,
)
from tests.support import clean, exists
from webhook.configuration.cluster import KEY, NAME
from webhook.kube.client import MERGE_PATCH

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


def read(objects: Objects) -> Objects:
    """The objects with their files as documents, without the keys that only values have here."""
    found = dict(objects)
    for key, file in (
        (("ConfigMap", SYSTEM, NAME), KEY),
        (("ConfigMap", LABELER, "labeler"), "labeler.yaml"),
    ):
        found[key] = yaml.safe_load(objects[key]["data"][file])
    for section in ("scaleUp", "binding"):
        found["ConfigMap", SYSTEM, NAME].pop(section, None)
    return found


@pytest.mark.promise("O340")
@pytest.mark.usefixtures("control_plane")
def test_the_chart_gives_the_objects_of_the_overlay() -> None:
    faults = []
    for overlay, components, values, version in TABLE:
        wanted, found = read(rendered(overlay, components)), read(templated(values, version))
        differing = sorted(
            name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
        )
        faults += [f"{' '.join((overlay, *components))}: {' '.join(name)}" for name in differing]
    assert faults == []


def test_the_chart_has_the_values_that_the_code_gives() -> None:
    """Failed? Run hack/chart."""
    wanted = chart.contents()
    assert {name: (chart.CHART / name).read_text() for name in wanted} == wanted


@pytest.fixture(scope="module")
def released(module_cluster: Cluster) -> Iterator[Cluster]:
    """The chart, installed on a control plane; its pods stand on a simulated node."""
    nodes.register(module_cluster.api(), [system_node()])
    remove_definitions(module_cluster)
    result = run("install", "topogate", str(chart.CHART), *of(module_cluster))
    assert result.returncode == 0, result.stderr
    yield module_cluster
    uninstall(module_cluster)
    clean(module_cluster)


def test_helm_installs_the_objects_of_the_default_overlay(released: Cluster) -> None:
    wanted = rendered("overlays/default")
    result = run("get", "manifest", "topogate", *of(released), values=())
    assert {identity_of(each) for each in yaml.safe_load_all(result.stdout) if each} == wanted.keys()
    for name in ("webhook", "sweeper", "tasks"):
        released.kubectl("get", "deployment", name, "-n", SYSTEM)


@pytest.mark.promise("O343")
def test_an_upgrade_keeps_the_authority_that_was_issued_and_the_plans(released: Cluster) -> None:
    path = "/webhooks/0/clientConfig/caBundle"
    bundle = base64.b64encode(FileAuthority.create("test").pem).decode()
    issued = json.dumps([{"op": "add", "path": path, "value": bundle}])
    released.kubectl("patch", "mutatingwebhookconfiguration", "topogate", "--type=json", "-p", issued)
    create_plan(released, "upgraded")
    more = [*IMAGES, "sweeper.resources.limits.memory=1Gi", "monitoring.enabled=false"]
    result = run("upgrade", "topogate", str(chart.CHART), *of(released), values=more)
    assert result.returncode == 0, result.stderr
    assert authority_of(released) == bundle
    released.kubectl("get", "placement", "upgraded", "-n", "default")


@pytest.mark.promise("O343")
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


@pytest.mark.promise("O344")
def test_plans_outlive_the_release_and_a_new_release_takes_them_over(released: Cluster) -> None:
    create_plan(released, "of-the-first-release")
    removed = run("uninstall", "topogate", "--wait", *of(released), values=())
    assert removed.returncode == 0, removed.stderr
    released.kubectl("get", "gputasks", "-A")
    again = run("install", "topogate", str(chart.CHART), *of(released))
    assert again.returncode == 0, again.stderr
    released.kubectl("get", "placement", "of-the-first-release", "-n", "default")


def create_plan(cluster: Cluster, name: str) -> None:
    plan = {"apiVersion": "topogate.io/v1alpha1", "kind": "Placement", "metadata": {"name": name}, "spec": {}}
    cluster.kubectl("create", "-n", "default", "-f", "-", stdin=yaml.safe_dump(plan))


@pytest.mark.promise("O56")
def test_a_maximum_is_the_value_of_a_priority_class_of_the_cluster(released: Cluster) -> None:
    values = [
        *IMAGES,
        "config.tiers[0].name=top",
        "config.tiers[0].priorityClassName=of-a-team",
        "config.namespaces.rules.team.maximumTier=top",
    ]
    upgrade = ("upgrade", "topogate", str(chart.CHART), *of(released))
    refused = run(*upgrade, values=values)
    assert (
        "config.namespaces.rules.team.maximumTier: the cluster has no PriorityClass of-a-team"
        in refused.stderr
    )
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "of-a-team"}}
    released.kubectl("create", "-f", "-", stdin=yaml.safe_dump({**made, "value": 77}))
    result = run(*upgrade, values=values)
    assert result.returncode == 0, result.stderr
    policy = released.kubectl("get", "validatingadmissionpolicy", "topogate-tiers", "-o", "json").stdout
    assert json.loads(policy)["spec"]["variables"] == [
        {"name": "maximum", "expression": "{'team': 77}[?request.namespace]"}
    ]
    released.kubectl("delete", "priorityclass", "of-a-team")


@pytest.mark.promise("O210")
def test_helm_test_runs_the_doctor_and_leaves_none_of_its_rights(released: Cluster) -> None:
    path = f"/api/v1/namespaces/{SYSTEM}/pods/topogate-doctor"
    account = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/topogate-doctor"
    with ThreadPoolExecutor() as pool:
        tested = pool.submit(run, "test", "topogate", *of(released), values=())
        released.wait_for("the pod of the test", lambda: exists(released.api(), path))
        assert exists(released.api(), account)
        pod = released.api().json("GET", path)
        ended = {"status": {"phase": "Succeeded"}}  # no kubelet runs it here
        released.api().request("PATCH", f"{path}/status", body=ended, content_type=MERGE_PATCH)
        result = tested.result()
    assert result.returncode == 0, result.stderr
    assert pod["spec"]["containers"][0]["command"] == ["topogate", "doctor"]
    assert not exists(released.api(), account)
    left = released.kubectl("get", "clusterroles,validatingadmissionpolicies", "-o", "name").stdout
    assert "topogate-doctor" not in left


@pytest.mark.usefixtures("control_plane")
def test_the_chart_has_no_fault_that_helm_lint_finds() -> None:
    result = run("lint", "--strict", str(chart.CHART))
    assert result.returncode == 0, result.stdout


def test_a_second_release_is_refused_with_the_first_one_s_name(released: Cluster) -> None:
    for name, namespace in (("other", "kube-system"), ("topogate", "default")):
        where = (f"--kubeconfig={released.kubeconfig}", f"--namespace={namespace}")
        result = run("install", name, str(chart.CHART), *where)
        assert result.returncode != 0
        assert "already, as release topogate of namespace kube-system" in result.stderr
        assert "helm upgrade topogate CHART --namespace kube-system" in result.stderr


@pytest.mark.promise("R303")
@pytest.mark.usefixtures("control_plane")
def test_runbooks_open_at_the_address_that_is_given() -> None:
    base = "https://git.example.com/topogate/blob/v0.2.0/docs"
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
