"""An extension of the sweeper: a descriptor, and hooks that are pure functions of input and memory.

An extension gets the input of its hooks and nothing else: no client, no cache and no other part of the
sweeper. A hook takes the memory that the last hook has returned and returns another, both frozen. With an
empty memory it decides the same a little later, so state that must not be lost belongs in the extension's
record: a ConfigMap that the sweeper reads and writes for it. docs/contributing/extensions.md says how to
write one.

The core imports no extension. `main` gives it Switches: each decides by the settings whether its extension is
on, and imports it only then.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic

from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Settings
from webhook.kube.decoding import T
from webhook.kube.objects import Metadata, Node, Pod
from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.sweeper.decide.asking import DivideGang, undivided
from webhook.sweeper.decide.node_rules import NodeRules
from webhook.sweeper.decide.orders import NO_HURRY, Cause, NewPlan
from webhook.sweeper.decide.reservations import Reservation, ReservationSource
from webhook.sweeper.metrics import CounterSpec, GaugeSpec
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.node_usage import AddedResources
from webhook.sweeper.observe.view import View

Served = Mapping[str, str]
"""Which optional collections the cluster serves: "podgroups.scheduling.k8s.io" -> version."""

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


class Verb(StrEnum):
    """A verb on an API object, as in RBAC."""

    CREATE = "create"
    PATCH = "patch"
    DELETE = "delete"


@dataclass(frozen=True)
class WatchedCollection(Generic[T]):
    """API objects that the sweeper watches for an extension while that is on.

    path: of all of them in the cluster, "/apis/GROUP/VERSION/RESOURCE". kind: of each. struct: the fields to
    read. label_selector: which ones, all without one. verbs: those that the extension orders; beside these
    the sweeper needs the rights to list and to watch. is_optional: watched only while the cluster serves it,
    see Served. is_lazy: watched only after add_resources first reads it, see ResourcesInput; it is no part of
    the view then. frees: of a lazy one, whether gangs without a place may find one after a change (before,
    after).
    """

    path: str
    kind: str
    struct: type[T]
    label_selector: str = ""
    verbs: frozenset[Verb] = frozenset()
    is_optional: bool = False
    is_lazy: bool = False
    frees: Callable[[Any, Any], bool] | None = None

    def is_served(self, served: Served) -> bool:
        """Whether it may be watched."""
        *_, group, version, resource = self.path.split("/")
        return not self.is_optional or served.get(f"{resource}.{group}") == version

    def of(self, view: View) -> Mapping[str, T] | None:
        """The objects by "namespace/name", also those just written; None until all were read."""
        return view.objects.get(self)

    @property
    def api_version(self) -> str:
        """As in a manifest."""
        return self.path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]

    def path_in(self, namespace: str, name: str = "") -> str:
        """The address of those of a namespace ("" where there are none), or of one of them."""
        base, _, resource = self.path.rpartition("/")
        return "/".join(
            filter(None, (f"{base}/namespaces/{namespace}" if namespace else base, resource, name))
        )


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
class PodEvent:
    """An Event on a pod and its controller. note: a sentence."""

    pod: Pod
    reason: EventReason
    note: str


@dataclass(frozen=True)
class NodeEvent:
    """The same on a node."""

    node: Node
    reason: EventReason
    note: str


# --- hooks --------------------------------------------------------------------------------------------


ReadCollections = Callable[[Sequence[WatchedCollection[Any]]], Mapping[Hashable, Mapping[str, Any]]]
"""Returns those of lazy collections that could be read, each by "namespace/name"."""


@dataclass(frozen=True)
class ResourcesInput:
    """The input for adding resources.

    view: before that. read: returns lazy collections; the same object while nothing changes. clock: monotonic
    seconds, for work of bounded time.
    """

    view: View
    settings: Settings
    read: ReadCollections
    clock: Callable[[], float]


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
class PlansInput:
    """The plans that are valid so far. sent: uids of released pods that still look gated."""

    view: View
    sent: Container[str]
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class PlanCheck:
    """Faults of the plans of gated pods, by uid.

    not_released: pods that are not released in this pass, since an object that they need is not written yet.
    invalid: pods whose plan is no longer valid; they are placed again.
    """

    not_released: Set[str] = frozenset()
    invalid: Set[str] = frozenset()


@dataclass(frozen=True)
class GangsInput:
    """The waiting gangs, as read from their pods and owners. policy: admission's, None if unknown."""

    gangs: Sequence[PodGang]
    view: View
    settings: Settings
    policy: Policy | None = None


@dataclass(frozen=True)
class OrderInput:
    """The input for the order of gangs.

    gangs: all that wait, by priority, then age. settings: the sweeper's. policy: admission's, None if
    unknown. namespaces: their labels, None while unknown. causes: why gangs found no place when they were
    last asked about. stages: by Placement ("namespace/name"), nodes that are reserved for pods of its gang
    that are not created yet. record: the data of the extension's record, in the first pass after it was read,
    and again until the hook has processed it; else None. cpu_seconds: a clock of the CPU time of this thread,
    for work with a bounded share of it.
    """

    gangs: Sequence[PodGang]
    view: View
    settings: Settings
    policy: Policy | None
    namespaces: NamespaceLabels | None
    causes: Mapping[GangKey, Cause]
    stages: Mapping[str, Reservation]
    record: Mapping[str, str] | None
    cpu_seconds: Callable[[], float]


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
class ExcludeInput:
    """The input for excluding nodes.

    gangs: all that have a waiting pod. failed: pods that have failed since a hook last processed them.
    record, cpu_seconds: see OrderInput. is_record_pending: the API server has not answered yet whether there
    is a record; until then no failed pods are given.
    """

    gangs: Sequence[PodGang]
    view: View
    settings: Settings
    failed: Sequence[Pod]
    record: Mapping[str, str] | None
    is_record_pending: bool
    cpu_seconds: Callable[[], float]


@dataclass(frozen=True)
class PassEnd:
    """The results of a pass.

    placed: the plans that were written. may_write: whether the record may be written now. written: the
    results of the writes that were ordered in the last pass. namespaces: their labels, None while unknown.
    gangs: all that have a waiting pod, in the order in which they were asked about. causes: of those that
    found no place.
    """

    view: View
    policy: Policy | None
    placed: Sequence[NewPlan]
    may_write: bool
    written: Sequence[WriteResult] = ()
    namespaces: NamespaceLabels | None = None
    settings: Settings = field(default_factory=Settings)
    gangs: Sequence[PodGang] = ()
    causes: Mapping[GangKey, Cause] = field(default_factory=dict)


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
    events: Sequence[PodEvent | NodeEvent] = ()
    counts: Gauges = field(default_factory=dict)
    due_seconds: float = NO_HURRY
    notes: Mapping[GangKey, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExplainInput:
    """The input of `topogate explain` for a gang that waits.

    gangs: all that wait. record: the data of the extension's record, None if the user may not read it.
    namespaces: their labels, None likewise. now: seconds since 1970. view: the cluster.
    """

    gang: PodGang
    gangs: Sequence[PodGang]
    record: Mapping[str, str] | None
    namespaces: NamespaceLabels | None
    now: float
    view: View


@dataclass(frozen=True)
class DoctorInput:
    """The input of `topogate doctor`.

    settings: the sweeper's. objects: those that the check reads. record: the data of the extension's record,
    None if it has none.
    """

    settings: Settings
    objects: Sequence[Any]
    now: datetime
    record: Mapping[str, str] | None = None


@dataclass(frozen=True)
class DoctorLine:
    """A sentence of `topogate doctor`. remedy: what to do, "" if nothing is wrong."""

    sentence: str
    remedy: str = ""


@dataclass(frozen=True)
class DoctorCheck:
    """A check of `topogate doctor`, of an extension that the sweeper's settings switch on.

    It also checks that the collections are served, and that the sweeper has the rights for all of them. name:
    of the check. off: the sentence where the extension is off. reads: the collections that it needs.
    component: of the manifests, which has the rights; served_by: the project whose definition it reads; both
    "" where the installation has all that is needed.
    """

    name: str
    off: str
    reads: WatchedCollection[Any]
    examine: Callable[[DoctorInput], Iterable[DoctorLine]]
    component: str = ""
    served_by: str = ""


# --- descriptor ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extension:
    """One optional feature.

    memory: the empty one, which the first hook is given. collections: API objects that it reads and writes.
    owners: kinds of owners that it reads. gauges, counters: that its hooks set and add to. source: reserves
    nodes for gangs, before any is placed, without memory.

    Hooks, each None where the feature does not need it. Without memory: check_plans returns which plans of
    gated pods are invalid, and which are not carried out yet; complete_gangs adds facts to gangs; divide_gang
    returns the variants of a gang. With memory: add_resources adds labels to nodes, and resources to nodes
    and pods, before all else; order_gangs puts the gangs into the order in which they are placed;
    exclude_nodes returns which nodes they do not use, and why; after_pass processes the results of the pass,
    and acts for gangs that found no place, before they are reported. hooks.py calls them. explain: further
    lines of `topogate explain`. doctor: a check of `topogate doctor`.
    """

    name: str
    memory: Any = None
    record: RecordSpec | None = None
    collections: tuple[WatchedCollection[Any], ...] = ()
    owners: tuple[WatchedOwners[Any], ...] = ()
    gauges: tuple[GaugeSpec, ...] = ()
    counters: tuple[CounterSpec, ...] = ()
    source: ReservationSource | None = None
    add_resources: Callable[[ResourcesInput, Any], tuple[ResourcesAdded, Any]] | None = None
    check_plans: Callable[[PlansInput], PlanCheck] | None = None
    complete_gangs: Callable[[GangsInput], Sequence[PodGang]] | None = None
    order_gangs: Callable[[OrderInput, Any], tuple[Ordered, Any]] | None = None
    exclude_nodes: Callable[[ExcludeInput, Any], tuple[NodeRules, Any]] | None = None
    divide_gang: DivideGang | None = None
    after_pass: Callable[[PassEnd, Any], tuple[EndOrders, Any]] | None = None
    explain: Callable[[ExplainInput], Iterable[str]] | None = None
    doctor: DoctorCheck | None = None

    @property
    def all_gauges(self) -> tuple[GaugeSpec, ...]:
        """With the collection of its record."""
        of_record = self.record.written if self.record is not None else None
        return self.gauges if of_record is None else (*self.gauges, of_record)


def dividing(extensions: Iterable[Extension]) -> DivideGang:
    """The function that divides gangs: of the first of these extensions that has one."""
    return next((each.divide_gang for each in extensions if each.divide_gang is not None), undivided)


@dataclass(frozen=True)
class SwitchInput:
    """The inputs that switch an extension on. policy: admission's, None if unknown. view: the cluster, None
    where it is not read.
    """

    settings: Settings
    policy: Policy | None = None
    served: Served = field(default_factory=dict)
    view: View | None = None


@dataclass(frozen=True)
class Switch:
    """An extension that may be on.

    is_on: asked in each pass. load: imports it. needs: whether a pod is neither placed nor released while the
    extension has a defect.
    """

    is_on: Callable[[SwitchInput], bool]
    load: Callable[[], Extension]
    needs: Callable[[Pod], bool] = lambda _: False
