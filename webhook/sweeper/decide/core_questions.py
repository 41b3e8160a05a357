"""The questions of a gang to the placement core: one, or one for each pod set. Pure.

Pod sets are placed one after the other, the largest first or last, in the coarsest domains where the whole
gang would be best placed without levels; if that fails, anywhere. So pod sets are near one another where they
can. Those with domains of their own come before the others, where the gang's division says so. For such a
gang the plan is never proven best, and a refusal is not proven where one pod set lacks capacity beside the
others. The question can also be about a gang one of whose released pod sets would be deleted and recreated.

A gang may have several variants, each with other nodes that it may not use, and the first with an answer
counts. By default there is one, with all nodes. An extension finds them, and divides the gang into pod sets
that have topology domains to themselves.

CPU-only pods are placed after the others, so they change nothing for these. The placement core does not count
domains that the others use, so the fewest further domains, the coarsest first, are the nearest. A CPU-only
pod is left to kube-scheduler where there is no capacity anywhere, or where kube-scheduler applies rules that
are not counted here (volumes, affinity).

Of an elastic gang as many pods are placed as fit, in their order. If some number fits, fewer fit too, so the
number is found by binary search. Slices stay whole.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import (
    Anchor,
    Assignment,
    Budget,
    Gang,
    Mode,
    NoFit,
    Options,
    Snapshot,
    Topology,
    place,
)
from webhook.scheduling import convert
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.scheduling.podrules import rules_of
from webhook.sweeper.decide.gang_question import (
    ClassOf,
    GangQuestion,
    broken,
    in_order,
    members_of,
    question,
    together,
)
from webhook.sweeper.decide.node_rules import NodeRule, RuleKind
from webhook.sweeper.decide.orders import Beside, NewPlan
from webhook.sweeper.decide.pod_rules import ask_by_rules
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.plans import unpinned
from webhook.sweeper.observe.pods import name_of
from webhook.sweeper.observe.view import View

QUESTIONS: Final = 4
"""The work budget of one question to the placement core, times this, is that of a gang in a pass."""


def ask(
    asked: GangQuestion, snapshot: Snapshot, options: Options, budget: Budget | None = None
) -> Assignment | NoFit:
    """The best place for all that is asked about, or why there is none. Raises PlacementError.

    Of pods with rules on other pods the answer has them in the order in which they are to be released.
    """
    if asked.rules is not None and not asked.parts:
        return ask_by_rules(asked.gang, asked.rules, snapshot, options, budget)
    whole = place(asked.gang, snapshot, options, budget)
    if not asked.parts or isinstance(whole, NoFit):
        return whole
    if any(request is not None for request in asked.domain_requests):
        return _checked(_apart(asked, snapshot, options, budget), asked, snapshot)
    largest_first = sorted(asked.parts, key=lambda part: -len(part.members))
    far = _outside_of(whole.nodes.values(), snapshot)
    return _first_placed(
        _checked(_one_by_one(asked, parts, outside, snapshot, options, budget), asked, snapshot)
        for outside in (far, frozenset[str]())
        for parts in (largest_first, largest_first[::-1])
    )


def _first_placed(answers: Iterable[Assignment | NoFit]) -> Assignment | NoFit:
    """The first place among these answers, else the last of the refusals."""
    for answer in answers:
        if not isinstance(answer, NoFit):
            break
    return answer


def ask_around(
    asked: GangQuestion,
    snapshot: Snapshot,
    options: Options,
    budget: Budget,
    avoided: Sequence[frozenset[str]],
) -> Assignment | NoFit:
    """The best place without the nodes that a gang avoids, if there is capacity without them.

    avoided: see GangNodes.last_resort.

    If the best answer for all nodes uses none of the avoided ones, it is also the best without them; and a
    gang that does not fit at all does not fit without them. So mostly one question is enough.
    """
    answer = ask(asked, snapshot, options, budget)
    if isinstance(answer, NoFit):
        return answer
    used = set(answer.nodes.values())
    for step in avoided:
        if not used & step:
            return answer
        other = ask(asked.without(step), snapshot, options, budget)
        if not isinstance(other, NoFit):
            return other
    return answer


def _checked(answer: Assignment | NoFit, asked: GangQuestion, snapshot: Snapshot) -> Assignment | NoFit:
    """The answer, if it keeps the rules of the gang on other pods."""
    if asked.rules is None or isinstance(answer, NoFit):
        return answer
    return in_order(answer, asked.rules) or broken(asked.gang, asked.rules, snapshot)


def _apart(
    asked: GangQuestion, snapshot: Snapshot, options: Options, budget: Budget | None
) -> Assignment | NoFit:
    """Those that request domains first, then the rest, near to these where that is possible."""
    pairs = list(zip(asked.parts, asked.domain_requests, strict=True))
    groups = [(part, request) for part, request in pairs if request is not None]
    budget_of_groups = budget or Budget(QUESTIONS * options.bound)
    layout = asked.division.place_groups(groups, snapshot, options, budget_of_groups)
    if isinstance(layout, NoFit):
        return layout
    answers = [answer for _, answer in layout.answers]
    closed = layout.closed_to_others
    rest = [
        replace(part, excluded_nodes=part.excluded_nodes | closed)
        for part, request in pairs
        if request is None
    ]
    if not rest:
        return together(asked.gang, answers, snapshot)
    for part, answer in layout.answers:
        snapshot = snapshot.assume(answer, part)
    far = _outside_of(layout.nodes, snapshot)
    return _first_placed(
        _one_by_one(asked, rest, outside, snapshot, options, budget, answers)
        for outside in (far, frozenset[str]())
    )


def _outside_of(nodes: Iterable[str], snapshot: Snapshot) -> frozenset[str]:
    """The nodes that lie in none of the coarsest domains of these."""

    def domain(name: str) -> object:
        path = snapshot.nodes[name].path
        return path[:2] if path is not None else name

    used = {domain(name) for name in nodes}
    return frozenset(name for name in snapshot.nodes if domain(name) not in used)


def _one_by_one(
    asked: GangQuestion,
    parts: list[Gang],
    outside: frozenset[str],
    snapshot: Snapshot,
    options: Options,
    budget: Budget | None,
    before: Sequence[Assignment] = (),
) -> Assignment | NoFit:
    """Each pod set on what those before it leave. before: answers that the snapshot has already."""
    found = list(before)
    for part in parts:
        within = replace(part, excluded_nodes=part.excluded_nodes | outside)
        answer = place(within, snapshot, options, budget)
        if isinstance(answer, NoFit):
            return replace(answer, proven=False)
        found.append(answer)
        snapshot = snapshot.assume(answer, part)
    return together(asked.gang, found, snapshot)


# --- a gang whose released pod set would be deleted and recreated ------------------------------------


def place_again(
    gang: PodGang,
    part: Collection[Pod],
    view: View,
    snapshot: Snapshot,
    avoid: frozenset[str],
    options: Options,
    budget: Budget | None = None,
    near: Neighbourhood | None = None,
    class_of: ClassOf | None = None,
) -> Assignment | None:
    """The place of the whole gang once `part` is deleted; None if there is none within the work budget.

    budget: for all questions that this takes. near, class_of: as in a pass that has placed others; without
    them, as in the view. Raises PlacementError for a gang that cannot be placed as it is written.
    """
    emptied = without_part((*part, *gang.gated), view, snapshot)
    waiting = [*gang.gated, *(unpinned(pod, node) for pod in part if (node := view.occupied(pod)))]
    stay = {pod.metadata.uid for pod in (*part, *gang.gated)}
    others = [pod for pod in gang.released if pod.metadata.uid not in stay]
    near = near or view.near
    left = None if near is None else near.without(frozenset(stay))
    class_of = class_of or view.class_of
    asked = question(gang, waiting, view.placed_on(others), avoid, class_of, view.is_ours, left)
    answer = ask(asked, emptied, options, budget)
    return None if isinstance(answer, NoFit) else answer


def without_part(part: Collection[Pod], view: View, snapshot: Snapshot) -> Snapshot:
    """The cluster after the deletion of these pods."""
    names = {name_of(pod) for pod in part}
    nodes = {node for node in view.placed_on(part).values() if node in snapshot.nodes}
    return snapshot.without(nodes, lambda use: use.name in names)


# --- the variants of a gang ---------------------------------------------------------------------------


def outside(nodes: frozenset[str], note: str = "") -> NodeRule:
    """The rule of a variant that is in no domain of these nodes. note: for a gang that waits."""
    return NodeRule(nodes, note, RuleKind.DOMAIN, is_hard=True)


@dataclass(frozen=True)
class DividedGang:
    """A gang by its pod sets, and the rule of each of its variants, at least one."""

    gang: PodGang
    rules: tuple[NodeRule, ...] = (outside(frozenset()),)


@dataclass(frozen=True)
class DivisionInput:
    """A gang that waits. plans: made in this pass."""

    gang: PodGang
    view: View
    plans: Sequence[NewPlan]
    topology: Topology


DivideGang = Callable[[DivisionInput], DividedGang]
"""Divides a gang, and finds its variants. Raises PlacementError for a contradictory request."""


def undivided(given: DivisionInput) -> DividedGang:
    """The gang as it is."""
    return DividedGang(given.gang)


def divided(given: DivisionInput, divide: DivideGang) -> DividedGang:
    """The gang and its variants, with the places of other replicas of its owner, see Spread.peers."""
    return divide(replace(given, gang=_beside_replicas(given)))


def _beside_replicas(given: DivisionInput) -> PodGang:
    """The gang with the nodes of the other pods of its owner.

    The pods of a Deployment that are to be spread do not wait for one another: each is placed alone, apart
    from those that have a node by then. Their owner is the ReplicaSet: in a rolling update the pods of each
    revision are spread by themselves.
    """
    gang, controller = given.gang, given.gang.controller
    if gang.spread is None or controller == gang.key:
        return gang
    own = {pod.metadata.uid for pod in gang.pods}
    there = given.view.spread_replicas.get(controller, {})
    nodes = [node for uid, node in there.items() if uid not in own]
    for plan in given.plans:
        if plan.gang.spread is not None and plan.gang.controller == controller:
            nodes += [entry.node for entry in plan.entries if entry.node]
    return replace(gang, spread=replace(gang.spread, peers=tuple(sorted(nodes))))


# --- CPU-only pods, after the others ------------------------------------------------------------------


ONE_BY_ONE: Final = 8
"""CPU-only pods up to which each is asked about alone where there is no capacity for all of them."""


def beside(
    gang: PodGang,
    pods: Iterable[Pod],
    others: Mapping[str, str],
    snapshot: Snapshot,
    *,
    avoid: frozenset[str] = frozenset(),
    options: Options,
    class_of: ClassOf = convert.pod_class_of,
) -> Beside:
    """The places of these CPU-only pods. others: uid -> node of the gang's other pods, as in the snapshot."""
    pods = list(pods)
    near = [pod for pod in pods if others and _is_counted(pod)]
    options = replace(options, mode=Mode.BEST_FIT)
    budget = Budget(options.bound)
    steps: list[tuple[GangQuestion, Assignment]] = []
    placed: set[str] = set()
    for some in _attempts(near):
        if all(pod.metadata.uid in placed for pod in some):
            continue
        try:
            asked = _question(gang, some, others, avoid, class_of)
            answer = place(asked.gang, snapshot, options, budget)
        except ValueError:  # its requests are invalid: left to kube-scheduler
            continue
        if not isinstance(answer, NoFit):
            steps.append((asked, answer))
            placed |= asked.pods.keys()
            snapshot = snapshot.assume(answer, asked.gang)
    return Beside(tuple(steps), tuple(pod for pod in pods if pod.metadata.uid not in placed))


def _is_counted(pod: Pod) -> bool:
    """Whether all rules by which kube-scheduler places it are counted here."""
    return not pod.spec.volumes and not rules_of(pod)


def no_workers(gang: PodGang, snapshot: Snapshot) -> tuple[GangQuestion, Assignment]:
    """The question and answer for a gang of which only CPU-only pods wait."""
    asked = GangQuestion(Gang(str(gang.key), ()), {})
    answer = place(asked.gang, snapshot)
    assert isinstance(answer, Assignment)
    return asked, answer


def only_cpu_pods_wait(gang: PodGang, waiting: Iterable[Pod], view: View) -> bool:
    """Whether only CPU-only pods wait, while all other pods have their places."""
    if any(pod.metadata.uid not in gang.cpu_pods for pod in waiting):
        return False
    placed = view.placed_on(gang.workers)
    return bool(placed) and len(placed) == len(gang.workers)


def _attempts(pods: Sequence[Pod]) -> list[Sequence[Pod]]:
    """All together, so that they are near one another too; then, if they are few, each alone."""
    if not pods:
        return []
    return [pods, *([pod] for pod in pods if 1 < len(pods) <= ONE_BY_ONE)]


def _question(
    gang: PodGang, pods: Sequence[Pod], others: Mapping[str, str], avoid: frozenset[str], class_of: ClassOf
) -> GangQuestion:
    members = members_of(gang, pods, class_of)
    anchors = tuple(Anchor(node) for node in sorted(set(others.values())))
    asked = Gang(f"{gang.key} (beside)", members, anchors=anchors, excluded_nodes=avoid)
    return GangQuestion(asked, {pod.metadata.uid: pod for pod in pods})


# --- elastic gangs ------------------------------------------------------------------------------------


AskForPlaces = Callable[[Sequence[Pod]], tuple[GangQuestion, Assignment | NoFit]]
"""Asks for places for these pods."""


def needed(gang: PodGang, waiting: Sequence[Pod]) -> int:
    """How many of the waiting pods must be placed together, at least one: all, unless a minimum is enough.

    In a heterogeneous gang it is all of them, since a minimum does not say which classes are enough.
    """
    if gang.minimum is None or gang.parts:
        return len(waiting)
    step = gang.slices[0].size if gang.slices else 1
    missing = max(1, gang.minimum - (len(gang.pods) - len(waiting)))
    return min(len(waiting), -(-missing // step) * step)


def has_enough(gang: PodGang, waiting: Sequence[Pod]) -> bool:
    """Whether the gang runs without the waiting pods."""
    return gang.minimum is not None and len(gang.pods) - len(waiting) >= gang.minimum


def fewer(
    gang: PodGang, waiting: Sequence[Pod], ask: AskForPlaces
) -> tuple[GangQuestion, Assignment | NoFit]:
    """The most of the first waiting pods that fit, though not all; if not as many as are needed, why not."""
    least = needed(gang, waiting)
    step = gang.slices[0].size if gang.slices else 1
    best = ask(waiting[:least])
    if isinstance(best[1], NoFit):
        return best
    low, high = 0, (len(waiting) - 1 - least) // step  # in steps above the least
    while low < high:
        middle = (low + high + 1) // 2
        tried = ask(waiting[: least + middle * step])
        if isinstance(tried[1], NoFit):
            high = middle - 1
        else:
            low, best = middle, tried
    return best


def so_far(gang: PodGang, waiting: Sequence[Pod]) -> str:
    """How many pods of an elastic gang have a place, in a sentence; "" for other gangs."""
    if gang.minimum is None:
        return ""
    placed, all_ = len(gang.pods) - len(waiting), len(gang.pods)
    return (
        f"{placed} of {all_} pods have nodes, {gang.minimum} are enough; the others follow once there is "
        "capacity"
    )
