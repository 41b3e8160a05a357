"""The cluster as the sweeper sees it: live copies of nodes, pods, owners and Placements.

Usage is never counted up and down. It is recomputed from the pods that exist (bound, terminating, or released
and pinned but not yet bound), by uid, plus what Placements promise to pods that are still gated.
"""

import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from labeler.contract import keys
from webhook.kube import drivers, objects, placements, volume_objects
from webhook.kube.client import Api
from webhook.kube.complaints import EVENTS, FAILED_CREATE, Complaint
from webhook.kube.disruption_budgets import BUDGETS, PodDisruptionBudget
from webhook.kube.informer import Informer, OnEvent
from webhook.kube.placements import Placement
from webhook.kube.times import since_1970
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.scheduling.budgets import Budgets
from webhook.scheduling.storage import Storage
from webhook.sweeper.observe.changes import Changes
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts
from webhook.sweeper.observe.owner_existence import OwnerExistence
from webhook.sweeper.observe.owner_sizes import Complaints, Owners
from webhook.sweeper.observe.plans import is_gated
from webhook.sweeper.observe.pods import Journal
from webhook.sweeper.observe.watches import WatchedCollection, Watches

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
NAMESPACES: Final = "/api/v1/namespaces"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
FAILED: Final = "status.phase=Failed"
BUDGETS_SECONDS: Final = 10.0
"""A new leader waits this long for the PodDisruptionBudgets, so that it chooses no victims that they protect.
Then it continues without them, as where it may not read them."""
MOST_FAILED: Final = 10_000
"""At most this many failed pods are queued; beyond it the oldest are dropped as if they had not been seen."""
FRESH_SECONDS: Final = 60.0
"""A pod that fails later than this after its start was not refused when it came to its node."""

VOLUMES: Final = tuple(
    WatchedCollection(path, struct.__name__, struct)
    for path, struct in (
        (volume_objects.CLAIMS, volume_objects.PersistentVolumeClaim),
        (volume_objects.VOLUMES, volume_objects.PersistentVolume),
        (volume_objects.CLASSES, volume_objects.StorageClass),
        (drivers.NODES, drivers.CSINode),
        (drivers.DRIVERS, drivers.CSIDriver),
        (drivers.CAPACITIES, drivers.CSIStorageCapacity),
        (drivers.ATTACHMENTS, drivers.VolumeAttachment),
    )
)
"""All that decides where volumes can be used, in the order of Storage. Nobody waits for these: without the
right to read them pods are placed as if their volumes were everywhere, and the user is warned."""

_PODS: Final = WatchedCollection(PODS, "Pod", objects.Pod, field_selector=UNFINISHED)
_NODES: Final = WatchedCollection(NODES, "Node", objects.Node)
_PLACEMENTS: Final = WatchedCollection(placements.ALL, placements.KIND, Placement)
"""No pass runs until these three were read once."""

_NAMESPACES: Final = WatchedCollection(
    NAMESPACES, "Namespace", objects.Namespace, frees=lambda before, after: True
)
_BUDGETS: Final = WatchedCollection(BUDGETS, "PodDisruptionBudget", PodDisruptionBudget)
_FAILED: Final = WatchedCollection(PODS, "Pod", objects.Pod, field_selector=FAILED)
_COMPLAINTS: Final = WatchedCollection(EVENTS, "Event", Complaint, field_selector=FAILED_CREATE)
"""Watched while a gang lacks pods. Nobody waits for these four either: without the right to read them only a
reason or a place is missing."""

logger = logging.getLogger(__name__)


class ClusterCache:
    """Live copies, and one event that says that something changed."""

    def __init__(self, api: Api, gate_prefix: str = keys.GATE_PREFIX) -> None:
        """Prepare; start() begins to read. gate_prefix: of the gates that hold a pod for us."""
        self.changed = threading.Event()
        self._changes = Changes(gate_prefix)
        self.watches = Watches(api, self.served, self.changed.set, self._changes.on_freed)
        self.pods = self.watches.prepare(_PODS, self._pod_event)
        self.nodes = self.watches.prepare(_NODES, self._node_event)
        self.placements = self.watches.prepare(_PLACEMENTS, lambda *_: self.changed.set())
        self.owners = Owners(api, self.changed.set, self.watches)
        self.existence = OwnerExistence(
            api, self._live_owner, self.changed.set, is_leaving=self._is_leaving_namespace
        )
        self._core: dict[str, Informer[Any]] = {
            "pods": self.pods, "nodes": self.nodes, "placements": self.placements,
        }  # fmt: skip
        self._started_at = 0.0
        self._failed: deque[objects.Pod] = deque(maxlen=MOST_FAILED)
        self._journals: list[Journal] = []
        self._pod_observers: list[OnEvent[objects.Pod]] = []

    @property
    def usage_version(self) -> int:
        """A number that changes with each change of what pods use; see Changes."""
        return self._changes.usage_version

    @property
    def freed_version(self) -> int:
        """A number that changes when more may be free; see Changes."""
        return self._changes.freed_version

    def expect(self, places: Mapping[str, str]) -> None:
        """uid -> node of pods that we release; see Changes."""
        self._changes.expect(places)

    def start(self) -> None:
        """Begin to list and watch."""
        self._started_at = time.monotonic()
        self.watches.start((_PODS, _NODES, _PLACEMENTS, _NAMESPACES, _BUDGETS, *VOLUMES))
        self.owners.start()
        self.existence.start()

    def stop(self) -> None:
        """Ask all copies to stop."""
        self.owners.stop()
        self.existence.stop()
        self.watches.stop()

    @property
    def synced(self) -> bool:
        """Whether everything was read once; before that nothing may act on it."""
        return not self.unsynced

    @property
    def is_for_leaders(self) -> bool:
        """Whether it is synced, and the PodDisruptionBudgets have been read, or have been waited for."""
        waited = time.monotonic() - self._started_at >= BUDGETS_SECONDS
        return self.synced and (self.watches.copy_of(_BUDGETS).synced or waited)

    @property
    def unsynced(self) -> list[str]:
        """The collections that were not read yet."""
        missing = [name for name, informer in self._core.items() if not informer.synced]
        return missing if self.owners.synced else [*missing, "owners"]

    def silences(self) -> dict[str, float]:
        """Seconds since the API server's last answer, by resource."""
        return {name: informer.silence_seconds for name, informer in self._core.items()}

    def unreadable(self) -> dict[str, int]:
        """How many objects could not be decoded, by resource."""
        counts = {name: len(informer.undecodable) for name, informer in self._core.items()}
        return counts | self.owners.undecodable

    def oldest_gated_seconds(self, prefix: str) -> float:
        """Age of the oldest pod that waits for us, 0 without any."""
        created = [
            pod.metadata.creation_timestamp
            for pod in self.pods.items().values()
            if pod.metadata.creation_timestamp and is_gated(pod, prefix)
        ]
        if not created:
            return 0.0
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(min(created))).total_seconds())

    def size_of(self, key: GangKey) -> OwnerFacts:
        """The facts that a gang's controller states: its size, and what limits it."""
        return self.asker()(key)

    def asker(self) -> Callable[[GangKey], OwnerFacts]:
        """A function that looks up the facts of gangs' controllers, all as of one moment."""
        complaints = functools.cache(self._complaints)
        return lambda key: self.owners.facts(key, lambda names: complaints().blocked_reason(key, names))

    def _complaints(self) -> Complaints:
        found = self.watches.read((_COMPLAINTS,), wait_seconds=0.0)
        return Complaints(found.get(_COMPLAINTS, {}).values())

    def _live_owner(self, namespace: str, reference: objects.OwnerReference) -> objects.Metadata | None:
        """The controller of this name in a live copy, whatever its uid."""
        if (reference.api_version, reference.kind) == ("v1", "Pod"):
            pod = self.pods.get(f"{namespace}/{reference.name}")
            return pod.metadata if pod is not None else None
        return self.owners.metadata_of(namespace, reference)

    def _is_leaving_namespace(self, name: str) -> bool:
        found = self.watches.copy_of(_NAMESPACES).get(name)
        return found is not None and bool(found.metadata.deletion_timestamp)

    def pod_items(self) -> Iterable[objects.Pod]:
        """All unfinished pods."""
        return self.pods.items().values()

    def pod_journal(self) -> Journal:
        """A function that returns the pods, and from then on their changes."""
        journal = Journal()
        self._journals = [*self._journals, journal]
        journal.begin(self.pods.items())
        return journal

    def observe_pods(self, on_event: OnEvent[objects.Pod]) -> None:
        """Call it for each change of a pod after the first list, in the thread of the watch."""
        self._pod_observers = [*self._pod_observers, on_event]

    def node_items(self) -> Mapping[str, objects.Node]:
        """Nodes by name."""
        return self.nodes.items()

    def budgets(self) -> Budgets:
        """The PodDisruptionBudgets; until they were read, any pod may be protected by one."""
        copy = self.watches.copy_of(_BUDGETS)
        return Budgets(copy.items().values(), is_read=copy.synced)

    def storage(self, is_wanted: bool) -> Storage | None:
        """The claims and volumes, None before all were read. is_wanted: whether a waiting pod has any."""
        found = self.watches.read(VOLUMES, wait_seconds=0.0) if is_wanted else {}
        if len(found) < len(VOLUMES):
            return None
        claims, volumes, classes, nodes, known, capacities, attachments = (found[each] for each in VOLUMES)
        return Storage(
            claims, volumes, classes, nodes, known, list(capacities.values()), list(attachments.values())
        )

    def namespace_labels(self) -> NamespaceLabels | None:
        """Labels by namespace, None while they have not been read."""
        copy = self.watches.copy_of(_NAMESPACES)
        return {name: each.metadata.labels for name, each in copy.items().items()} if copy.synced else None

    def take_failed(self) -> list[objects.Pod]:
        """The pods that have failed since it was asked before; followed from the first time on.

        Those that were seen to fail long after their start have no start_time. A kubelet that is restarted
        may refuse them, and the start is the only time that their status has (updateStatusInternal in
        status_manager.go).
        """
        self.watches.follow(_FAILED, self._failed_event)
        found = []
        while self._failed:
            found.append(self._failed.popleft())
        return found

    def failed_pods(self) -> Sequence[objects.Pod]:
        """The pods that have failed and still exist, as far as they have been read; followed likewise."""
        self.watches.follow(_FAILED, self._failed_event)
        return list(self.watches.copy_of(_FAILED).items().values())

    def read_collections(
        self, collections: Sequence[WatchedCollection[Any]]
    ) -> Mapping[Hashable, Mapping[str, Any]]:
        """Those of these that are served and could be read, by "namespace/name"; see Watches."""
        return self.watches.read(collections)

    def on_freed(self) -> None:
        """Have gangs asked about again that found no place; see Changes."""
        self._changes.on_freed()

    def served(self) -> Mapping[str, str]:
        """The owners and optional APIs that the cluster serves, with versions; see Owners.versions."""
        return self.owners.versions

    def written(self, placement: Placement) -> None:
        """Remember a Placement that was just written, until the watch shows it."""
        self.placements.written(placement)

    def forgotten(self, placement: Placement) -> None:
        """The Placement was removed by us; the watch will show it."""
        self.placements.forgotten(placement.key)

    def current_placements(self) -> Mapping[str, Placement]:
        """Placements by "namespace/name": as watched, or as we wrote them since."""
        return self.placements.current()

    def _pod_event(self, before: objects.Pod | None, after: objects.Pod | None) -> None:
        for journal in self._journals:
            journal.note(before, after)
        self.existence.on_pod(before, after)
        if self.pods.synced:
            for on_event in self._pod_observers:
                on_event(before, after)
        if self._changes.on_pod(before, after):
            self.changed.set()

    def _failed_event(self, before: objects.Pod | None, after: objects.Pod | None) -> None:
        if after is not None and (before is None or before.metadata.uid != after.metadata.uid):
            is_watched = self.watches.copy_of(_FAILED).synced
            self._failed.append(_without_old_start(after) if is_watched else after)
            self.changed.set()

    def _node_event(self, before: objects.Node | None, after: objects.Node | None) -> None:
        if self._changes.on_node(before, after):
            self.changed.set()


def _without_old_start(pod: objects.Pod) -> objects.Pod:
    started = since_1970(pod.status.start_time)
    if started is None or time.time() - started <= FRESH_SECONDS:
        return pod
    return replace(pod, status=replace(pod.status, start_time=None))
