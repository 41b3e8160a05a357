"""What an extension of the sweeper is: a descriptor, and hooks that are pure functions of input and memory.

An extension sees what a hook gives it, and nothing else: it holds no client, no cache and no other part of
the sweeper. A hook takes the memory that the hook before has left and returns another, both frozen. With an
empty memory it decides the same a little later, so what must not be lost goes into the extension's record: a
ConfigMap that the sweeper reads and writes for it. docs/contributing/extensions.md tells how to write one.

The core imports no extension. `main` gives it Switches: each tells by the settings whether its extension is
on, and imports it only then.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic

from labeler.contract.event_reasons import EventReason
from webhook.kube.affinity import SelectorRequirement
from webhook.kube.decoding import T
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.sweeper.decide.asking import DivideGang, undivided
from webhook.sweeper.decide.node_exclusions import ExcludedNodes
from webhook.sweeper.decide.orders import NO_HURRY, Cause, NewPlan
from webhook.sweeper.decide.reservations import Reservation, ReservationSource
from webhook.sweeper.metrics import CounterSpec, GaugeSpec
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.node_usage import AddedResources
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

Served = Mapping[str, str]
"""Which optional collections the cluster serves: "podgroups.scheduling.k8s.io" -> version."""

Gauges = Mapping[str, Mapping[tuple[str, ...], float]]
"""Name of a gauge -> label values, in the order of its labels -> value. It shows just these from then on."""


@dataclass(frozen=True)
class RecordSpec:
    """A ConfigMap of topogate-system in which what an extension remembers outlives every process.

    The installation makes it. name: the ConfigMap's. seconds: between two writes, and between two attempts.
    written: the gauge that tells when it was written last, in seconds since 1970.
    is_written_at_once: else the first write comes as long after it was read.
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
    """What is done with an API object, as RBAC calls it."""

    CREATE = "create"
    PATCH = "patch"
    DELETE = "delete"


@dataclass(frozen=True)
class WatchedCollection(Generic[T]):
    """API objects that the sweeper watches for an extension while that is on.

    path: of all of them in the cluster, "/apis/GROUP/VERSION/RESOURCE". kind: of each. struct: what is read
    of each. label_selector: which ones, all without one. verbs: what the extension orders to do with them;
    beside these the sweeper needs the rights to list and to watch. is_optional: whether it is watched only
    while the cluster serves it, see Served. is_lazy: whether it is watched only from the first time on that
    add_resources reads it, see ResourcesInput; it is no part of the view then. frees: of a lazy one, whether
    after a change (before, after) gangs that found no place may find one.
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
        """The objects by "namespace/name", also those just written; None until all have been read."""
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

    A hook orders it in each pass until the view shows that it is done. The sweeper writes only while it
    leads, a bounded number in a pass, and pauses longer and longer after each failure.

    body: of CREATE the whole object without apiVersion and kind, of PATCH a merge patch. uid: of PATCH and
    DELETE, only the object with this uid is meant. reason: why, for the log. group: writes of one group are
    made in their order, and those after one that fails are left out.
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
        """Create this object. If one of its name is there that was made by the same order, it is that one."""
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
        """Delete the object. If it is gone, or another has its name by now, it is done."""
        return cls(Verb.DELETE, collection, of.namespace, of.name, reason, uid=of.uid, group=group)


@dataclass(frozen=True)
class WriteResult:
    """What has become of a write. error: why the API server has not made it, "" if it has not been asked.

    retry_seconds: it is not tried again before.
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
    """What resources may be added by.

    view: as it is before. read: gives lazy collections; the very same value for as long as nothing changes.
    clock: in seconds from anywhere, for work that is to take a bounded time.
    """

    view: View
    settings: Settings
    read: ReadCollections
    clock: Callable[[], float]


@dataclass(frozen=True)
class ResourcesAdded:
    """What an extension adds to nodes and pods.

    nodes: by name, the same, or with further labels. resources: of nodes and pods, None for none. is_freed:
    whether gangs that found no place may find one in the next pass, as more is known.
    """

    nodes: Mapping[str, Node]
    resources: AddedResources | None = None
    is_freed: bool = False


def with_resources(view: View, added: ResourcesAdded) -> View:
    """The view with what an extension adds."""
    resources = view.added if added.resources is None else (*view.added, added.resources)
    if added.nodes is view.nodes and resources is view.added:
        return view
    return replace(view, nodes=added.nodes, added=resources)


@dataclass(frozen=True)
class PlansInput:
    """The plans that hold as far as the sweeper knows. sent: uids of released pods that look gated yet."""

    view: View
    sent: Container[str]
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class PlanCheck:
    """What is wrong with the plans of gated pods, by uid.

    not_released: pods that are not released in this pass, as what they need is not written yet. invalid: pods
    whose plan does not hold any more; they are placed again. nominated: pods that are nominated to their
    nodes instead of pinned, see View.
    """

    not_released: Set[str] = frozenset()
    invalid: Set[str] = frozenset()
    nominated: Mapping[str, Sequence[SelectorRequirement]] = field(default_factory=dict)


@dataclass(frozen=True)
class GangsInput:
    """The gangs that wait, by what their pods and owners say. policy: admission's, None if not known."""

    gangs: Sequence[PodGang]
    view: View
    settings: Settings
    policy: Policy | None = None


@dataclass(frozen=True)
class OrderInput:
    """What the order of gangs may depend on.

    gangs: all that wait, by priority, then age. settings: the sweeper's. policy: admission's, None if it is
    not known. namespaces: their labels, None while they are not known. causes: why gangs found no place when
    they were asked about last. stages: by Placement ("namespace/name"), nodes that are reserved for pods of
    its gang that are yet to be made. record: the data of the extension's record, in the first pass after it
    was read, and again until the hook has taken it in; else None. cpu_seconds: a clock of the CPU time of
    this thread, for work that is to take a bounded share of it.
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

    sentences: by Placement ("namespace/name"), the note for its gang. annotations: likewise, what is
    written on the pods of its gang that are released in this pass.
    """

    gangs: Sequence[PodGang]
    sentences: Mapping[str, str] = field(default_factory=dict)
    gauges: Gauges = field(default_factory=dict)
    annotations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class ExcludeInput:
    """What nodes may be excluded by.

    gangs: all of which a pod waits. failed: pods that have failed since a hook took them in last. record,
    cpu_seconds: see OrderInput. is_record_pending: the API server has not answered yet whether there is a
    record; until then no failed pods are given.
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
    """What has become of a pass.

    placed: the plans that were written. may_write: whether the record may be written now. written: what has
    become of the writes that were ordered in the pass before. namespaces: their labels, None while they are
    not known. gangs: all of which a pod waits, in the order in which they were asked about. causes: why those
    wait that found no place.
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
class CorrectedPlan:
    """A Placement, and the spec that says where its pods are. Nothing is released by it."""

    placement: Placement
    spec: PlacementSpec


@dataclass(frozen=True)
class EndOrders:
    """What is to be done at the end of a pass.

    record: keys to write into the extension's record, None for none. writes: of API objects. plans: that are
    corrected, ordered again until the view shows them. events: on pods and nodes. counts: what is added to
    the extension's counters. due_seconds: after which another pass is due. notes: what gangs that wait are
    shown beside the reason, in a sentence.
    """

    record: Mapping[str, str] | None = None
    gauges: Gauges = field(default_factory=dict)
    writes: Sequence[ObjectWrite] = ()
    plans: Sequence[CorrectedPlan] = ()
    events: Sequence[PodEvent | NodeEvent] = ()
    counts: Gauges = field(default_factory=dict)
    due_seconds: float = NO_HURRY
    notes: Mapping[GangKey, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExplainInput:
    """What `topogate explain` knows of a gang that waits.

    gangs: all that wait. record: the data of the extension's record, None for whoever may not read it.
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
    """What `topogate doctor` knows.

    settings: the sweeper's. objects: those that the check reads. record: the data of the extension's record,
    None if it has none.
    """

    settings: Settings
    objects: Sequence[Any]
    now: datetime
    record: Mapping[str, str] | None = None


@dataclass(frozen=True)
class DoctorLine:
    """A sentence of `topogate doctor`. remedy: what to do, "" where all is well."""

    sentence: str
    remedy: str = ""


@dataclass(frozen=True)
class DoctorCheck:
    """A check of `topogate doctor`, of an extension that the sweeper's settings switch on.

    It also finds whether what it reads is served, and whether the sweeper has the rights for all collections
    of the extension. name: of the check. off: the sentence where the extension is off. reads: what it looks
    at. component: of the manifests, which gives the rights; served_by: who brings the definition of what it
    reads; both "" where the installation has all that is needed.
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

    Hooks, each None where the feature does not need it. Without memory: check_plans says which plans of gated
    pods do not hold, and which are not carried out yet; complete_gangs adds to gangs what the feature knows
    of them; divide_gang gives the ways to ask about a gang. With memory: add_resources adds labels to nodes,
    and resources to nodes and pods, before all else; order_gangs puts the gangs into the order in which they
    are placed; exclude_nodes says which nodes they do not use, and why; after_pass takes in what has become
    of the pass, and does something for gangs that found no place, before they are reported. hooks.py calls
    them. explain: further lines of `topogate explain`. doctor: a check of `topogate doctor`.
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
    exclude_nodes: Callable[[ExcludeInput, Any], tuple[ExcludedNodes, Any]] | None = None
    divide_gang: DivideGang | None = None
    after_pass: Callable[[PassEnd, Any], tuple[EndOrders, Any]] | None = None
    explain: Callable[[ExplainInput], Iterable[str]] | None = None
    doctor: DoctorCheck | None = None

    @property
    def all_gauges(self) -> tuple[GaugeSpec, ...]:
        """Also those of its record."""
        of_record = self.record.written if self.record is not None else None
        return self.gauges if of_record is None else (*self.gauges, of_record)


def dividing(extensions: Iterable[Extension]) -> DivideGang:
    """What divides gangs: the first of these extensions that can."""
    return next((each.divide_gang for each in extensions if each.divide_gang is not None), undivided)


@dataclass(frozen=True)
class SwitchInput:
    """What switches an extension on. policy: admission's, None if it is not known. view: the cluster, None
    where nobody reads it.
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
