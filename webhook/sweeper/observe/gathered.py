"""Gangs of earlier passes, which are the same for as long as their pods and what their owners say are.

What is wrong with one gang, by a defect of ours, stops no other: it waits, and is told so.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from webhook.kube.objects import Pod
from webhook.sweeper.observe.gangs import GangKey, OwnerSays, PodGang, gang_of

OWN_ERROR: Final = "an error of topogate's own; see the sweeper's log"

logger = logging.getLogger(__name__)


class _Known(NamedTuple):
    gated: Sequence[Pod]
    released: Sequence[Pod]
    said: tuple[object, ...]
    gang: PodGang


class Gathered:
    """Makes gangs as gang_of does; losing what it remembers only costs time."""

    def __init__(self) -> None:
        self._known: dict[GangKey, _Known] = {}
        self._used: dict[GangKey, _Known] = {}
        self._unread: set[GangKey] = set()

    def asking(self, ask_owner: Callable[[GangKey], OwnerSays]) -> Callable[[GangKey], OwnerSays]:
        """Asks the same; a gang about which that fails is not placed in this round."""

        def ask(key: GangKey) -> OwnerSays:
            try:
                return ask_owner(key)
            except Exception:
                logger.exception("owner_failed gang=%s", key)
                self._unread.add(key)
                return OwnerSays()

        return ask

    def gang_of(
        self, key: GangKey, gated: Sequence[Pod], released: Sequence[Pod], owner: OwnerSays
    ) -> PodGang:
        """The gang of these pods; see there."""
        try:
            if key not in self._unread:
                return self._gang_of(key, gated, released, owner)
        except Exception:
            logger.exception("gang_failed gang=%s", key)
        return PodGang(key, tuple(gated), tuple(released), fault=OWN_ERROR)

    def _gang_of(
        self, key: GangKey, gated: Sequence[Pod], released: Sequence[Pod], owner: OwnerSays
    ) -> PodGang:
        known = self._known.get(key)
        said = (owner.size, owner.staged, owner.minimum, owner.is_cut)
        if known is not None and known[:3] == (gated, released, said) and not owner.shape:
            self._used[key] = known
            return known.gang
        gang = gang_of(key, gated, released, owner)
        if not owner.shape and not _asks_again(gang):
            self._used[key] = _Known(gated, released, said, gang)
        return gang

    def end_round(self) -> None:
        """Forget what was not asked for since the last round."""
        self._known, self._used = self._used, {}
        self._unread = set()


def _asks_again(gang: PodGang) -> bool:
    """Whether more is asked about it than its pods and the owner's figures: complaints, or templates."""
    enough = gang.size if gang.minimum is None else gang.minimum
    lacks = enough is not None and len(gang.pods) < enough
    return lacks or len(gang.companions) == len(gang.pods)
