"""Tasks created, suspended, resumed, restarted and deleted at random while controllers die at random.

At the end the Jobs are those of the tasks that are left, one each, and every status is true.
"""

import itertools
import random
from typing import Any, Final

import pytest

from hack.local.cluster import Cluster
from tests.support import create_namespace, delete_namespace
from tests.tasks.at_work import Lives, Team, install, mortal
from webhook.kube.client import ApiError
from webhook.tasks import task_objects

TASKS: Final = 40
ACTS: Final = 120


class Dice:
    """What a crowd of users does, one act after another, and when the controller is killed."""

    def __init__(self, team: Team, seed: int) -> None:
        self.team = team
        self.dice = random.Random(seed)
        self.specs: dict[str, dict[str, Any]] = {}
        self.numbers = itertools.count()

    def act(self) -> None:
        """One act of one user."""
        if len(self.specs) < TASKS and (not self.specs or self.dice.random() < 0.4):
            self._create()
            return
        name = self.dice.choice(sorted(self.specs))
        spec = self.specs[name]
        match self.dice.choice(["suspend", "suspend", "attempt", "priority", "delete", "delete job"]):
            case "suspend":
                self._change(name, suspend=not spec["suspend"])
            case "attempt":
                self._change(name, attempt=spec["attempt"] + 1)
            case "priority":
                self._change(name, priority=self.dice.choice(["low", "medium", "high"]))
            case "delete":
                del self.specs[name]
                self.team.api.request("DELETE", task_objects.path(self.team.namespace, name))
            case "delete job" if name in self.team.jobs():
                path = task_objects.jobs_path(self.team.namespace, name)
                try:
                    self.team.api.request("DELETE", path, query={"propagationPolicy": "Background"})
                except ApiError as error:
                    if error.status != 404:  # the controller may have been quicker
                        raise

    def _create(self) -> None:
        # Names come again, as those of tasks that have just been deleted.
        name = f"t{next(self.numbers) % (TASKS // 2)}"
        if name in self.specs:
            return
        self.specs[name] = {"suspend": False, "attempt": 0, "priority": self.dice.choice(["low", "high"])}
        self.team.create(name, {**self.specs[name], "gpu-amount": self.dice.choice(["1", "2", "4"])})

    def _change(self, name: str, **spec: Any) -> None:
        self.specs[name] |= spec
        self.team.change(name, spec)

    def faults(self) -> list[str]:
        """What is not true yet of tasks and Jobs."""
        tasks, jobs = self.team.tasks(), self.team.jobs()
        found = [f"tasks are {sorted(tasks)}"] if tasks.keys() != self.specs.keys() else []
        found += [f"Jobs are {sorted(jobs)}"] if jobs.keys() != self.specs.keys() else []
        for name in tasks.keys() & jobs.keys() & self.specs.keys():
            task, job, spec = tasks[name], jobs[name], self.specs[name]
            status, labels = task.get("status", {}), job["metadata"]["labels"]
            pods = [pod for pod in self.team.pods(name) if not pod["metadata"].get("deletionTimestamp")]
            runs = [pod for pod in pods if pod["status"].get("phase") == "Running"]
            expected = "Suspended" if spec["suspend"] else "Running" if runs else "Waiting"
            facts = {
                "owner": (job["metadata"]["ownerReferences"][0]["uid"], task["metadata"]["uid"]),
                "generation": (status.get("observedGeneration"), task["metadata"]["generation"]),
                "attempt": (labels["falldio.com/attempt"], str(spec["attempt"])),
                "suspend": (job["spec"]["suspend"], spec["suspend"]),
                "pods": (len(pods), 0 if spec["suspend"] else 1),
                "phase": (status.get("phase"), expected),
                "running": (status.get("running", 0), len(runs)),
            }
            found += [f"{name}: {what} is {a}, not {b}" for what, (a, b) in facts.items() if a != b]
        return found


@pytest.mark.promise("O152")
@pytest.mark.parametrize("seed", [1])
def test_whatever_users_do_while_controllers_die_every_task_has_its_one_job(
    cluster: Cluster, seed: int
) -> None:
    install(cluster)
    team = Team(cluster, create_namespace(cluster), gpus=40)
    team.set_up()
    users, kills = Dice(team, seed), random.Random(seed)
    lives = Lives(team, mortal(cluster))
    acts = iter(range(ACTS))

    def acted() -> bool:
        if kills.random() < 0.15:
            lives.strike(0.05 * kills.random())
        users.act()
        return next(acts, None) is None

    try:
        with team.watched() as overlaps:
            lives.until("all acts are done", acted)
            lives.until("every task has its one Job and a true status", lambda: not users.faults())
    finally:
        lives.close()
    assert lives.died
    assert overlaps.found == []
    delete_namespace(cluster, team.namespace)
    team.tear_down()
