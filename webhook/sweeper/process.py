"""What goes on between the passes: lead, read the cluster, wait for a change, tell probes and metrics."""

import functools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from webhook.kube.client import Api
from webhook.kube.collection import SILENCE_SECONDS
from webhook.kube.events import NORMAL, WARNING, Recorder, Reference
from webhook.kube.lease import Elector
from webhook.kube.objects import Pod
from webhook.probes import serve
from webhook.sweeper.context import Pass
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.settings import Settings
from webhook.sweeper.sweep import Sweeper

_COALESCE_SECONDS: Final = 0.02
_STUCK_SECONDS: Final = 300.0

logger = logging.getLogger("webhook.sweeper")


@dataclass
class _Pulse:
    """When the loop last came round, for the liveness probe."""

    at: float = 0.0

    def beat(self) -> None:
        self.at = time.monotonic()

    def complaint(self) -> str:
        silent = time.monotonic() - self.at
        return f"no pass has ended for {silent:.0f} s" if silent > _STUCK_SECONDS else ""


@dataclass
class _Live:
    """The leader's copy of the cluster; a replica that does not lead has none."""

    cache: ClusterCache | None = None

    def complaint(self, leads: bool) -> str:
        if not leads:
            return ""
        cache = self.cache
        if cache is None or not cache.synced:
            return "the copy of the cluster is not complete yet"
        name, seconds = max(cache.silences().items(), key=lambda each: each[1])
        return f"nothing has been heard of {name} for {seconds:.0f} s" if seconds > SILENCE_SECONDS else ""


class _Events:
    """Says it on the pod and on the pod's controller."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def say(self, pod: Pod, reason: str, note: str, *, warning: bool) -> None:
        kind = WARNING if warning else NORMAL
        about = Reference.of("v1", "Pod", pod.metadata)
        self._recorder.event(about, reason, "Place", note, kind=kind)
        owner = pod.metadata.controller
        if owner is not None:
            of_owner = Reference.owner(owner, pod.metadata.namespace)
            self._recorder.event(of_owner, reason, "Place", note, kind=kind, related=about)


def run(
    api: Api,
    settings: Settings,
    stopping: threading.Event,
    elector: Elector | None = None,
    metrics_address: str = "127.0.0.1",
    metrics_port: int | None = None,
    identity: str = "sweeper",
) -> None:
    """Sweep whenever something changes and this process leads, until `stopping` is set."""
    metrics, pulse = Metrics(), _Pulse()
    pulse.beat()
    recorder = Recorder(api, "topogate.io/sweeper", identity)
    live = _Live()

    def leads() -> bool:
        return not stopping.is_set() and (elector is None or elector.is_leader)

    if metrics_port is not None:
        checks = {"/healthz": pulse.complaint, "/readyz": lambda: live.complaint(leads())}
        refresh = functools.partial(_refresh, metrics, live, recorder, settings, leads)
        serve(metrics_address, metrics_port, metrics.registry, refresh, checks)
    recorder.start()
    logger.info("started server=%s", api.host)
    if elector is not None:
        elector.start()
    try:
        while not stopping.is_set():
            pulse.beat()
            if leads():
                _lead(api, settings, stopping, leads, metrics, recorder, live, pulse)
            stopping.wait(0.05)
    finally:
        if elector is not None:
            elector.release()
        recorder.close()
    logger.info("stopped")


def _lead(
    api: Api,
    settings: Settings,
    stopping: threading.Event,
    leads: Callable[[], bool],
    metrics: Metrics,
    recorder: Recorder,
    live: "_Live",
    pulse: _Pulse,
) -> None:
    """Sweep for as long as this process leads.

    The cluster is read anew when leadership begins: a copy made before could lack what the earlier leader
    has done last.
    """
    cache = live.cache = ClusterCache(api, settings.gate_prefix)
    cache.start()
    sweeper = Sweeper(Pass(api, cache, settings, metrics, _Events(recorder), leads, stopping))
    synced = False
    try:
        while leads():
            pulse.beat()
            if not cache.synced:
                stopping.wait(0.02)
                continue
            if not synced:
                synced = True
                logger.info("synced pods=%d nodes=%d", len(cache.pods.items()), len(cache.nodes.items()))
            cache.changed.clear()
            try:
                due = sweeper.sweep()
            except Exception:  # a pass that fails is tried again: every gated pod of the cluster waits for us
                logger.exception("pass_failed")
                due = 1.0
            _wait(cache.changed, stopping, due, pulse, leads)
    finally:
        live.cache = None
        sweeper.close()
        cache.stop()


def _wait(
    changed: threading.Event,
    stopping: threading.Event,
    seconds: float,
    pulse: _Pulse,
    leads: Callable[[], bool],
) -> None:
    """Wait for a change (and a moment more, for its siblings), for the time that is due, or for the end."""
    deadline = time.monotonic() + seconds
    while leads() and (remaining := deadline - time.monotonic()) > 0:
        pulse.beat()
        if changed.wait(min(0.5, remaining)):
            stopping.wait(_COALESCE_SECONDS)
            return


def _refresh(
    metrics: Metrics, live: "_Live", recorder: Recorder, settings: Settings, leads: Callable[[], bool]
) -> None:
    """Bring up to date what is read, not counted as it happens."""
    metrics.leading.set(leads())
    metrics.count_dropped_events(recorder.dropped)
    cache = live.cache
    if cache is None:
        metrics.forget_cluster()
        return
    for name, seconds in cache.silences().items():
        metrics.silence.labels(name).set(seconds)
    metrics.unreadable.clear()
    for name, count in cache.unreadable().items():
        metrics.unreadable.labels(name).set(count)
    metrics.refused_owners.clear()
    for name in cache.owners.refused:
        metrics.refused_owners.labels(name).set(1)
    metrics.oldest.set(cache.oldest_gated_seconds(settings.gate_prefix))
