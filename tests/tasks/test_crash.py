"""Between whichever writes the task controller dies, the next one comes to the same end.

The writes are not listed here: a run that nobody disturbs enumerates them. One task is started, suspended,
resumed, restarted and loses its Job by hand; one waits and changes its priority; one ends and expires.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from hack.local.cluster import Cluster
from tests.support import create_namespace, delete_namespace
from tests.sweeper.mortal import Death, deaths_at
from tests.tasks.at_work import PATIENCE_SECONDS, RUN_FOR, Lives, Team, install, mortal
from webhook.tasks import task_objects

PARALLEL: Final = 6
JOBS_MADE: Final = {"train": 4, "big": 2, "short": 1}


def run_case(cluster: Cluster, death: Death | None) -> tuple[Team, Lives, list[str]]:
    """One run of the scenario; returns what was wrong at its end."""
    team = Team(cluster, create_namespace(cluster))
    team.set_up()
    lives = Lives(team, mortal(cluster, death))
    try:
        with team.watched() as overlaps:
            try:
                play(team, lives)
            except TimeoutError as error:
                return team, lives, [str(error)]
            overlaps.wait_for_jobs(sum(JOBS_MADE.values()), PATIENCE_SECONDS)
            found = [*overlaps.found, *faults(team)]
            if overlaps.jobs_made != JOBS_MADE:
                found.append(f"Jobs were made this often: {overlaps.jobs_made}")
        return team, lives, found
    finally:
        lives.close()


def play(team: Team, lives: Lives) -> None:
    """What users do, each act when the one before has come to its end."""
    phase = team.phase
    team.create("train", {"gpu": "h100", "gpu-amount": "6", "memory": "16gi", "priority": "high"})
    lives.until("train runs", lambda: phase("train") == "Running")
    team.change("train", {"suspend": True})
    lives.until("train is suspended", lambda: phase("train") == "Suspended" and not team.pods("train"))
    team.change("train", {"suspend": False})
    lives.until("train is resumed", lambda: phase("train") == "Running")
    first = team.jobs()["train"]["metadata"]["uid"]
    team.change("train", {"attempt": 1})
    lives.until("train runs anew", lambda: phase("train") == "Running" and uid_of(team) not in ("", first))
    second = uid_of(team)
    path = task_objects.jobs_path(team.namespace, "train")
    team.api.request("DELETE", path, query={"propagationPolicy": "Background"})
    lives.until(
        "train is made again", lambda: phase("train") == "Running" and uid_of(team) not in ("", first, second)
    )
    team.create("big", {"gpu-amount": "4", "priority": "low"})
    lives.until("big waits", lambda: phase("big") == "Waiting")
    team.change("big", {"priority": "medium"})
    lives.until("big waits with its new class", lambda: phase("big") == "Waiting" and class_of(team) == 10)
    team.create("short", {"ttlSecondsAfterFinished": 0}, annotations={RUN_FOR: "0.1s"})
    lives.until("short is gone", lambda: phase("short") == "gone")
    team.api.request("DELETE", task_objects.path(team.namespace, "big"))
    lives.until(
        "the Jobs and pods of what is gone are gone",
        lambda: set(team.jobs()) == {"train"} and not team.pods("big") and not team.pods("short"),
    )


def uid_of(team: Team) -> str:
    job = team.jobs().get("train", {"metadata": {}})
    return str(job["metadata"].get("uid", ""))


def class_of(team: Team) -> int:
    return max((pod["spec"].get("priority", 0) for pod in team.pods("big")), default=0)


def faults(team: Team) -> list[str]:
    """What is not as it must be when all is done."""
    (task,) = team.tasks().values()
    found = [] if task["status"]["phase"] == "Running" else [f"train is {task['status']}"]
    if task["status"].get("node") != f"{team.namespace}-n" or task["status"].get("attempt") != 1:
        found.append(f"the status of train is {task['status']}")
    running = [pod for pod in team.pods() if not pod["metadata"].get("deletionTimestamp")]
    return found if len(running) == 1 else [*found, f"there are {len(running)} pods"]


@pytest.fixture(scope="module")
def writes(module_cluster: Cluster) -> list[str]:
    """The writes to die at: all that a controller makes which nobody disturbs, and of statuses the first."""
    install(module_cluster)
    team, lives, wrong = run_case(module_cluster, None)
    end(team)
    assert wrong == []
    statuses = [f"PATCH gputasks/{name}/status #1" for name in ("train", "short")]
    writes = [each for each in lives.first.writes if "/status" not in each or each in statuses]
    assert len([write for write in writes if write.startswith("POST jobs/")]) == sum(JOBS_MADE.values())
    return writes


@pytest.mark.promise("O152")
def test_whichever_write_the_controller_dies_at_nothing_is_lost_or_doubled(
    module_cluster: Cluster, writes: list[str]
) -> None:
    deaths = deaths_at(writes)
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = list(pool.map(functools.partial(run_case, module_cluster), deaths))

    cases = list(zip(deaths, results, strict=True))
    for team, _, _ in results:
        end(team)
    assert {f"died {death}": wrong for death, (_, _, wrong) in cases if wrong} == {}
    assert [str(death) for death, (_, life, _) in cases if not life.died] == []


def end(team: Team) -> None:
    """Nothing of a case stays behind."""
    delete_namespace(team.cluster, team.namespace)
    team.tear_down()
