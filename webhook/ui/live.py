"""Keeps the picture current: informers, and one thread that redraws it after changes.

All viewers share one drawing: each gets the latest version, or waits for the next.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from webhook.configuration.settings import Settings
from webhook.extensions.known import running
from webhook.extensions.node_health.avoided_nodes import NAME as NODE_FAILURES
from webhook.extensions.node_health.avoided_nodes import reasons
from webhook.inquiry.cluster_state import LEASE, leads_since, record_of
from webhook.inquiry.next_pass import VIEW_ALONE, PassFacts, moment, plans_checked, with_objects
from webhook.inquiry.resource_adder import ResourceAdder
from webhook.kube.client import Api
from webhook.kube.objects import Pod
from webhook.placement import Snapshot
from webhook.placement.stranded_gpus import stranded_gpus
from webhook.policy.values import Policy
from webhook.scheduling.gpu_counts import units_per_gpu
from webhook.scheduling.gpus import Counting
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.observe.membership import LostOwner, has_owners
from webhook.sweeper.observe.snapshotter import Objects, Snapshotter
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.observe.watches import WatchedCollection
from webhook.ui.availability import ModelCapacity, Troubles, capacity_by_model, find_troubles
from webhook.ui.gang_rows import GangRow, list_gangs, with_models, with_spread
from webhook.ui.history import History, sample
from webhook.ui.picture import Picture, draw

DRAW_SECONDS: Final = 1.0
"""The shortest time between drawings; in a cluster of 65,000 nodes one takes about as long."""

IDLE_SECONDS: Final = 10.0
"""The longest time between drawings, since ages change without any event."""

RECORD_SECONDS: Final = 10.0
"""How old the records of the sweeper's leader may be."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scene:
    """The cluster at one moment. at: seconds since 1970.

    namespaces: those of all objects that it names.
    """

    version: int
    at: float
    view: View
    snapshot: Snapshot
    picture: Picture
    gangs: list[GangRow]
    namespaces: frozenset[str] = frozenset()
    capacity: list[ModelCapacity] = field(default_factory=list)
    troubles: Troubles = field(default_factory=Troubles)


@dataclass(frozen=True, slots=True)
class _KnownPod:
    """A pod with computed values."""

    pod: Pod
    gang: GangKey
    gpus: int


class SceneSource(Objects, Protocol):
    """The objects that scenes are drawn from."""

    def read_collections(
        self, collections: Sequence[WatchedCollection[Any]]
    ) -> Mapping[Hashable, Mapping[str, Any]]:
        """The collections that extensions read; see ReadCollections."""


class Artist:
    """Draws scenes of a source; caches unchanged parts between scenes."""

    def __init__(
        self,
        source: SceneSource,
        settings: Settings,
        counting: Counting,
        avoided: Callable[[], Mapping[str, str]] = dict,
        owners: Callable[[], Callable[[Pod], LostOwner | None]] = lambda: has_owners,
        facts: Callable[[], PassFacts] = lambda: VIEW_ALONE,
        now: Callable[[], Moment] = moment,
    ) -> None:
        """avoided: returns the nodes where pods fail, and why these are avoided.

        owners: returns LostOwners.of as of now. facts: returns what else decides which plans are valid.
        """
        self._settings = settings
        self._source = source
        self._facts = facts
        self._now = now
        self._avoided = avoided
        self._snapshotter = Snapshotter(source, settings, owners=owners)
        self._adder = ResourceAdder(settings, source.read_collections)
        self._counting = counting
        self._known: dict[str, _KnownPod] = {}
        self._version = 0

    def scene(self) -> Scene:
        """The current scene: plans that a pass of the sweeper takes to be invalid are left out."""
        view = self._adder.completed(self._snapshotter.view(self._now()))
        facts = replace(self._facts(), read=self._source.read_collections)
        view = with_objects(view, running(self._settings, facts.policy, view), facts)
        view, snapshot = plans_checked(view, self._snapshotter.snapshot, self._settings, facts)
        self._learn(view)

        def gang_of(pod: Pod) -> GangKey:
            return self._known[pod.metadata.uid].gang

        picture = draw(view, snapshot, self._counting, self._avoided(), gang_of)
        gpus = {uid: known.gpus for uid, known in self._known.items() if known.gpus}
        gangs = [
            with_models(with_spread(row, snapshot), picture.nodes)
            for row in list_gangs(view, gpus, gang_of, self._counting.model)
        ]
        self._version += 1
        named = {pod.namespace for tile in picture.nodes.values() for pod in tile.pods}
        named |= {row.namespace for row in gangs}
        named |= {tile.reserved_for.partition("/")[0] for tile in picture.nodes.values() if tile.reserved_for}
        tiles = picture.nodes.values()
        stranded = stranded_gpus(snapshot, partial(units_per_gpu, counting=self._counting))
        capacity, troubles = capacity_by_model(tiles, stranded), find_troubles(tiles)
        return Scene(
            self._version, time.time(), view, snapshot, picture, gangs, frozenset(named), capacity, troubles
        )

    def _learn(self, view: View) -> None:
        """Compute gang and GPUs of each pod, once for each object."""
        known: dict[str, _KnownPod] = {}
        for pod in (*view.gated, *view.others):
            uid = pod.metadata.uid
            before = self._known.get(uid)
            known[uid] = before if before and before.pod is pod else self._of(view, pod)
        self._known = known

    def _of(self, view: View, pod: Pod) -> _KnownPod:
        try:
            pod_class = view.class_of(pod)
        except ValueError:
            # The map shows its node as full, and the sweeper logs why the pod is unreadable.
            return _KnownPod(pod, view.gang_of(pod), 0)
        return _KnownPod(pod, view.gang_of(pod), self._counting.gpus(pod_class.requests))


class LeaderRecords:
    """What the sweeper's leader has written for the next one, read at intervals. Thread-safe.

    The last known one counts while the API server does not answer.
    """

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[str, tuple[float, Any]] = {}

    def record(self, name: str) -> Mapping[str, str] | None:
        """The record of an extension, see PassFacts."""
        found: Mapping[str, str] | None = self._current(name, lambda: record_of(self._api, name))
        return found

    def avoided(self) -> Mapping[str, str]:
        """Node -> why all gangs avoid it."""
        return reasons(self.record(NODE_FAILURES) or {}, time.time())

    def leads_since(self) -> float | None:
        """Since when the leader leads, see PassFacts."""
        found: float | None = self._current(LEASE, lambda: leads_since(self._api))
        return found

    def _current(self, name: str, read: Callable[[], Any]) -> Any:
        at, known = self._known.get(name, (-math.inf, None))
        if self._clock() - at < RECORD_SECONDS:
            return known
        found = read()
        self._known[name] = self._clock(), known if found is None else found
        return self._known[name][1]


class Live:
    """Scenes of a live cluster. Thread-safe."""

    def __init__(
        self,
        cache: ClusterCache,
        settings: Settings,
        counting: Counting,
        history: History,
        clock: Callable[[], float] = time.monotonic,
        records: LeaderRecords | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Nothing is read before start(). policy: see PassFacts."""
        self._records, self._policy = records, policy
        self._cache = cache
        avoided = records.avoided if records is not None else dict
        self._artist = Artist(cache, settings, counting, avoided, cache.existence.lookup, self.facts)
        self._history = history
        self._clock = clock
        self._stopping = threading.Event()
        self._ready = threading.Condition()
        self._scene: Scene | None = None
        self._thread = threading.Thread(target=self._run, name="artist", daemon=True)

    @property
    def history(self) -> History:
        """The samples so far."""
        return self._history

    def facts(self) -> PassFacts:
        """What a pass reads beside the view of a scene, which has the objects of extensions."""
        cache, records = self._cache, self._records
        found = PassFacts(
            cache.size_of, cache.owners.all_of, policy=self._policy, namespaces=cache.namespace_labels(),
            budgets=cache.budgets(), failed=cache.failed_pods(),
        )  # fmt: skip
        if records is None:
            return found
        return replace(found, record_of=records.record, leads_since=records.leads_since())

    def start(self) -> None:
        """Start reading and drawing."""
        self._cache.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop the threads."""
        self._stopping.set()
        self._cache.changed.set()
        self._cache.stop()

    def scene(self) -> Scene | None:
        """The latest scene, None until the cluster has been read."""
        with self._ready:
            return self._scene

    def wait(self, after: int, timeout_seconds: float) -> Scene | None:
        """The latest scene; waits for a later version than `after`."""
        with self._ready:
            self._ready.wait_for(
                lambda: self._scene is not None and self._scene.version > after, timeout_seconds
            )
            return self._scene

    def unread(self) -> list[str]:
        """The collections that have not been read yet: no right to list them, or no answer."""
        cache = self._cache
        read = {
            "pods": cache.pods.synced,
            "nodes": cache.nodes.synced,
            "placements": cache.placements.synced,
            "owners": cache.owners.synced,
        }
        return [name for name, is_read in read.items() if not is_read]

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._cache.synced:
            self._stopping.wait(0.1)
        while not self._stopping.is_set():
            self._cache.changed.clear()
            self._cache.watches.begin()
            started = self._clock()
            try:
                self._publish(self._artist.scene())
            except Exception:
                logger.exception("drawing_failed")
            # Draw for at most half of the time, however large the cluster is.
            took = self._clock() - started
            self._stopping.wait(max(DRAW_SECONDS - took, took))
            self._cache.changed.wait(IDLE_SECONDS)

    def _publish(self, scene: Scene) -> None:
        self._history.add(sample(scene.at, scene.picture, scene.gangs))
        with self._ready:
            self._scene = scene
            self._ready.notify_all()
