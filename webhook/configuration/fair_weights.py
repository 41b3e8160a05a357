"""The configuration of the fair order, whose weights and costs name accounts and GPU models."""

import re
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from webhook.configuration.catalogue import model_finder
from webhook.configuration.document import DocumentReader, shown
from webhook.configuration.value_kinds import Schema, ValueKind
from webhook.policy.fair import FairOrder
from webhook.policy.values import GpuModel

LARGEST: Final = 1000.0
"""Weights and costs are between this and its inverse."""
_NAMESPACE_PATTERN: Final = re.compile(r"[-a-z0-9*?\[\]!]{1,100}")
_VALUE_PATTERN: Final = re.compile(r"[-A-Za-z0-9_.*?\[\]!]{1,100}")
_SCHEMA: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": "number", "minimum": 1 / LARGEST, "maximum": LARGEST},
}


def _read_numbers(value: Any, path: str, reader: DocumentReader) -> dict[str, float]:
    return {
        name: _number(each, f"{path}[{name}]", reader)
        for name, each in reader.mapping(value, path, None).items()
    }


def _number(value: Any, path: str, reader: DocumentReader) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or not 1 / LARGEST <= value <= LARGEST:
        reader.fault(path, f"must be a number from {1 / LARGEST:g} to {LARGEST:g}, not {shown(value)}")
        return 1.0
    return float(value)


WEIGHTS: Final = ValueKind("numbers by account or pattern", _read_numbers, _SCHEMA, dict)
COSTS: Final = ValueKind("numbers by model", _read_numbers, _SCHEMA, dict)


def resolved_order(order: FairOrder, models: tuple[GpuModel, ...], reader: DocumentReader) -> FairOrder:
    """The order with the catalogue's names of models; a name that fits nothing is a fault."""
    for key in order.weights:
        _check_account(key, order.account_label, reader)
    find, known = model_finder(models), [model.name for model in models]
    costs: dict[str, float] = {}
    for name, cost in order.model_costs.items():
        model = reader.one_of(find(name) or name, "fairOrder.modelCosts", known, "GPU model")
        if model in costs:
            reader.fault("fairOrder.modelCosts", f"{shown(name)} is the same model as another entry")
        costs[model] = cost
    return replace(order, model_costs=costs)


def _check_account(key: str, label: str, reader: DocumentReader) -> None:
    of_label, equals, rest = key.rpartition("=")
    if equals and not label:
        fault = f"{shown(key)} names a label, but there is no accountLabel"
    elif equals and of_label != label:
        fault = f"{shown(key)} names another label than accountLabel, which is {label}"
    elif not (_VALUE_PATTERN if equals else _NAMESPACE_PATTERN).fullmatch(rest):
        fault = f"{shown(key)} is not a {'label value' if equals else 'namespace name'} or a pattern of such"
    else:
        return
    reader.fault("fairOrder.weights", fault)
