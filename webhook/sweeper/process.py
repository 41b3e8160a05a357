"""The loop around passes: lead, read the cluster, wait for a change, answer probes and metrics."""

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Settings
from webhook.configuration.store import ConfigurationStore
from webhook.kube.client import Api
from webhook.kube.collection import SILENCE_SECONDS
from webhook.kube.events import NORMAL, WARNING, Recorder, Reference
from webhook.kube.lease import Elector
from webhook.kube.objects import Node, Pod
from webhook.probes import serve
from webhook.sweeper.context import Pass
from webhook.sweeper.extension import Switch
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.membership import key_of
from webhook.sweeper.observe.owner_sizes import Owners
from webhook.sweeper.sweep import Sweeper

_COALESCE_SECONDS: Final = 0.02
_STUCK_SECONDS: Final = 300.0

logger = logging.getLogger("webhook.sweeper")


# --- garbage collection: the copy of a large cluster lasts, and has no cycles -------------------------

_SELDOM: Final = (100_000, 50, 20)
"""Thresholds of the three generations. Young objects are still examined, since each try while a server is
away leaves an error. Placing a gang creates up to a million objects without a cycle, which are freed
together."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """The collector hardly runs meanwhile, in the whole process.

    It examines all objects now and then: for 65,000 nodes and 200,000 pods these are 1.5 million, which takes
    about as long as a pass with a gang. By the usual thresholds it took a quarter to two fifths of placing a
    gang on 100,000 nodes.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def lasting() -> Iterator[None]:
    """Objects created inside last: they are not examined after it. Hardly meanwhile, inside the other."""
    yield
    gc.freeze()


def no_longer() -> None:
    """The lasting objects can be collected like others again, once nothing refers to them."""
    gc.unfreeze()


# --- the process --------------------------------------------------------------------------------------


@dataclass
class _Pulse:
    """When the loop last came round, for the liveness probe."""

    at: float = 0.0

    def heartbeat(self) -> None:
        self.at = time.monotonic()

    def complaint(self) -> str:
        silent = time.monotonic() - self.at
        return f"no pass has made progress for {silent:.0f} s" if silent > _STUCK_SECONDS else ""


@dataclass
class _Live:
    """The leader's copy of the cluster; a replica that does not lead has none."""

    cache: ClusterCache | None = None

    def complaint(self, leads: bool, trouble: str = "") -> str:
        """The fault, "" if there is none. trouble: why this process cannot take part in leader election."""
        if not leads:
            return trouble
        cache = self.cache
        if cache is None or not cache.synced:
            missing = ", ".join(cache.unsynced) if cache is not None else "everything"
            return f"the copy of the cluster is not complete yet: {missing} still to be read"
        name, seconds = max(cache.silences().items(), key=lambda each: each[1])
        return f"no message about {name} for {seconds:.0f} s" if seconds > SILENCE_SECONDS else ""


class _Events:
    """Records Events on the pod, on its controller, and on the object of its gang, such as a JobSet.

    None once another process leads: what this one decided may not be what happens.
    """

    def __init__(self, recorder: Recorder, owners: Owners, is_leader: Callable[[], bool]) -> None:
        self._recorder = recorder
        self._owners = owners
        self._is_leader = is_leader

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        if not self._is_leader():
            return
        kind = WARNING if reason.is_warning else NORMAL
        about = Reference.of("v1", "Pod", pod.metadata)
        self._recorder.event(about, reason, "Place", note, kind=kind)
        both = (pod.metadata.controller, self._owners.reference(key_of(pod)))
        for owner in {each.uid: each for each in both if each is not None}.values():
            of_owner = Reference.owner(owner, pod.metadata.namespace)
            self._recorder.event(of_owner, reason, "Place", note, kind=kind, related=about)

    def announce_on_node(self, node: Node, reason: EventReason, note: str) -> None:
        if not self._is_leader():
            return
        about = Reference.of("v1", "Node", node.metadata)
        self._recorder.event(about, reason, "Avoid", note, kind=WARNING if reason.is_warning else NORMAL)


@dataclass
class _Process:
    """The loop, and the state that probes and metrics read."""

    api: Api
    store: ConfigurationStore
    stopping: threading.Event
    elector: Elector | None
    recorder: Recorder
    extensions: Sequence[Switch] = ()
    metrics: Metrics = field(default_factory=Metrics)
    live: _Live = field(default_factory=_Live)
    pulse: _Pulse = field(default_factory=_Pulse)

    def is_leader(self) -> bool:
        return self.elector is None or self.elector.is_leader

    def leads(self) -> bool:
        return not self.stopping.is_set() and self.is_leader()

    def complaint(self) -> str:
        return self.live.complaint(self.leads(), self.elector.trouble if self.elector else "")

    def refresh(self) -> None:
        _refresh(self.metrics, self.live, self.recorder, self.store.settings, self.leads)

    def run(self) -> None:
        while not self.stopping.is_set():
            self.pulse.heartbeat()
            if self.leads():
                self._lead()
            self.stopping.wait(0.05)

    @seldom_collected()
    def _lead(self) -> None:
        """Sweep as long as this process leads and its settings are the same.

        The cluster is read again when leadership begins: an earlier copy could lack the last writes of the
        earlier leader.
        """
        settings = self.store.settings
        cache = self.live.cache = ClusterCache(self.api, settings.gate_prefix)
        cache.start()
        events = _Events(self.recorder, cache.owners, self.is_leader)
        sweeper = Sweeper(
            Pass(
                self.api, cache, settings, self.metrics, events, self.leads, self.stopping,
                heartbeat=self.pulse.heartbeat, policy=lambda: self.store.policy, extensions=self.extensions,
            )
        )  # fmt: skip
        try:
            with lasting():
                is_synced = self._synced(cache)
                if is_synced:  # the first pass makes the objects that all others use
                    self._sweep(sweeper, cache)
            while is_synced and self.leads() and self.store.settings == settings:
                self._sweep(sweeper, cache)
        finally:
            self.live.cache = None
            sweeper.close()
            cache.stop()
            no_longer()

    def _synced(self, cache: ClusterCache) -> bool:
        """Wait until everything has been read once; returns False if leadership ended before."""
        while self.leads():
            self.pulse.heartbeat()
            if cache.is_for_leaders:
                logger.info("synced pods=%d nodes=%d", len(cache.pods.items()), len(cache.nodes.items()))
                return True
            self.stopping.wait(0.02)
        return False

    def _sweep(self, sweeper: Sweeper, cache: ClusterCache) -> None:
        self.pulse.heartbeat()
        cache.changed.clear()
        try:
            due = sweeper.sweep()
        except Exception:  # a pass that fails is tried again: every gated pod of the cluster waits for us
            logger.exception("pass_failed")
            due = 1.0
        self._wait(cache.changed, due)

    def _wait(self, changed: threading.Event, seconds: float) -> None:
        """Wait for a change (and a moment more, for further ones), for the next due time, or for the end."""
        deadline = time.monotonic() + seconds
        while self.leads() and (remaining := deadline - time.monotonic()) > 0:
            self.pulse.heartbeat()
            if changed.wait(min(0.5, remaining)):
                self.stopping.wait(_COALESCE_SECONDS)
                return


def run(
    api: Api,
    store: ConfigurationStore,
    stopping: threading.Event,
    elector: Elector | None = None,
    metrics_address: str = "127.0.0.1",
    metrics_port: int | None = None,
    identity: str = "sweeper",
    extensions: Sequence[Switch] = (),
) -> None:
    """Sweep whenever something changes and this process leads, until `stopping` is set.

    store: the configuration; a change of the settings begins again, as a change of the leader does.
    extensions: optional features that may be on.
    """
    recorder = Recorder(api, "topogate.io/sweeper", identity)
    process = _Process(api, store, stopping, elector, recorder, extensions)
    process.pulse.heartbeat()
    if metrics_port is not None:
        checks = {"/healthz": process.pulse.complaint, "/readyz": process.complaint}
        serve(metrics_address, metrics_port, process.metrics.registry, process.refresh, checks, store.remark)
    process.metrics.registry.register(store)
    process.recorder.start()
    logger.info("started server=%s", api.host)
    if elector is not None:
        elector.start()
    try:
        process.run()
    finally:
        if elector is not None:
            elector.release()
        process.recorder.close()
    logger.info("stopped")


def _refresh(
    metrics: Metrics, live: "_Live", recorder: Recorder, settings: Settings, leads: Callable[[], bool]
) -> None:
    """Update the metrics that are read, not counted as events happen."""
    metrics.leading.set(leads())
    metrics.count_dropped_events(recorder.dropped)
    cache = live.cache
    if cache is None or not cache.synced:
        metrics.forget_cluster()  # an unknown value is not 0
        return
    for name, seconds in cache.silences().items():
        metrics.silence.labels(name).set(seconds)
    metrics.unreadable.clear()
    for name, count in cache.unreadable().items():
        metrics.unreadable.labels(name).set(count)
    metrics.refused_owners.clear()
    for name in cache.owners.refused:
        metrics.refused_owners.labels(name).set(1)
    metrics.oldest.value = cache.oldest_gated_seconds(settings.gate_prefix)
