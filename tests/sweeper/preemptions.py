"""Gangs on nodes, and those that preempt them."""

from dataclasses import replace
from typing import Any

import msgspec

from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.configuration.settings import Settings
from webhook.kube.disruption_budgets import PodDisruptionBudget
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.decide.waiting_plans import Preempting, VictimsSince, look_for_victims
from webhook.sweeper.observe.view import Moment
from webhook.workloads import marks

SETTINGS = Settings()


def member(job: str, index: int, node: str = "", *, namespace: str = "ns", **spec: Any) -> Pod:
    """A pod of a Job, of priority 1 unless another is given: on a node, or gated."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job,
        "uid": f"{namespace}-{job}",
        "controller": True,
    }
    metadata = {
        "namespace": namespace,
        "uid": f"{namespace}-{job}-{index}",
        "labels": {marks.JOB_NAME_LABEL: job, "batch.kubernetes.io/controller-uid": f"{namespace}-{job}"},
        "ownerReferences": [owner],
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **spec.pop("metadata", {}),
    }
    return gpu_pod(f"{job}-{index}", node=node, metadata=metadata, **{"priority": 1, **spec})


def plan(name: str, pods: dict[str, str], namespace: str = "ns", **spec: Any) -> tuple[str, Placement]:
    """A Placement: uid -> node."""
    entries = [{"name": uid, "uid": uid, "node": node} for uid, node in pods.items()]
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"gang": f"Job/{name}", "pods": entries, **spec},
    }
    return f"{namespace}/{name}", msgspec.convert(body, Placement)


class Scene:
    """Two nodes of a GPU each, full of the Job low, and the Job high that is planned for one."""

    def __init__(self, **victims: Any) -> None:
        self.cluster = Nodes(3)
        self.low = [member("low", 0, "n0"), member("low", 1, "n1")]
        self.high = member("high", 0, priority=100)
        self.cluster.pods = [*self.low, self.high]
        self.budgets = Budgets()
        self.not_released: frozenset[str] = frozenset()
        self.clock = Clock()
        self.since: VictimsSince = {}
        self.plan_for(pods=["ns-low-0", "ns-low-1"], whole=True)

    def plan_for(self, **group: Any) -> None:
        self.cluster.placements = dict(
            (
                plan("low", {"ns-low-0": "n0", "ns-low-1": "n1"}),
                plan("high", {"ns-high-0": "n0"}, preempts=True, victims=[group]),
            )
        )

    def joined_by(self, third: Pod) -> None:
        """The Job low has got a pod that has its place, and that the plan of high does not name."""
        self.cluster.pods.append(third)
        pods = {f"ns-low-{number}": f"n{number}" for number in range(3)}
        key, made = plan("low", pods)
        self.cluster.placements[key] = made

    def look(self, settings: Settings = SETTINGS) -> Preempting:
        placing = Placing(self.cluster, SETTINGS)
        view = replace(placing.view(), now=Moment(self.clock()), not_released=self.not_released)
        found, self.since = look_for_victims(
            view, placing.snapshotter.snapshot(view), self.budgets, self.since, settings
        )
        return found


def budget_of_jobs(allowed: int, *jobs: str) -> Budgets:
    """One budget for the pods of these Jobs, which allows so many evictions."""
    expression = {"key": marks.JOB_NAME_LABEL, "operator": "In", "values": list(jobs)}
    body = {
        "metadata": {"name": "keep", "namespace": "ns", "uid": "keep"},
        "spec": {"selector": {"matchExpressions": [expression]}},
        "status": {"disruptionsAllowed": allowed},
    }
    return Budgets([msgspec.convert(body, PodDisruptionBudget)])
