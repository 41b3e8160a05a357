"""Each alert fires in the state that it is for, by Prometheus' own judgement, and none when all is well.

The series are what our programs answer at /metrics, each a process at work on a real API server (but the
allocator's plugin, which has a played kubelet), in the state in question. Of states that take hours or a rare
fault to come, the answer of a healthy program gets the values that it has then.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from hack.local.cluster import Cluster
from labeler.allocator.register import COMPETITOR_SECONDS, Registration
from labeler.contract import keys
from tests.admission.alone import serving
from tests.admission.harness import HOSTS, WEBHOOKS, Webhook, gpu_pod, manifest
from tests.allocator.plugins import Site, planned
from tests.monitoring.conftest import AtWork, allocator_series
from tests.monitoring.live import (
    ALLOCATOR,
    API_SERVER,
    FAILS_OPEN,
    SWEEPER,
    TASKS,
    WEBHOOK,
    of_the_api_server,
    program,
    scraped,
)
from tests.monitoring.scrapes import (
    COMPONENT,
    NOT_HERE,
    PROMTOOL,
    Judgement,
    Series,
    State,
    alerts,
    changed,
    read,
    rules,
)
from tests.support import create_namespace, delete_namespace
from webhook.admission import certificates
from webhook.extensions.node_health.node_health import AVOIDED, NODE_HEALTH
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.repair.repair import NOT_BOUND

pytestmark = pytest.mark.skipif(not PROMTOOL, reason=NOT_HERE)

NAMES = [alert["alert"] for alert in alerts()]
NEVER_OVER = "2099-01-01T00:00:00.000000Z"
REPAIRS = "topogate_repairs_total"


def alert(name: str) -> dict[str, Any]:
    return next(each for each in alerts() if each["alert"] == name)


class Alerted:
    """What tests expect of alerts."""

    def __init__(self) -> None:
        self.judgement = Judgement()

    def __call__(self, name: str, state: State, **labels: str) -> None:
        """An alert fires. labels: what of the series it carries."""
        made = alert(name)
        self.judgement.fires(made | {"labels": made["labels"] | labels}, state)


@pytest.fixture(scope="module")
def assert_fires(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alerted]:
    """Prometheus judges all that these tests expect at once, in the end."""
    alerted = Alerted()
    yield alerted
    assert alerted.judgement.faults(tmp_path_factory.mktemp("judgement")) == ""


@pytest.mark.promise("O206", "O208")
def test_prometheus_takes_the_rules_without_complaints(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    found = subprocess.run(
        [PROMTOOL, "check", "rules", "--lint-fatal", "rules.yaml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{len(NAMES)} rules found" in found.stdout


@pytest.mark.promise("O206")
def test_nothing_fires_when_all_is_well(calm: State, assert_fires: Alerted) -> None:
    assert_fires.judgement.fires_nothing(calm)


def webhook_with_an_old_certificate(folder: Path) -> tuple[Series, ...]:
    with serving(folder) as webhook:
        webhook.write_pair(certificates.issue(HOSTS, timedelta(days=3)))
        wait_for(webhook, "topogate_certificate_expiry_timestamp_seconds", lambda value: value < 2e9)
        return read(webhook.get("/metrics")[1].decode())


def webhook_with_broken_files(folder: Path) -> tuple[Series, ...]:
    with serving(folder) as webhook:
        good = webhook.pair
        (folder / "tls.crt").write_text("no certificate")
        webhook.configure("nonsense: true\n")
        for name in ("topogate_certificate_rejected", "topogate_configuration_rejected"):
            wait_for(webhook, name, lambda value: value == 1)
        assert webhook.pair is good
        return read(webhook.get("/metrics")[1].decode())


def wait_for(webhook: Webhook, name: str, is_so: Callable[[float], bool]) -> None:
    webhook.wait(lambda: is_so(webhook.metric(name)), name)


@pytest.mark.parametrize(
    ("names", "state_of"),
    [
        (["TopogateCertificateEnds"], webhook_with_an_old_certificate),
        (["TopogateCertificateRejected", "TopogateConfigurationRejected"], webhook_with_broken_files),
    ],
)
def test_a_webhook_with_bad_files_is_alerted(
    names: list[str],
    state_of: Callable[[Path], tuple[Series, ...]],
    calm: State,
    tmp_path: Path,
    assert_fires: Alerted,
) -> None:
    state = calm.but(WEBHOOK, state_of(tmp_path))
    for name in names:
        assert_fires(name, state)


def test_a_webhook_that_does_not_answer_is_alerted(calm: State, assert_fires: Alerted) -> None:
    assert_fires("TopogateWebhookDown", calm.but(WEBHOOK, None))


@pytest.mark.promise("O212")
def test_pods_that_pass_without_the_webhook_are_alerted(at_work: AtWork, assert_fires: Alerted) -> None:
    """The API server itself counts them: its configuration points to a port where nobody listens."""
    cluster = at_work.cluster
    made = manifest("webhook-configuration.yaml")
    (hook,) = made["webhooks"]
    hook["clientConfig"] = {"url": "https://127.0.0.1:9/mutate"}
    namespace = create_namespace(cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    cluster.api().request("POST", WEBHOOKS, body=made)

    def counted() -> float:
        # A dry run of a pod that nobody may have: the webhooks are asked all the same.
        pods = f"/api/v1/namespaces/{namespace}/pods"
        cluster.api().request("POST", pods, body=gpu_pod(), query={"dryRun": "All"})
        return sum(each.value for each in of_the_api_server(cluster))

    try:
        cluster.wait_for("the API server to count", lambda: counted() > 0)
        before = counted()
        assert counted() == before + 1
    finally:
        cluster.api().request("DELETE", f"{WEBHOOKS}/{made['metadata']['name']}")
        delete_namespace(cluster, namespace)
    series = of_the_api_server(cluster)
    for how in ({"growth": 1.0}, {"first": 97}):
        rising = changed(series, FAILS_OPEN, series[0].value, **how)
        assert_fires("TopogateWebhookFailsOpen", at_work.calm.but(API_SERVER, rising))


def test_programs_of_which_only_others_lead_are_alerted(at_work: AtWork, assert_fires: Alerted) -> None:
    cluster = at_work.cluster
    namespace = create_namespace(cluster)
    for name in (SWEEPER, TASKS):
        spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": NEVER_OVER}
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        cluster.api().request("POST", path, body={"metadata": {"name": name}, "spec": spec})
    own = ("--namespace", namespace)
    configuration = ("--config", str(at_work.configuration))
    with (
        program(SWEEPER, cluster.kubeconfig, *own) as sweeper,
        program(TASKS, cluster.kubeconfig, *own, *configuration) as tasks,
    ):
        sweeping = scraped(cluster, sweeper, "topogate_leader 0")
        tasking = scraped(cluster, tasks, "topogate_tasks_leading 0")
    delete_namespace(cluster, namespace)
    assert_fires("TopogateNoLeader", at_work.calm.but(SWEEPER, sweeping))
    assert_fires("TopogateNoLeader", at_work.calm.but(SWEEPER, None))
    assert_fires("TopogateTasksNotLed", at_work.calm.but(TASKS, tasking))
    assert_fires("TopogateTasksNotLed", at_work.calm.but(TASKS, None))


def test_a_leader_that_may_read_nothing_or_not_every_owner_is_alerted(
    at_work: AtWork, tmp_path: Path, assert_fires: Alerted
) -> None:
    cluster, calm = at_work.cluster, at_work.calm
    namespace = create_namespace(cluster)
    token = cluster.api().json(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", body={"spec": {}}
    )["status"]["token"]
    (tmp_path / "token").write_text(token)
    kubeconfig = tmp_path / "kubeconfig"
    cluster.write_token_kubeconfig(kubeconfig, tmp_path / "token")
    role = f"topogate-test-{namespace}"
    try:
        with program(SWEEPER, kubeconfig, "--no-leader-election") as sweeper:
            nothing = scraped(cluster, sweeper, "topogate_leader 1")
            _allow_all_but_jobs(cluster, role, namespace)
            some = scraped(cluster, sweeper, 'topogate_refused_owners{resource="jobs.batch"} 1')
    finally:
        delete_namespace(cluster, namespace)
    assert_fires("TopogateNotSynced", calm.but(SWEEPER, nothing))
    assert_fires("TopogateOwnersRefused", calm.but(SWEEPER, some))


def _allow_all_but_jobs(cluster: Cluster, role: str, namespace: str) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": ["topogate.io", "apps", "policy"],
            "resources": ["*"],
            "verbs": ["get", "list", "watch"],
        },
    ]
    api, group = cluster.api(), "/apis/rbac.authorization.k8s.io/v1"
    api.request("POST", f"{group}/clusterroles", body={"metadata": {"name": role}, "rules": rules})
    binding = {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    api.request("POST", f"{group}/clusterrolebindings", body=binding)


def test_gpu_nodes_without_labels_are_alerted(at_work: AtWork, assert_fires: Alerted) -> None:
    gpus = {"nvidia.com/gpu": "8"}
    bare = {"metadata": {"name": "bare"}, "status": {"allocatable": gpus, "capacity": gpus}}
    at_work.cluster.api().request("POST", "/api/v1/nodes", body=bare)
    try:
        series = scraped(at_work.cluster, at_work.sweeper, "topogate_gpu_nodes_without_topology 1")
    finally:
        at_work.cluster.api().request("DELETE", "/api/v1/nodes/bare")
    assert_fires("TopogateLabelerAbsent", at_work.calm.but(SWEEPER, series))


def test_a_task_controller_with_a_bad_configuration_is_alerted(
    at_work: AtWork, assert_fires: Alerted
) -> None:
    good = at_work.configuration.read_text()
    at_work.configuration.write_text("nonsense: true\n")
    try:
        series = scraped(at_work.cluster, at_work.tasks, "topogate_configuration_rejected 1")
    finally:
        at_work.configuration.write_text(good)
    assert_fires("TopogateConfigurationRejected", at_work.calm.but(TASKS, series))


def test_a_labeler_that_does_not_run_is_alerted(calm: State, assert_fires: Alerted) -> None:
    labels = (("daemonset", "labeler"), ("namespace", "topogate-labeler"))
    series = (Series("kube_daemonset_status_number_unavailable", labels, 1),)
    assert_fires("TopogateLabelerAbsent", calm.but("kube-state-metrics", series))


def test_nodes_on_which_gangs_fail_are_alerted(calm: State, assert_fires: Alerted) -> None:
    """That takes pods of several gangs; the series is the sweeper's own, which calm clusters do not have."""
    metrics = Metrics()
    metrics.declare(NODE_HEALTH.gauges)
    metrics.show(AVOIDED.name, {("h100",): 1.0})
    (family,) = (each for each in metrics.registry.collect() if each.name == "topogate_avoided_nodes")
    (sample,) = family.samples
    series = Series(sample.name, tuple(sample.labels.items()), sample.value)
    assert_fires("TopogateNodesAvoided", calm.but(SWEEPER, (*calm.jobs[SWEEPER], series)), model="h100")


@pytest.mark.promise("O206")
@pytest.mark.parametrize(
    ("name", "job", "series", "more"),
    [
        ("TopogateNotSynced", SWEEPER, "topogate_watch_silence_seconds", {"value": 121}),
        ("TopogateGatedPodOld", SWEEPER, "topogate_oldest_gated_pod_seconds", {"value": 6 * 3600 + 1}),
        (
            "TopogateGangsAtWorkBudget",
            SWEEPER,
            "topogate_gangs_waiting",
            {"value": 1, "cause": "work-budget"},
        ),
        ("TopogateGangsFailing", SWEEPER, "topogate_gangs_waiting", {"value": 1, "cause": "plan-refused"}),
        ("TopogateGangsFailing", SWEEPER, "topogate_gangs_waiting", {"value": 1, "cause": "internal-error"}),
        ("TopogatePodsUnbound", SWEEPER, "topogate_unbound_pods", {"value": 1}),
        ("TopogatePodsUnbound", SWEEPER, REPAIRS, {"value": 0, "growth": 0.1, "cause": NOT_BOUND}),
        ("TopogateUnreadableObjects", SWEEPER, "topogate_unreadable_objects", {"value": 1}),
        ("TopogateEventsDropped", SWEEPER, "topogate_events_dropped_total", {"value": 0, "growth": 1}),
        ("TopogateClassesSilent", WEBHOOK, "topogate_priority_classes_silence_seconds", {"value": 301}),
        ("TopogateTasksNotLed", TASKS, "topogate_tasks_watch_silence_seconds", {"value": 121}),
    ],
)
def test_an_alert_fires_when_its_series_has_the_value(
    name: str, job: str, series: str, more: dict[str, Any], calm: State, assert_fires: Alerted
) -> None:
    assert_fires(name, calm.but(job, changed(calm.jobs[job], series, **more)))


def test_an_allocator_that_refuses_a_container_is_alerted(
    calm: State, allocating: Site, assert_fires: Alerted
) -> None:
    with pytest.raises(grpc.RpcError, match="topogate"):
        allocating.allocate("card0-0")
    series = allocator_series()
    count = next(each.value for each in series if ("outcome", "refused") in each.labels)
    for how in ({"growth": 1.0}, {"first": 95}):
        name = "topogate_allocator_allocations_total"
        rising = changed(series, name, count, outcome="refused", **how)
        assert_fires("TopogateAllocatorAmbiguous", calm.but(ALLOCATOR, rising))


@pytest.mark.promise("O35")
def test_an_allocator_beside_another_plugin_is_alerted(
    calm: State, allocating: Site, assert_fires: Alerted
) -> None:
    class Rivalled:
        def healthy(self, _: str) -> frozenset[str]:
            return frozenset({"of another plugin"})

    second = Site(allocating.kubelet, planned("card1"))
    registration = Registration(second.plugin, allocating.kubelet.plugins, Rivalled())  # type: ignore[arg-type]
    for now in (0.0, COMPETITOR_SECONDS):
        registration.poll(now)
    assert_fires("TopogateAllocatorConflict", calm.but(ALLOCATOR, allocator_series()))


@pytest.mark.promise("O206")
def test_every_alert_is_fired_by_a_test() -> None:
    text = Path(__file__).read_text()
    assert [name for name in NAMES if f'"{name}"' not in text] == []


@pytest.mark.promise("O206", "O208")
def test_the_dashboard_is_json_that_grafana_finds() -> None:
    dashboard = json.loads((COMPONENT / "topogate.json").read_text())
    assert dashboard["uid"] == "topogate"
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
