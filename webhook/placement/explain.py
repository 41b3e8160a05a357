"""Why a gang has no place: each unusable node counted once under its worst cause, and what came closest."""

from collections import Counter
from dataclasses import replace

from webhook.placement import capacity
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.evaluate import class_room
from webhook.placement.model import Gang, Nearest, NoFit, PodClass
from webhook.placement.question import Question, is_in
from webhook.placement.snapshot import NodeState, Snapshot
from webhook.placement.synthetic import WHOLE, is_synthetic
from webhook.placement.tree import Vertex
from webhook.placement.unlike.frontier import FrontierSearch


def refused(gang: Gang, snapshot: Snapshot, reason: str) -> NoFit:
    """A gang that its own wishes make impossible."""
    return NoFit(
        f"Gang {gang.name} cannot be placed: {reason}.", len(gang.members), 0, len(snapshot.nodes), {}
    )


def undecided(gang: Gang, snapshot: Snapshot, what: str) -> NoFit:
    """A gang for which something was not decided in the steps there are."""
    sentence = f"Gang {gang.name} was not decided within the bound of steps: {what} were not found."
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=False)


def no_fit(
    gang: Gang, question: Question, snapshot: Snapshot, root: Vertex, proven: bool, budget: Budget
) -> NoFit:
    """The reason for a gang that found no place. budget: of the steps to work it out."""
    wanted = len(gang.members)
    causes: Counter[str] = Counter()
    for state in snapshot.nodes.values():
        cause = _cause(question, state, budget)
        if cause:
            causes[cause] += 1
    ordered = dict(sorted(causes.items(), key=lambda item: (-item[1], item[0])))
    nearest = _nearest(question, snapshot, root, budget) if proven else None
    room = nearest.room if nearest else 0
    body = _nearness(gang, question, root, nearest, proven)
    sentence = _sentence(gang, question, snapshot, body, ordered, proven)
    return NoFit(sentence, wanted, room, len(snapshot.nodes), ordered, nearest, proven)


def _cause(question: Question, state: NodeState, budget: Budget) -> str:
    """Why no pod of the gang goes to the node, of the class that is hardest to serve; "" when one does."""
    if state.name in question.excluded:
        return "excluded"
    if state.path is None and question.required is not None and question.required < question.levels:
        return "no topology labels"
    if not is_in(question.inside, state, question.levels):
        return "outside the domain of the gang's placed pods"
    if any(class_room(question, number, state, budget) for number in range(len(question.classes))):
        return ""
    pod_class = question.classes[question.reference]
    return (
        capacity.reason_against_node(pod_class, state)
        or _shortage(pod_class, state)
        or "outside the slice's domain"
    )


def _shortage(pod_class: PodClass, state: NodeState) -> str:
    """What is short; a rule about pods that may not be together only where nothing real is."""
    real = replace(
        pod_class, requests=tuple(pair for pair in pod_class.requests if not is_synthetic(pair[0]))
    )
    short = capacity.shortage(real, state)
    if short or real.requests == pod_class.requests:
        return short
    return capacity.shortage(pod_class, state).removeprefix('resource "').removesuffix('"')


def _alone(question: Question) -> list[str]:
    """The rules that keep pods of one class apart from each other."""
    return sorted(
        {
            resource.removesuffix(" in use")
            for pod_class, count in zip(question.classes, question.counts, strict=True)
            for resource, amount in pod_class.requests
            if count > 1 and is_synthetic(resource) and amount == WHOLE
        }
    )


def _nearest(question: Question, snapshot: Snapshot, root: Vertex, budget: Budget) -> Nearest | None:
    """The domain of the required level with the most room for members, or the whole cluster."""
    level = question.required if question.required is not None else -1
    search = FrontierSearch(question, budget.part(question.options.budget))
    alike = len(question.counts) == 1 and not question.slices
    best: tuple[int, Vertex] | None = None
    stack = [root]
    try:
        while stack:
            vertex = stack.pop()
            if vertex.bottom < level:
                stack += reversed(vertex.children)
                continue
            if alike:
                room = min(vertex.room, question.counts[0])
            else:
                room = max(sum(map(min, state, question.counts)) for state in search.frontier(vertex))
            if best is None or room > best[0]:
                best = (room, vertex)
    except OutOfSteps:
        return None
    if best is None:
        return None
    names = (*snapshot.topology.level_names, "node")
    name = names[level] if level >= 0 else ""
    return Nearest(name, best[1].key[1 : level + 2] if level >= 0 else (), best[0])


def _nearness(gang: Gang, question: Question, root: Vertex, nearest: Nearest | None, proven: bool) -> str:
    """What came closest, in words."""
    wanted = len(gang.members)
    if not proven:
        steps = min(question.options.budget, question.options.bound)
        return f"none was found within {steps} search steps, which does not prove that there is none"
    if not root.children or (nearest is not None and not nearest.room):
        return "no node has room for any of them"
    if nearest is None:
        return "there is no way to place them all"
    if nearest.domain:
        return f"{nearest.level} {'/'.join(nearest.domain)} has room for {nearest.room} of {wanted}"
    return f"the cluster has room for {nearest.room} of {wanted}"


def _sentence(
    gang: Gang, question: Question, snapshot: Snapshot, body: str, causes: dict[str, int], proven: bool
) -> str:
    wanted = len(gang.members)
    where = f" in one {gang.required_level}" if gang.required_level else ""
    head = f"Gang {gang.name} needs room for {_count(wanted, 'pod')}{where}: "
    if question.slices and proven:
        sizes = ", ".join(
            f"{size} per {(*snapshot.topology.level_names, 'node')[level]}" for level, size in question.slices
        )
        body += f" in slices of {sizes}"
    alone = _alone(question)
    if alone and proven:
        body += f"; a node takes only one of them ({'; '.join(alone)})"
    total = _count(len(snapshot.nodes), "node")
    ruled = ", ".join(f"{cause}: {count}" for cause, count in causes.items())
    return (
        f"{head}{body}. Of {total}, excluded: {ruled}."
        if ruled
        else f"{head}{body}. None of {total} is excluded."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
