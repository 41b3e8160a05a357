"""What pods of one kind demand of the pods near them, and the counts that they demand it of. Pure.

Followed to the letter: kube-scheduler's plugins InterPodAffinity and PodTopologySpread.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.kube import objects
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.scheduling.podrules import PodRules, SpreadRule


@dataclass(eq=False)
class Tally:
    """Pods in the domains of a label. kinds: of the gang, those that count; nodes: that count, None for all.

    base: what runs; of topology spread all domains that count are in it.
    """

    key: str
    base: Mapping[str, int]
    kinds: frozenset[int]
    nodes: frozenset[str] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    _levels: dict[int, int] = field(default_factory=dict)
    _lowest: int = 0

    def reset(self) -> None:
        """Nobody of the gang has a node."""
        self.counts = dict(self.base)
        self._levels = Counter(self.counts.values())
        self._lowest = min(self._levels, default=0)

    def add(self, value: str) -> None:
        """One more in a domain."""
        count = self.counts.get(value)
        if count is not None:
            self._levels[count] -= 1
        count = (count or 0) + 1
        self.counts[value] = count
        self._levels[count] = self._levels.get(count, 0) + 1
        while not self._levels.get(self._lowest) and self._lowest < count:
            self._lowest += 1

    @property
    def lowest(self) -> int:
        """Of the domain that holds the fewest."""
        return self._lowest


@dataclass(frozen=True)
class SpreadOfKind:
    """A spread rule of a kind. counts_itself: 1 if its own pods are counted, else 0."""

    rule: SpreadRule
    tally: Tally
    counts_itself: int
    domains: int
    on_node: Tally | None = None

    @property
    def floor(self) -> int:
        """What the fullest domain is compared with."""
        return 0 if self.domains < self.rule.min_domains else self.tally.lowest


@dataclass(frozen=True)
class RuledKind:
    """Pods that are alike to all these rules."""

    pod: objects.Pod
    rules: PodRules
    apart: tuple[tuple[Tally, str], ...]
    near: tuple[Tally, ...]
    begins: bool
    spread: tuple[SpreadOfKind, ...]

    @property
    def names(self) -> set[str]:
        """What its rules are called."""
        return {
            *(f"pod anti-affinity over {key}" for _, key in self.apart),
            *(f"topology spread over {each.rule.key}" for each in self.spread),
            *(f"pod affinity over {tally.key}" for tally in self.near),
        }

    def refusal(self, node: str, there: Neighbourhood) -> "RuleRefusal | None":
        """Why a pod of the kind may not go to a node now, None if it may."""
        for tally, key in self.apart:
            value = there.value(node, key)
            if value is not None and tally.counts.get(value):
                return RuleRefusal("pod anti-affinity", key, value)
        for each in self.spread:
            value = there.value(node, each.rule.key)
            if value is None:
                return RuleRefusal("topology spread", each.rule.key, "")
            if each.tally.counts.get(value, 0) + each.counts_itself - each.floor > each.rule.max_skew:
                return RuleRefusal("topology spread", each.rule.key, value)
            if each.on_node is not None:
                own = each.on_node.counts.get(node, 0)
                if own + each.counts_itself > each.rule.max_skew:
                    return RuleRefusal("topology spread", each.rule.key, node)
        if not self.near:
            return None
        for tally in self.near:
            if there.value(node, tally.key) is None:
                return RuleRefusal("pod affinity", tally.key, "")
        for tally in self.near:
            value = there.value(node, tally.key)
            if not tally.counts.get(value or ""):
                begins = self.begins and not any(any(each.counts.values()) for each in self.near)
                return None if begins else RuleRefusal("pod affinity", tally.key, value or "")
        return None


class RuleRefusal(NamedTuple):
    """The rule that keeps a pod from a node, the label that it is over, and the domain."""

    rule: str
    key: str
    value: str

    def __str__(self) -> str:
        """What it is called."""
        return f"{self.rule} over {self.key}"
