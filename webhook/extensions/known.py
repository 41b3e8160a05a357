"""The extensions that there are, and what switches each on. An extension is imported where it is loaded."""

from collections.abc import Iterator
from typing import Final

from webhook.policy.values import Policy
from webhook.sweeper.extension import Extension, Switch
from webhook.sweeper.settings import Settings


def _has_fair_order(settings: Settings, policy: Policy | None) -> bool:
    return policy is not None and policy.fair_order is not None


def _fair_order() -> Extension:
    from webhook.extensions.fair_order.extension import FAIR_ORDER

    return FAIR_ORDER


SWITCHES: Final = (Switch(_has_fair_order, _fair_order),)


def all_extensions() -> Iterator[Extension]:
    """Every extension, whether it is on or not: for questions that a person asks."""
    return (each.load() for each in SWITCHES)
