"""What is written down of use, so that the next leader goes on from it: the text of one ConfigMap's key.

It is bounded: accounts that have used least are left out first.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

from webhook.extensions.fair_order.use import Rates, Use
from webhook.policy.fair import FairOrder

NAME: Final = "topogate-use"
KEY: Final = "use.json"
MOST_BYTES: Final = 500_000
"""etcd takes 1.5 MB for an object."""

MOST_AMOUNT: Final = 1e15
"""GPU-seconds; a million GPUs in use for thirty years."""

_VERSION: Final = 1


class RecordError(ValueError):
    """What was written down cannot be used; the message says why."""


@dataclass(frozen=True)
class Record:
    """Use as of some time (seconds since 1970), GPUs that were had then, and by which policy it was counted.

    rates and fair are for whoever reads it: nothing is decided by them.
    """

    at: float
    use: Use = field(default_factory=dict)
    rates: Rates = field(default_factory=dict)
    fair: FairOrder = field(default_factory=FairOrder)


def encode(use: Use, at: float, fair: FairOrder, rates: Rates | None = None) -> str:
    """The text, of MOST_BYTES at most. rates: the GPUs that accounts have at that time."""
    totals = {account: sum(models.values()) for account, models in use.items()}
    accounts: dict[str, Any] = {}
    left = MOST_BYTES - 1000 - len(json.dumps(fair.model_costs))
    for account in sorted(totals, key=lambda each: (-totals[each], each)):
        amounts = {model: round(amount, 1) for model, amount in sorted(use[account].items())}
        entry: dict[str, Any] = {"weight": fair.weight(account), "gpuSeconds": amounts}
        if now := (rates or {}).get(account):
            entry["gpus"] = dict(sorted(now.items()))
        left -= len(json.dumps({account: entry}))
        if left < 0:
            break
        accounts[account] = entry
    document = {
        "version": _VERSION,
        "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        "halfLifeSeconds": fair.half_life_seconds,
        "accountLabel": fair.account_label,
        "modelCosts": dict(fair.model_costs),
        "accounts": accounts,
    }
    return json.dumps(document)


def decode(text: str) -> Record:
    """The record of a text. Raises RecordError."""
    try:
        document = json.loads(text)
        if document["version"] != _VERSION:
            raise RecordError(f"it is of version {document['version']!r}, not {_VERSION}")
        accounts = document["accounts"]
        use = {account: _amounts(each["gpuSeconds"]) for account, each in accounts.items()}
        weights = {account: _amount(each["weight"]) for account, each in accounts.items()}
        if not all(weights.values()):
            raise RecordError("a weight is 0")
        fair = FairOrder(
            half_life_seconds=max(1.0, _amount(document["halfLifeSeconds"])),
            account_label=str(document.get("accountLabel", "")),
            weights=weights,
            model_costs=_amounts(document.get("modelCosts", {})),
        )
        now = {account: _amounts(each["gpus"]) for account, each in accounts.items() if "gpus" in each}
        rates = {account: {model: int(gpus) for model, gpus in each.items()} for account, each in now.items()}
        return Record(datetime.fromisoformat(document["at"]).timestamp(), use, rates, fair)
    except RecordError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise RecordError(f"{type(error).__name__}: {error}") from None


def _amounts(values: Mapping[str, Any]) -> dict[str, float]:
    return {model: _amount(value) for model, value in values.items()}


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise RecordError(f"{value!r} is no amount")
    if not 0 <= value <= MOST_AMOUNT:
        raise RecordError(f"{value!r} is no amount that anybody can have used")
    return float(value)
