"""The rules of a pod class on other pods, and the pod counts that the rules compare. Pure.

They follow kube-scheduler's plugins InterPodAffinity and PodTopologySpread exactly.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.kube import objects
from webhook.scheduling.label_domains import LabelDomains
from webhook.scheduling.podrules import PodRules, SpreadRule


@dataclass(eq=False, slots=True)
class Tally:
    """Pod counts by domain of a label. classes: the gang's classes that count. nodes: those that count, None
    for all.

    base: the counts of running pods; for topology spread it has all domains that count. lowest: the smallest
    count of any domain.
    """

    key: str
    base: Mapping[str, int]
    classes: frozenset[int]
    nodes: frozenset[str] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    lowest: int = 0
    _levels: dict[int, int] = field(default_factory=dict)
    _of_base: Counter[int] | None = None

    def reset(self) -> None:
        """Remove the gang's pods from the counts."""
        if self._of_base is None:
            self._of_base = Counter(self.base.values())
        self.counts = dict(self.base)
        self._levels = dict(self._of_base)
        self.lowest = min(self._levels, default=0)

    def add(self, value: str, more: int = 1) -> None:
        """Add pods in a domain."""
        levels, count = self._levels, self.counts.get(value)
        if count is not None:
            levels[count] -= 1
        count = (count or 0) + more
        self.counts[value] = count
        levels[count] = levels.get(count, 0) + 1
        while not levels.get(self.lowest) and self.lowest < count:
            self.lowest += 1


@dataclass(frozen=True)
class SpreadOfClass:
    """A spread rule of a class. counts_itself: 1 if it counts the pods of the class, else 0."""

    rule: SpreadRule
    tally: Tally
    counts_itself: int
    domains: int
    on_node: Tally | None = None

    @property
    def is_floored(self) -> bool:
        """Whether the fullest domain is compared with the emptiest one, and not with zero."""
        return self.domains >= self.rule.min_domains


@dataclass(frozen=True)
class RuledClass:
    """A class of pods that all rules treat equally."""

    pod: objects.Pod
    rules: PodRules
    apart: tuple[tuple[Tally, str], ...]
    near: tuple[Tally, ...]
    begins: bool
    spread: tuple[SpreadOfClass, ...]

    @property
    def names(self) -> set[str]:
        """The names of its rules."""
        return {
            *(f"pod anti-affinity over {key}" for _, key in self.apart),
            *(f"topology spread over {each.rule.key}" for each in self.spread),
            *(f"pod affinity over {tally.key}" for tally in self.near),
        }


class RuleRefusal(NamedTuple):
    """The rule that refuses a pod on a node, its topology key, and the domain."""

    rule: str
    key: str
    value: str

    def __str__(self) -> str:
        """The name of the rule."""
        return f"{self.rule} over {self.key}"


class RuleGate:
    """A pod class and equivalent nodes: how many of its pods are accepted there now, and why no more."""

    def __init__(
        self, kind: RuledClass, number: int, node: str, domains: LabelDomains, inert: frozenset[Tally]
    ) -> None:
        """number: the class number in tallies. node: any of the nodes. inert: tallies that refuse no pod."""
        self.refused: RuleRefusal | None = None
        """The refusal found by the last check; None if some pods are accepted."""
        self._begins, self._near = kind.begins, kind.near
        self._forbidden: RuleRefusal | None = None
        self._apart: list[tuple[Tally, str, bool, RuleRefusal]] = []
        self._spread: list[tuple[Tally, str, int, int, bool, RuleRefusal]] = []
        self._wanted: list[tuple[Tally, str, RuleRefusal]] = []
        for tally, key in kind.apart:
            if (value := domains.value(node, key)) is not None:
                counts = number in tally.classes
                self._apart.append((tally, value, counts, RuleRefusal("pod anti-affinity", key, value)))
        for each in kind.spread:
            self._add_spread(each, node, domains, inert)
        for tally in kind.near:
            value = domains.value(node, tally.key)
            refusal = RuleRefusal("pod affinity", tally.key, value or "")
            if value is None:
                self._forbidden = self._forbidden or refusal
            else:
                self._wanted.append((tally, value, refusal))

    def _add_spread(
        self, each: SpreadOfClass, node: str, domains: LabelDomains, inert: frozenset[Tally]
    ) -> None:
        rule, own = each.rule, each.counts_itself
        value = domains.value(node, rule.key)
        refusal = RuleRefusal("topology spread", rule.key, value or "")
        if value is None:
            self._forbidden = self._forbidden or refusal
            return
        if each.tally not in inert:
            self._spread.append((each.tally, value, rule.max_skew, own, each.is_floored, refusal))
        if each.on_node is not None and each.on_node not in inert:
            of_node = RuleRefusal("topology spread", rule.key, node)
            self._spread.append((each.on_node, node, rule.max_skew, own, False, of_node))

    def width(self, most: int) -> int:  # branches: runs for every node, where calls are slow  # noqa: C901
        """How many pods of the class are surely accepted one by one, at most `most`; sets `refused`."""
        self.refused = self._forbidden
        if self._forbidden is not None:
            return 0
        for tally, value, counts, refusal in self._apart:
            if tally.counts.get(value):
                self.refused = refusal
                return 0
            if counts:
                most = 1
        for tally, value, skew, own, is_floored, refusal in self._spread:
            left = skew - tally.counts.get(value, 0)
            if is_floored:
                left += tally.lowest
            if left < own:
                self.refused = refusal
                return 0
            if own and left < most:
                most = left
        for tally, value, refusal in self._wanted:
            if not tally.counts.get(value):
                if self._begins and not any(any(each.counts.values()) for each in self._near):
                    return 1
                self.refused = refusal
                return 0
        return most
