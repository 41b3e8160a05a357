"""Why a gang has no place: each unusable node counted once under its worst cause, and what came closest."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.eligibility import SYNTHETIC_CAPACITY, is_synthetic
from webhook.placement.evaluate import class_slots
from webhook.placement.model import Gang, Nearest, NoFit, PodClass
from webhook.placement.names import an
from webhook.placement.nearest import ClassNames, layers, level_word, nearest_domain
from webhook.placement.question import Counts, Question, is_in, is_usable
from webhook.placement.snapshot import NodeState, Snapshot, key_of
from webhook.placement.tree import Tree
from webhook.placement.vertex import Vertex, domains_at, slot_counts_of_states


def refused(gang: Gang, snapshot: Snapshot, reason: str) -> NoFit:
    """A gang that its own wishes make impossible."""
    sentence = f"Gang {gang.name} cannot be placed: {reason}."
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, hopeless=True)


def undecided(gang: Gang, snapshot: Snapshot, what: str) -> NoFit:
    """A gang for which something was not decided in the steps there are."""
    sentence = f"Gang {gang.name} was not decided within the bound of steps: {what} were not found."
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=False)


def too_many_classes(gang: Gang, classes: int, snapshot: Snapshot, bound: int) -> NoFit:
    """A gang of so many kinds of pods that looking at each node for each of them takes too long."""
    sentence = (
        f"Gang {gang.name} needs capacity for {_count(len(gang.members), 'pod')}: {_not_found(bound)}; "
        f"looking at {_count(len(snapshot.nodes), 'node')} for {classes} kinds of pods takes more."
    )
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=False)


def _not_found(steps: int) -> str:
    return f"none was found within {steps} search steps, which does not prove that there is none"


def unexplained(gang: Gang, snapshot: Snapshot, proven: bool) -> NoFit:
    """A gang of which nobody asks why it found no place."""
    sentence = f"Gang {gang.name} cannot be placed."
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=proven)


def no_fit(
    gang: Gang, question: Question, snapshot: Snapshot, tree: Tree, proven: bool, budget: Budget
) -> NoFit:
    """The reason for a gang that found no place. budget: of the steps to work it out."""
    root = tree.root
    wanted = len(gang.members)
    budget.take(len(snapshot.nodes))
    several = len(question.counts) > 1
    slot_counts = {state.name: each for state, each in slot_counts_of_states(root)} if several else {}
    causes = Counter(cause for cause in _causes(question, snapshot, slot_counts, budget) if cause)
    ordered = _by_times(causes)
    nearest = nearest_domain(gang, question, snapshot, root, budget) if proven or several else None
    free_slots = nearest.free_slots if nearest else 0
    body = _nearness(gang, question, snapshot, root, nearest, proven)
    if proven:
        body += layers(question, snapshot, root)
    if tree.exact and several:
        body += _short_classes(gang, question, snapshot, root, slot_counts, budget)
    sentence = _sentence(gang, question, snapshot, body, ordered, proven)
    return NoFit(sentence, wanted, free_slots, len(snapshot.nodes), ordered, nearest, proven)


_SlotCounts = Mapping[str, Counts]
"""Of several classes: of each node that fits any of them, its capacity for each class alone."""


def _causes(
    question: Question, snapshot: Snapshot, slot_counts: _SlotCounts, budget: Budget
) -> Iterator[str]:
    """The cause of each node, once for those that have the same free of what the gang asks for.

    That is of pods whose rules, cards and domains say nothing of nodes, and nodes that take any pod.
    """
    classes = question.classes
    is_plain = not any(each.rules.has_preferences or each.wants_cards for each in classes)
    is_plain &= question.spread is None or not question.spread.there
    is_plain &= all(question.confinement(number) is None for number in range(len(classes)))
    return _once(
        snapshot.nodes.values(),
        {name for each in classes for name, _ in each.requests},
        lambda state: is_plain and is_usable(question, state),
        lambda state: _cause(question, state, slot_counts, budget),
    )


def _once(
    states: Iterable[NodeState],
    resources: Iterable[str],
    is_plain: Callable[[NodeState], bool],
    cause: Callable[[NodeState], str],
) -> Iterator[str]:
    """The cause of each node, once for open and plain ones that have the same free of these resources."""
    names = tuple(resources)
    known: dict[tuple[int, ...], str] = {}
    for state in states:
        if not capacity.is_open(state) or not is_plain(state):
            yield cause(state)
            continue
        free = state.free
        has = tuple([free.get(name, 0) for name in names])
        found = known.get(has)
        if found is None:
            found = known[has] = cause(state)
        yield found


def _cause(question: Question, state: NodeState, slot_counts: _SlotCounts, budget: Budget) -> str:
    """Why no pod of the gang goes to the node, of the class that is hardest to serve; "" when one does."""
    if state.name in question.excluded:
        return "reserved for others or avoided"
    if state.path is None and question.labelled_only:
        return "no topology labels"
    if not is_in(question.inside, state, question.levels):
        return "outside the domain of the gang's placed pods"
    if question.spread is not None and question.spread.is_full(key_of(state, question.levels)):
        return "its domain has as many of them as it may"
    identical = len(question.classes) == 1
    if class_slots(question, 0, state, budget) if identical else state.name in slot_counts:
        return ""
    return _class_cause(question, question.reference, state, budget)


def _class_cause(question: Question, number: int, state: NodeState, budget: Budget) -> str:
    """Why no pod of a class goes to a node that the gang may use."""
    pod_class = question.classes[number]
    return (
        capacity.reason_against_node(pod_class, state)
        or _shortage(pod_class, state, budget)
        or "outside the slice's domain"
    )


def _class_causes(
    question: Question, number: int, snapshot: Snapshot, slot_counts: _SlotCounts, budget: Budget
) -> Iterator[str]:
    """The same of each node that the gang may use and that has no capacity for the class."""
    pod_class = question.classes[number]
    is_plain = not (pod_class.rules.has_preferences or pod_class.wants_cards)
    return _once(
        (
            state
            for state in snapshot.nodes.values()
            if is_usable(question, state)
            and not (state.name in slot_counts and slot_counts[state.name][number])
        ),
        (name for name, _ in pod_class.requests),
        lambda _: is_plain,
        lambda state: _class_cause(question, number, state, budget),
    )


def _short_classes(
    gang: Gang, question: Question, snapshot: Snapshot, root: Vertex, slot_counts: _SlotCounts, budget: Budget
) -> str:
    """Of pods of several classes, those for which there is too little capacity even if they were alone (in
    the domain of the required level that has most for them), and why; where each has enough alone, what is
    ruled out for each.
    """
    sums = [0] * len(question.counts)
    for domain in domains_at(root, question.required):
        here = zip(*(each for _, each in slot_counts_of_states(domain)), strict=True)
        sums = list(map(max, sums, map(sum, here))) if domain.children or domain.state else sums
    short = [number for number, count in enumerate(question.counts) if sums[number] < count]
    text = ""
    names = ClassNames(gang, question)
    for number in (short or range(len(sums)))[:MOST_CLASSES]:
        causes = Counter(_class_causes(question, number, snapshot, slot_counts, budget))
        pods = names.pods(number, question.counts[number])
        why = ", ".join(f"{cause}: {times}" for cause, times in _by_times(causes).items()) or "no node is out"
        text += f"; for {pods} alone there is capacity for {sums[number]} ({why})"
    return text


MOST_CLASSES = 3
"""Classes of pods that a sentence names."""


def _by_times(causes: Counter[str]) -> dict[str, int]:
    return dict(sorted(causes.items(), key=lambda item: (-item[1], item[0])))


def _shortage(pod_class: PodClass, state: NodeState, budget: Budget) -> str:
    """What is short; a rule about pods that may not be together only where nothing real is."""
    real = tuple(pair for pair in pod_class.requests if not is_synthetic(pair[0]))
    if len(real) == len(pod_class.requests):
        return capacity.shortage(pod_class, state, budget)
    if short := capacity.shortage(replace(pod_class, requests=real), state, budget):
        return short
    return capacity.shortage(pod_class, state, budget).removeprefix('resource "').removesuffix('"')


def _alone(question: Question) -> list[str]:
    """The rules that keep pods of one class apart from each other."""
    return sorted(
        {
            resource.removesuffix(" in use")
            for pod_class, count in zip(question.classes, question.counts, strict=True)
            for resource, amount in pod_class.requests
            if count > 1 and is_synthetic(resource) and amount == SYNTHETIC_CAPACITY
        }
    )


def _nearness(
    gang: Gang,
    question: Question,
    snapshot: Snapshot,
    root: Vertex,
    nearest: Nearest | None,
    proven: bool,
) -> str:
    """What came closest, in words."""
    has_none = nearest is not None and not nearest.free_slots
    if not proven:
        return _not_decided(question, nearest)
    if has_none and root.free_slots and gang.spread is not None:
        return f"no {level_word(gang.spread.level, snapshot)} with capacity may take one more"
    if has_none or not root.children:
        return "no node has capacity for any of them"
    return "there is no way to place them all" if nearest is None else nearest.sentence


def _not_decided(question: Question, nearest: Nearest | None) -> str:
    """What came closest without proof that it must, for several classes alone."""
    body = _not_found(question.options.bound)
    if nearest is None or not nearest.free_slots or len(question.counts) == 1:
        return body
    return f"{body}; {nearest.sentence}"


def _sentence(
    gang: Gang, question: Question, snapshot: Snapshot, body: str, causes: dict[str, int], proven: bool
) -> str:
    wanted = len(gang.members)
    where = f" in one {level_word(gang.required_level, snapshot)}" if gang.required_level else ""
    if gang.spread is not None and gang.spread.most is not None:
        where += f", at most {gang.spread.most} in {an(level_word(gang.spread.level, snapshot))}"
        if question.spread is not None and question.spread.there:
            where += f" beside the {sum(question.spread.there.values())} that are placed"
    head = f"Gang {gang.name} needs capacity for {_count(wanted, 'pod')}{where}: "
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
