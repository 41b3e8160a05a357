"""Pods created a second through a real API server, under several kinds of admission taken in turns.

Each kind has a namespace of its own and selects it by a label, so that all are there all the time.
"""

import contextlib
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.admission.harness import WEBHOOKS, Webhook, configuration, create, delete_pods, gpu_pod
from tests.support import create_namespace
from webhook.cli.policy import as_yaml
from webhook.policy import rendering
from webhook.policy.values import Policy

WITHOUT: Final = "without"
NO_OP: Final = "no-op"
OURS: Final = "webhook"
IN_PROCESS: Final = "in-process"
LABEL: Final = "local.topogate.io/admission"
_PAUSED: Final = ("kube-scheduler", "kube-controller-manager", "kwok")
_WARM_UP_PODS: Final = 100

GPU_POD: Final = gpu_pod(annotations={keys.PRIORITY_ANNOTATION: "high"})
CPU_POD: Final[dict[str, Any]] = {
    "metadata": {"generateName": "cpu-"},
    "spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {"cpu": "1"}}}]},
}


@dataclass(frozen=True)
class Series:
    """What is measured: which pods, under which admission, against what."""

    name: str
    pod: dict[str, Any]
    admission: str
    against: str = ""


SERIES: Final = (
    Series("GPU pods, no admission", GPU_POD, WITHOUT),
    Series("GPU pods, a webhook that does nothing", GPU_POD, NO_OP, "GPU pods, no admission"),
    Series("GPU pods, topogate's webhook", GPU_POD, OURS, "GPU pods, no admission"),
    Series("GPU pods, the gate in-process alone", GPU_POD, IN_PROCESS, "GPU pods, no admission"),
    Series("other pods, no admission", CPU_POD, WITHOUT),
    Series("other pods, topogate's webhook", CPU_POD, OURS, "other pods, no admission"),
)


def select(hook_or_constraints: dict[str, Any], admission: str) -> None:
    """Let a webhook or a policy look at one namespace alone."""
    hook_or_constraints["namespaceSelector"] = {"matchLabels": {LABEL: admission}}


def set_up(cluster: Cluster, webhooks: Mapping[str, Webhook]) -> dict[str, str]:
    """Install each kind of admission; returns its namespace."""
    api = cluster.api()
    for name, webhook in webhooks.items():
        made = configuration(webhook, failurePolicy="Fail", timeoutSeconds=10)
        made["metadata"]["name"] = name
        made["webhooks"][0]["name"] = f"{name}.topogate.io"
        select(made["webhooks"][0], name)
        api.request("POST", WEBHOOKS, body=made)
    policy, binding = (
        each for each in rendering.objects(Policy(), {}) if each["kind"].startswith("MutatingAdmission")
    )
    select(policy["spec"]["matchConstraints"], IN_PROCESS)
    cluster.kubectl("apply", "-f", "-", stdin=as_yaml([policy, binding]))
    namespaces = {name: create_namespace(cluster, {LABEL: name}) for name in (WITHOUT, *webhooks, IN_PROCESS)}
    for name, wanted in ((OURS, 100), (IN_PROCESS, 0)):
        path = f"/api/v1/namespaces/{namespaces[name]}/pods"

        def holds(path: str = path, wanted: int = wanted) -> bool:
            spec = api.json("POST", path, body=GPU_POD, query={"dryRun": "All"})["spec"]
            return bool(spec.get("schedulingGates")) and spec["priority"] == wanted

        cluster.wait_for(f"admission {name} to be in force", holds)
    return namespaces


def compare(
    cluster: Cluster, webhooks: Mapping[str, Webhook], rounds: int, pods: int, clients: int
) -> dict[str, list[float]]:
    """Measure all series in turns, each round in its order; returns pods a second of each round."""
    namespaces = set_up(cluster, webhooks)
    found: dict[str, list[float]] = {series.name: [] for series in SERIES}
    with contextlib.ExitStack() as stack:
        for program in _PAUSED:
            stack.enter_context(cluster.paused(program))
        for series in SERIES:
            creations(cluster, namespaces[series.admission], series.pod, _WARM_UP_PODS, clients)
        for _ in range(rounds):
            for series in SERIES:
                namespace = namespaces[series.admission]
                found[series.name].append(creations(cluster, namespace, series.pod, pods, clients))
    return found


def creations(cluster: Cluster, namespace: str, pod: dict[str, Any], count: int, clients: int) -> float:
    """Create so many pods from several threads and delete them; returns pods a second."""
    api = cluster.api()
    share = count // clients

    def work() -> None:
        for _ in range(share):
            create(api, namespace, pod)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    started_at = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = share * clients / (time.perf_counter() - started_at)
    delete_pods(api, namespace)
    return rate


def told(found: Mapping[str, list[float]]) -> list[str]:
    """Lines with the rates, and with the ratio of each round to what a series stands against."""
    lines = []
    for series in SERIES:
        rates = found[series.name]
        line = f"   {series.name:40} {_spread(rates)} pods/s"
        if series.against:
            ratios = [one / other for one, other in zip(rates, found[series.against], strict=True)]
            line += f"; {_spread(ratios, 2)} of the rate without"
        lines.append(line)
    return lines


def _spread(values: list[float], digits: int = 0) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
