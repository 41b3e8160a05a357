"""When a gang may begin whose controller makes some pods only once the first ones run.

Only with nodes kept for those that come later: else its first pods would run, and hold GPUs, for nothing,
while others take the rest. So it waits while others hold as much as may be held. Pure.
"""

from webhook.placement import Assignment, NoFit, Options
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.holders import Holders
from webhook.sweeper.decide.preferring import ask_preferring
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.rounds import Round
from webhook.sweeper.observe.gangs import PodGang


def begins(gang: PodGang, now: Round) -> bool:
    """Whether none of its pods has a place, while more are to come once the first ones run."""
    return bool(gang.later) and not now.view.placed_on(gang.workers)


def on_nodes_to_keep(
    gang: PodGang, asked: GangQuestion, answer: Assignment, now: Round, holders: Holders, options: Options
) -> Assignment:
    """A place whose nodes for later pods may be kept, if there is one: none that was held in vain."""
    resting = holders.kept.resting_for(gang.key, now.view)
    if not begins(gang, now) or resting.isdisjoint(plan.kept_nodes(asked, answer)):
        return answer
    other = ask_preferring(asked.without(resting), now, options)
    return answer if isinstance(other, NoFit) else other


def why_not_yet(gang: PodGang, asked: GangQuestion, answer: Assignment, now: Round, holders: Holders) -> str:
    """Why a gang that has room waits all the same, "" if it may begin.

    Once one has waited long, those that come behind it begin no more, or they would use up what may be held.
    """
    if not begins(gang, now):
        return ""
    kept = frozenset(plan.kept_nodes(asked, answer)) - holders.kept.resting_for(gang.key, now.view)
    told = holders.why_not_kept(gang, kept, now.view) or now.none_begins
    if told and not now.none_begins and holders.reservations.has_waited_long(gang):
        now.none_begins = _OTHERS_FIRST
        holders.reservations.leave_share_to_stages()
    return told


_OTHERS_FIRST = "it begins once gangs that have waited longer have nodes kept for their later pods"
