"""The unfinished pods of one moment, sorted by what passes ask for. Pure.

A pass reads few pods: those that wait, those that are being released, the others of a gang. Each pod is
sorted once, when it appears or changes. The pods of the next moment are derived from these and the changes
since, and are the same object where nothing has changed.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeVar

from labeler.contract import keys
from webhook.grouping import grouped
from webhook.kube.objects import Pod
from webhook.sweeper.observe.membership import GangKey, controller_of
from webhook.sweeper.observe.plans import pinned_node
from webhook.workloads.native_gangs import group_name
from webhook.workloads.own_domains import domain_requests_of, is_of_a_set

K = TypeVar("K")

ENDING_SECONDS: Final = 600.0
"""A pod may wait this long for its victims to end; their authors choose how long they take."""

_CONTROLLERS: Final = frozenset(
    {("apps/v1", "ReplicaSet"), ("v1", "ReplicationController"), ("apps/v1", "StatefulSet")}
)
"""Those that keep pods running, and make another for each that ends."""


class PodTrait(Enum):
    """What a pod is to a pass; it may be several things. Those after OTHER are subsets of OTHER."""

    GATED = auto()
    """It waits for us."""
    UNBOUND = auto()
    """It has no node yet."""
    SPREAD = auto()
    """It asks to be spread."""
    OF_A_SET = auto()
    """It is in a set of which some want domains of their own, see is_of_a_set."""
    OWN_DOMAIN = auto()
    """It wants a domain of its own."""
    OF_A_POD_GROUP = auto()
    """kube-scheduler binds it with others, see native_gangs."""
    OTHER = auto()
    """It does not wait for us."""
    UNDER_WAY = auto()
    """It is not bound, or does not run yet."""
    STAMPED = auto()
    """It has the time at which it was given cards."""
    TROUBLED = auto()
    """A container of it does not start, or has exited with an error."""
    ENDING = auto()
    """It has been deleted."""
    REPELLING = auto()
    """It has anti-affinity."""
    LASTING = auto()
    """It is of a DaemonSet, its node or a protected namespace: no gang may count on its end."""
    ENDLESS = auto()
    """A controller keeps it running, so that its end frees no node."""
    SLOW = auto()
    """After its deletion it may take longer to end than a gang waits for that."""
    LATE = auto()
    """It has been deleted, and may take as long."""


@dataclass(frozen=True)
class TraitRules:
    """The inputs for the traits of pods: which pods wait for us, their gangs, the protected namespaces."""

    waits: Callable[[Pod], bool]
    gang_of: Callable[[Pod], GangKey]
    protected: Set[str]

    def traits(self, pod: Pod) -> list[PodTrait]:
        """All that a pod is."""
        is_gated = self.waits(pod)
        found = [PodTrait.GATED if is_gated else PodTrait.OTHER]
        found += (trait for trait, is_one in _ALL.items() if is_one(pod))
        if not is_gated:
            found += (trait for trait, is_one in _OTHERS.items() if is_one(pod))
            if pod.metadata.namespace in self.protected or _belongs_to_its_node(pod):
                found.append(PodTrait.LASTING)
        return found


@dataclass(frozen=True, eq=False)
class Pods:
    """The pods of one moment.

    by_uid: all. of: by trait and uid. bound: others by the node to which they are bound. waiting: gated ones
    by their gang. mates: others by their gang, without pods that are gangs of their own; siblings: those by
    owner, see controller_of. priorities: how many others have each priority. The pods of one trait, node or
    gang are the same object while none of them changes.
    """

    rules: TraitRules
    by_uid: Mapping[str, Pod] = field(default_factory=dict)
    of: Mapping[PodTrait, Mapping[str, Pod]] = field(default_factory=lambda: {each: {} for each in PodTrait})
    bound: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    waiting: Mapping[GangKey, tuple[Pod, ...]] = field(default_factory=dict)
    mates: Mapping[GangKey, tuple[Pod, ...]] = field(default_factory=dict)
    siblings: Mapping[GangKey, tuple[Pod, ...]] = field(default_factory=dict)
    priorities: Counter[int] = field(default_factory=Counter)

    @classmethod
    def sorted(cls, rules: TraitRules, pods: Iterable[Pod]) -> "Pods":
        """These pods."""
        return cls(rules).after({pod.metadata.uid: pod for pod in pods})

    def after(self, changes: Mapping[str, Pod | None]) -> "Pods":
        """The pods of the next moment. changes: uid -> the new or changed pod, None for a deleted one."""
        gone = {uid: before for uid in changes if (before := self.by_uid.get(uid)) is not None}
        come = {uid: pod for uid, pod in changes.items() if pod is not None}
        if not gone and not come:
            return self
        by_uid = {**self.by_uid, **come}
        for uid in gone.keys() - come.keys():
            del by_uid[uid]
        of = self._resorted(gone, come)
        gone_gated, gone_others = _of_both(gone, self.of)
        gated, others = _of_both(come, of)
        gangs = {id(pod): self.rules.gang_of(pod) for pod in (*gone.values(), *come.values())}
        return Pods(
            self.rules,
            by_uid,
            of,
            _regrouped(self.bound, gone_others, others, lambda pod: pod.spec.node_name or None),
            _regrouped(self.waiting, gone_gated, gated, lambda pod: gangs[id(pod)]),
            _regrouped(self.mates, gone_others, others, lambda pod: _gang_with_others(gangs[id(pod)])),
            _regrouped(
                self.siblings, gone_others, others, lambda pod: _controller_of_one(pod, gangs[id(pod)])
            ),
            _recounted(self.priorities, gone_others.values(), others.values()),
        )

    def _resorted(
        self, gone: Mapping[str, Pod], come: Mapping[str, Pod]
    ) -> Mapping[PodTrait, Mapping[str, Pod]]:
        into: dict[PodTrait, dict[str, Pod]] = {each: {} for each in PodTrait}
        for uid, pod in come.items():
            for trait in self.rules.traits(pod):
                into[trait][uid] = pod
        return {trait: _changed(there, gone, into[trait]) for trait, there in self.of.items()}


class Journal:
    """Added, changed or deleted pods, by uid, until they are taken. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: dict[str, Pod | None] = {}

    def begin(self, pods: Mapping[str, Pod]) -> None:
        """Record existing pods; changes that were recorded since take precedence."""
        with self._lock:
            for pod in pods.values():
                self._changes.setdefault(pod.metadata.uid, pod)

    def note(self, before: Pod | None, after: Pod | None) -> None:
        """Record a change; before: None for a new pod, after: None for a deleted one."""
        with self._lock:
            # Deleted and recreated under its name between two reads.
            if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
                self._changes[before.metadata.uid] = None
            if after is not None:
                self._changes[after.metadata.uid] = after

    def take(self) -> Mapping[str, Pod | None]:
        """The current state of each pod that changed since the last call, None for a deleted one."""
        with self._lock:
            changes, self._changes = self._changes, {}
        return changes


def name_of(pod: Pod) -> str:
    """The name of the pod's Usage."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _gang_with_others(gang: GangKey) -> GangKey | None:
    return gang if gang.kind != "Pod" else None


def _controller_of_one(pod: Pod, gang: GangKey) -> GangKey | None:
    is_one = gang.kind == "Pod" and pod.metadata.controller is not None
    return controller_of(pod, gang) if is_one else None


def _of_both(
    pods: Mapping[str, Pod], of: Mapping[PodTrait, Mapping[str, Pod]]
) -> tuple[dict[str, Pod], dict[str, Pod]]:
    """Those of these pods that wait, and the others."""
    gated = {uid: pod for uid, pod in pods.items() if uid in of[PodTrait.GATED]}
    return gated, {uid: pod for uid, pod in pods.items() if uid not in gated}


def _changed(
    before: Mapping[str, Pod], gone: Mapping[str, Pod], come: Mapping[str, Pod]
) -> Mapping[str, Pod]:
    """Without the deleted pods and with the added ones; the same object where neither changes it."""
    out = [uid for uid in gone if uid in before]
    if not out and not come:
        return before
    found = {**before, **come}
    for uid in out:
        if uid not in come:
            del found[uid]
    return found


def _recounted(before: Counter[int], gone: Iterable[Pod], come: Iterable[Pod]) -> Counter[int]:
    """The pods of each priority without the deleted ones and with the added ones."""
    counts = before.copy()
    counts.subtract(pod.spec.priority or 0 for pod in gone)
    counts.update(pod.spec.priority or 0 for pod in come)
    return +counts


def _regrouped(
    before: Mapping[K, tuple[Pod, ...]],
    gone: Mapping[str, Pod],
    come: Mapping[str, Pod],
    group_of: Callable[[Pod], K | None],
) -> Mapping[K, tuple[Pod, ...]]:
    """The groups without the deleted pods and with the added ones; each group is visited once."""
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
    """Whether a controller keeps it running: one of Kubernetes' own, since other kinds do not show it.

    A pod whose owner of such a kind does not exist is garbage-collected.
    """
    owner = pod.metadata.controller
    if pod.metadata.deletion_timestamp:
        return False
    return owner is not None and (owner.api_version, owner.kind) in _CONTROLLERS


def is_troubled(pod: Pod) -> bool:
    """Whether a container of it does not start, or has exited with an error before."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return any(each.is_troubled for each in statuses)


_ALL: Final[Mapping[PodTrait, Callable[[Pod], object]]] = {
    PodTrait.UNBOUND: lambda pod: not pod.spec.node_name,
    PodTrait.SPREAD: lambda pod: keys.SPREAD_TOPOLOGY_ANNOTATION in pod.metadata.annotations,
    PodTrait.OF_A_SET: is_of_a_set,
    PodTrait.OWN_DOMAIN: domain_requests_of,
    PodTrait.OF_A_POD_GROUP: lambda pod: group_name(pod.spec),
}
"""The traits that depend on the pod alone, for any pod."""

_OTHERS: Final[Mapping[PodTrait, Callable[[Pod], object]]] = {
    PodTrait.UNDER_WAY: _is_under_way,
    PodTrait.STAMPED: lambda pod: keys.GAS_TIMESTAMP_ANNOTATION in pod.metadata.annotations,
    PodTrait.TROUBLED: is_troubled,
    PodTrait.ENDING: lambda pod: pod.metadata.deletion_timestamp,
    PodTrait.REPELLING: _is_repelling,
    PodTrait.ENDLESS: _runs_under_controller,
    PodTrait.SLOW: lambda pod: (pod.spec.termination_grace_period_seconds or 0) > ENDING_SECONDS,
    PodTrait.LATE: lambda pod: (pod.metadata.deletion_grace_period_seconds or 0) > ENDING_SECONDS,
}
"""The traits that depend on the pod alone, for a pod that does not wait for us."""
