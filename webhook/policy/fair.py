"""fairOrder of the policy file: among gangs of one priority, accounts that have used less come first.

An account is a namespace, or all namespaces with the same value of a label that the operator names.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from math import isfinite
from typing import Any, Final

from webhook.policy.document import ABSENT, DocumentReader, shown
from webhook.policy.reference import known_fields

HOUR: Final = 3600.0
LONGEST_SECONDS: Final = 365 * 24 * HOUR
LARGEST: Final = 1000.0
"""Weights and costs are between this and its inverse."""

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": HOUR, "d": 24 * HOUR}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd])")
_NAMESPACE_PATTERN: Final = re.compile(r"[-a-z0-9*?\[\]!]{1,100}")
_VALUE_PATTERN: Final = re.compile(r"[-A-Za-z0-9_.*?\[\]!]{1,100}")


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


def read_fair_order(
    value: Any,
    reader: DocumentReader,
    label_key: re.Pattern[str],
    find_model: Callable[[str], str | None],
    models: list[str],
) -> FairOrder | None:
    """The section, None if it is absent. find_model: the catalogue's name of a model, in any spelling."""
    if value is ABSENT:
        return None
    path = "fairOrder"
    fields = reader.mapping(value, path, known_fields(f"{path}."))
    usual = FairOrder()
    half_life, wait = usual.half_life_seconds, usual.maximum_wait_seconds
    label = fields.get("accountLabel", "")
    if label != "":
        label = reader.text(label, f"{path}.accountLabel", label_key, "label key")
    costs: dict[str, float] = {}
    for name, cost in reader.mapping(fields.get("modelCosts", ABSENT), f"{path}.modelCosts", None).items():
        model = reader.one_of(find_model(name) or name, f"{path}.modelCosts", models, "GPU model")
        if model in costs:
            reader.fault(f"{path}.modelCosts", f"{shown(name)} is the same model as another entry")
        costs[model] = _number(cost, f"{path}.modelCosts[{name}]", reader)
    return FairOrder(
        _seconds(fields.get("halfLife", ABSENT), f"{path}.halfLife", half_life, reader),
        _seconds(fields.get("maximumWait", ABSENT), f"{path}.maximumWait", wait, reader),
        label,
        _weights(fields.get("weights", ABSENT), f"{path}.weights", label, reader),
        costs,
    )


def _weights(value: Any, path: str, label: str, reader: DocumentReader) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, weight in reader.mapping(value, path, None).items():
        of_label, equals, rest = key.rpartition("=")
        if equals and not label:
            reader.fault(path, f"{shown(key)} names a label, but there is no accountLabel")
        elif equals and of_label != label:
            reader.fault(path, f"{shown(key)} names another label than accountLabel, which is {label}")
        elif not (_VALUE_PATTERN if equals else _NAMESPACE_PATTERN).fullmatch(rest):
            what = "label value" if equals else "namespace name"
            reader.fault(path, f"{shown(key)} is not a {what} or a pattern of such")
        found[key] = _number(weight, f"{path}[{key}]", reader)
    return found


def _number(value: Any, path: str, reader: DocumentReader) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or not 1 / LARGEST <= value <= LARGEST:
        reader.fault(path, f"must be a number from {1 / LARGEST:g} to {LARGEST:g}, not {shown(value)}")
        return 1.0
    return float(value)


def _seconds(value: Any, path: str, default: float, reader: DocumentReader) -> float:
    if value is ABSENT:
        return default
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 1.0 <= seconds <= LONGEST_SECONDS:
        reader.fault(path, f"must be a time from 1s to 365d, as 90m, 6h or 2d, not {shown(value)}")
        return default
    return seconds
