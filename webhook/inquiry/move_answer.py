"""What moving gangs would do for a gang that waits, also where that is switched off."""

from collections.abc import Callable, Iterator

from webhook.durations import duration_text
from webhook.placement import Budget
from webhook.sweeper.decide.attempt import Attempt, PassState
from webhook.sweeper.decide.core_questions import QUESTIONS
from webhook.sweeper.decide.willing_gangs import TOO_MANY_AT_ONCE, RunningGang, look_for_moves
from webhook.text import counted, few


def what_moves_would_do(
    attempt: Attempt, state: PassState, named: Callable[[str], str] = str
) -> Iterator[str]:
    """Sentences on the gangs whose move would help one that waits, none if no move does.

    attempt: without a place. named: how to print a gang that the reader may not know.
    """
    options, limits = state.settings.options, state.settings.moves
    questions = [each.asked for each in attempt.variants]
    found = look_for_moves(attempt.gang, questions, state, Budget(QUESTIONS * options.bound))
    gangs = found.gangs if found.moves is None else [gang for gang, _ in found.moves.places]
    if not gangs:
        return
    pods = counted(sum(len(each.unit.pods) for each in gangs), "pod")
    shown = few([f"{named(str(each.key))}{_why_not(each)}" for each in gangs], unit="gang")
    yield f"It would fit if {counted(len(gangs), 'gang')}, {pods}, moved: {shown}."
    if found.are_protected:
        yield f"{TOO_MANY_AT_ONCE}."
    if not limits.is_on:
        yield "No gang is moved in this cluster: its configuration has no makeRoom."
    elif found.moves is not None:
        after = duration_text(limits.after_seconds)
        yield f"They are moved once it has waited for {after} (makeRoom.after)."


def _why_not(gang: RunningGang) -> str:
    return f" ({gang.why_not})" if gang.why_not else ""
