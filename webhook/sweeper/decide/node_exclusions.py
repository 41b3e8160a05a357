"""Nodes that gangs could use but do not: why each is excluded, or avoided. Pure.

The extensions' hooks `exclude_nodes` name them for all gangs, for those of a namespace, or for one. Besides,
some free nodes may be spares: they are reserved for pods that only replace lost ones, of any gang, and that
ask for no more than those did. Such pods may also use nodes that are reserved for others (see
decide.reservations). All waiting pods of a gang are placed together: unless it is elastic, none uses a spare
node where they do not all fit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.placement import Snapshot
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.view import View
from webhook.text import counted, few

K = TypeVar("K")

MOST_NAMED_IN_PLAN: Final = 10


@dataclass(frozen=True)
class Exclusion:
    """Why gangs do not use a node, as a sentence. is_hard: also where nothing else fits."""

    sentence: str
    is_hard: bool = False


Exclusions = Mapping[str, Exclusion]
"""By the node's name."""


@dataclass(frozen=True)
class SpareRule:
    """Which free nodes are reserved for pods that only replace lost ones.

    choose: their names, by the snapshot on which they are chosen. is_hard: whether other pods wait rather
    than use them.
    """

    choose: Callable[[Snapshot], frozenset[str]]
    is_hard: bool = True


@dataclass(frozen=True)
class Spares:
    """The nodes that a SpareRule has chosen: a reservation without a gang."""

    names: frozenset[str] = frozenset()
    is_hard: bool = True

    @property
    def hard(self) -> frozenset[str]:
        """Those that other pods do not use even where nothing else fits."""
        return self.names if self.is_hard else frozenset()


NO_SPARES: Final = Spares()


@dataclass(frozen=True)
class ExcludedNodes:
    """Nodes that gangs do not use.

    for_all: all gangs; for_namespaces: also those of a namespace; for_gangs: also one gang. spares: None
    where there are none.
    """

    for_all: Exclusions = field(default_factory=dict)
    for_namespaces: Mapping[str, Exclusions] = field(default_factory=dict)
    for_gangs: Mapping[GangKey, Exclusions] = field(default_factory=dict)
    spares: SpareRule | None = None

    def of(self, gang: GangKey) -> Exclusions:
        """Those of one gang. Of several of a node the hard one counts, then the one of more gangs."""
        scopes = (self.for_all, self.for_namespaces.get(gang.namespace), self.for_gangs.get(gang))
        return _merged(filter(None, scopes))

    @property
    def names(self) -> frozenset[str]:
        """All nodes that any gang does not use."""
        scopes = (self.for_all, *self.for_namespaces.values(), *self.for_gangs.values())
        return frozenset[str]().union(*scopes)

    def hard_of(self, gang: GangKey) -> frozenset[str]:
        """The nodes that this gang never uses."""
        return frozenset(name for name, each in self.of(gang).items() if each.is_hard)

    def spares_on(self, snapshot: Snapshot) -> Spares:
        """The spares of this state of the cluster."""
        rule = self.spares
        return NO_SPARES if rule is None else Spares(rule.choose(snapshot), rule.is_hard)


NOTHING_EXCLUDED: Final = ExcludedNodes()


def merged(found: Sequence[ExcludedNodes]) -> ExcludedNodes:
    """The exclusions of several sources; for a node that several name, the first one counts."""
    if len(found) < 2:
        return found[0] if found else NOTHING_EXCLUDED
    rules = (each.spares for each in found if each.spares is not None)
    return ExcludedNodes(
        _merged(each.for_all for each in found),
        _merged_by_key([each.for_namespaces for each in found]),
        _merged_by_key([each.for_gangs for each in found]),
        next(rules, None),
    )


@dataclass(frozen=True)
class GangExclusions:
    """The nodes that one gang does not use.

    hard: never. steps: left out as long as other nodes have capacity: first all of a step, then all of the
    next. exclusions: of single nodes. spare_count: spares that it never uses.
    """

    hard: frozenset[str] = frozenset()
    steps: tuple[frozenset[str], ...] = ()
    exclusions: Exclusions = field(default_factory=dict)
    spare_count: int = 0

    @classmethod
    def of(
        cls, exclusions: Exclusions, spares: Spares = NO_SPARES, reserved: Set[str] = frozenset()
    ) -> "GangExclusions":
        """spares: none if its pods may use them. reserved: nodes that it leaves to others while it can."""
        if not exclusions and not spares.names and not reserved:
            return NOTHING
        hard = frozenset(name for name, each in exclusions.items() if each.is_hard)
        soft = exclusions.keys() - hard
        if spares.is_hard:
            return cls(hard | spares.names, steps_of(soft, reserved), exclusions, len(spares.names))
        return cls(hard, steps_of(soft, reserved, spares.names), exclusions)

    def unused(self, nodes: Set[str], is_comparable: Callable[[str], bool]) -> dict[str, str]:
        """Node -> why a plan for these nodes did without it; at most ten.

        is_like_them: whether a node could have been used in the place of these.
        """
        names = [name for name in sorted(self.exclusions) if name not in nodes and is_comparable(name)]
        return {name: self.exclusions[name].sentence for name in names[:MOST_NAMED_IN_PLAN]}

    @property
    def sentence(self) -> str:
        """The note for a gang that waits, where these nodes may be the reason; "" otherwise."""
        hard = {name: each.sentence for name, each in sorted(self.exclusions.items()) if each.is_hard}
        parts = [avoided_sentence(hard)] if hard else []
        if self.spare_count:
            nodes = counted(self.spare_count, "free node is", "free nodes are")
            parts.append(f"{nodes} reserved for replacements of failed pods")
        return "; ".join(parts)


NOTHING: Final = GangExclusions()


def avoided_sentence(avoided: Mapping[str, str]) -> str:
    """The sentence on nodes that are not used. avoided: node -> why."""
    named = [f"{name} ({why})" for name, why in sorted(avoided.items())]
    nodes = "node" if len(named) == 1 else "nodes"
    return f"avoids the {nodes} {few(named)}"


def steps_of(*sets: Iterable[str]) -> tuple[frozenset[str], ...]:
    """All of these left out, then all but the last, and so on; each set costs more than those after it."""
    found: list[frozenset[str]] = []
    for number in range(len(sets), 0, -1):
        step = frozenset(name for each in sets[:number] for name in each)
        if step and step not in found:
            found.append(step)
    return tuple(found)


def _merged_by_key(found: Sequence[Mapping[K, Exclusions]]) -> dict[K, Exclusions]:
    keys = set[K]().union(*found)
    return {key: _merged(each[key] for each in found if key in each) for key in keys}


def _merged(scopes: Iterable[Exclusions]) -> Exclusions:
    """The first of a node counts, unless a later one is hard and it is not."""
    some = [scope for scope in scopes if scope]
    if len(some) < 2:
        return some[0] if some else {}
    last_first = (pair for scope in reversed(some) for pair in scope.items())
    return dict(sorted(last_first, key=lambda pair: pair[1].is_hard))


# --- who may use spare nodes --------------------------------------------------------------------------


Amounts = tuple[tuple[tuple[str, str | int | float], ...], ...]
"""Requests and limits of each container, as they are written: a controller writes the same each time."""


class _Planned(NamedTuple):
    """asked: how many of the plan's pods have asked for what, of those that were ever seen there."""

    plan: Placement
    asked: Counter[Amounts]

    def asked_by(self, size: int) -> Mapping[Amounts, int]:
        """The same for all `size` pods: an unseen pod counts as asking for what all others ask for."""
        if len(self.asked) == 1 and self.asked.total() < size:
            return dict.fromkeys(self.asked, size)
        return self.asked


@dataclass(frozen=True)
class Replacements:
    """The requests of the pods of each plan, remembered after the pods are gone.

    Without that memory, all of a gang count as asking for what the existing pods ask for, if these ask for
    the same. plans: by Placement, as "namespace/name".
    """

    plans: Mapping[str, _Planned] = field(default_factory=dict)

    def after(self, view: View) -> "Replacements":
        """With the plans that have changed. Their pods that are gone since are not forgotten."""
        known = {key: each for key, each in self.plans.items() if key in view.placements}
        changed = {
            key: plan
            for key, plan in view.placements.items()
            if plan.spec.pods and (key not in known or known[key].plan is not plan)
        }
        if not changed and len(known) == len(self.plans):
            return self
        for key, plan in changed.items():
            asked = Counter(map(_amounts, view.pods_of(plan)))
            before = known.get(key)
            if before is not None and asked.total() < before.asked.total():
                asked = before.asked
            known[key] = _Planned(plan, asked)
        return Replacements(known)

    def fill_up(self, gang: PodGang, waiting: Iterable[Pod], view: View) -> bool:
        """Whether the waiting pods only replace lost ones: the gang has no more pods, and asks for no more.

        False for a gang without an existing pod: it starts like a new one.
        """
        key = gang.key.placement_key
        plan, known = view.placements.get(key), self.plans.get(key)
        if plan is None or known is None or not gang.released:
            return False
        # The later pods of a gang in stages are no replacements: it never had them.
        size = len(plan.spec.pods) if gang.staged else max(plan.spec.size, len(plan.spec.pods))
        if len(gang.pods) > size:
            return False
        asked = known.asked_by(size)
        named = {each.uid for each in plan.spec.pods}
        there = Counter(_amounts(pod) for pod in gang.released if pod.metadata.uid in named)
        wanted = Counter(_amounts(pod) for pod in waiting)
        return all(there[each] + number <= asked.get(each, 0) for each, number in wanted.items())


def _amounts(pod: Pod) -> Amounts:
    return tuple(
        tuple(sorted(amounts.items()))
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for amounts in (container.resources.requests, container.resources.limits)
    )
