"""``topogate-allocator``: the device plugin of this node, which hands out the cards that were chosen."""

import argparse
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import IO, Final

import prometheus_client

from labeler import pod
from labeler.allocator import cdi
from labeler.allocator.card_report import CardReporter
from labeler.allocator.devices import Inventory
from labeler.allocator.events import Events
from labeler.allocator.listing import ListingError, PodResources
from labeler.allocator.monitoring import MonitoringPlugin
from labeler.allocator.plugin import CardsPlugin, Plugin
from labeler.allocator.pods import NodePods
from labeler.allocator.register import LockedError, Registration, lock, remove_leftovers
from labeler.allocator.resolve import Patience, Resolver
from labeler.allocator.vendors import KNOWN, Places, Vendor, create_vendor
from labeler.api import ApiClient, NodeApiError
from labeler.health import Health, serve
from labeler.pod import UsageError

LOCK_SECONDS: Final = 0.02
"""Between looks at the lock of another allocator: from its end on, the node has no devices."""
RETRY_SECONDS: Final = 1.0
LAST_CALLS_SECONDS: Final = 4.0
"""How long an allocator that is stopped serves on, until the kubelet asks for nothing; twice that at most."""
_QUIET_SECONDS: Final = 0.2
"""Between two calls for one pod, the kubelet takes milliseconds."""
OBSERVE_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 2.0
"""Longest wait for one answer of the API server: the kubelet waits as well."""
_LONGEST_PAUSE_SECONDS: Final = 60.0

log: Final = logging.getLogger("labeler.allocator")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; returns 0, or 2 for a mistake in the command line."""
    options = parser().parse_args(arguments)
    pod.log_to_stderr("topogate-allocator", options)
    try:
        allocator = Allocator(options)
    except UsageError as error:
        sys.stderr.write(f"topogate-allocator: {error}\n")
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: allocator.stop.set())
    try:
        allocator.run()
    except OSError as error:
        sys.stderr.write(f"topogate-allocator: {error}\n")
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="topogate-allocator", description=__doc__)
    pod.add_arguments(made)
    add = made.add_argument
    add("--vendor", choices=KNOWN, default="intel", help="whose cards (default: intel)")
    add("--shares", type=_positive, default=1, metavar="N", help="devices of each card (default: 1)")
    add("--no-monitoring", action="store_true", help="do not offer the _monitoring resources")
    add("--ignore-integrated", action="store_true", help="leave out GPUs that are part of the processor")
    add("--cdi", type=Path, metavar="FOLDER", help="hand cards out by CDI, described in that folder")
    add(
        "--default-when-unsure",
        action="store_true",
        help="where several pods may be the one being served, give any devices instead of refusing",
    )
    add("--plan-seconds", type=_seconds, default=Patience.for_plan, metavar="S", help="wait for annotations")
    add(
        "--certain-seconds",
        type=_seconds,
        default=Patience.for_certainty,
        metavar="S",
        help="wait for the answers of kubelet and API server, and until one pod alone fits",
    )
    add(
        "--kubelet", type=Path, default=Path("/var/lib/kubelet"), metavar="FOLDER", help="its sockets' folder"
    )
    add("--sys", type=Path, default=Places.sys, metavar="FOLDER", help="where the node's /sys is seen")
    add("--dev", type=Path, default=Places.dev, metavar="FOLDER", help="where the node's /dev is seen")
    add("--proc", type=Path, default=Places.proc, metavar="FOLDER", help="where the node's /proc is seen")
    add("--health-port", type=int, metavar="PORT", help="answer /healthz, /readyz and /metrics there")
    return made


def _places(options: argparse.Namespace) -> Places:
    return Places(options.sys, options.dev, options.proc, options.ignore_integrated)


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= 30:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 30")
    return seconds


class AllocatorHealth(Health):
    """The probes' answers, and the metrics beside them."""

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text."""
        if path == "/metrics":
            return 200, prometheus_client.generate_latest().decode()
        return super().answer(path)


class Allocator:
    """All plugins of one vendor on one node."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Raises UsageError."""
        self._options = options
        self.stop = threading.Event()
        self._ended = threading.Event()
        self._node = pod.node_name(options)
        if options.vendor == "nvidia" and options.shares > 1:
            raise UsageError("--shares: cards of NVIDIA are handed out whole")
        self._folder: Path = options.kubelet / "device-plugins"
        self._vendor = create_vendor(options.vendor, _places(options))
        self._inventory = Inventory(self._vendor.cards)
        self._kubelet = PodResources(options.kubelet / "pod-resources" / "kubelet.sock")
        client = self._client() if self._vendor.has_plans else None
        self._pods = NodePods(client, self._node) if client else None
        self._resolver = self._make_resolver(client, self._pods) if client and self._pods else None
        self._reporter = self._make_reporter(client, self._pods) if client and self._pods else None
        self._plugins = self._make_plugins(self._vendor)
        self._registrations = [
            Registration(
                plugin,
                self._folder,
                self._kubelet,
                self._vendor.competitors(plugin.resource),
                options.vendor,
            )
            for plugin in self._plugins
        ]

    def run(self) -> None:
        """Serve until stopped. Raises OSError if the kubelet's folder cannot be used."""
        health = AllocatorHealth(_LONGEST_PAUSE_SECONDS)
        if self._options.health_port is not None:
            serve(health, self._options.health_port)
        node_lock = self._lock(health) if self._wait_until_ready(health) else None
        if node_lock is None:
            return
        devices = threading.Thread(target=self._inventory.watch, args=(self._ended,), name="devices")
        with node_lock:
            remove_leftovers(self._folder, self._options.vendor)
            if self._resolver is not None:
                self._resolver.observe()  # who is there before there are devices does not ask for them
            registrations = [
                threading.Thread(target=each.run, args=(self._ended,), name="registration")
                for each in self._registrations
            ]
            threads = [devices, *registrations]
            for thread in threads:
                thread.start()
            try:
                self._tend(threads, health)
                log.info("stopping once the kubelet asks for no devices")
                finish_calls(self._plugins)
            finally:
                if self._reporter is not None:
                    self._reporter.withdraw()
                self._ended.set()
                self._inventory.wake()
                for thread in registrations:
                    thread.join()
        log.info("stopped serving")
        devices.join()  # the next allocator does not wait for it

    def _tend(self, threads: Sequence[threading.Thread], health: Health) -> None:
        """What is done every second while the threads work."""
        observe_at, problem = time.monotonic() + OBSERVE_SECONDS, ""
        while not self.stop.wait(1):
            if self._options.cdi and self._vendor.describes_cdi:
                problem = cdi.keep(self._options.cdi, self._inventory.cards())
            if self._resolver is not None and time.monotonic() >= observe_at:
                self._resolver.observe()
                observe_at = time.monotonic() + OBSERVE_SECONDS
            problems = list(filter(None, (each.problem for each in self._registrations)))
            if self._reporter is not None:
                self._reporter.report(self._inventory.cards(), self._options.shares, serves=not problems)
            if all(thread.is_alive() for thread in threads):  # else the liveness probe fails
                health.heartbeat("; ".join(filter(None, (problem, *problems))))

    def _lock(self, health: Health) -> IO[str] | None:
        """The node's lock, waited for; None if stopped before.

        Meanwhile another allocator serves the node. This one is ready, so that an update may end that one.
        """
        logged = ""
        self._inventory.look()
        while not self.stop.is_set():
            try:
                return lock(self._folder, self._options.vendor)
            except LockedError as error:
                if not logged:
                    logged = f"standing by: {error}"
                    log.info("%s", logged)
            health.heartbeat("")
            self.stop.wait(LOCK_SECONDS)
        return None

    def _wait_until_ready(self, health: Health) -> bool:
        """Wait until kubelet and API server answer; False if stopped before.

        Without devices, the node gets no pods. Devices that cannot be given would have them refused.
        """
        logged = ""
        while not self.stop.is_set():
            problem = self._not_ready()
            if not problem:
                return True
            if problem != logged:
                log.warning("waiting: %s", problem)
                logged = problem
            health.heartbeat(problem)
            self.stop.wait(RETRY_SECONDS)
        return False

    def _not_ready(self) -> str:
        """Why no pod could be served now."""
        if not self._folder.exists():
            return f"there is no folder {self._folder}: no kubelet has run here"
        try:
            if self._pods is not None:
                self._kubelet.now()
                self._pods.now()
        except (ListingError, NodeApiError) as error:
            return str(error)
        return ""

    def _client(self) -> ApiClient:
        options = self._options
        server, ca_file = pod.server_of(options)
        return ApiClient(server, options.token_file, ca_file, "topogate-allocator", ANSWER_SECONDS)

    def _make_resolver(self, client: ApiClient, pods: NodePods) -> Resolver:
        options = self._options
        return Resolver(
            self._kubelet,
            pods,
            Events(client, self._node),
            Patience(options.plan_seconds, options.certain_seconds),
            options.default_when_unsure,
        )

    def _make_reporter(self, client: ApiClient, pods: NodePods) -> CardReporter:
        return CardReporter(self._kubelet, pods, client, self._node)

    def _make_plugins(self, vendor: Vendor) -> list[Plugin]:
        options = self._options
        plugins: list[Plugin] = [
            CardsPlugin(
                resource,
                vendor,
                self._inventory,
                self._resolver,
                options.shares,
                options.cdi is not None,
                self._reporter,
            )
            for resource in vendor.resources
        ]
        if not options.no_monitoring:
            plugins += [
                MonitoringPlugin(resource, shown, vendor, self._inventory, options.cdi is not None)
                for resource, shown in vendor.monitoring.items()
            ]
        return plugins


def finish_calls(
    plugins: Collection[Plugin],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the kubelet asks for nothing: a pod that is being served would be refused.

    Under a kubelet that asks again and again, a shorter and shorter pause is enough.
    """
    began = clock()
    while (past := (clock() - began) / LAST_CALLS_SECONDS) < 2:
        quiet = _QUIET_SECONDS * max(0.0, 1 - past)
        if not any(plugin.is_asked(quiet) for plugin in plugins):
            return
        sleep(_QUIET_SECONDS / 20)
