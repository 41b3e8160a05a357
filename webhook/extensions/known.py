"""The extensions that there are, and what switches each on. An extension is imported where it is loaded."""

from collections.abc import Iterator, Sequence
from typing import Final

from webhook.policy.values import Policy
from webhook.sweeper.extension import Extension, GangsInput, Switch
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


def _has_fair_order(settings: Settings, policy: Policy | None) -> bool:
    return policy is not None and policy.fair_order is not None


def _fair_order() -> Extension:
    from webhook.extensions.fair_order.extension import FAIR_ORDER

    return FAIR_ORDER


def _native_gangs() -> Extension:
    from webhook.extensions.native_gangs.extension import NATIVE_GANGS

    return NATIVE_GANGS


def _scale_up() -> Extension:
    from webhook.extensions.scale_up.scale_up import SCALE_UP

    return SCALE_UP


SWITCHES: Final = (
    Switch(_has_fair_order, _fair_order),
    Switch(lambda *_: True, _native_gangs),
    Switch(lambda settings, _: settings.scale_up.is_on, _scale_up),
)


def completed(gangs: Sequence[PodGang], view: View, settings: Settings) -> Sequence[PodGang]:
    """The gangs with what extensions know of them, for questions that a person asks."""
    for each in all_extensions():
        if each.complete_gangs is not None:
            gangs = each.complete_gangs(GangsInput(gangs, view, settings))
    return gangs


def all_extensions() -> Iterator[Extension]:
    """Every extension, whether it is on or not: for questions that a person asks."""
    return (each.load() for each in SWITCHES)
