"""The task controller at work on a real API server, beside kube-scheduler and the Job controller."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack.local.cluster import Cluster
from tests.support import create_namespace, delete_namespace
from tests.tasks.at_work import PATIENCE_SECONDS, RUN_FOR, Lives, Team, install, living, mortal
from webhook.kube.client import MERGE_PATCH
from webhook.tasks import task_objects


@pytest.fixture
def team(cluster: Cluster) -> Iterator[Team]:
    install(cluster)
    made = Team(cluster, create_namespace(cluster))
    made.set_up()
    yield made
    delete_namespace(cluster, made.namespace)
    made.tear_down()


@pytest.fixture
def lives(team: Team) -> Iterator[Lives]:
    made = Lives(team, mortal(team.cluster))
    yield made
    made.close()


@pytest.mark.promise("O152")
def test_a_task_runs_ends_and_its_status_shows_it(team: Team, lives: Lives) -> None:
    team.create("short", {"gpu": "h100", "gpu-amount": "2", "memory": "16gi"}, annotations={RUN_FOR: "0.1s"})
    lives.until("short has succeeded", lambda: team.phase("short") == "Succeeded")
    status = team.tasks()["short"]["status"]
    assert status["node"] == f"{team.namespace}-n"
    assert status["startTime"] <= status["finishTime"]
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Accepted": "True", "Complete": "True",
    }  # fmt: skip


def allow_none(team: Team, lives: Lives, resource: str) -> str:
    """A quota that allows none of something, once it is counted; returns its path."""
    path = f"/api/v1/namespaces/{team.namespace}/resourcequotas"
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {resource: "0"}}}
    team.api.request("POST", path, body=quota)
    lives.until("the quota is counted", lambda: "status" in team.api.json("GET", f"{path}/none"))
    return f"{path}/none"


@pytest.mark.promise("R170", "O154")
def test_why_no_pod_can_be_made_is_reported_until_one_can(team: Team, lives: Lives) -> None:
    quota = allow_none(team, lives, "requests.nvidia.com/gpu")
    team.create("train", {})

    def is_reported() -> bool:
        reason = team.tasks()["train"].get("status", {}).get("reason", "")
        return bool(reason.startswith("its pods cannot be created: forbidden: exceeded quota: none"))

    lives.until("the reason is told", is_reported)
    team.api.request("DELETE", quota)
    team.change("train", {"suspend": True})  # so that the Job controller does not rest for minutes
    lives.until("train is suspended", lambda: team.phase("train") == "Suspended")
    team.change("train", {"suspend": False})
    lives.until("train runs after all", lambda: team.phase("train") == "Running")


@pytest.mark.promise("R170", "O170")
def test_a_task_without_a_template_gets_its_pod_in_a_restricted_namespace(team: Team, lives: Lives) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    path = f"/api/v1/namespaces/{team.namespace}"
    team.api.request("PATCH", path, body={"metadata": {"labels": label}}, content_type=MERGE_PATCH)
    body = {
        "apiVersion": task_objects.GROUP_VERSION,
        "kind": task_objects.KIND,
        "metadata": {"name": "plain"},
    }
    team.api.request("POST", task_objects.path(team.namespace), body={**body, "spec": {}})
    lives.until("its pod is there", lambda: bool(team.pods("plain")))


@pytest.mark.promise("O152")
def test_two_controllers_at_once_make_no_job_twice(team: Team) -> None:
    """Leases keep two apart; where they do not, the API server does."""
    stop, steps = threading.Event(), [0, 0]
    names = [f"t{number}" for number in range(12)]

    def work(number: int) -> None:
        with living(team.cluster.api(), team.rules, team.namespace) as one_step:
            while not stop.is_set():
                one_step()
                steps[number] += 1

    def wait_for_steps(count: int) -> None:
        """Of each: so that one Job too many would be seen."""
        ends = [before + count for before in steps]
        team.cluster.wait_for("further steps", lambda: all(map(int.__ge__, steps, ends)))

    with team.watched() as seen, ThreadPoolExecutor(2) as pool:
        both = [pool.submit(work, number) for number in range(2)]
        try:
            for name in names:
                team.create(name, {"suspend": True})
            team.cluster.wait_for("a Job of each", lambda: set(team.jobs()) == set(names))
            for name in names:
                team.change(name, {"attempt": 1})
            team.cluster.wait_for(
                "each in its second attempt",
                lambda: (
                    [each.get("status", {}).get("attempt") for each in team.tasks().values()]
                    == [1] * len(names)
                    and set(team.jobs()) == set(names)
                    and {each["metadata"]["labels"]["falldio.com/attempt"] for each in team.jobs().values()}
                    == {"1"}
                ),
            )
            seen.wait_for_jobs(2 * len(names), PATIENCE_SECONDS)
            wait_for_steps(len(names))
        finally:
            stop.set()
        for each in both:
            each.result()
    assert seen.jobs_made == dict.fromkeys(names, 2)


@contextlib.contextmanager
def outdated_controller_manager(team: Team, lives: Lives) -> Iterator[None]:
    """To the garbage collector, what is deleted and created in this block is one object that has changed.

    Task train runs before. The collector is paused, and finds its watches ended when it resumes.
    """
    cluster = team.cluster
    team.create("other", {"suspend": True})
    lives.until("other has its Job", lambda: "other" in team.jobs())
    # It finishes that only once it watches GPUTasks; of those before, it asks for each now and then.
    foreground = {"propagationPolicy": "Foreground"}
    team.api.request("DELETE", task_objects.path(team.namespace, "other"), query=foreground)
    lives.until("the garbage collector to watch GPUTasks", lambda: "other" not in team.tasks())
    team.create("train", {})
    lives.until("train runs", lambda: team.phase("train") == "Running")
    with cluster.paused("kube-controller-manager"):
        # A change that is later than all that it has read of GPUTasks and Jobs: it must list them again.
        team.api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "later"}})
        cluster.start("kube-apiserver")
        yield


@pytest.fixture
def alone(own_cluster: Cluster) -> Iterator[tuple[Team, Lives]]:
    """A team, and controllers, of a cluster that may be interrupted."""
    install(own_cluster)
    team = Team(own_cluster, create_namespace(own_cluster))
    team.set_up()
    lives = Lives(team, mortal(own_cluster))
    yield team, lives
    lives.close()
    team.api.close()


@pytest.mark.when_changed("webhook/tasks", "webhook/kube")
@pytest.mark.promise("O168")
def test_pods_of_an_earlier_job_are_deleted_even_where_the_garbage_collector_takes_both_for_one(
    alone: tuple[Team, Lives],
) -> None:
    team, lives = alone
    with outdated_controller_manager(team, lives):
        (earlier,) = team.pods("train")
        # The task, and its Job as the garbage collector deletes it, before its watches end.
        team.api.request("DELETE", task_objects.path(team.namespace, "train"))
        background = {"propagationPolicy": "Background"}
        team.api.request("DELETE", task_objects.jobs_path(team.namespace, "train"), query=background)
        team.create("train", {})
        lives.until("train has its Job again", lambda: "train" in team.jobs())

    def is_alone() -> bool:
        return earlier["metadata"]["uid"] not in {each["metadata"]["uid"] for each in team.pods()}

    lives.until("train runs alone", lambda: team.phase("train") == "Running" and is_alone(), 60.0)
    assert len(team.pods()) == 1
