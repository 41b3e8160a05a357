"""Which events matter: those that change what nodes have, or what pods take of them."""

import threading
import time
from collections.abc import Callable, Mapping, Set
from typing import Final

from labeler.contract import keys
from webhook.kube import objects
from webhook.sweeper.observe.plans import occupied_node

EXPECTED_SECONDS: Final = 300.0
"""After this long without its arrival a released pod is not awaited any more."""


class Changes:
    """Separates events that matter from those that do not. Safe for use by many threads.

    usage_version grows with each change of nodes, or of what pods take on them, but for our own releases.
    While it stays the same, an earlier assignment is still valid. freed_version grows only with those changes
    after which more may be free: not when a pod only takes capacity that was free.
    """

    def __init__(
        self, gate_prefix: str = keys.GATE_PREFIX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """gate_prefix: of the gates that hold a pod for us."""
        self._gate_prefix = gate_prefix
        self._clock = clock
        self._lock = threading.Lock()
        self._expected: dict[str, tuple[str, float]] = {}
        self.usage_version = 0
        self.freed_version = 0

    @property
    def expected(self) -> Set[str]:
        """uids of the pods whose arrival on a node is expected."""
        with self._lock:
            return set(self._expected)

    def expect(self, places: Mapping[str, str]) -> None:
        """Expect pods that we release on their nodes (uid -> node): their arrival there changes nothing.

        After a failed release, or where the pod was already deleted, nothing arrives; the entry then expires.
        """
        now = self._clock()
        with self._lock:
            # In the order of their times: the oldest come first.
            while self._expected:
                uid, (_, since) = next(iter(self._expected.items()))
                if now - since < EXPECTED_SECONDS:
                    break
                del self._expected[uid]
            for uid, node in places.items():
                self._expected.pop(uid, None)
                self._expected[uid] = (node, now)

    def on_pod(self, before: objects.Pod | None, after: objects.Pod | None) -> bool:
        """Record a pod's event; returns whether it matters."""
        pod = after or before
        if pod is None or (before is not None and after is not None and _same_to_us(before, after)):
            return False  # only a running pod's status has changed
        with self._lock:
            if self._matters(pod.metadata.uid, before, after):
                self.usage_version += 1
                self.freed_version += not self._only_takes(before, after)
            self._forget_arrived(before, after)
        return True

    def _forget_arrived(self, before: objects.Pod | None, after: objects.Pod | None) -> None:
        """Expect a pod no more once it has a node or is deleted."""
        if after is not None and after.spec.node_name:
            self._expected.pop(after.metadata.uid, None)
        # It may have been deleted and recreated between two reads.
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._expected.pop(before.metadata.uid, None)

    def _matters(self, uid: str, before: objects.Pod | None, after: objects.Pod | None) -> bool:
        """Whether a pod unexpectedly takes other resources than before, or is on another node."""
        there, was = self._occupied(after), self._occupied(before)
        expected, _ = self._expected.get(uid, (None, 0.0))
        if there != was and (there is None or there != expected):
            return True
        return _claims(before) != _claims(after) or (there is not None and _differ(before, after))

    def _only_takes(self, before: objects.Pod | None, after: objects.Pod | None) -> bool:
        """Whether a pod is on a node that was on none before, and nothing else of it has changed."""
        is_new_there = self._occupied(before) is None and self._occupied(after) is not None
        return is_new_there and _claims(before) == _claims(after)

    def _occupied(self, pod: objects.Pod | None) -> str | None:
        return occupied_node(pod, self._gate_prefix) if pod is not None else None

    def on_freed(self) -> None:
        """Record that resources of extensions may be free, or better known, or that a namespace changed."""
        with self._lock:
            self.usage_version += 1
            self.freed_version += 1

    def on_node(self, before: objects.Node | None, after: objects.Node | None) -> bool:
        """Take in a node's event; returns whether it is more than a heartbeat."""
        if before is not None and after is not None and _node_facts(before) == _node_facts(after):
            return False
        with self._lock:
            self.usage_version += 1
            self.freed_version += 1
        return True


def _claims(pod: objects.Pod | None) -> tuple[objects.PodClaim, ...]:
    """The claims that were created for a pod."""
    return pod.status.resource_claim_statuses if pod is not None else ()


def _differ(before: objects.Pod | None, after: objects.Pod | None) -> bool:
    """Whether a pod that stays is resized, or others may want to be near it now, or not any more."""
    if before is not None and after is not None and before.metadata.labels != after.metadata.labels:
        return True
    return _amounts(before) != _amounts(after)


def _amounts(pod: objects.Pod | None) -> object:
    """All that decides how much of its node a pod takes."""
    if pod is None:
        return None
    spec, status = pod.spec, pod.status
    resized = [
        (each.name, each.resources, each.allocated_resources)
        for each in (*status.container_statuses, *status.init_container_statuses)
        if each.resources is not None
    ]
    of_pod = status.resources, status.allocated_resources, status.resize_is_infeasible
    return spec.containers, spec.init_containers, spec.resources, resized, of_pod


def _same_to_us(before: objects.Pod, after: objects.Pod) -> bool:
    return (
        before.spec == after.spec
        and before.status.phase == after.status.phase
        and before.status.resource_claim_statuses == after.status.resource_claim_statuses
        and before.status.container_statuses == after.status.container_statuses
        and _amounts(before) == _amounts(after)
        and before.metadata.uid == after.metadata.uid
        and before.metadata.deletion_timestamp == after.metadata.deletion_timestamp
        and before.metadata.labels == after.metadata.labels
        and before.metadata.annotations == after.metadata.annotations
    )


def _node_facts(node: objects.Node) -> object:
    ready = [condition.status for condition in node.status.conditions if condition.type == "Ready"]
    notes = {
        key: text
        for key, text in node.metadata.annotations.items()
        if key == keys.RESET_FAILURES_ANNOTATION or key.startswith(keys.ALLOCATOR_PREFIX)
    }
    return node.metadata.uid, node.metadata.labels, node.spec, node.status.allocatable, ready, notes
