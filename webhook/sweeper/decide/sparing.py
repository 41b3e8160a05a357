"""Places for a gang that leave better ones to the next gangs of a pass, where that costs it nothing."""

import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import Assignment, Budget
from webhook.placement.ahead import sparing
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.health import NodeHealth
from webhook.sweeper.decide.holders import Holders, held_off
from webhook.sweeper.decide.memories import Memories
from webhook.sweeper.decide.question import GangQuestion, is_plain, question
from webhook.sweeper.decide.rounds import Round, Wish
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.settings import Settings

SPARED: Final = 2
"""Gangs of the same pass that a gang spares, where another place is as good for it."""

logger = logging.getLogger(__name__)


class Sparing:
    """Reads what the next gangs of a pass wish, and looks for a place that leaves it to them."""

    def __init__(
        self, settings: Settings, avoided: Avoided, holders: Holders, health: NodeHealth, memories: Memories
    ) -> None:
        self._settings = settings
        self._avoided = avoided
        self._holders = holders
        self._health = health
        self._memories = memories

    def answer(self, asked: GangQuestion, answer: Assignment, now: Round) -> Assignment:
        """The answer, or one as good for the gang that leaves better places to the next ones of this pass."""
        options = self._settings.options
        try:
            wishes = (self._wish(other, waiting, now) for other, waiting in now.next)
            later = [wish for wish, shape in filter(None, wishes) if shape != asked.shape][:SPARED]
            return sparing(asked.gang, answer, later, now.snapshot, options, Budget(options.bound))
        except Exception:  # what is wrong with another gang stops none before it
            logger.exception("sparing_failed gang=%s", asked.gang.name)
            return answer

    def _wish(self, gang: PodGang, waiting: Sequence[Pod], now: Round) -> Wish | None:
        """What one of the next gangs asks, None if it finds no place or the core alone does not decide it.

        Read once in a pass: it only says for whom to spare a place.
        """
        if gang.key not in now.wishes:
            now.wishes[gang.key] = None
            with contextlib.suppress(ValueError):  # it will be told in its turn
                holding = self._holders.before(gang, waiting, now.view, now.rank)
                shunned = self._health.of(gang, now.spares).hard | now.unlabelled
                avoid = self._avoided.of(gang.key, gang.maker) | held_off(holding) | shunned
                if not self._memories.finds_nothing(gang, avoid, now):
                    wish = asked_in(now, gang, waiting, avoid)
                    now.wishes[gang.key] = (wish.gang, wish.shape) if is_plain(wish) else None
        return now.wishes[gang.key]


def asked_in(now: Round, gang: PodGang, some: Sequence[Pod], avoid: frozenset[str]) -> GangQuestion:
    """What is asked for some pods of a gang in this pass. Raises PlacementError, see question."""
    view = now.view
    return question(gang, some, view.placed_on(gang.pods), avoid, view.class_of, view.is_ours, view.near)
