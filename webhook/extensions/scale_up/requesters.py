"""Which gangs ask an autoscaler for nodes, and whose requests stay though they ask for none. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.extensions.scale_up.attempts import owner_uid
from webhook.extensions.scale_up.provisioning import REQUESTS
from webhook.extensions.scale_up.wants import Want, members, want_of
from webhook.kube import placements
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.orders import NO_HURRY, Cause
from webhook.sweeper.extension import PassEnd
from webhook.sweeper.observe.gangs import GangKey, PodGang

_ASKING: Final = frozenset({Cause.NO_CAPACITY, Cause.UNDECIDED})
"""Causes for which more nodes may help."""
_PASSING: Final = frozenset({Cause.RESERVED, Cause.CHANGED, Cause.INCOMPLETE, Cause.REFUSED, Cause.DEFECT})
"""Causes that may be over in the next pass, so that what was asked for is not withdrawn."""

KnownWant = tuple[frozenset[tuple[str, str]], Want]
"""The pods (uid and resourceVersion) of a gang, and what it wants for them."""


@dataclass(frozen=True)
class Asking:
    """Who asks in a pass.

    since: when each gang that waits for nodes was first found to (Moment.seconds). wants: of gangs that have
    waited long enough, the most urgent first. early: gangs that have not. behind: those that wait for others
    of their namespace. due_seconds: when the next one has waited long enough.
    """

    since: Mapping[GangKey, float]
    wants: Mapping[GangKey, KnownWant]
    early: frozenset[GangKey]
    behind: frozenset[GangKey]
    due_seconds: float

    @property
    def wanted(self) -> list[Want]:
        """What is asked for, the most urgent first."""
        return [want for _, want in self.wants.values()]


def who_asks(given: PassEnd, since: Mapping[GangKey, float], known: Mapping[GangKey, KnownWant]) -> Asking:
    """The gangs that ask. since, known: of the pass before, see Asking."""
    view, choices = given.view, given.settings.scale_up
    waiting = [gang for gang in given.gangs if given.causes.get(gang.key) in _ASKING]
    since = {gang.key: since.get(gang.key, view.now.seconds) for gang in waiting}
    there = [gang for gang in waiting if gang.key.placement_key in view.placements]
    left = {gang.key: since[gang.key] + choices.after_seconds - view.now.seconds for gang in there}
    early = {key: seconds for key, seconds in left.items() if seconds > 0}
    wants, behind = _bounded([gang for gang in there if gang.key not in early], given, known)
    return Asking(since, wants, frozenset(early), behind, min(early.values(), default=NO_HURRY))


def _bounded(
    gangs: Sequence[PodGang], given: PassEnd, known: Mapping[GangKey, KnownWant]
) -> tuple[dict[GangKey, KnownWant], frozenset[GangKey]]:
    """What these want, and those that wait for others of their namespace.

    Of gangs without a request no more are looked at than their namespace may have requests: one of many
    thousand gangs must not hold up a pass.
    """
    view, choices = given.view, given.settings.scale_up
    asked_for = {owner_uid(each) for each in (REQUESTS.of(view) or {}).values()}
    wants: dict[GangKey, KnownWant] = {}
    behind: set[GangKey] = set()
    first: Counter[str] = Counter()
    for gang in gangs:
        owner, pods = view.placements[gang.key.placement_key], members(gang, view)
        if owner.metadata.uid not in asked_for and len(pods) <= choices.pods:
            first[gang.key.namespace] += 1
            if first[gang.key.namespace] > choices.requests:
                behind.add(gang.key)
                continue
        if pods:
            wants[gang.key] = _want(gang, pods, owner, known.get(gang.key))
    return wants, frozenset(behind)


def _want(gang: PodGang, pods: Sequence[Pod], owner: Placement, known: KnownWant | None) -> KnownWant:
    """The same as before where nothing of the pods has changed."""
    of = frozenset((pod.metadata.uid or pod.metadata.name, pod.metadata.resource_version) for pod in pods)
    if known is not None and known[0] == of and known[1].owner.metadata.uid == owner.metadata.uid:
        return known
    return of, want_of(gang, pods, owner)


def still_wanted(given: PassEnd, early: frozenset[GangKey]) -> set[str]:
    """uids of Placements whose requests stay although their gangs ask for none: these wait for a moment."""
    passing = {
        gang.key.placement_key
        for gang in given.gangs
        if gang.key not in given.causes or given.causes[gang.key] in _PASSING or gang.key in early
    }
    return {each.metadata.uid for name, each in given.view.placements.items() if name in passing}


def placed(found: Mapping[str, Placement]) -> set[str]:
    """uids of the Placements of gangs that are on their way to nodes."""
    under_way = (placements.RELEASING, placements.RELEASED)
    return {each.metadata.uid for each in found.values() if each.status.state in under_way}
