"""Why a gang cannot be placed: each excluded node counted once, by its main cause, and the nearest domain."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.eligibility import SYNTHETIC_CAPACITY, is_synthetic
from webhook.placement.model import Gang, Nearest, NoFit, PodClass
from webhook.placement.nearest import ClassNames, layers, level_word, nearest_domain
from webhook.placement.question import Counts, Question, is_in, is_usable
from webhook.placement.snapshot import NodeState, Snapshot, key_of
from webhook.placement.tree import Tree
from webhook.placement.vertex import Vertex, domains_at, slot_counts_of_states

NODE = 2
"""Steps to find the cause of a node, beside one for so many classes as CLASSES."""

CLASSES = 12


def refused(gang: Gang, snapshot: Snapshot, reason: str) -> NoFit:
    """The answer for a gang whose own request no node can meet."""
    sentence = f"Gang {gang.name} cannot be placed: {reason}."
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, hopeless=True)


def undecided(gang: Gang, snapshot: Snapshot, what: str) -> NoFit:
    """The answer for a gang for which the search budget ended before something was found."""
    sentence = (
        f"Gang {gang.name} is not placed: {what} were not found within the search budget, "
        "which does not prove that none are free."
    )
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=False)


def too_many_classes(gang: Gang, classes: int, snapshot: Snapshot, bound: int) -> NoFit:
    """The answer for a gang with too many pod classes to check each node for each class."""
    sentence = (
        f"Gang {gang.name} is not placed: {_not_found(gang, snapshot, bound)}; "
        f"checking {_count(len(snapshot.nodes), 'node')} for {classes} pod classes takes more steps."
    )
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=False)


def _not_found(gang: Gang, snapshot: Snapshot, steps: int) -> str:
    pods = f"{_count(len(gang.members), 'pod')}{_at_most(gang, snapshot)}"
    where = f" in one {level_word(gang.required_level, snapshot)}" if gang.required_level else ""
    return (
        f"no placement of {pods}{where} was found within {steps} search steps, "
        "which does not prove that none exists"
    )


def unexplained(gang: Gang, snapshot: Snapshot, proven: bool) -> NoFit:
    """The answer where the caller does not ask for the reason."""
    sentence = f"Gang {gang.name} cannot be placed."
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=proven)


def no_fit(
    gang: Gang, question: Question, snapshot: Snapshot, tree: Tree, proven: bool, budget: Budget
) -> NoFit:
    """The reason why a gang cannot be placed. budget: the steps for finding the reason."""
    root = tree.root
    wanted = len(gang.members)
    budget.take(len(snapshot.nodes) * (NODE + len(question.classes) // CLASSES))
    several = len(question.counts) > 1
    slot_counts = {state.name: each for state, each in slot_counts_of_states(root)}
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
"""The free slots for each class alone, by node, for nodes that fit any of them."""


def _causes(
    question: Question, snapshot: Snapshot, slot_counts: _SlotCounts, budget: Budget
) -> Iterator[str]:
    """The cause of each node, computed once for nodes with the same free amounts of the gang's resources.

    That applies to pods without rules, cards and confinement, on nodes that take any pod.
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
    """The cause of each node, computed once for open, plain nodes with equal free amounts."""
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
    """Why no pod of the gang fits on the node, for the most frequent class; "" if one fits."""
    if state.name in question.excluded:
        return "reserved for others or avoided"
    if state.path is None and question.labelled_only:
        return "no topology labels"
    if not is_in(question.inside, state, question.levels):
        return "outside the domain of the gang's placed pods"
    if question.spread is not None and question.spread.is_full(key_of(state, question.levels)):
        return "its domain has as many pods as the spread allows"
    if state.name in slot_counts:
        return ""
    return _class_cause(question, question.reference, state, budget)


def _class_cause(question: Question, number: int, state: NodeState, budget: Budget) -> str:
    """Why no pod of a class fits on a node that the gang may use."""
    pod_class = question.classes[number]
    return (
        capacity.reason_against_node(pod_class, state)
        or _shortage(pod_class, state, budget)
        or "outside the slice's domain"
    )


def _class_causes(
    question: Question, number: int, snapshot: Snapshot, slot_counts: _SlotCounts, budget: Budget
) -> Iterator[str]:
    """The same for each node that the gang may use and that has no capacity for the class."""
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
    """The classes without enough capacity even if the gang had no other pods, and why, as clauses.

    It counts the domain of the required level with the most capacity for the class. If each class alone has
    enough, it names the excluded nodes of each class.
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
        counted = (f"{cause}: {times}" for cause, times in _by_times(causes).items())
        why = ", ".join(counted) or "no node is excluded"
        text += f"; for {pods} alone: capacity for {sums[number]} ({why})"
    return text


MOST_CLASSES = 3
"""The most pod classes that a sentence names."""


def _by_times(causes: Counter[str]) -> dict[str, int]:
    return dict(sorted(causes.items(), key=lambda item: (-item[1], item[0])))


def _shortage(pod_class: PodClass, state: NodeState, budget: Budget) -> str:
    """The scarcest resource; a rule that keeps pods apart only where no real resource is short."""
    real = tuple(pair for pair in pod_class.requests if not is_synthetic(pair[0]))
    if len(real) == len(pod_class.requests):
        return capacity.shortage(pod_class, state, budget)
    if short := capacity.shortage(replace(pod_class, requests=real), state, budget):
        return short
    return capacity.shortage(pod_class, state, budget).removeprefix('resource "').removesuffix('"')


def _alone(question: Question) -> list[str]:
    """The rules that allow only one pod of a class per node."""
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
    """The nearest domain, in words."""
    has_none = nearest is not None and not nearest.free_slots
    if not proven:
        return _not_decided(gang, question, snapshot, nearest)
    if has_none and root.free_slots and gang.spread is not None:
        level = level_word(gang.spread.level, snapshot)
        return f"each {level} with capacity has as many pods as the spread allows"
    if has_none or not root.children:
        return "no node has capacity for any of them"
    return "no placement of all of them exists" if nearest is None else nearest.sentence


def _not_decided(gang: Gang, question: Question, snapshot: Snapshot, nearest: Nearest | None) -> str:
    """A clause on a search without a proof; for several classes also the nearest domain."""
    body = _not_found(gang, snapshot, question.options.bound)
    if nearest is None or not nearest.free_slots or len(question.counts) == 1:
        return body
    return f"{body}; {nearest.sentence}"


def _sentence(
    gang: Gang, question: Question, snapshot: Snapshot, body: str, causes: dict[str, int], proven: bool
) -> str:
    total = _count(len(snapshot.nodes), "node")
    ruled = ", ".join(f"{cause}: {count}" for cause, count in causes.items())
    excluded = f"Of {total}, excluded: {ruled}." if ruled else f"None of {total} is excluded."
    if not proven:
        return f"Gang {gang.name} is not placed: {body}. {excluded}"
    if alone := _alone(question):
        body += f"; each node takes only one of them ({'; '.join(alone)})"
    there = sum(question.spread.there.values()) if question.spread is not None else 0
    beside = f" beside the {there} that are placed" if there else ""
    limit = f"{at_most}{beside}," if (at_most := _at_most(gang, snapshot)) else ""
    where = f" into one {level_word(gang.required_level, snapshot)}" if gang.required_level else ""
    pods, do = _count(len(gang.members), "pod"), "does" if len(gang.members) == 1 else "do"
    head = f"Gang {gang.name} cannot be placed: {pods}{limit} {do} not fit{where}"
    return f"{head}; {body}. {_advice(gang, snapshot)}{excluded}"


def _at_most(gang: Gang, snapshot: Snapshot) -> str:
    """The cap of a spread gang as a clause, "" without one."""
    if gang.spread is None or gang.spread.most is None:
        return ""
    return f", at most {gang.spread.most} per {level_word(gang.spread.level, snapshot)}"


def _advice(gang: Gang, snapshot: Snapshot) -> str:
    """A sentence on what helps a gang whose own topology request is a reason, "" for others."""
    if gang.required_level:
        return "Use topogate.io/preferred-topology, or add nodes. "
    if gang.spread is not None and gang.spread.most is not None:
        return f"Add nodes, or allow more pods per {level_word(gang.spread.level, snapshot)}. "
    return ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
