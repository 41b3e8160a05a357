"""Why a pod waits, in the sentences of the sweeper's next pass, and what would help."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from labeler.contract import keys
from webhook.configuration.settings import Settings
from webhook.extensions.known import all_extensions, with_owners
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.next_pass import NextPass, PassFacts, facts_of, moment, next_pass, released_at
from webhook.inquiry.preferences import describe_preferred
from webhook.inquiry.remedies import answer_now, describe_spread, what_would_help
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.scheduling import unmodelled_rules
from webhook.sweeper.decide.attempt import GangPlaced
from webhook.sweeper.decide.orders import NO_PLACE_FOUND, NewPlan
from webhook.sweeper.extension import HookInput
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.plans import is_gated, occupied_node, pinned_node
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.report_memory import GangReason
from webhook.text import counted, few

_NOT_KNOWN: Final = "Refusals of the API server or of a node in the last minutes are not known here"


class ExplainError(Exception):
    """There is nothing to explain; the message says why."""


def explain(
    cluster: ClusterReading, namespace: str, name: str, settings: Settings, now: Moment | None = None
) -> Iterator[str]:
    """The explanation, line by line. now: when the sweeper's next pass is, None for at once.

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
    if pod.metadata.deletion_timestamp:  # then it is of no gang, see gather_groups
        raise ExplainError(f"pod {name} in namespace {namespace} is being deleted, so it is not placed")
    made = next_pass(cluster, settings, pod, now or moment())
    gang = made.gang(made.view.gang_of(pod).placement_key)
    if gang is None or all(each.metadata.uid != pod.metadata.uid for each in gang.gated):
        yield _of_no_gang(pod, made)
        return
    yield from explain_gated(pod, gang, made)
    yield from lines_of_extensions(gang, made, facts_of(cluster))


def _of_no_gang(pod: Pod, made: NextPass) -> str:
    """Why a gated pod is of no gang that waits, see gather_groups."""
    namespace, name = pod.metadata.namespace, f"{pod.metadata.namespace}/{pod.metadata.name}"
    if namespace in made.settings.excluded_namespaces:
        rule = f"the configuration leaves namespace {namespace} alone (namespaces.excluded)"
        return f"Pod {name} has a gate of topogate, and waits for ever: {rule}."
    lost = made.view.lost_owners.by_uid.get(pod.metadata.uid)
    why = lost.sentence if lost is not None else "the sweeper has not seen it yet"
    return f"Pod {name} waits for topogate, apart from its gang. Now: {why}."


def lines_of_extensions(gang: PodGang, made: NextPass, facts: PassFacts) -> Iterator[str]:
    """What extensions know of a gang beside what a pass decides."""
    for extension in all_extensions():
        record = facts.record_of(extension.record.name) if extension.record is not None else None
        seen = with_owners(extension, made.view, facts.owners_of)
        given = HookInput(
            seen, made.settings, namespaces=facts.namespaces, record=record, gangs=made.seen.gangs,
            causes=made.causes,
        )  # fmt: skip
        yield from extension.explain(given, gang)


def explain_gated(
    pod: Pod, gang: PodGang, made: NextPass, named: Callable[[str], str] = str
) -> Iterator[str]:
    """The explanation of one gated pod of a gang by the sweeper's next pass, line by line.

    named: how to print another pod ("namespace/name").
    """
    view = made.view
    reason, plan = made.reason(gang.key), made.plan(gang.key)
    yield from _about(pod, gang, made, named)
    if pod.metadata.uid in view.planned:
        yield from _of_planned(pod, gang, made, named)
    elif plan is not None:
        yield from _placed(plan, made)
    elif reason is None:
        yield from _undecided(gang, made, named)
    else:
        yield from _now(made.sentence(gang.key), reason, view.placements.get(gang.key.placement_key))
        yield from what_would_help(gang, reason.cause, made, named)


def _of_planned(pod: Pod, gang: PodGang, made: NextPass, named: Callable[[str], str]) -> Iterator[str]:
    """What a pod that has its place still waits for."""
    view = made.view
    node = view.planned[pod.metadata.uid].node or "no node of our choice"
    if victims := _victims(gang, view, named):
        yield f"It is planned on {node}, and waits for the eviction of {victims}."
    elif pod.metadata.uid in view.not_released:
        yield f"It is planned on {node}, and is not released yet."
    else:
        yield f"It is planned on {node} and about to be released."
    if sentence := made.sentence(gang.key):
        yield f"Now: {sentence}"


def _placed(plan: NewPlan, made: NextPass) -> Iterator[str]:
    yield f"Now: the sweeper's next pass places it: {plan.description}."
    yield from describe_spread(plan.asked.gang)
    if preferred := describe_preferred(plan.asked.gang, plan.answer.nodes.values(), made.state.snapshot):
        yield preferred
    yield f"{_NOT_KNOWN}: they delay it."


def _undecided(gang: PodGang, made: NextPass, named: Callable[[str], str]) -> Iterator[str]:
    """What is known of a gang that the pass does not ask about."""
    if gang.key not in made.unasked or (outcome := answer_now(gang, made)) is None:
        yield "Now: it is evicted as a whole, and is placed once all of its pods are back."
    elif isinstance(outcome, GangPlaced):
        yield f"Now: it fits, on {outcome.plan.spread}, once a pass reaches it: gangs before it come first."
    else:
        yield f"Now: {outcome.sentence}"
        yield from what_would_help(gang, outcome.cause, made, named)


def _now(sentence: str, reason: GangReason, placement: Placement | None) -> Iterator[str]:
    """The sweeper's sentence, unless the last attempt has it."""
    last = placement.status.reason if placement is not None else ""
    if last == sentence:
        yield "Now: the same."
        return
    yield f"Now: {sentence}"
    if last and reason.cause in NO_PLACE_FOUND:
        yield f"{_NOT_KNOWN}: they may exclude more nodes."


def _about(pod: Pod, gang: PodGang, made: NextPass, named: Callable[[str], str]) -> Iterator[str]:
    """What is known of a gated pod and of its gang, beside what a pass decides."""
    view, reason = made.view, made.reason(gang.key)
    expected = "expected number not known" if gang.size is None else f"{gang.size} expected"
    whole = f"{pod.metadata.namespace}/{pod.metadata.name}"
    yield f"Pod {whole} waits for topogate, in the gang {gang.key.kind}/{gang.key.name}."
    yield (
        f"Gang: {counted(len(gang.pods), 'pod exists', 'pods exist')}, {expected}; "
        f"{counted(len(gang.gated), 'waits', 'wait')}, {counted(len(gang.released), 'is', 'are')} released."
    )
    yield from _of_unbound(gang, made.settings)
    known = "" if reason is None else reason.reason
    yield from (f"Note: {problem}." for problem in gang.problems if problem not in known)
    yield from _of_gated_pod(pod, gang, view, made.settings)
    placement = view.placements.get(gang.key.placement_key)
    if placement is not None and placement.status.reason:
        yield f"Last attempt: {placement.status.reason}"
    if placement is not None and placement.status.fair_order:
        yield f"{placement.status.fair_order[:1].upper()}{placement.status.fair_order[1:]}."
    if holders := _holders(gang, view, named):
        yield f"Nodes reserved for other gangs: {holders}."


def _of_unbound(gang: PodGang, settings: Settings) -> Iterator[str]:
    """What is not known of the gang's pods that wait for kube-scheduler."""
    untimed = [pod for pod in gang.released if not pod.spec.node_name and released_at(pod) is None]
    if untimed:
        waits = counted(len(untimed), "released pod is", "released pods are")
        yield (
            f"Since when {waits} not bound is not known here. The sweeper deletes one after "
            f"{settings.bind_seconds:.0f} s if it is recreated, and then avoids its node for the gang."
        )


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
        yield from (f"Note: {note}." for note in unmodelled_rules.claim_notes([pod]))
    if view.storage is None and (volumes := unmodelled_rules.volume_note(pod)):
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
        + (f" until {each.status.reserved_until}" if each.status.reserved_until else "")
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


def _not_ours(pod: Pod, gate_prefix: str) -> Iterator[str]:
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    never = (
        "was never gated by topogate: it asks for no GPU, is opted out or left to others, or its namespace "
        f"lacks the label {keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}"
    )
    node = occupied_node(pod, gate_prefix)
    if pod.spec.node_name:
        yield f"Pod {name} does not wait: it is bound to node {pod.spec.node_name}."
        if not pinned_node(pod):
            yield f"It {never}."
    elif node is not None:
        yield f"Pod {name} was released by topogate to node {node}; kube-scheduler has not bound it yet."
    elif pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        yield f"Pod {name} waits, but not for topogate: it has the scheduling gates {gates}."
    else:
        yield f"Pod {name} {never}. It waits for kube-scheduler."
