"""Gangs that an extension divides: each may be on all nodes but one of several sets."""

from collections.abc import Iterable

from webhook.sweeper.decide.core_questions import DividedGang, DivideGang, outside


def divided(*closed: Iterable[str]) -> DivideGang:
    """Each gang has a variant for each of these sets, whose nodes it may then not use."""
    return lambda given: DividedGang(given.gang, tuple(outside(frozenset(nodes)) for nodes in closed))
