"""What people are told of gangs that wait: why, in a sentence and in one word. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from webhook.kube.events import shortened
from webhook.sweeper.decide.orders import Cause, Done, Orders
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.text import joined, printable

REASON_BYTES: Final = 4096
"""The most that is kept and written of a reason: what it quotes is the author's choice."""


class GangTold(NamedTuple):
    """What was said of a gang last. cause: None of one that has its place, INCOMPLETE of one that settles."""

    reason: str
    cause: Cause | None = None


ToldOf = Mapping[GangKey, GangTold]


def told_after(told: ToldOf, news: Orders | Done) -> ToldOf:
    """With what has been decided, or done; the very same where there is no news."""
    placed = news.placed if isinstance(news, Done) else ()
    if not news.verdicts and not placed:
        return told
    found = dict(told)
    for verdict in news.verdicts:
        found[verdict.gang.key] = GangTold(
            reason_of(verdict.gang, verdict.reason, verdict.cause), verdict.cause
        )
    for plan in placed:
        found[plan.gang.key] = GangTold(reason_of(plan.gang))
    return found


def causes_of(told: ToldOf) -> Mapping[GangKey, Cause]:
    """Why gangs wait, in one word."""
    return {key: each.cause for key, each in told.items() if each.cause is not None}


def reason_of(gang: PodGang, reason: str = "", cause: Cause | None = None) -> str:
    """The sentence that is written of a gang. reason: why it waits, "" where it has its place."""
    problems = () if cause is Cause.INCOMPLETE else gang.problems
    return shortened(printable(joined(reason, *problems)), REASON_BYTES)
