"""topogate-tasks: creates a Job for every GPUTask and reports its progress. One of its replicas leads."""

import argparse
import functools
import logging
import os
import shlex
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from webhook import logs, version
from webhook.build_info import register_build_info
from webhook.configuration.document import ConfigurationError
from webhook.configuration.store import ConfigurationStore, add_flag, require_file
from webhook.kube.client import Api, ConnectError
from webhook.kube.collection import SILENCE_SECONDS
from webhook.kube.events import Recorder
from webhook.kube.lease import Elector
from webhook.probes import serve
from webhook.tasks.controller import Controller
from webhook.tasks.desired_job import DEFAULT_COMMAND, DEFAULT_IMAGE, TaskRules
from webhook.tasks.observe import Cache, Queue

LEASE: Final = "topogate-tasks"
NAMESPACE: Final = "topogate-system"
_CONFIGURATION_SECONDS: Final = 2.0
_STUCK_SECONDS: Final = 120.0

logger = logging.getLogger("webhook.tasks")


@dataclass
class Service:
    """The running program: its dependencies, and what probes and metrics read."""

    api: Api
    configuration: ConfigurationStore
    default_image: str = DEFAULT_IMAGE
    default_command: tuple[str, ...] = DEFAULT_COMMAND
    recorder: Recorder | None = None
    elector: Elector | None = None
    stopping: threading.Event = field(default_factory=threading.Event)
    cache: Cache | None = None
    last_step_at: float = field(default_factory=time.monotonic)
    steps: int = 0

    def leads(self) -> bool:
        """Whether this process may act now."""
        return not self.stopping.is_set() and (self.elector is None or self.elector.is_leader)

    def run(self) -> None:
        """Work whenever this process leads, until `stopping` is set."""
        while not self.stopping.is_set():
            self.last_step_at = time.monotonic()
            if self.leads():
                self.lead()
            self.stopping.wait(0.05)

    def lead(self) -> None:
        """Take steps for as long as this process leads. The cluster is read again each time."""
        queue = Queue()
        cache = self.cache = Cache(self.api, queue)
        rules: Callable[[], TaskRules] = lambda: TaskRules(  # noqa: E731
            self.configuration.policy,
            cache.priority_classes(),
            self.default_image,
            self.default_command,
            cache.restricted_namespaces(),
        )
        controller = Controller(self.api, cache, queue, rules, self.recorder, self.leads)
        cache.start()
        looked, generation = 0.0, self.configuration.generation
        try:
            while self.leads():
                self.last_step_at = now = time.monotonic()
                if now - looked >= _CONFIGURATION_SECONDS:
                    looked = now
                    self.configuration.refresh()
                    if self.configuration.generation != generation:
                        generation = self.configuration.generation
                        cache.all_again()
                if not cache.synced:
                    self.stopping.wait(0.02)
                    continue
                key = queue.take(0.5)
                if key is not None:
                    self.steps += 1
                    self._step(controller, queue, key)
        finally:
            self.cache = None
            cache.stop()

    def _step(self, controller: Controller, queue: Queue, key: str) -> None:
        try:
            controller.step(key)
        except Exception:  # a defect that shows with one task must not stop the others
            logger.exception("step_failed task=%s", key)
            queue.add(key, 10.0)

    def stalled(self) -> str:
        """What is wrong with the loop, "" if nothing."""
        silent = time.monotonic() - self.last_step_at
        return f"no task was processed for {silent:.0f} s" if silent > _STUCK_SECONDS else ""

    def unready(self) -> str:
        """What is wrong with the copy of the cluster, "" if nothing or if another process leads."""
        if not self.leads():
            return ""
        cache = self.cache
        if cache is None or not cache.synced:
            return "the copy of the cluster is not complete yet"
        name, seconds = max(cache.silences().items(), key=lambda each: each[1])
        return f"no message about {name} for {seconds:.0f} s" if seconds > SILENCE_SECONDS else ""


class TaskMetrics:
    """The metrics."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.registry = CollectorRegistry()
        gauge = functools.partial(Gauge, registry=self.registry)
        self._leading = gauge("topogate_tasks_leading", "1 for the replica that leads.")
        self._tasks = gauge("topogate_tasks", "GPUTasks by phase; of the leader.", ["phase"])
        self._silence = gauge(
            "topogate_tasks_watch_silence_seconds",
            "Seconds since the last message of the API server on a watch.",
            ["resource"],
        )
        self._unreadable = gauge(
            "topogate_tasks_unreadable_objects", "Objects that could not be decoded.", ["resource"]
        )
        self.registry.register(service.configuration)
        self._steps = Counter("topogate_tasks_steps", "Tasks processed.", registry=self.registry)
        self._counted = 0
        register_build_info(self.registry)

    def refresh(self) -> None:
        service, cache = self._service, self._service.cache
        self._leading.set(service.leads())
        self._steps.inc(service.steps - self._counted)
        self._counted = service.steps
        for series in (self._tasks, self._silence, self._unreadable):
            series.clear()
        if cache is None:
            return
        for task in cache.tasks.items().values():
            self._tasks.labels(task.status.phase or "Pending").inc()
        for name, seconds in cache.silences().items():
            self._silence.labels(name).set(seconds)
        for name, count in cache.unreadable().items():
            self._unreadable.labels(name).set(count)


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    options = parser().parse_args(arguments)
    require_file(options, "topogate-tasks")
    logs.begin("topogate-tasks", options.log_level, options.log_format)
    identity = f"{socket.gethostname()}_{os.getpid()}"
    try:
        api = Api.connect(options.kubeconfig, user_agent="topogate-tasks")
        elector = _elector(options, identity) if options.leader_election else None
        configuration = ConfigurationStore(options.config)
    except (ConnectError, ConfigurationError) as error:
        logger.error("cannot_start reason=%r", str(error))
        return 2
    recorder = Recorder(api, "topogate.io/tasks", identity)
    command = tuple(shlex.split(options.default_command))
    service = Service(api, configuration, options.default_image, command, recorder, elector)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stopping.set())
    if options.metrics_port is not None:
        _serve(service, options.metrics_address, options.metrics_port)
    recorder.start()
    logger.info("started server=%s", api.host)
    if elector is not None:
        elector.start()
    try:
        service.run()
    finally:
        if elector is not None:
            elector.release()
        recorder.close()
    logger.info("stopped")
    return 0


def _elector(options: argparse.Namespace, identity: str) -> Elector:
    """Renewals have their own connection pool: they must not wait behind other requests."""
    own = Api.connect(options.kubeconfig, user_agent="topogate-tasks-lease")
    return Elector(own, options.namespace, LEASE, identity)


def _serve(service: Service, address: str, port: int) -> None:
    """Serve metrics and probes."""
    metrics = TaskMetrics(service)
    checks = {"/healthz": service.stalled, "/readyz": service.unready}
    serve(address, port, metrics.registry, metrics.refresh, checks, service.configuration.remark)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="topogate-tasks", description=__doc__)
    version.add_argument(made)
    add = made.add_argument
    add("--kubeconfig", type=Path, help="how to reach the cluster; without it, as the pod's ServiceAccount")
    add_flag(made)
    add(
        "--default-image",
        default=DEFAULT_IMAGE,
        metavar="IMAGE",
        help="of tasks that name neither image nor template (%(default)s)",
    )
    add(
        "--default-command",
        default=shlex.join(DEFAULT_COMMAND),
        metavar="WORDS",
        help="what is run in it (%(default)s)",
    )
    add("--leader-election", action=argparse.BooleanOptionalAction, default=True, help="one of several leads")
    add("--namespace", default=NAMESPACE, help="where the Lease lives (%(default)s)")
    add("--metrics-address", default="0.0.0.0", help="where /metrics, /healthz, /readyz listen")
    add("--metrics-port", type=int, metavar="PORT", help="none without it")
    logs.add_flags(made)
    return made


if __name__ == "__main__":
    raise SystemExit(main())
