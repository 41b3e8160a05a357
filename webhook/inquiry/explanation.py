"""Why a pod waits and what would help: the placement core gets the same question as from the sweeper."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from labeler.contract import keys
from webhook.extensions.known import all_extensions, completed, variants, with_owners
from webhook.inquiry.preferred import describe_preferred
from webhook.inquiry.reading import ClusterReading
from webhook.inquiry.resource_adder import view_of
from webhook.kube.objects import Pod
from webhook.placement import Assignment, Gang, NoFit, Options, Snapshot, Spread, place, victims
from webhook.scheduling import unmodelled
from webhook.scheduling.impossible_requests import impossible, most_excluding
from webhook.sweeper.decide.asking import ask, place_again
from webhook.sweeper.decide.attempt import patience_for
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.extension import ExplainInput
from webhook.sweeper.observe.gangs import PodGang, gather
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.plans import is_gated, occupied_node, pinned_node, sent_node
from webhook.sweeper.observe.pods import name_of
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings
from webhook.text import counted, few, joined


class ExplainError(Exception):
    """There is nothing to explain; the message says why."""


def explain(cluster: ClusterReading, namespace: str, name: str, settings: Settings) -> Iterator[str]:
    """The explanation, line by line.

    Raises ExplainError for a pod that does not exist, and for a gated one that is being deleted.
    """
    pod = next(
        (p for p in cluster.pods if (p.metadata.namespace, p.metadata.name) == (namespace, name)), None
    )
    if pod is None:
        raise ExplainError(f"there is no unfinished pod {name} in namespace {namespace}")
    if not is_gated(pod, settings.gate_prefix):
        yield from _not_ours(pod, settings.gate_prefix)
        return
    if pod.metadata.deletion_timestamp:  # then it is of no gang, see gather
        raise ExplainError(f"pod {name} in namespace {namespace} is being deleted, so it is not placed")
    snapshotter = Snapshotter(cluster, settings)
    view = view_of(snapshotter, cluster, settings)
    gathered = gather(view.gated, view.others, cluster.size_of, view.gang_of)
    gangs = completed(gathered, view, settings, cluster.owners)
    gang = next(each for each in gangs if each.key == view.gang_of(pod))
    yield from explain_gated(pod, gang, view, snapshotter.snapshot(view), settings)
    yield from _of_extensions(cluster, gang, gangs, view)


def _of_extensions(
    cluster: ClusterReading, gang: PodGang, gangs: Sequence[PodGang], view: View
) -> Iterator[str]:
    for extension in all_extensions():
        if extension.explain is not None:
            record = cluster.record(extension.record.name) if extension.record is not None else None
            seen = with_owners(extension, view, cluster.owners)
            yield from extension.explain(
                ExplainInput(gang, gangs, record, cluster.namespace_labels(), time.time(), seen)
            )


def explain_gated(
    pod: Pod,
    gang: PodGang,
    view: View,
    snapshot: Snapshot,
    settings: Settings,
    *,
    now: "CurrentAnswer | None" = None,
    named: Callable[[str], str] = str,
) -> Iterator[str]:
    """The explanation of one gated pod of a gang, line by line.

    now: the core's answer, if it is known already. named: how to print another pod ("namespace/name").
    """
    yield from _about(pod, gang, view, settings, named)
    if pod.metadata.uid in view.planned:
        planned = view.planned[pod.metadata.uid].node or "no node of our choice"
        if victims := _victims(gang, view, named):
            yield f"It is planned on {planned}, and waits for the eviction of {victims}."
            return
        yield f"It is planned on {planned} and about to be released."
        return
    if gang.blocked_reason and not settings.go_on_with_fewer:
        yield "It waits until its controller can create the other pods."
    elif gang.size is not None and len(gang.pods) < gang.size:
        yield (
            f"It waits for {counted(gang.size - len(gang.pods), 'more pod')} of its gang; after "
            f"{patience_for(gang, settings):.0f} s without a new one, those that exist are placed."
        )
    if not gang.later and all(each.metadata.uid in gang.cpu_pods for each in gang.gated):
        return  # the core is asked only about the others
    now = now or try_now(gang, view, snapshot, settings.options)
    yield from _current_answer(now, gang, snapshot, settings, named, view)
    if isinstance(now.answer, NoFit):
        yield from _misplaced(gang, view, snapshot, settings.options, named)


def _about(
    pod: Pod, gang: PodGang, view: View, settings: Settings, named: Callable[[str], str]
) -> Iterator[str]:
    """What is known of a gated pod and of its gang, before the core is asked."""
    expected = "expected number not known" if gang.size is None else f"{gang.size} expected"
    whole = f"{pod.metadata.namespace}/{pod.metadata.name}"
    yield f"Pod {whole} waits for topogate, in the gang {gang.key.kind}/{gang.key.name}."
    yield (
        f"Gang: {counted(len(gang.pods), 'pod exists', 'pods exist')}, {expected}; "
        f"{counted(len(gang.gated), 'waits', 'wait')}, {counted(len(gang.released), 'is', 'are')} released."
    )
    yield from (f"Note: {problem}." for problem in gang.problems)
    yield from _of_gated_pod(pod, gang, view, settings)
    placement = view.placements.get(gang.key.placement_key)
    if placement is not None and placement.status.reason:
        yield f"Last attempt: {placement.status.reason}"
    if placement is not None and placement.status.turn:
        yield f"{placement.status.turn[:1].upper()}{placement.status.turn[1:]}."
    if holders := _holders(gang, view, named):
        yield f"Nodes reserved for other gangs: {holders}."


def _of_gated_pod(pod: Pod, gang: PodGang, view: View, settings: Settings) -> Iterator[str]:
    """What concerns a gated pod and not its gang."""
    others = [
        gate.name for gate in pod.spec.scheduling_gates if not gate.name.startswith(settings.gate_prefix)
    ]
    if is_gated(pod, settings.gate_prefix) and (node := pinned_node(pod)):
        yield (
            f"Note: its own spec.affinity.nodeAffinity names the node {node} (matchFields metadata.name); if "
            "the pod is a copy of one that topogate has placed, recreate it without that field."
        )
    if not view.added:
        yield from (f"Note: {note}." for note in unmodelled.claim_notes([pod]))
    if view.storage is None and (volumes := unmodelled.volume_note(pod)):
        yield f"Note: {volumes}."
    if pod.metadata.uid in gang.cpu_pods:
        yield _of_cpu_only_pod(gang)
    if others:
        yield f"It has other scheduling gates: {', '.join(others)}."


def _holders(gang: PodGang, view: View, named: Callable[[str], str]) -> str:
    """Which gangs have how many nodes reserved; names are hidden across namespaces as the sweeper does."""
    others = [
        (named(f"{each.metadata.namespace}/{each.spec.gang}"), each)
        for key, each in sorted(view.placements.items())
        if each.holding and key != gang.key.placement_key
    ]
    found = [
        f"{len(each.holding)} for {name}"
        + (f" until {each.status.held_until}" if each.status.held_until else "")
        for name, each in others
    ]
    return few(found, unit="gang")


def _victims(gang: PodGang, view: View, named: Callable[[str], str]) -> str:
    """Which gangs of lower priority are evicted for it, with how many of their pods still exist."""
    placement = view.placements.get(gang.key.placement_key)
    groups = placement.spec.victims if placement is not None else ()
    there = Counter(
        view.gang_of(victim)
        for group in groups
        for uid in group.pods
        if (victim := view.by_uid.get(uid)) is not None and victim.spec.node_name
    )
    shown = [f"{named(str(key))} ({counted(count, 'pod')})" for key, count in sorted(there.items())]
    return few(shown, unit="gang")


def _of_cpu_only_pod(gang: PodGang) -> str:
    if gang.alone:
        return "No pod of its gang asks for a GPU, so it is released at once, without a node."
    return (
        "It asks for no GPU. It is placed near the GPU pods of its gang once these have nodes. If there "
        "are none when the gang is complete, kube-scheduler places it."
    )


@dataclass(frozen=True)
class CurrentAnswer:
    """What the core answers for a gang now, or the problem why it cannot be asked.

    parts: the names of pod sets with topology requests of their own.
    """

    asked: Gang | None
    answer: Assignment | NoFit | None
    problem: str = ""
    parts: tuple[str, ...] = ()


def try_now(gang: PodGang, view: View, snapshot: Snapshot, options: Options) -> CurrentAnswer:
    """Ask the core to place the pods of a gang that are not planned."""
    waiting = [pod for pod in gang.gated if pod.metadata.uid not in view.planned]
    try:
        places = view.placed_on(gang.pods)
        ways = list(variants(gang, view, snapshot.topology))
        found = [
            question(each.gang, waiting, places, each.closed, view.class_of, view.is_ours, view.near)
            for each in ways
        ]
        answers = [(asked, ask(asked, snapshot, options)) for asked in found]
        asked, answer = next((each for each in answers if not isinstance(each[1], NoFit)), answers[0])
        parts = tuple(part.name for part in ways[0].gang.parts) if asked.parts else ()
        return CurrentAnswer(asked.gang, answer, parts=parts)
    except ValueError as error:  # what the user wrote is invalid: no level, no quantity
        return CurrentAnswer(None, None, str(error))


def _current_answer(
    now: CurrentAnswer,
    gang: PodGang,
    snapshot: Snapshot,
    settings: Settings,
    named: Callable[[str], str],
    view: View,
) -> Iterator[str]:
    """The core's answer, and what would help."""
    answer, asked = now.answer, now.asked
    if answer is None or asked is None:
        yield f"Now: it cannot be placed: {now.problem}."
        return
    if asked.spread is not None:
        yield _spread(asked, asked.spread)
    if not isinstance(answer, NoFit):
        yield f"Now: it fits, on {answer.spread}; the sweeper is about to place it, or waits for more pods."
        if preferred := describe_preferred(asked, answer.nodes.values(), snapshot):
            yield preferred
        return
    no_node = impossible(asked, snapshot, settings.counting)
    yield from _no_place(gang, asked, answer, no_node, snapshot, view)
    if now.parts:
        named_so = ", ".join(now.parts)
        yield f"Pod sets with their own topology requests are placed all or none: {named_so}."
        return
    if no_node:
        yield "What would help: change the requests or add such nodes; waiting does not help."
        return
    yield from _what_would_help(asked, gang, snapshot, settings.options, named, view)


def _no_place(
    gang: PodGang, asked: Gang, answer: NoFit, no_node: str, snapshot: Snapshot, view: View
) -> Iterator[str]:
    """Why there is no place, what came nearest, and what excludes most nodes."""
    placement = view.placements.get(gang.key.placement_key)
    sentence = joined(answer.sentence, no_node)
    is_same = placement is not None and placement.status.reason.startswith(sentence.removesuffix("."))
    yield "Now: the same." if is_same else f"Now: {sentence}"
    if answer.nearest is not None and answer.nearest.free_slots:
        yield f"Nearest miss: {answer.nearest.sentence}."
    if cause := most_excluding(asked, snapshot):
        yield f"Most nodes are excluded by {cause}."


def _spread(asked: Gang, spread: Spread) -> str:
    """How its pods are to be spread, and how many pods count already."""
    how = "evenly over the domains" if spread.most is None else f"at most {spread.most} in each domain"
    there = counted(len(asked.anchors) + len(spread.peers), "pod that has", "pods that have")
    return f"Spread: {how} of level {spread.level}, counting {there} a node already."


def _what_would_help(
    asked: Gang,
    gang: PodGang,
    snapshot: Snapshot,
    options: Options,
    named: Callable[[str], str],
    view: View,
) -> Iterator[str]:
    constraints = list(_constraints(asked))
    for constraint, without in constraints:
        relaxed = place(without, snapshot, options)
        if not isinstance(relaxed, NoFit):
            yield f"What would help: without {constraint} it would fit now, on {relaxed.spread}."
            return
    found = victims.find(asked, snapshot, options, lambda use: True)
    if found is None:
        yield _what_would_help_in_an_empty_cluster(constraints, snapshot, options)
        return
    ended = counted(len(found.names), "other pod ends", "other pods end")
    yield f"What would help: it fits when {ended}: {few(_by_gang(found.names, view, named), 5)}."
    lowest = min((pod.spec.priority or 0 for pod in gang.gated), default=0)
    if victims.find(asked, snapshot, options, lambda use: use.priority < lowest) is None:
        yield f"Those pods do not have a lower priority than its own ({lowest}), so they are not preempted."


def _by_gang(names: Iterable[str], view: View, named: Callable[[str], str]) -> list[str]:
    """These pods ("namespace/name") as people know them: the gangs of several, those with most pods first."""
    wanted = set(names)
    gangs = defaultdict[GangKey, list[str]](list)
    for pod in view.by_uid.values():
        if (name := name_of(pod)) in wanted:
            gangs[view.gang_of(pod)].append(name)
    ordered = sorted(gangs.items(), key=lambda item: (-len(item[1]), str(item[0])))
    return [
        f"{named(str(gang))} ({counted(len(pods), 'pod')})" if len(pods) > 1 else named(pods[0])
        for gang, pods in ordered
    ]


def _what_would_help_in_an_empty_cluster(
    constraints: Iterable[tuple[str, Gang]], snapshot: Snapshot, options: Options
) -> str:
    """For a gang that fits nowhere as it is written: which constraint prevents it, or that its size does."""
    empty = snapshot.without(snapshot.nodes.keys(), lambda use: True)
    never = "as written it would not fit even into an empty cluster"
    for constraint, without in constraints:
        if not isinstance(place(without, empty, options), NoFit):
            return f"What would help: without {constraint} it would fit once other pods end; {never}."
    return f"What would help: change the requests or add nodes; {never}."


def _constraints(asked: Gang) -> Iterator[tuple[str, Gang]]:
    """Each topology constraint of a gang, as a user writes it, and the gang without it."""
    if asked.required_level is not None:
        constraint = f"{keys.REQUIRED_TOPOLOGY_ANNOTATION}={asked.required_level}"
        yield constraint, replace(asked, required_level=None)
    for number in reversed(range(len(asked.slices))):  # for nested slices, first without the inner ones
        levels = ",".join(each.level for each in asked.slices[number:])
        yield f"{keys.SLICE_TOPOLOGY_ANNOTATION}={levels}", replace(asked, slices=asked.slices[:number])
    if asked.spread is not None and asked.spread.most is not None:
        constraint = f"{keys.SPREAD_TOPOLOGY_ANNOTATION}={asked.spread.level}:{asked.spread.most}"
        yield constraint, replace(asked, spread=None)


def _misplaced(
    gang: PodGang, view: View, snapshot: Snapshot, options: Options, named: Callable[[str], str]
) -> Iterator[str]:
    """The placed part of a gang near which the rest does not fit, if the whole gang would fit elsewhere."""
    nodes = view.placed_on(gang.released)
    part = [pod for pod in gang.released if pod.metadata.uid in nodes]
    if not part:
        return
    first = next(variants(gang, view, snapshot.topology))
    elsewhere = place_again(first.gang, part, view, snapshot, first.closed, options)
    if elsewhere is None:
        return
    where = [
        f"{named(f'{pod.metadata.namespace}/{pod.metadata.name}')} on {nodes[pod.metadata.uid]}"
        for pod in part
    ]
    yield (
        f"Misplaced: {few(where)}. If they were recreated with the rest, the whole gang would "
        f"fit, on {elsewhere.spread}."
    )


def _not_ours(pod: Pod, gate_prefix: str) -> Iterator[str]:
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    never = (
        "was never gated by topogate: it asks for no GPU, is opted out or left to others, or its namespace "
        f"lacks the label {keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}"
    )
    node = occupied_node(pod, gate_prefix)
    if pod.spec.node_name:
        yield f"Pod {name} does not wait: it is bound to node {pod.spec.node_name}."
        if not sent_node(pod):
            yield f"It {never}."
    elif node is not None:
        yield f"Pod {name} was released by topogate to node {node}; kube-scheduler has not bound it yet."
    elif pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        yield f"Pod {name} waits, but not for topogate: it has the scheduling gates {gates}."
    else:
        yield f"Pod {name} {never}. It waits for kube-scheduler."
