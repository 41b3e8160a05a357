"""The cluster as the sweeper sees it: live copies of nodes, pods, owners and Placements.

Usage is never counted up and down: it is what the pods that are there say (bound, or released and pinned
but not bound yet, or terminating), keyed by uid, plus what Placements promise to pods still gated.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import UTC, datetime
from typing import Final

from labeler.contract import keys
from webhook.kube import objects, placements
from webhook.kube.client import Api
from webhook.kube.informer import Informer
from webhook.kube.placements import Placement
from webhook.sweeper.apply import patches
from webhook.sweeper.observe.gangs import GangKey, OwnerSays
from webhook.sweeper.observe.owners import Owners

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"

EXPECTED_SECONDS: Final = 300.0
"""After this long without its arrival a released pod is not awaited any more."""

logger = logging.getLogger(__name__)


class Changes:
    """Tells events that matter from those that do not. Safe for use by many threads.

    usage_version grows with every change of nodes, or of what pods take on them, that is not one of our
    own releases: as long as it stands, an assignment made before still holds.
    """

    def __init__(
        self, gate_prefix: str = keys.GATE_PREFIX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing has been seen yet. gate_prefix: of the gates that hold a pod for us."""
        self._gate_prefix = gate_prefix
        self._clock = clock
        self._lock = threading.Lock()
        self._expected: dict[str, tuple[str, float]] = {}
        self.usage_version = 0

    @property
    def expected(self) -> Set[str]:
        """uids of the pods whose arrival is awaited."""
        with self._lock:
            return set(self._expected)

    def expect(self, places: Mapping[str, str]) -> None:
        """uid -> node of pods that we release: their arrival there changes nothing that is not known.

        Of a release that fails, or of a pod that was gone before, nothing arrives: it is forgotten in time.
        """
        now = self._clock()
        with self._lock:
            # In the order of their times, so that the old ones stand first.
            while self._expected:
                uid, (_, since) = next(iter(self._expected.items()))
                if now - since < EXPECTED_SECONDS:
                    break
                del self._expected[uid]
            for uid, node in places.items():
                self._expected.pop(uid, None)
                self._expected[uid] = (node, now)

    def saw_pod(self, before: objects.Pod | None, after: objects.Pod | None) -> bool:
        """Take in a pod's event; returns whether it concerns anybody here."""
        pod = after or before
        if pod is None or (before is not None and after is not None and _same_to_us(before, after)):
            return False  # what a running pod's status says from minute to minute
        there = occupied_node(after, self._gate_prefix) if after is not None else None
        moved = there != (occupied_node(before, self._gate_prefix) if before is not None else None)
        with self._lock:
            expected, _ = self._expected.get(pod.metadata.uid, (None, 0.0))
            if moved and (there is None or there != expected):
                self.usage_version += 1
            if after is None or after.spec.node_name:
                self._expected.pop(pod.metadata.uid, None)
            if before is not None and before.metadata.uid != pod.metadata.uid:
                self._expected.pop(before.metadata.uid, None)  # deleted and made again while nobody looked
        return True

    def saw_node(self, before: objects.Node | None, after: objects.Node | None) -> bool:
        """Take in a node's event; returns whether it is more than a heartbeat."""
        if before is not None and after is not None and _node_facts(before) == _node_facts(after):
            return False
        with self._lock:
            self.usage_version += 1
        return True


class ClusterCache:
    """Live copies, and one event that says that something changed."""

    def __init__(self, api: Api, gate_prefix: str = keys.GATE_PREFIX) -> None:
        """Prepare; start() begins to read. gate_prefix: of the gates that hold a pod for us."""
        self.changed = threading.Event()
        self.pods = Informer(api, PODS, objects.Pod, on_event=self._pod_event, field_selector=UNFINISHED)
        self.nodes = Informer(api, NODES, objects.Node, on_event=self._node_event)
        self.owners = Owners(api, self.changed.set)
        self.placements = Informer(api, placements.ALL, Placement, on_event=self._placement_event)
        self._lock = threading.Lock()
        self._written: dict[str, Placement] = {}
        self._changes = Changes(gate_prefix)

    @property
    def usage_version(self) -> int:
        """See Changes."""
        return self._changes.usage_version

    def expect(self, places: Mapping[str, str]) -> None:
        """See Changes."""
        self._changes.expect(places)

    @property
    def informers(self) -> tuple[Informer[objects.Pod], Informer[objects.Node], Informer[Placement], Owners]:
        """Everything that is kept current."""
        return self.pods, self.nodes, self.placements, self.owners

    def start(self) -> None:
        """Begin to list and watch."""
        for informer in self.informers:
            informer.start()

    def stop(self) -> None:
        """Ask all of it to end."""
        for informer in self.informers:
            informer.stop()

    @property
    def synced(self) -> bool:
        """Whether everything has been read once; before that nobody may act."""
        return all(informer.synced for informer in self.informers)

    def silences(self) -> dict[str, float]:
        """Seconds since the API server last said anything, by resource."""
        return {
            "pods": self.pods.silence_seconds,
            "nodes": self.nodes.silence_seconds,
            "placements": self.placements.silence_seconds,
        }

    def unreadable(self) -> dict[str, int]:
        """How many objects could not be decoded, by resource."""
        return {
            "pods": len(self.pods.undecodable),
            "nodes": len(self.nodes.undecodable),
            "placements": len(self.placements.undecodable),
            **self.owners.undecodable,
        }

    def oldest_gated_seconds(self, prefix: str) -> float:
        """Age of the oldest pod that waits for us, 0 without any."""
        created = [
            pod.metadata.creation_timestamp
            for pod in self.pods.items().values()
            if pod.metadata.creation_timestamp and patches.is_gated(pod, prefix)
        ]
        if not created:
            return 0.0
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(min(created))).total_seconds())

    def size_of(self, key: GangKey) -> OwnerSays:
        """What a gang's controller says of its size."""
        return owner_says(self.owners, key)

    def pod_items(self) -> Iterable[objects.Pod]:
        """All unfinished pods."""
        return self.pods.items().values()

    def node_items(self) -> Mapping[str, objects.Node]:
        """Nodes by name."""
        return self.nodes.items()

    def written(self, placement: Placement) -> None:
        """Remember a Placement that was just written, until the watch shows it."""
        with self._lock:
            self._written[_key(placement)] = placement

    def forgotten(self, placement: Placement) -> None:
        """The Placement was removed by us; the watch will show it."""
        with self._lock:
            self._written.pop(_key(placement), None)

    def current_placements(self) -> Mapping[str, Placement]:
        """Placements by "namespace/name": what the watch shows, or what we wrote since."""
        with self._lock:
            return {**self.placements.items(), **self._written}

    def _placement_event(self, before: Placement | None, after: Placement | None) -> None:
        placement = after or before
        if placement is None:
            return
        with self._lock:
            mine = self._written.get(_key(placement))
            # Versions of one object are ordered numbers (KEP-5504); ours is dropped once it has been seen.
            if mine is not None and (after is None or _version(after) >= _version(mine)):
                del self._written[_key(placement)]
        self.changed.set()

    def _pod_event(self, before: objects.Pod | None, after: objects.Pod | None) -> None:
        if self._changes.saw_pod(before, after):
            self.changed.set()

    def _node_event(self, before: objects.Node | None, after: objects.Node | None) -> None:
        if self._changes.saw_node(before, after):
            self.changed.set()


def owner_says(owners: Owners, key: GangKey) -> OwnerSays:
    """What a gang's controller, as far as the cluster serves it, says of the gang's size."""
    named = (key.kind, key.namespace, key.name, key.id)
    return OwnerSays(owners.size(*named), owners.is_staged(*named))


def occupied_node(pod: objects.Pod, gate_prefix: str = keys.GATE_PREFIX) -> str | None:
    """The node on which an unfinished pod counts: where it is bound, or where it has been pinned to.

    A pod that a gate with gate_prefix still holds is nowhere, whatever its author's affinity says.
    """
    if pod.spec.node_name:
        return pod.spec.node_name
    return None if patches.is_gated(pod, gate_prefix) else patches.pinned_node(pod)


def _same_to_us(before: objects.Pod, after: objects.Pod) -> bool:
    return (
        before.spec == after.spec
        and before.status.phase == after.status.phase
        and before.metadata.uid == after.metadata.uid
        and before.metadata.deletion_timestamp == after.metadata.deletion_timestamp
        and before.metadata.labels == after.metadata.labels
        and before.metadata.annotations == after.metadata.annotations
    )


def _node_facts(node: objects.Node) -> object:
    ready = [condition.status for condition in node.status.conditions if condition.type == "Ready"]
    return node.metadata.uid, node.metadata.labels, node.spec, node.status.allocatable, ready


def _key(placement: Placement) -> str:
    return f"{placement.metadata.namespace}/{placement.metadata.name}"


def _version(placement: Placement) -> int:
    return int(placement.metadata.resource_version or 0)
