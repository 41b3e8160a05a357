"""Where all waiting pods of a gang would be placed, including CPU-only pods, by the sweeper's own steps."""

from dataclasses import dataclass, replace

from msgspec import structs

from webhook.placement import Assignment, Gang, NoFit, PlacementError, Snapshot, check
from webhook.placement.model import Placed
from webhook.sweeper.decide.attempt import Attempt, GangPlaced, GangWaits, PassState
from webhook.sweeper.decide.gang_question import GangQuestion
from webhook.sweeper.decide.orders import Beside, Cause, NewPlan
from webhook.sweeper.decide.placement_pass import answer_for
from webhook.sweeper.observe.gang_requests import preferred_of
from webhook.sweeper.observe.gangs import PodGang
from webhook.text import counted


@dataclass(frozen=True)
class GangAnswer:
    """A question about a gang and its answer.

    names: of its members, as users know them. attempt: without a place, None where the core was not asked.
    """

    asked: GangQuestion
    found: Assignment | NoFit
    beside: Beside
    names: dict[str, str]
    plan: NewPlan | None = None
    attempt: Attempt | None = None

    @property
    def sentence(self) -> str:
        """The answer in a sentence without a full stop."""
        if isinstance(self.found, NoFit):
            return self.found.sentence
        unproven = "" if self.found.proven else " (the best found; not proven to be the best there is)"
        near = sum(bool(node) for node in self.beside.nodes.values())
        also = f", {near} CPU-only near them" if near else ""
        chosen = len(self.beside.free)
        free = f", {chosen} CPU-only on nodes of kube-scheduler's choice" if chosen else ""
        return f"{counted(len(self.found.placed), 'pod')} on {self.found.spread}{also}{free}{unproven}"

    @property
    def placed(self) -> tuple[Placed, ...]:
        """The node of each placed pod, by the names of users; () if there is no place."""
        if isinstance(self.found, NoFit):
            return ()
        steps = (self.found, *(answer for _, answer in self.beside.steps))
        return tuple(
            replace(each, member=self.names[each.member]) for answer in steps for each in answer.placed
        )

    def faults(self, snapshot: Snapshot) -> list[str]:
        """The rules of the core that the answer breaks, normally none."""
        if isinstance(self.found, NoFit):
            return []
        found = check(self.found, self.asked.gang, snapshot)
        snapshot = snapshot.assume(self.found, self.asked.gang)
        for asked, answer in self.beside.steps:
            found = [*found, *check(answer, asked.gang, snapshot)]
            snapshot = snapshot.assume(answer, asked.gang)
        return list(found)


def ask_gang(gang: PodGang, state: PassState, name: str = "") -> GangAnswer:
    """The sweeper's answer for the waiting pods of a gang, and for those that are not created yet.

    name: how the answer calls the gang. Raises PlacementError for an invalid request.
    """
    outcome = answer_for(gang, state)
    names = {pod.metadata.uid: pod.metadata.name for pod in (*gang.pods, *gang.later)}
    if isinstance(outcome, GangPlaced):
        plan = outcome.plan
        return GangAnswer(plan.asked, plan.answer, plan.beside, names, plan)
    assert isinstance(outcome, GangWaits), "nothing is known of the gang"
    sentence = outcome.sentence.replace(str(gang.key), name or str(gang.key), 1)
    if outcome.attempt is None and outcome.cause is Cause.INVALID_REQUEST:
        raise PlacementError(sentence)
    if outcome.attempt is None:
        return GangAnswer(GangQuestion(Gang(name, ()), {}), NoFit(sentence, 0, 0, 0, {}), Beside(), {})
    attempt = outcome.attempt
    assert isinstance(attempt.answer, NoFit)
    found = replace(attempt.answer, sentence=sentence)
    return GangAnswer(attempt.asked, found, Beside(), {}, attempt=attempt)


def with_levels(gang: PodGang, required: str | None, preferred: str | None = None) -> PodGang:
    """The gang with other levels, for itself and for its pod sets; None: unchanged.

    preferred: several, separated by commas. Raises PlacementError for one that is missing or named twice.
    """
    levels = preferred_of(preferred)
    parts = tuple(
        replace(
            part,
            required_level=required or part.required_level,
            preferred_levels=levels or part.preferred_levels,
        )
        for part in gang.parts
    )
    if required and all(part.request is None and not part.slices for part in parts):
        parts = ()  # their requests are now the same, and are one
    return replace(
        gang,
        required_level=required or gang.required_level,
        preferred_levels=levels or gang.preferred_levels,
        parts=parts,
    )


def resized(gang: PodGang, size: int) -> PodGang:
    """The gang with this many waiting members, CPU-only pods not counted: new ones are copies of the last."""
    members = [pod for pod in (*gang.gated, *gang.later) if pod.metadata.uid not in gang.cpu_pods]
    last, chosen = members[-1], {pod.metadata.uid for pod in members[:size]} | gang.cpu_pods
    ranks, highest = dict(gang.ranks), max(gang.ranks.values(), default=0)
    more = []
    for number in range(len(members), size):
        name, uid = f"{last.metadata.name}+{number}", f"{last.metadata.uid}+{number}"
        more.append(structs.replace(last, metadata=structs.replace(last.metadata, name=name, uid=uid)))
        if ranks:
            ranks[uid] = highest + 1 + number - len(members)
    uids = frozenset(pod.metadata.uid for pod in more)
    parts = (
        replace(part, uids=part.uids | uids) if last.metadata.uid in part.uids else part
        for part in gang.parts
    )
    return replace(
        gang,
        gated=(*(pod for pod in gang.gated if pod.metadata.uid in chosen), *more),
        later=tuple(pod for pod in gang.later if pod.metadata.uid in chosen),
        ranks=ranks,
        size=None,
        minimum=None,
        parts=tuple(parts),
    )
