"""The task controller at work in this process against a real API server, and what a test asks of it there."""

import contextlib
import functools
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from labeler.contract import keys
from tests.sweeper.mortal import Death, Killed, MortalApi
from tests.tasks.builders import policy
from tests.tasks.overlaps import Overlaps, watched
from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.policy.values import Policy
from webhook.tasks import task_objects
from webhook.tasks.controller import Controller
from webhook.tasks.desired_job import TaskRules
from webhook.tasks.observe import Cache, Queue

DEFINITIONS: Final = ("gputasks.yaml", "placements.yaml", "priorityclasses.yaml")
RUN_FOR: Final = "local.topogate.io/run-for"
PATIENCE_SECONDS: Final = 180.0
"""For what takes a second or two on an idle machine: the limit is for what would never come."""


def install(cluster: Cluster) -> None:
    """What the controller reads, and nothing else of topogate."""
    for name in DEFINITIONS:
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "base" / name))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    cluster.kubectl("get", "gputasks.falldio.com", "--all-namespaces")  # tries again until they can be read


class MortalController(MortalApi):
    """Names writes by what they change, without the namespace and what the API server makes up.

    The controller writes in one thread, so the last write is the one that is under way.
    """

    _last: str

    def _note(self, method: str, path: str, body: Any) -> str:
        if method == "GET":
            return ""
        name = re.sub(r".*/namespaces/[^/]+/", "", path)
        if method == "POST":
            name += f"/{body['metadata']['name']}"
        if "suspend" in (body.get("spec") or {}) and method == "PATCH":
            name += f" suspend={body['spec']['suspend']}"
        with self._lock:
            self._last = f"{method} {name}"
            self._seen[self._last] += 1
            self.writes.append(f"{self._last} #{self._seen[self._last]}")
            return self.writes[-1]

    def request(self, method: str, path: str, **options: Any) -> bytes:
        """As MortalApi.request. A write that was refused changed nothing, so it does not count."""
        try:
            return super().request(method, path, **options)
        except ApiError:
            if method != "GET":
                with self._lock:
                    self._seen[self._last] -= 1
                    self.writes.pop()
            raise


@contextlib.contextmanager
def living(api: Api, rules: Policy, namespace: str = "") -> Iterator[Callable[[], None]]:
    """A controller with copies of its own; yields one step of it. Nothing of it stays behind.

    namespace: whose tasks alone it serves, so that cases side by side leave each other alone.
    """
    queue = Queue()
    cache = Cache(api, queue)
    controller = Controller(
        api,
        cache,
        queue,
        lambda: TaskRules(rules, cache.priority_classes(), restricted=cache.restricted_namespaces()),
    )
    cache.start()
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not cache.synced:
            assert time.monotonic() < deadline, "the copies are not complete"
            time.sleep(0.01)

        def one_step() -> None:
            key = queue.take(0.05)
            if key is not None and key.startswith(f"{namespace}/" if namespace else ""):
                controller.step(key)

        yield one_step
    finally:
        cache.stop()
        api.close()


@dataclass
class Team:
    """A namespace with a node of its own for its tasks, and the API as its user."""

    cluster: Cluster
    namespace: str
    gpus: int = 8

    @functools.cached_property
    def api(self) -> Api:
        return self.cluster.api(user_agent=f"user-of-{self.namespace}")

    @property
    def rules(self) -> Policy:
        """A policy by which pods of this namespace get no gate: kube-scheduler places them."""
        return policy(self.namespace)

    def set_up(self) -> None:
        node = SimulatedNode(f"{self.namespace}-n", ("b", "s", "h"), False, self.gpus)
        self.api.request("POST", "/api/v1/nodes", body=node.manifest({"team": self.namespace}))

    def tear_down(self) -> None:
        self.api.request("DELETE", f"/api/v1/nodes/{self.namespace}-n")
        self.api.close()

    def create(self, name: str, spec: dict[str, Any], *, annotations: dict[str, str] | None = None) -> None:
        """A task on the team's node."""
        template = {
            "metadata": {"annotations": annotations or {}},
            "spec": {
                "nodeSelector": {"team": self.namespace},
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i"}],
            },
        }
        body = {
            "apiVersion": task_objects.GROUP_VERSION,
            "kind": task_objects.KIND,
            "metadata": {"name": name},
            "spec": {"template": template, **spec},
        }
        self.api.request("POST", task_objects.path(self.namespace), body=body)

    def change(self, name: str, spec: dict[str, Any]) -> None:
        path = task_objects.path(self.namespace, name)
        self.api.request("PATCH", path, body={"spec": spec}, content_type=MERGE_PATCH)

    def tasks(self) -> dict[str, dict[str, Any]]:
        items = self.api.json("GET", task_objects.path(self.namespace))["items"]
        return {each["metadata"]["name"]: each for each in items}

    def jobs(self) -> dict[str, dict[str, Any]]:
        items = self.api.json("GET", task_objects.jobs_path(self.namespace))["items"]
        return {each["metadata"]["name"]: each for each in items}

    def pods(self, task: str = "") -> list[dict[str, Any]]:
        selector = {"labelSelector": f"{keys.TASK_LABEL}={task}"} if task else {}
        return list(
            self.api.json("GET", f"/api/v1/namespaces/{self.namespace}/pods", query=selector)["items"]
        )

    def phase(self, name: str) -> str:
        """The phase of a task, "" until its latest change has been taken up, "gone" where there is none."""
        task = self.tasks().get(name)
        if task is None:
            return "gone"
        status = task.get("status") or {}
        seen = status.get("observedGeneration") == task["metadata"]["generation"]
        return str(status.get("phase", "")) if seen else ""

    def watched(self) -> contextlib.AbstractContextManager[Overlaps]:
        return watched(self.api, self.namespace, PATIENCE_SECONDS)


def mortal(cluster: Cluster, death: Death | None = None, agent: str = "controller") -> MortalController:
    """A controller that has not begun to live."""
    api = MortalController.connect(cluster.kubeconfig, user_agent=agent)
    assert isinstance(api, MortalController)
    api.prepare(death)
    return api


@dataclass
class Lives:
    """Controllers one after the other: when one dies, the next begins with empty memory."""

    team: Team
    first: MortalController
    died: bool = False
    current: MortalController | None = None
    _step: Callable[[], None] | None = None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def until(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Work until a condition holds. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        looked = 0.0
        while True:
            if time.monotonic() - looked > 0.1:
                looked = time.monotonic()
                if holds():
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not after {seconds:.0f} s; tasks: {self.team.tasks()}")
            try:
                if self._step is None:
                    self.current = self.first if not self.died else mortal(self.team.cluster)
                    begun = living(self.current, self.team.rules, self.team.namespace)
                    self._step = self._stack.enter_context(begun)
                self._step()
            except Killed:
                self.died = True
                self._stack.close()
                self._step = None

    def strike(self, seconds: float) -> None:
        """Let the controller that lives die after so long, wherever it is then."""
        if self.current is not None:
            threading.Timer(seconds, self.current.dead.set).start()

    def close(self) -> None:
        self._stack.close()
