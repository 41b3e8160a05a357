"""The unfinished pods of one moment, sorted by what passes ask of them. Pure.

A pass asks about few pods: those that wait, those that are under way, the others of a gang. Each pod is
sorted once, when it comes or changes; the pods of the next moment are made of these and of what has changed
since, and are the very same object where nothing has.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeVar

from labeler.contract import keys
from webhook.grouping import grouped
from webhook.kube.objects import Pod
from webhook.sweeper.observe.membership import GangKey, claims_of, is_of_a_set, maker_of
from webhook.sweeper.observe.plans import pinned_node
from webhook.workloads.native_gangs import group_name

K = TypeVar("K")

ENDING_SECONDS: Final = 600.0
"""For so long a pod may wait for its victims to end; how long they take is what their authors like."""

_CONTROLLERS: Final = frozenset(
    {("apps/v1", "ReplicaSet"), ("v1", "ReplicationController"), ("apps/v1", "StatefulSet")}
)
"""Those that keep pods running, and make another for each that ends."""


class Sort(Enum):
    """What a pod is to a pass; it may be several. Those after OTHER are sorts of others alone."""

    GATED = auto()
    """It waits for us."""
    UNBOUND = auto()
    """It has no node yet."""
    SPREAD = auto()
    """It wishes to be spread."""
    OF_A_SET = auto()
    """It is one of those among which some want domains of their own, see is_of_a_set."""
    EXCLUSIVE = auto()
    """It wants a domain of its own."""
    OF_A_POD_GROUP = auto()
    """kube-scheduler binds it with others, see native_gangs."""
    OTHER = auto()
    """It does not wait for us."""
    UNDER_WAY = auto()
    """It is not bound, or does not run yet."""
    STAMPED = auto()
    """It carries the time at which it was given cards."""
    TROUBLED = auto()
    """A container of it does not start, or has ended with a fault."""
    ENDING = auto()
    """It has been deleted."""
    REPELLING = auto()
    """It has anti-affinity."""
    LASTING = auto()
    """It is of a DaemonSet, its node or a protected namespace: no gang may count on it to go."""
    ENDLESS = auto()
    """A controller keeps it running, so that no node becomes free by its end."""
    SLOW = auto()
    """It may take longer to end, once it is deleted, than anybody waits for that."""
    LATE = auto()
    """It has been deleted, and may take as long."""


@dataclass(frozen=True)
class Sorter:
    """By what pods are distinguished: which wait for us, their gangs, the namespaces that are protected."""

    waits: Callable[[Pod], bool]
    gang_of: Callable[[Pod], GangKey]
    protected: Set[str]

    def sorts(self, pod: Pod) -> list[Sort]:
        """All that a pod is."""
        is_gated = self.waits(pod)
        found = [Sort.GATED if is_gated else Sort.OTHER]
        found += (sort for sort, is_one in _ALL.items() if is_one(pod))
        if not is_gated:
            found += (sort for sort, is_one in _OTHERS.items() if is_one(pod))
            if pod.metadata.namespace in self.protected or _belongs_to_its_node(pod):
                found.append(Sort.LASTING)
        return found


@dataclass(frozen=True, eq=False)
class Pods:
    """The pods of one moment.

    by_uid: all. of: by sort and uid. bound: others by the node to which they are bound. mates: others by
    their gang, but for pods that are gangs of their own; siblings: those by what made them, see maker_of.
    What is there of one sort, node or gang is the very same for as long as nothing of it changes.
    """

    sorter: Sorter
    by_uid: Mapping[str, Pod] = field(default_factory=dict)
    of: Mapping[Sort, Mapping[str, Pod]] = field(default_factory=lambda: {each: {} for each in Sort})
    bound: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    mates: Mapping[GangKey, tuple[Pod, ...]] = field(default_factory=dict)
    siblings: Mapping[GangKey, tuple[Pod, ...]] = field(default_factory=dict)

    @classmethod
    def sorted(cls, sorter: Sorter, pods: Iterable[Pod]) -> "Pods":
        """These pods."""
        return cls(sorter).after({pod.metadata.uid: pod for pod in pods})

    def after(self, changes: Mapping[str, Pod | None]) -> "Pods":
        """The pods of the next moment. changes: by uid what has come or changed, None of what is gone."""
        gone = {uid: before for uid in changes if (before := self.by_uid.get(uid)) is not None}
        come = {uid: pod for uid, pod in changes.items() if pod is not None}
        if not gone and not come:
            return self
        by_uid = {**self.by_uid, **come}
        for uid in gone.keys() - come.keys():
            del by_uid[uid]
        gone_others = {uid: each for uid, each in gone.items() if uid in self.of[Sort.OTHER]}
        of = self._resorted(gone, come)
        others = {uid: each for uid, each in come.items() if uid in of[Sort.OTHER]}
        return Pods(
            self.sorter,
            by_uid,
            of,
            _regrouped(self.bound, gone_others, others, lambda pod: pod.spec.node_name or None),
            _regrouped(self.mates, gone_others, others, self._gang_with_others),
            _regrouped(self.siblings, gone_others, others, self._maker_of_one),
        )

    def _resorted(self, gone: Mapping[str, Pod], come: Mapping[str, Pod]) -> Mapping[Sort, Mapping[str, Pod]]:
        into: dict[Sort, dict[str, Pod]] = {each: {} for each in Sort}
        for uid, pod in come.items():
            for sort in self.sorter.sorts(pod):
                into[sort][uid] = pod
        return {sort: _changed(there, gone, into[sort]) for sort, there in self.of.items()}

    def _gang_with_others(self, pod: Pod) -> GangKey | None:
        gang = self.sorter.gang_of(pod)
        return gang if gang.kind != "Pod" else None

    def _maker_of_one(self, pod: Pod) -> GangKey | None:
        gang = self.sorter.gang_of(pod)
        return maker_of(pod, gang) if gang.kind == "Pod" and pod.metadata.controller is not None else None


class Journal:
    """Pods that have come, changed or gone, by uid, until they are taken. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: dict[str, Pod | None] = {}

    def begin(self, pods: Mapping[str, Pod]) -> None:
        """Take in those that are there already; what has been noted since counts more."""
        with self._lock:
            for pod in pods.values():
                self._changes.setdefault(pod.metadata.uid, pod)

    def note(self, before: Pod | None, after: Pod | None) -> None:
        """Take in a change; before: None of a new pod, after: None of one that is gone."""
        with self._lock:
            # Deleted and recreated under its name, while nobody looked.
            if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
                self._changes[before.metadata.uid] = None
            if after is not None:
                self._changes[after.metadata.uid] = after

    def take(self) -> Mapping[str, Pod | None]:
        """What each pod has become since the last time, None of one that is gone."""
        with self._lock:
            changes, self._changes = self._changes, {}
        return changes


def name_of(pod: Pod) -> str:
    """The name of the pod's Usage."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _changed(
    before: Mapping[str, Pod], gone: Mapping[str, Pod], come: Mapping[str, Pod]
) -> Mapping[str, Pod]:
    """Without what is gone, and with what has come; the very same where neither changes it."""
    out = [uid for uid in gone if uid in before]
    if not out and not come:
        return before
    found = {**before, **come}
    for uid in out:
        if uid not in come:
            del found[uid]
    return found


def _regrouped(
    before: Mapping[K, tuple[Pod, ...]],
    gone: Mapping[str, Pod],
    come: Mapping[str, Pod],
    group_of: Callable[[Pod], K | None],
) -> Mapping[K, tuple[Pod, ...]]:
    """The groups without what is gone, and with what has come; each group is looked at once."""
    arriving = grouped((group, pod) for pod in come.values() if (group := group_of(pod)) is not None)
    touched = {group for pod in gone.values() if (group := group_of(pod)) is not None} | arriving.keys()
    if not touched:
        return before
    found = dict(before)
    for group in touched:
        stay = tuple(pod for pod in before.get(group, ()) if pod.metadata.uid not in gone)
        members = stay + tuple(arriving.get(group, ()))
        if members:
            found[group] = members
        else:
            found.pop(group, None)
    return found


def _belongs_to_its_node(pod: Pod) -> bool:
    """Whether it is a DaemonSet's or the kubelet's own; who names such an owner is not believed for that."""
    owner = pod.metadata.controller
    if owner is None:
        return False
    if (owner.api_version, owner.kind) == ("apps/v1", "DaemonSet"):
        node = pinned_node(pod)  # the controller writes the node into each of its pods
        return node is not None and pod.spec.node_name in ("", node)
    is_node_s = (owner.api_version, owner.kind) == ("v1", "Node")
    return is_node_s and keys.MIRROR_POD_ANNOTATION in pod.metadata.annotations


def _is_under_way(pod: Pod) -> bool:
    return not pod.spec.node_name or pod.status.phase in ("", "Pending")


def _is_repelling(pod: Pod) -> bool:
    return pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity is not None


def _runs_under_controller(pod: Pod) -> bool:
    """Whether a controller keeps it running: one of Kubernetes' own, since of others the kind says nothing.

    A pod whose owner of such a kind is not there is collected.
    """
    owner = pod.metadata.controller
    if pod.metadata.deletion_timestamp:
        return False
    return owner is not None and (owner.api_version, owner.kind) in _CONTROLLERS


def is_troubled(pod: Pod) -> bool:
    """Whether a container of it does not start, or has ended with a fault before."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return any(each.is_troubled for each in statuses)


_ALL: Final[Mapping[Sort, Callable[[Pod], object]]] = {
    Sort.UNBOUND: lambda pod: not pod.spec.node_name,
    Sort.SPREAD: lambda pod: keys.SPREAD_TOPOLOGY_ANNOTATION in pod.metadata.annotations,
    Sort.OF_A_SET: is_of_a_set,
    Sort.EXCLUSIVE: claims_of,
    Sort.OF_A_POD_GROUP: lambda pod: group_name(pod.spec),
}
"""What makes any pod one of a sort, by itself."""

_OTHERS: Final[Mapping[Sort, Callable[[Pod], object]]] = {
    Sort.UNDER_WAY: _is_under_way,
    Sort.STAMPED: lambda pod: keys.GAS_TIMESTAMP_ANNOTATION in pod.metadata.annotations,
    Sort.TROUBLED: is_troubled,
    Sort.ENDING: lambda pod: pod.metadata.deletion_timestamp,
    Sort.REPELLING: _is_repelling,
    Sort.ENDLESS: _runs_under_controller,
    Sort.SLOW: lambda pod: (pod.spec.termination_grace_period_seconds or 0) > ENDING_SECONDS,
    Sort.LATE: lambda pod: (pod.metadata.deletion_grace_period_seconds or 0) > ENDING_SECONDS,
}
"""What makes a pod that does not wait for us one of a sort, by itself."""
