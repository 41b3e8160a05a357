"""The best place for a gang without the nodes that it passes over, if there is room without them. Pure.

What is best of all nodes and uses none of those is the best without them as well, and what does not fit at
all does not fit without them: so mostly one question is enough.
"""

from webhook.placement import Assignment, NoFit, Options
from webhook.sweeper.decide.asking import ask
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.rounds import Round


def ask_preferring(asked: GangQuestion, now: Round, options: Options) -> Assignment | NoFit:
    """The best place; with cards, beside a pod that nobody can repair only where there is no other."""
    blocked = now.ground.blocked
    if blocked and any(member.pod_class.wants_cards for member in asked.gang.members):
        answer = _ask_around(asked.without(blocked), now, options)
        if not isinstance(answer, NoFit):
            return answer
    return _ask_around(asked, now, options)


def _ask_around(asked: GangQuestion, now: Round, options: Options) -> Assignment | NoFit:
    answer = ask(asked, now.snapshot, options, now.budget)
    if isinstance(answer, NoFit):
        return answer
    used = set(answer.nodes.values())
    for step in now.shunned.steps:
        if not used & step:
            return answer
        other = ask(asked.without(step), now.snapshot, options, now.budget)
        if not isinstance(other, NoFit):
            return other
    return answer
