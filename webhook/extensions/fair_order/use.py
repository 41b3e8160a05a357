"""Decayed use: GPU-seconds by account and model, of which half is forgotten after each half-life.

Sums are exact whatever the steps: so many GPUs for so long come to the same in one step or in many, and in
all eternity to no more than `window` seconds of them. So no jump of a clock makes them large.
"""

from collections.abc import Mapping
from math import exp2, expm1, log

Use = dict[str, dict[str, float]]
"""Account -> model -> decayed GPU-seconds."""

Rates = Mapping[str, Mapping[str, int]]
"""Account -> model -> GPUs that it has now."""


def window(half_life: float) -> float:
    """The seconds of steady use that decayed use comes to in the end; by it use reads as GPUs on average."""
    return half_life / log(2)


def gained(gpus: float, seconds: float, half_life: float) -> float:
    """What so many GPUs for the last so many seconds come to."""
    return gpus * window(half_life) * -expm1(-max(0.0, seconds) * log(2) / half_life)


def advanced(use: Use, seconds: float, rates: Rates, half_life: float) -> Use:
    """Use after so many seconds with these GPUs; amounts of less than a GPU-second are forgotten."""
    factor = exp2(-max(0.0, seconds) / half_life)
    after: Use = {}
    for account in use.keys() | rates.keys():
        before, now = use.get(account, {}), rates.get(account, {})
        models = {
            model: before.get(model, 0.0) * factor + gained(now.get(model, 0), seconds, half_life)
            for model in before.keys() | now.keys()
        }
        if left := {model: amount for model, amount in models.items() if amount >= 1.0 or now.get(model)}:
            after[account] = left
    return after


def add(use: Use, account: str, model: str, amount: float) -> None:
    """Add GPU-seconds that came to `amount` by now."""
    models = use.setdefault(account, {})
    models[model] = models.get(model, 0.0) + amount
