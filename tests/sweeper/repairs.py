"""Pods that do not come to run, and what becomes of them."""

from dataclasses import replace

import msgspec

from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Node, Pod
from webhook.sweeper.decide.orders import Done
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.repair.allowance import Allowance, JobOf
from webhook.sweeper.repair.repair import Repaired, RepairMemory, repair_released
from webhook.workloads.builtin import Job, JobSpec

BIND, ABANDON = 100.0, 1000.0


SETTINGS = Settings(bind_seconds=BIND, abandon_seconds=ABANDON, rollback_seconds=50)


GANG = {"annotations": {"topogate.io/gang": "g"}}


NODE = msgspec.convert(
    {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}, Node
)


def job_with(failures_left: int = 100, index_limit: int | None = None) -> JobOf:
    """Every Job bears so many more failures, of one index and in all."""
    spec = JobSpec(backoff_limit=failures_left, backoff_limit_per_index=index_limit)
    return lambda namespace, name, uid: Job(Metadata(name, namespace, uid), spec)


class Repairs:
    """Passes that look at released pods, all of them released by us, while nothing changes."""

    def __init__(self, *pods: Pod) -> None:
        self.allowance = Allowance(SETTINGS, job_with())
        self.view = View([], pods, {"n1": NODE}, {}, named={("ns", pod.metadata.uid) for pod in pods})
        self.memory = RepairMemory()

    def at(self, seconds: float) -> Repaired:
        view = replace(self.view, now=Moment(seconds))
        repaired, self.memory = repair_released(view, self.memory, self.allowance, SETTINGS)
        return repaired

    def on_result(self, done: Done, seconds: float) -> None:
        self.memory = self.memory.after(done, seconds)
