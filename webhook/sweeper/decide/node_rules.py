"""Node rules: which gang does not use which nodes, why, how strictly, and until when. Pure.

Whoever keeps gangs from nodes makes rules, and nothing else in the sweeper does:

    made in                      rule                                                             kind
    ---------------------------  ---------------------------------------------------------------  --------
    decide.refusing_nodes        a pod of the gang was not bound or released there                REFUSED
    decide.kubelet_refusals      the kubelet refused a pod of the gang there                      NODE
    repair.repair                a released pod is stuck there                                    STUCK
    decide.reservations          reserved for another gang: starvation, later stages, scale-up    RESERVED
    extensions.node_health       pods failed there; and spare nodes                               NODE, SPARE
    extensions.scale_up          a new node has no topology labels yet                            NODE
    extensions.native_gangs      a node has no label that its PodGroup requires                   NODE
    extensions.exclusive_...     the domains of other Jobs and groups                             DOMAIN

`decision.node_rules` joins the rules of a pass (NodeRules), and `PassState.nodes_for` those of a gang
(GangNodes). All waiting pods of a gang are placed together: unless it is elastic, none uses a node of the
last resort where they do not all fit.

A rule is about all waiting pods of a gang. Nodes that only a part of it may not use, as others have topology
domains there, are part of its question (GangPart.excluded_nodes, Division); nothing remembers them.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from math import inf
from typing import Final, Protocol

from webhook.grouping import grouped
from webhook.placement import Snapshot
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import GangKey
from webhook.text import few, joined

MOST_NAMED_IN_PLAN: Final = 10


class RuleKind(Enum):
    """What a rule is about, as far as the sweeper treats rules differently.

    NODE: what has happened on a node, or what it lacks. REFUSED: a pod was not bound or released there;
    kube-scheduler may choose among such nodes itself. STUCK: a released pod cannot be repaired there, which
    only matters to pods with cards. DOMAIN: of the ways to ask about a gang, this one has other topology
    domains. RESERVED, RESERVED_NEW: for other gangs; new nodes were created for them. SPARE: for pods that
    replace lost ones.
    """

    NODE = auto()
    REFUSED = auto()
    STUCK = auto()
    DOMAIN = auto()
    RESERVED = auto()
    RESERVED_NEW = auto()
    SPARE = auto()


_BY_NODE: Final = frozenset({RuleKind.NODE, RuleKind.REFUSED})
"""Whose sentences are about a single node."""
_FOR_OTHERS: Final = frozenset({RuleKind.RESERVED, RuleKind.RESERVED_NEW})


@dataclass(frozen=True)
class NodeRule:
    """Gangs do not use these nodes.

    sentence: why, as users read it, "" where they do not: about a single node for NODE and REFUSED, else
    about all of them. is_hard: otherwise they are the last resort, used where nothing else fits. applies_to:
    one gang, or all gangs of a controller; or a namespace; "" for all gangs. until: in seconds since 1970.
    """

    nodes: frozenset[str]
    sentence: str = ""
    kind: RuleKind = RuleKind.NODE
    is_hard: bool = False
    applies_to: GangKey | str = ""
    until: float = inf

    @property
    def is_firm(self) -> bool:
        """Whether reserved nodes stay closed to pods that only replace lost ones."""
        return False

    @property
    def note(self) -> str:
        """The sentence for a gang that waits."""
        return self.sentence


class _HasNodes(Protocol):
    @property
    def nodes(self) -> frozenset[str]: ...


def nodes_of(found: Iterable[_HasNodes]) -> frozenset[str]:
    """All nodes of these rules, or reservations."""
    return frozenset[str]().union(*(each.nodes for each in found))


@dataclass(frozen=True)
class NodeRules:
    """The rules of several makers. spares: chooses the spare nodes of a state of the cluster."""

    rules: tuple[NodeRule, ...] = ()
    spares: Callable[[Snapshot], NodeRule] | None = None

    @cached_property
    def _by_scope(self) -> Mapping[GangKey | str, list[NodeRule]]:
        return grouped((each.applies_to, each) for each in self.rules)

    def of(self, gang: PodGang) -> tuple[NodeRule, ...]:
        """Those that apply to a gang, the ones of more gangs first."""
        if not self.rules:
            return ()
        scopes: tuple[GangKey | str, ...] = ("", gang.key.namespace, gang.key, gang.controller)
        by_scope = self._by_scope
        return tuple(rule for each in dict.fromkeys(scopes) for rule in by_scope.get(each, []))

    def at(self, now: float) -> "NodeRules":
        """Those whose time is not over. now: seconds since 1970."""
        return replace(self, rules=tuple(each for each in self.rules if each.until > now))

    def on(self, snapshot: Snapshot) -> "NodeRules":
        """With the spare nodes of this state of the cluster."""
        return self if self.spares is None else replace(self, rules=(*self.rules, self.spares(snapshot)))

    def without(self, kind: RuleKind) -> "NodeRules":
        """The same without the rules of a kind."""
        return replace(self, rules=tuple(each for each in self.rules if each.kind is not kind))

    def of_kind(self, kind: RuleKind) -> tuple[NodeRule, ...]:
        """The rules of a kind."""
        return tuple(each for each in self.rules if each.kind is kind)


def join(found: Iterable[NodeRules]) -> NodeRules:
    """The rules of several makers; of several choices of spare nodes the first one counts."""
    found = tuple(found)
    spares = (each.spares for each in found if each.spares is not None)
    return NodeRules(tuple(rule for each in found for rule in each.rules), next(spares, None))


@dataclass(frozen=True)
class GangNodes:
    """The nodes that a gang does not use, by the rules that apply to it."""

    rules: tuple[NodeRule, ...] = ()

    @cached_property
    def hard(self) -> frozenset[str]:
        """Nodes that are out of the question."""
        return self.hard_but()

    def hard_but(self, *kinds: RuleKind) -> frozenset[str]:
        """The same if there were no rules of these kinds."""
        return nodes_of(rule for rule in self.rules if rule.is_hard and rule.kind not in kinds)

    @cached_property
    def last_resort(self) -> tuple[frozenset[str], ...]:
        """The nodes to leave out while others have capacity: those of the first set, else of the next.

        A place beside a stuck pod is worse than on any other node, as it may be long until cards are handed
        out there; nodes that are reserved for others are used before those where pods have failed.
        """
        soft = [rule for rule in self.rules if not rule.is_hard]
        if not soft:
            return ()
        stuck, *others = (
            nodes_of(rule for rule in soft if rule.kind in kinds)
            for kinds in ({RuleKind.STUCK}, _BY_NODE, _FOR_OTHERS, {RuleKind.SPARE})
        )
        steps = steps_of(*others)
        return (*(stuck | step for step in steps), stuck, *steps) if stuck else steps

    def of_kind(self, *kinds: RuleKind) -> tuple[NodeRule, ...]:
        """The rules of these kinds."""
        return tuple(rule for rule in self.rules if rule.kind in kinds)

    def without(self, *kinds: RuleKind) -> "GangNodes":
        """The same without rules of these kinds."""
        return GangNodes(tuple(rule for rule in self.rules if rule.kind not in kinds))

    def for_replacements(self) -> "GangNodes":
        """The same for pods that only replace lost ones: they may use spare nodes, and reserved ones last."""
        rules = self.without(RuleKind.SPARE).rules
        return GangNodes(tuple(replace(r, is_hard=r.is_firm) if r.kind in _FOR_OTHERS else r for r in rules))

    def unused(self, nodes: Set[str], is_comparable: Callable[[str], bool]) -> dict[str, str]:
        """Node -> why a plan for these nodes does without it; at most ten.

        is_comparable: whether a node could have been used in the place of these.
        """
        found = self._by_node(self.rules)
        names = [name for name in sorted(found) if name not in nodes and is_comparable(name)]
        return {name: found[name] for name in names[:MOST_NAMED_IN_PLAN]}

    @property
    def note(self) -> str:
        """The note for a gang that waits, where these nodes may be the reason; "" otherwise."""
        hard = [rule for rule in self.rules if rule.is_hard]
        named = self._by_node(hard)
        return joined(
            *(rule.note for rule in hard if rule.kind in _FOR_OTHERS),
            avoided_sentence(named) if named else "",
            *(rule.note for rule in hard if rule.kind is RuleKind.SPARE),
        )

    def _by_node(self, rules: Iterable[NodeRule]) -> dict[str, str]:
        """Node -> why; of several rules the hard one counts, then the one of more gangs."""
        found: dict[str, str] = {}
        for rule in sorted(rules, key=lambda each: not each.is_hard):
            if rule.kind in _BY_NODE and rule.sentence:
                for name in rule.nodes:
                    found.setdefault(name, rule.sentence)
        return found


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
