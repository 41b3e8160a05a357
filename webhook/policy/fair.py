"""The fair order: among gangs of one priority, accounts that have used less come first.

An account is a namespace, or all namespaces with the same value of a label that the operator names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

HOUR: Final = 3600.0


@dataclass(frozen=True)
class FairOrder:
    """The fair order: how use is measured, and what an account is due.

    half_life_seconds: after which use counts half. maximum_wait_seconds: an account's oldest gang that found
    no capacity for so long comes before all others, once in that time. account_label: the key of the label of
    namespaces whose value makes one account of them, "" for none. weights: by account or shell pattern.
    model_costs: what a second of one GPU counts, by model of the catalogue; 1 where none is named.
    """

    half_life_seconds: float = 6 * HOUR
    maximum_wait_seconds: float = 12 * HOUR
    account_label: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)
    model_costs: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def _patterns(self) -> list[tuple[str, float]]:
        found = [(key, weight) for key, weight in self.weights.items() if any(char in key for char in "*?[")]
        return sorted(found, key=lambda each: (-len(each[0]), each[0]))

    def weight(self, account: str) -> float:
        """The weight of an account: its own entry, else that of the longest matching pattern, else 1."""
        own = self.weights.get(account)
        if own is not None:
            return own
        return next((weight for pattern, weight in self._patterns if fnmatchcase(account, pattern)), 1.0)

    def account(self, namespace: str, labels: Mapping[str, str]) -> str:
        """The account of a namespace with these labels: "key=value", which is no name, or its name."""
        value = labels.get(self.account_label, "") if self.account_label else ""
        return f"{self.account_label}={value}" if value else namespace

    def cost(self, model: str) -> float:
        """What a second of one GPU of that model counts."""
        return self.model_costs.get(model, 1.0)
