"""What gangs are told whose pods wait for turns on nodes with cards, as releases there are in doubt. Pure."""

from collections.abc import Callable, Iterable, Mapping

from webhook.kube.objects import Pod
from webhook.sweeper.decide.turns import AwaitedTurn
from webhook.sweeper.observe.gangs import GangKey


def told_of_turns(
    awaited: Iterable[AwaitedTurn], gang_of: Callable[[Pod], GangKey]
) -> Mapping[GangKey, tuple[Pod, str]]:
    """Of each gang the first of its pods that wait, in a sentence that counts the others."""
    found: dict[GangKey, list[AwaitedTurn]] = {}
    for each in awaited:
        found.setdefault(gang_of(each.pod), []).append(each)
    return {gang: (turns[0].pod, _told(turns)) for gang, turns in found.items()}


def _told(turns: list[AwaitedTurn]) -> str:
    first, others = turns[0], len(turns) - 1
    mine, its = first.pod.metadata, first.other.metadata
    # Who may read this namespace may know nothing of another's pods.
    whose = f"pod {its.name}" if its.namespace == mine.namespace else "a pod of another namespace"
    more = f"; likewise {others} more of its pods" if others else ""
    if first.is_known:
        why = f"a release of {whose} there got no clear answer, and may still arrive"
    else:
        why = f"{whose} comes before it, and what the leader before may have sent for that may still arrive"
    until = f"until {first.until:%H:%M:%S} UTC"
    return f"pod {mine.name} waits for its turn at the cards of {first.node}: {why} {until}{more}"
