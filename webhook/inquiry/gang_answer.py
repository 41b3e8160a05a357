"""Where all waiting pods of a gang would be placed, including CPU-only pods: the sweeper's own question.

Waiting gangs and reservations are ignored: the answer is for this gang alone.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from webhook.extensions.known import variants
from webhook.kube.objects import Pod
from webhook.placement import Assignment, Gang, NoFit, Options, Snapshot, check
from webhook.placement.model import Placed
from webhook.scheduling.impossible_requests import impossible
from webhook.sweeper.decide.asking import Variant, ask, beside, fewer, needed
from webhook.sweeper.decide.gang_question import GangQuestion, question
from webhook.sweeper.decide.orders import Beside
from webhook.sweeper.observe.gang_requests import preferred_of
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings
from webhook.text import counted, joined

Change = Callable[[Gang], Gang]
"""What to change in the question, for the gang and for each pod set."""


@dataclass(frozen=True)
class GangAnswer:
    """A question about a gang and its answer; names: of its members, as users know them."""

    asked: GangQuestion
    found: Assignment | NoFit
    beside: Beside
    names: dict[str, str]

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


def ask_gang(
    gang: PodGang,
    view: View,
    snapshot: Snapshot,
    options: Options,
    *,
    name: str = "",
    change: Change = lambda asked: asked,
) -> GangAnswer:
    """Ask for places for all pods of a gang that have none, and for those that are not created yet.

    name: how the answer calls the gang. Raises PlacementError for a contradictory topology request.
    """
    waiting = [pod for pod in gang.gated if pod.metadata.uid not in view.planned]
    workers = [pod for pod in waiting if pod.metadata.uid not in gang.cpu_pods]
    places = view.placed_on(gang.pods)

    def one(each: Variant, some: Sequence[Pod]) -> tuple[GangQuestion, Assignment | NoFit]:
        asked = question(each.gang, some, places, each.closed, view.class_of, view.is_ours, view.near)
        asked = replace(asked, gang=renamed(asked.gang), parts=tuple(map(renamed, asked.parts)))
        return asked, ask(asked, snapshot, options)

    def renamed(asked: Gang) -> Gang:
        return change(replace(asked, name=name or asked.name))

    ways = variants(gang, view, snapshot.topology)
    first = next(ways)
    asked, found = _first_answer(itertools.chain([first], ways), lambda each: one(each, workers))
    if isinstance(found, NoFit) and needed(first.gang, workers) < len(workers):
        asked, found = fewer(first.gang, workers, lambda some: one(first, some))
    if isinstance(found, NoFit):
        no_node = impossible(asked.gang, snapshot, Settings().counting)
        found = replace(found, sentence=joined(found.sentence, no_node, first.note))
        return GangAnswer(asked, found, Beside(), {})
    cpu_pods = [pod for pod in waiting if pod.metadata.uid in gang.cpu_pods]
    assumed = snapshot.assume(found, asked.gang)
    on = {**places, **found.nodes}
    near = _near(first.gang, cpu_pods, on, view, assumed, options) if cpu_pods else Beside()
    names = {pod.metadata.uid: pod.metadata.name for pod in (*gang.pods, *gang.later)}
    return GangAnswer(asked, found, near, names)


def _first_answer(
    ways: Iterator[Variant], ask_one: Callable[[Variant], tuple[GangQuestion, Assignment | NoFit]]
) -> tuple[GangQuestion, Assignment | NoFit]:
    """The answer for the first variant of a gang that fits, else for the first variant."""
    of_first = ask_one(next(ways))
    answers = itertools.chain([of_first], map(ask_one, ways))
    return next((each for each in answers if not isinstance(each[1], NoFit)), of_first)


def _near(
    gang: PodGang,
    cpu_pods: Sequence[Pod],
    places: Mapping[str, str],
    view: View,
    snapshot: Snapshot,
    options: Options,
) -> Beside:
    """The nodes of CPU-only pods near the others of their gang.

    places: of the others, already in the snapshot.
    """
    avoid = gang.division.excluded_beside(places)
    return beside(gang, cpu_pods, places, snapshot, avoid=avoid, options=options, class_of=view.class_of)


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
    if required and all(part.claim is None and not part.slices for part in parts):
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
