"""Events on pods: why a container got no cards, or others than a plan would have named.

Sent from a thread of its own, so that no container waits for the API server to take them.
"""

import contextlib
import json
import logging
import queue
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from labeler.allocator.metrics import EVENTS_DROPPED
from labeler.allocator.values import LocalPod, Refusal
from labeler.api import ApiClient, NodeApiError
from labeler.contract.event_reasons import EventReason

log: Final = logging.getLogger(__name__)

_WAITING: Final = 200
_LONGEST_NOTE: Final = 1000


class Warns(Protocol):
    """Where warnings for a pod's owner are written."""

    def warn(self, pod: LocalPod, reason: EventReason, text: str) -> None:
        """Returns at once."""


@contextlib.contextmanager
def reporting_refusals(warner: Warns, pod: LocalPod) -> Iterator[None]:
    """Names the pod in a refusal that is raised meanwhile, and sends its owner an Event."""
    try:
        yield
    except Refusal as refusal:
        warner.warn(pod, EventReason.CARDS_REFUSED, str(refusal))
        raise Refusal(f"pod {pod}: {refusal}") from refusal


@dataclass(frozen=True)
class _Note:
    pod: LocalPod
    reason: EventReason
    text: str


class Events:
    """Sends Events; what the API server does not take is counted and dropped."""

    def __init__(self, client: ApiClient, node: str) -> None:
        """Starts the thread."""
        self._client = client
        self._node = node
        self._waiting: queue.Queue[_Note] = queue.Queue(_WAITING)
        threading.Thread(target=self._send_all, name="events", daemon=True).start()

    def warn(self, pod: LocalPod, reason: EventReason, text: str) -> None:
        """A Warning on a pod; returns at once."""
        try:
            self._waiting.put_nowait(_Note(pod, reason, text))
        except queue.Full:
            EVENTS_DROPPED.inc()

    def _send_all(self) -> None:
        while True:
            note = self._waiting.get()
            try:
                self._client.call(
                    "POST",
                    f"/api/v1/namespaces/{note.pod.namespace}/events",
                    json.dumps(event(note.pod, note.reason, note.text, self._node, time.time())).encode(),
                    {"Content-Type": "application/json", "Accept": "application/json"},
                )
            except NodeApiError as error:
                EVENTS_DROPPED.inc()
                log.warning("Event %s on pod %s was not taken: %s", note.reason, note.pod, error)


def event(pod: LocalPod, reason: EventReason, text: str, node: str, now: float) -> dict[str, Any]:
    """The Event as the API server takes it; now: seconds since 1970."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{pod.name[:230].rstrip('-.')}.{secrets.token_hex(8)}",
            "namespace": pod.namespace,
        },
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "type": "Warning",
        "reason": reason,
        "message": text if len(text) <= _LONGEST_NOTE else text[: _LONGEST_NOTE - 3] + "...",
        "source": {"component": "topogate-allocator", "host": node},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
