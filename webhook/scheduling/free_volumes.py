"""Free volumes by node, as synthetic resources that count the pods for which a node has volumes. Pure.

This serves pods whose claims wait for existing volumes, mostly local ones. Each node has as many units as
pods find volumes there one by one, each claim taking the smallest that fits, as in kube-scheduler. A pod
takes one unit. It also takes one unit of the resource of other kinds of claims for each volume that both
could use, unless those claims differ only by a larger size: they find theirs left. A volume that several
nodes can use counts if there are as many as claims of the gang and of pods that already have a node. If a
gang's volumes may have been promised to another gang in the pass, it waits for the next pass.

Source of the rules: kube-scheduler's plugin VolumeBinding (findMatchingVolumes, and FindMatchingVolume of
k8s.io/component-helpers/storage/volume).
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.kube.objects import Node, Pod
from webhook.kube.volume_objects import PersistentVolume, PersistentVolumeClaim
from webhook.placement.eligibility import Term, term_holds
from webhook.scheduling.claim_kinds import ClaimKind, kind_of, leaves, size_of
from webhook.scheduling.storage import Alternatives, Storage, reachable

MOST_PODS: Final = 64
"""The most pods that are counted on one node."""

PLENTY: Final = 1_000_000_000
"""The amount of a node where volumes can be provisioned."""


ClaimKinds = tuple[ClaimKind, ...]
"""The claims of a pod that need existing volumes, the smallest first."""


class CountedKinds(NamedTuple):
    """The kinds of a pod's claims, and for each how many volumes it needs if several nodes can use them."""

    kinds: ClaimKinds
    demand: tuple[int, ...]


@dataclass
class _Supply:
    """The volumes for a kind of claims, the smallest first.

    on: node -> volumes that only it can use; wide: volumes that several nodes can use.
    """

    names: frozenset[str]
    on: dict[str, list[PersistentVolume]] = field(default_factory=dict)
    wide: dict[str, list[PersistentVolume]] = field(default_factory=dict)
    made: Alternatives = ()


class FreeVolumes:
    """The free-volume resources of one pass."""

    def __init__(
        self,
        storage: Storage,
        nodes: Mapping[str, Node],
        waiting: Mapping[str, Sequence[Pod]],
        assigned: Iterable[Pod],
        most: int,
    ) -> None:
        """waiting: pods by gang. assigned: pods that have a node. most: the most resources."""
        self._storage = storage
        self._nodes = nodes
        self._labelled: dict[str, dict[str, list[str]]] = {}
        self._reach: dict[Alternatives, tuple[str, ...]] = {}
        self._supplies: dict[ClaimKind, _Supply] = {}
        self._kinds_of_pods: dict[str, ClaimKinds] = {}
        self._shared: dict[str, CountedKinds] = {}
        self.problems: dict[str, str] = {}
        self._find(waiting, most)
        if self._shared:
            self._raise_demands(
                [kinds for pod in assigned if pod.spec.volumes and (kinds := self._kinds(pod))]
            )
        self.kind_sets = tuple(dict.fromkeys(self._shared.values()))
        self.names = {each: _name(each) for each in self.kind_sets}
        self._takes: dict[tuple[ClaimKinds, tuple[int, ...] | None], dict[str, int]] = {}
        self._promised: Counter[ClaimKind] = Counter()

    # --- requests of pods -------------------------------------------------------------------------

    def _find(self, waiting: Mapping[str, Sequence[Pod]], most: int) -> None:
        share = _share_of_namespace(waiting, most)
        known: dict[str, set[ClaimKinds]] = {}
        for pods in waiting.values():
            found = [(pod, kinds) for pod in pods if (kinds := self._kinds(pod))]
            claims = Counter(kind for _, kinds in found for kind in kinds)
            demands: dict[ClaimKinds, tuple[int, ...]] = {}
            for pod, kinds in found:
                mine = known.setdefault(pod.metadata.namespace, set())
                if kinds not in mine and len(mine) >= share:
                    self.problems[pod.metadata.uid] = (
                        f"more than {share} kinds of claims on free volumes wait at once in its namespace; "
                        "it waits until others are placed"
                    )
                    continue
                mine.add(kinds)
                self._kinds_of_pods[pod.metadata.uid] = kinds
                if kinds not in demands:  # a single pod has no competitors
                    demands[kinds] = self._demand(kinds, claims if len(found) > 1 else {})
                self._shared[pod.metadata.uid] = CountedKinds(kinds, demands[kinds])

    def _raise_demands(self, sent: Sequence[ClaimKinds]) -> None:
        """Count the claims of pods that have a node but are not bound to volumes yet."""
        claims = Counter(kind for kinds in sent for kind in kinds)
        raised: dict[CountedKinds, CountedKinds] = {}
        for kinds, demand in set(self._shared.values()):
            more = self._demand(kinds, claims)
            own = self._own_demand(CountedKinds(kinds, demand)) if any(more) else demand
            both = tuple(map(sum, zip(own, more, strict=True)))
            raised[CountedKinds(kinds, demand)] = CountedKinds(kinds, both)
        self._shared = {uid: raised[each] for uid, each in self._shared.items()}

    def _kinds(self, pod: Pod) -> ClaimKinds:
        found = []
        for volume in pod.spec.volumes:
            claim = self._storage.claim_of(pod, volume)
            kind = kind_of(claim) if claim is not None and self._storage.waits(claim) else None
            if claim is not None and kind is not None and self._known(kind, claim).names:
                found.append(kind)
        return tuple(sorted(found, key=lambda kind: (kind.size, repr(kind))))

    def _demand(self, kinds: ClaimKinds, claims: Mapping[ClaimKind, int]) -> tuple[int, ...]:
        """For each claim of these kinds, the number of claims that could use its volumes, if any are shared.

        claims: the number of claims by kind.
        """
        return tuple(
            sum(count for kind, count in claims.items() if self._overlaps(kind, (each,)))
            if self._supply(each).wide
            else 0
            for each in kinds
        )

    def _overlaps(self, kind: ClaimKind, kinds: ClaimKinds) -> bool:
        """Whether a claim and a claim of one of the kinds could use the same volume."""
        names = self._supply(kind).names
        return any(not names.isdisjoint(self._supply(each).names) for each in kinds)

    def takes(self, pod: Pod) -> dict[str, int]:
        """The amounts of a pod that waits or that has a node."""
        if not self.kind_sets:
            return {}
        uid = pod.metadata.uid
        own = self._shared.get(uid)
        kinds = own.kinds if own is not None else self._kinds(pod)
        key = kinds, own.demand if own is not None else None
        if key not in self._takes:
            amounts = {self.names[each]: self._taken(kinds, each.kinds) for each in self.kind_sets}
            self._takes[key] = {name: amount for name, amount in amounts.items() if amount}
        return self._takes[key]

    def _taken(self, kinds: ClaimKinds, other: ClaimKinds) -> int:
        if kinds == other:
            return 1
        return sum(
            self._overlaps(kind, other) and not all(leaves(kind, each) for each in other) for kind in kinds
        )

    def with_promised(self, pods: Iterable[Pod]) -> "FreeVolumes":
        """The same with volumes promised to these waiting pods, which the amounts of nodes do not include."""
        own = [self._shared[pod.metadata.uid] for pod in pods if pod.metadata.uid in self._shared]
        if not own:
            return self
        made = copy(self)
        made._promised = self._promised + Counter(kind for each in own for kind in each.kinds)
        return made

    def is_late(self, pod: Pod) -> bool:
        """Whether promises since may leave too few volumes that several nodes can use for a waiting pod.

        Volumes that only one node can use are counted with the amounts of pods there.
        """
        own = self._shared.get(pod.metadata.uid)
        if own is None or not self._promised:
            return False
        more = self._demand(own.kinds, self._promised)
        return any(
            further
            and any(counted <= len(wide) < wanted + further for wide in self._supply(kind).wide.values())
            for kind, counted, wanted, further in zip(
                own.kinds, own.demand, self._own_demand(own), more, strict=True
            )
        )

    def _own_demand(self, own: CountedKinds) -> tuple[int, ...]:
        """The demand of a gang beside others. A single pod counts no claims, not even its own."""
        return own.demand if any(own.demand) else self._demand(own.kinds, Counter(own.kinds))

    # --- amounts of nodes -------------------------------------------------------------------------

    def on(self, node: str) -> dict[str, int]:
        """The amounts of a node."""
        return {self.names[each]: self._pods(each, node) for each in self.kind_sets}

    def _pods(self, shared: CountedKinds, node: str) -> int:
        """The number of pods with such claims that find volumes on a node, one by one."""
        labels = self._nodes[node].metadata.labels
        lists: list[Iterator[PersistentVolume]] = []
        for kind, demand in zip(shared.kinds, shared.demand, strict=True):
            supply = self._supply(kind)
            if any(term_holds(term, node, labels) for term in supply.made):
                continue
            wide = supply.wide.get(node, [])
            shared_ones = wide if len(wide) >= demand else []
            lists.append(heapq.merge(supply.on.get(node, []), shared_ones, key=size_of))
        if not lists:
            return PLENTY
        taken: set[str] = set()
        for count in range(MOST_PODS):
            for volumes in lists:
                smallest = next((each for each in volumes if each.metadata.name not in taken), None)
                if smallest is None:
                    return count
                taken.add(smallest.metadata.name)
        return MOST_PODS

    def _supply(self, kind: ClaimKind) -> _Supply:
        return self._supplies[kind]

    def _known(self, kind: ClaimKind, claim: PersistentVolumeClaim) -> _Supply:
        """The volumes that fit a claim."""
        if kind not in self._supplies:
            volumes = sorted(self._storage.matching(claim), key=size_of)
            made = self._storage.where_made(claim)
            supply = _Supply(frozenset(each.metadata.name for each in volumes), made=made)
            for each in volumes:
                names = self._nodes_of(reachable(each))
                for name in names:
                    (supply.on if len(names) == 1 else supply.wide).setdefault(name, []).append(each)
            self._supplies[kind] = supply
        return self._supplies[kind]

    def _nodes_of(self, terms: Alternatives) -> tuple[str, ...]:
        """The nodes that match one of the terms; most volumes name a value that few nodes have."""
        if terms not in self._reach:
            candidates: dict[str, None] = {}
            for term in terms:
                candidates.update(dict.fromkeys(self._candidates(term)))
            self._reach[terms] = tuple(
                name
                for name in candidates
                if any(term_holds(term, name, self._nodes[name].metadata.labels) for term in terms)
            )
        return self._reach[terms]

    def _candidates(self, term: Term) -> Iterable[str]:
        for each in term.expressions:
            if each.operator == "In":
                by_value = self._by_value(each.key)
                return [name for value in each.values for name in by_value.get(value, ())]
        return self._nodes

    def _by_value(self, key: str) -> Mapping[str, list[str]]:
        if key not in self._labelled:
            found: dict[str, list[str]] = {}
            for name, node in self._nodes.items():
                value = node.metadata.labels.get(key)
                if value is not None:
                    found.setdefault(value, []).append(name)
            self._labelled[key] = found
        return self._labelled[key]


def _share_of_namespace(waiting: Mapping[str, Sequence[Pod]], most: int) -> int:
    """The most kinds of claims for the waiting pods of each namespace."""
    namespaces = {pods[0].metadata.namespace for pods in waiting.values() if pods}
    return max(1, most // max(1, len(namespaces)))


def _name(shared: CountedKinds) -> str:
    classes = ", ".join(sorted({kind.class_name for kind in shared.kinds}))
    return f"free volumes of {classes} ({hashlib.sha256(repr(shared).encode()).hexdigest()[:6]})"
