"""An extension of the sweeper: a class whose hooks are pure functions of one input and of its memory.

An extension gets that input and nothing else: no client, no cache and no other part of the sweeper. A hook
takes the memory that the last hook has returned and returns another, both frozen. With an empty memory it
decides the same a little later, so state that must not be lost belongs in the extension's record: a ConfigMap
that the sweeper reads and writes for it. docs/contributing/extensions.md says how to write one.

The core imports no extension. `main` gives it Switches: each decides by the settings whether its extension is
on, and imports it only then.
"""

import time
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Settings
from webhook.kube.decoding import T
from webhook.kube.objects import Metadata, Node, Pod
from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.sweeper.decide.core_questions import DividedGang, DivideGang, DivisionInput, undivided
from webhook.sweeper.decide.node_rules import NodeRules
from webhook.sweeper.decide.orders import NO_HURRY, Cause, NewPlan
from webhook.sweeper.decide.plan import without_plans
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.decide.reservations import Reservation, ReservationSource
from webhook.sweeper.metrics import CounterSpec, GaugeSpec
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.node_usage import AddedResources
from webhook.sweeper.observe.view import View
from webhook.sweeper.observe.watches import Served, Verb, WatchedCollection
from webhook.text import joined

Gauges = Mapping[str, Mapping[tuple[str, ...], float]]
"""Name of a gauge -> label values, in the order of its labels -> value. It shows just these from then on."""


@dataclass(frozen=True)
class RecordSpec:
    """A ConfigMap of topogate-system with the state of an extension that outlives every process.

    The installation creates it. name: the ConfigMap's. seconds: between two writes, and between two attempts.
    written: the gauge with the time of the last write, in seconds since 1970. is_written_at_once: otherwise
    the first write comes as long after it was read.
    """

    name: str
    seconds: float = 60.0
    written: GaugeSpec | None = None
    is_written_at_once: bool = False


@dataclass(frozen=True)
class WatchedOwners(Generic[T]):
    """Owners of gangs, which the sweeper reads anyway, in the version that is served. name: "jobs.batch"."""

    name: str

    def of(self, view: View) -> Mapping[str, T] | None:
        """The objects by "namespace/name"; None where they are not served, or not read yet."""
        return view.objects.get(self)


@dataclass(frozen=True)
class ObjectWrite:
    """An order to create, patch or delete one API object of a collection of the extension.

    A hook orders it in each pass until the view shows the result. The sweeper writes only while it leads, a
    bounded number in a pass, and with a growing pause after each failure.

    body: of CREATE the whole object without apiVersion and kind, of PATCH a merge patch. uid: PATCH and
    DELETE apply only to the object with this uid. reason: for the log. group: writes of one group are made in
    their order, and those after a failed one are left out.
    """

    verb: Verb
    collection: WatchedCollection[Any]
    namespace: str
    name: str
    reason: str
    body: Mapping[str, Any] = field(default_factory=dict)
    uid: str = ""
    group: str = ""

    @classmethod
    def create(
        cls, collection: WatchedCollection[Any], body: Mapping[str, Any], reason: str, group: str = ""
    ) -> "ObjectWrite":
        """Create this object. An object of its name that the same order created counts as the result."""
        metadata = body["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        return cls(Verb.CREATE, collection, namespace, name, reason, body, group=group)

    @classmethod
    def patch(
        cls,
        collection: WatchedCollection[Any],
        of: Metadata,
        body: Mapping[str, Any],
        reason: str,
        group: str = "",
    ) -> "ObjectWrite":
        """Merge this into the object."""
        return cls(Verb.PATCH, collection, of.namespace, of.name, reason, body, of.uid, group)

    @classmethod
    def delete(
        cls, collection: WatchedCollection[Any], of: Metadata, reason: str, group: str = ""
    ) -> "ObjectWrite":
        """Delete the object. If it is gone, or its name is another object's by now, the order is done."""
        return cls(Verb.DELETE, collection, of.namespace, of.name, reason, uid=of.uid, group=group)


@dataclass(frozen=True)
class WriteResult:
    """The result of a write. error: the API server's reason against it, "" if it was not asked.

    retry_seconds: it is not retried before.
    """

    write: ObjectWrite
    is_done: bool = False
    error: str = ""
    retry_seconds: float = 0.0

    @property
    def due_seconds(self) -> float:
        """After which another pass is due for it."""
        return NO_HURRY if self.is_done else self.retry_seconds or 1.0


@dataclass(frozen=True)
class ObjectEvent:
    """An Event on a pod and its controller, or on a node. note: a sentence."""

    about: Pod | Node
    reason: EventReason
    note: str


# --- hooks --------------------------------------------------------------------------------------------


ReadCollections = Callable[[Sequence[WatchedCollection[Any]]], Mapping[Hashable, Mapping[str, Any]]]
"""Returns those of lazy collections that could be read, each by "namespace/name"."""


@dataclass(frozen=True)
class HookInput:
    """The input of all hooks and of `Switch.is_on`; what does not concern a hook is empty.

    view: the cluster. policy: of admission, None if unknown. namespaces: their labels, None while unknown.
    served: optional APIs. read: returns lazy collections, the same objects while nothing changes. record: the
    data of the extension's record in the first pass after it was read, and again until a hook has processed
    it; else None. is_record_pending: the API server has not answered yet whether there is one; until then no
    failed pods are given. failed: pods that have failed since exclude_nodes last processed them. sent: uids
    of released pods that still look gated. gangs: all that have a waiting pod, in the order in which they are
    asked about. causes: why they found no place when they were last asked about. stages: by Placement
    ("namespace/name"), nodes that are reserved for pods of its gang that are not created yet. placed: the
    plans that were written in this pass. written: the results of the writes that were ordered in the last
    pass. may_write: whether the record may be written now. clock: monotonic seconds, and cpu_seconds: of this
    thread, for work of bounded time.
    """

    view: View = field(default_factory=lambda: View([], [], {}, {}))
    settings: Settings = field(default_factory=Settings)
    policy: Policy | None = None
    namespaces: NamespaceLabels | None = None
    served: Served = field(default_factory=dict)
    read: ReadCollections = lambda _: {}
    record: Mapping[str, str] | None = None
    is_record_pending: bool = False
    failed: Sequence[Pod] = ()
    sent: Container[str] = ()
    gangs: Sequence[PodGang] = ()
    causes: Mapping[GangKey, Cause] = field(default_factory=dict)
    stages: Mapping[str, Reservation] = field(default_factory=dict)
    placed: Sequence[NewPlan] = ()
    written: Sequence[WriteResult] = ()
    may_write: bool = False
    clock: Callable[[], float] = time.monotonic
    cpu_seconds: Callable[[], float] = time.thread_time


@dataclass(frozen=True)
class ResourcesAdded:
    """The additions of an extension to nodes and pods.

    nodes: by name, the same, or with further labels. resources: of nodes and pods, None for none. is_freed:
    whether gangs without a place may find one in the next pass, as more is known.
    """

    nodes: Mapping[str, Node]
    resources: AddedResources | None = None
    is_freed: bool = False


def with_resources(view: View, added: ResourcesAdded) -> View:
    """The view with these additions."""
    resources = view.added if added.resources is None else (*view.added, added.resources)
    if added.nodes is view.nodes and resources is view.added:
        return view
    return replace(view, nodes=added.nodes, added=resources)


@dataclass(frozen=True)
class PlanCheck:
    """Faults of the plans of gated pods, by uid.

    not_released: pods that are not released in this pass, since an object that they need is not written yet.
    invalid: pods whose plan is no longer valid; they are placed again.
    why_not_tried: why kube-scheduler tries to bind none of these pods, which may also be released.
    """

    not_released: Set[str] = frozenset()
    invalid: Set[str] = frozenset()
    why_not_tried: Mapping[str, str] = field(default_factory=dict)


def with_plan_checks(view: View, checks: Iterable[PlanCheck], sent: SentReleases) -> View:
    """The view with the plans that are valid by all checks, and with the pods that are not released."""
    invalid, not_released = set[str](), set(view.not_released)
    for each in checks:
        invalid |= each.invalid
        not_released |= each.not_released
        if each.why_not_tried:
            view = replace(view, why_not_tried={**view.why_not_tried, **each.why_not_tried})
    if not_released:
        view = replace(view, not_released=not_released)
    return without_plans(view, invalid, sent)


@dataclass(frozen=True)
class Ordered:
    """Gangs in the order in which they are placed.

    sentences: by Placement ("namespace/name"), the note for its gang. annotations: likewise, written on the
    pods of its gang that are released in this pass.
    """

    gangs: Sequence[PodGang]
    sentences: Mapping[str, str] = field(default_factory=dict)
    gauges: Gauges = field(default_factory=dict)
    annotations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class EndOrders:
    """Orders for the end of a pass.

    record: keys to write into the extension's record, None for none. writes: of API objects. events: on
    pods and nodes. counts: added to the extension's counters. due_seconds: after which another pass is due.
    notes: sentences for waiting gangs, shown beside the reason.
    """

    record: Mapping[str, str] | None = None
    gauges: Gauges = field(default_factory=dict)
    writes: Sequence[ObjectWrite] = ()
    events: Sequence[ObjectEvent] = ()
    counts: Gauges = field(default_factory=dict)
    due_seconds: float = NO_HURRY
    notes: Mapping[GangKey, str] = field(default_factory=dict)


def with_notes(notes: Mapping[GangKey, str], orders: EndOrders) -> dict[GangKey, str]:
    """The notes for waiting gangs, with those of a further extension."""
    return {**notes, **{key: joined(notes.get(key, ""), each) for key, each in orders.notes.items()}}


@dataclass(frozen=True)
class DoctorLine:
    """A sentence of `topogate doctor`. remedy: what to do, "" if nothing is wrong."""

    sentence: str
    remedy: str = ""


@dataclass(frozen=True)
class DoctorCheck:
    """A check of `topogate doctor`, of an extension that the sweeper's settings switch on.

    It also checks that the collections are served, and that the sweeper has the rights for all of them. name:
    of the check. off: the sentence where the extension is off. reads: the collection in the view that
    `examine` is given, beside the settings and the record. component: of the manifests, which has the rights;
    served_by: the project whose definition it reads; both "" where the installation has all that is needed.
    """

    name: str
    off: str
    reads: WatchedCollection[Any]
    examine: Callable[[HookInput], Iterable[DoctorLine]]
    component: str = ""
    served_by: str = ""


# --- extensions ---------------------------------------------------------------------------------------


class Extension:
    """One optional feature. Its hooks do nothing; hooks.py calls those that a class overrides.

    memory: the empty one, which the first hook is given. collections: API objects that it reads and writes.
    owners: kinds of owners that it reads. gauges, counters: that its hooks set and add to. source: reserves
    nodes for gangs, before any is placed, without memory. doctor: a check of `topogate doctor`.
    """

    name: str
    memory: Any = None
    record: RecordSpec | None = None
    collections: tuple[WatchedCollection[Any], ...] = ()
    owners: tuple[WatchedOwners[Any], ...] = ()
    gauges: tuple[GaugeSpec, ...] = ()
    counters: tuple[CounterSpec, ...] = ()
    source: ReservationSource | None = None
    doctor: DoctorCheck | None = None

    def add_resources(self, given: HookInput, memory: Any) -> tuple[ResourcesAdded, Any]:
        """Before all else: add labels to nodes, and resources to nodes and pods."""
        return ResourcesAdded(given.view.nodes), memory

    def check_plans(self, given: HookInput) -> PlanCheck:
        """Find plans of gated pods that are invalid, or are not carried out yet."""
        return PlanCheck()

    def complete_gangs(self, given: HookInput) -> Sequence[PodGang]:
        """Add facts to gangs."""
        return given.gangs

    def order_gangs(self, given: HookInput, memory: Any) -> tuple[Ordered, Any]:
        """Put the gangs into the order in which they are placed."""
        return Ordered(given.gangs), memory

    def exclude_nodes(self, given: HookInput, memory: Any) -> tuple[NodeRules, Any]:
        """Find the nodes that gangs do not use, and why."""
        return NodeRules(), memory

    def divide_gang(self, given: DivisionInput) -> DividedGang:
        """Divide a gang, and find its variants. Raises PlacementError for a contradictory request."""
        return undivided(given)

    def after_pass(self, given: HookInput, memory: Any) -> tuple[EndOrders, Any]:
        """Process the results of the pass, and act for gangs without a place before they are reported."""
        return EndOrders(), memory

    def memory_of_leader(self, given: HookInput, leads_since: float | None) -> Any:
        """The memory in after_pass of a leader since then (seconds since 1970), as far as the view shows it.

        None: the leader has led all the time.
        """
        return self.memory

    def explain(self, given: HookInput, gang: PodGang) -> Iterable[str]:
        """Further lines of `topogate explain` about a gang."""
        return ()

    def has(self, hook: str) -> bool:
        """Whether this class overrides a hook."""
        return getattr(type(self), hook) is not getattr(Extension, hook)

    @property
    def all_gauges(self) -> tuple[GaugeSpec, ...]:
        """With the collection of its record."""
        of_record = self.record.written if self.record is not None else None
        return self.gauges if of_record is None else (*self.gauges, of_record)


def dividing(extensions: Iterable[Extension]) -> DivideGang:
    """The function that divides gangs: of the first of these extensions that has one."""
    return next((each.divide_gang for each in extensions if each.has("divide_gang")), undivided)


@dataclass(frozen=True)
class Switch:
    """An extension that may be on.

    is_on: asked in each pass. load: imports it. needs: whether a pod is neither placed nor released while the
    extension has a defect.
    """

    is_on: Callable[[HookInput], bool]
    load: Callable[[], Extension]
    needs: Callable[[Pod], bool] = lambda _: False
