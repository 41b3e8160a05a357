"""The extension for node health: it records, counts and reports nodes where pods fail. Pure."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Avoid, BadNodes, Settings
from webhook.extensions.node_health.avoided_nodes import (
    CHECK,
    NAME,
    RESET_COMMAND,
    data_of,
    explain,
    failures_in,
)
from webhook.extensions.node_health.failing_nodes import (
    FailingNode,
    FailingNodes,
    Failures,
    NodeFacts,
    Running,
    failing_nodes,
    judged,
    of_interest,
    unexpired,
    why_bad,
    with_failures,
)
from webhook.extensions.node_health.pod_failures import (
    NOT_STARTED,
    NodeFailure,
    asks_of,
    failure_of,
    gang_id,
    seconds_of,
)
from webhook.kube.objects import Node, Pod
from webhook.placement import Snapshot
from webhook.placement.capacity import takes_pods
from webhook.placement.snapshot import NodeState
from webhook.scheduling.gpu_counts import gpus_of
from webhook.scheduling.gpus import Counting
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules, RuleKind
from webhook.sweeper.extension import (
    EndOrders,
    Extension,
    Gauges,
    HookInput,
    ObjectEvent,
    RecordSpec,
)
from webhook.sweeper.metrics import GaugeSpec
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.pods import Pods, PodTrait, is_troubled
from webhook.sweeper.observe.view import View
from webhook.text import counted

# --- spare nodes --------------------------------------------------------------------------------------
# Spare nodes: free nodes of each block that only replacements of lost pods may use.
#
# In each block they are up to `spare_nodes` free nodes of each GPU model: the last ones in the block's order,
# so that they stay the same from pass to pass. This module chooses them; decide.replacements determines which
# pods are replacements, and all others do not use them.


def spares(
    snapshot: Snapshot, counting: Counting, per_block: int, without: Set[str] = frozenset()
) -> frozenset[str]:
    """The names of the spare nodes. without: nodes that are never chosen, such as failing ones."""
    if not per_block:
        return frozenset()
    found: set[str] = set()
    for block in snapshot.blocks.values():
        if all(state.path is None for state in block.states):
            continue
        taken: Counter[str] = Counter()
        for state in reversed(block.states):
            model = counting.model(state.node.labels)
            if taken[model] < per_block and state.name not in without and _is_free(state, counting):
                found.add(state.name)
                taken[model] += 1
    return frozenset(found)


def _is_free(state: NodeState, counting: Counting) -> bool:
    gpus = counting.gpus(state.node.allocatable)
    return takes_pods(state) and gpus > 0 and counting.gpus(state.free) == gpus


# --- failures of nodes, by failed and running pods ----------------------------------------------------

SHARE: Final = 0.02
"""The largest share of CPU time for examining running pods, in the long run."""

_OWN: Final = "a pod of this gang failed there"


@dataclass(frozen=True)
class HealthMemory:
    """The known failures of nodes. Losing anything but `failures` only delays.

    failures: also saved in the record. failing_nodes: the result of the failures. running: uid -> since when
    a pod has been seen to run. unstarted: uid -> when a pod was first seen not to start. due_at: when running
    pods are examined again. facts: cached for each node until it changes. unreadable: node -> an annotation
    to reset failures that is not a time. announced: the nodes that Events have announced as avoided by all,
    None before the first read of failures. warned: the unreadable annotations that are logged. is_recorded:
    whether the record may have failures.
    """

    failures: Failures = ()
    failing_nodes: FailingNodes = field(default_factory=FailingNodes)
    running: Mapping[str, float] = field(default_factory=dict)
    unstarted: Mapping[str, int] = field(default_factory=dict)
    due_at: float = float("-inf")
    facts: Mapping[str, tuple[Node, NodeFacts]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    announced: Mapping[str, FailingNode] | None = None
    warned: Mapping[str, str] = field(default_factory=dict)
    is_recorded: bool = False


def observed(given: HookInput, memory: HealthMemory) -> HealthMemory:
    """The memory updated with the failed and the running pods."""
    view, rules, now = given.view, given.settings.bad_nodes, given.view.now.at.timestamp()
    found, unstarted = _new_failures(given, memory, now)
    failures = with_failures(memory.failures, *found)
    failures = unexpired(failures, now, rules.keep_seconds)
    memory = replace(memory, failures=failures, unstarted=unstarted)
    if view.now.seconds >= memory.due_at:
        memory = _judged(given, memory)
    if memory.failures or memory.failing_nodes != FailingNodes():
        memory = _with_facts(given, memory)
        facts = {name: each for name, (_, each) in memory.facts.items()}
        return replace(memory, failing_nodes=failing_nodes(memory.failures, facts, rules, now))
    return replace(memory, unreadable={}, facts={})


def _new_failures(
    given: HookInput, memory: HealthMemory, now: float
) -> tuple[list[NodeFailure], dict[str, int]]:
    """The failures that count, and when each pod was first seen not to start."""
    view, settings, rules = given.view, given.settings, given.settings.bad_nodes
    found, unstarted = list[NodeFailure](), dict[str, int]()
    for pod in (*given.failed, *view.index.of[PodTrait.TROUBLED].values()):
        each = failure_of(pod, settings.counting, rules.soon_seconds, now, view.controller_of)
        if each is None or pod.metadata.namespace in view.protected or each.node not in view.nodes:
            continue
        if each.cause in NOT_STARTED:
            # Its time is unknown: use when it was first seen, so that it is not a new failure in each pass.
            first = memory.unstarted.get(each.uid, each.at)
            each = replace(each, at=first if now - first < rules.keep_seconds else each.at)
            unstarted[each.uid] = each.at
        if now - each.at < rules.keep_seconds:
            found.append(each)
    return found, unstarted


def _judged(given: HookInput, memory: HealthMemory) -> HealthMemory:
    """Update the failures by the running pods. These may be many, so limit the share of CPU time."""
    before, rules = given.cpu_seconds(), given.settings.bad_nodes
    running, since = _running(given, memory)
    failures = judged(memory.failures, running, rules.outlive_seconds, rules.soon_seconds)
    pause = (given.cpu_seconds() - before) / SHARE
    return replace(memory, failures=failures, running=since, due_at=given.view.now.seconds + pause)


def _running(given: HookInput, memory: HealthMemory) -> tuple[list[Running], dict[str, float]]:
    """The running pods that may prove or clear a failure; and uid -> since when each is seen to run."""
    gangs, nodes = of_interest(memory.failures)
    if not gangs and not nodes:
        return [], {}
    view, counting = given.view, given.settings.counting
    now, found, running = view.now.seconds, list[Running](), dict[str, float]()
    for pod in candidates(view.index, gangs, nodes):
        metadata = pod.metadata
        if pod.status.phase != "Running" or metadata.deletion_timestamp or is_troubled(pod):
            continue
        since = running[metadata.uid] = memory.running.get(metadata.uid, now)
        found.append(
            Running(
                metadata.namespace, gang_id(view.controller_of(pod)), asks_of(pod), gpus_of(pod, counting),
                pod.spec.node_name, seconds_of(metadata.creation_timestamp) or 0, now - since,
            )
        )  # fmt: skip
    return found, running


def candidates(pods: Pods, gangs: Set[tuple[str, str]], nodes: Set[tuple[str, str]]) -> Iterable[Pod]:
    """Pods of these gangs (namespace, gang_id), and pods of a namespace on a node (namespace, node)."""
    found: dict[str, Pod] = {}
    for namespace, node in nodes:
        there = pods.bound.get(node, ())
        found.update((pod.metadata.uid, pod) for pod in there if pod.metadata.namespace == namespace)
    namespaces = {namespace for namespace, _ in gangs}
    for made in (pods.mates, pods.siblings) if gangs else ():
        for controller, there in made.items():
            if controller.namespace in namespaces and (controller.namespace, gang_id(controller)) in gangs:
                found.update((pod.metadata.uid, pod) for pod in there)
    return found.values()


def _with_facts(given: HookInput, memory: HealthMemory) -> HealthMemory:
    """Update the facts of the nodes that have changed."""
    facts, unreadable = dict[str, tuple[Node, NodeFacts]](), dict[str, str]()
    for name, node in given.view.nodes.items():
        known = memory.facts.get(name)
        if known is None or known[0] is not node:
            known = node, _facts(node, given.settings.counting)
        facts[name] = known
        text = node.metadata.annotations.get(keys.RESET_FAILURES_ANNOTATION)
        if text is not None and seconds_of(text) is None:
            unreadable[name] = text
    return replace(memory, facts=facts, unreadable=unreadable)


def _facts(node: Node, counting: Counting) -> NodeFacts:
    metadata = node.metadata
    reset_at = seconds_of(metadata.annotations.get(keys.RESET_FAILURES_ANNOTATION))
    created = seconds_of(metadata.creation_timestamp)
    return NodeFacts(counting.model(metadata.labels), created or 0, reset_at or 0)


# --- excluded and avoided nodes -----------------------------------------------------------------------


def node_rules(gangs: Iterable[PodGang], settings: Settings, memory: HealthMemory) -> NodeRules:
    """The nodes that are excluded or avoided. gangs: those that may be placed in this pass."""
    bad = memory.failing_nodes
    rules = [_rule(each, settings.bad_nodes) for each in bad.for_all.values()]
    for namespace, those in bad.for_namespaces.items():
        own = (each for name, each in those.items() if name not in bad.for_all)
        rules += [_rule(each, settings.bad_nodes, namespace) for each in own]
    if bad.for_gangs:
        rules += [rule for gang in gangs for rule in _rules_of_gang(gang, bad)]
    if not settings.spare_nodes.per_block:
        return NodeRules(tuple(rules))
    return NodeRules(tuple(rules), partial(_spare_rule, settings=settings, without=frozenset(bad.for_all)))


def _rule(bad: FailingNode, rules: BadNodes, namespace: str = "") -> NodeRule:
    why, is_hard = why_bad(bad.gangs, bad.at, bad.cause), rules.avoid is Avoid.HARD
    return NodeRule(frozenset({bad.node}), why, is_hard=is_hard, applies_to=namespace, until=float(bad.until))


def _rules_of_gang(gang: PodGang, bad: FailingNodes) -> Iterator[NodeRule]:
    """The nodes where pods of the gang have failed: its next pods use them last."""
    namespace, names = gang.key.namespace, {gang_id(key) for key in (gang.key, gang.controller)}
    nodes = frozenset().union(*(bad.for_gangs.get((namespace, name), ()) for name in names))
    if nodes:
        yield NodeRule(nodes, _OWN, applies_to=gang.key)


def _spare_rule(snapshot: Snapshot, settings: Settings, without: Set[str]) -> NodeRule:
    nodes = spares(snapshot, settings.counting, settings.spare_nodes.per_block, without)
    are = counted(len(nodes), "free node is", "free nodes are")
    sentence = f"{are} reserved for replacements of failed pods" if nodes else ""
    return NodeRule(nodes, sentence, RuleKind.SPARE, not settings.spare_nodes.if_nothing_else_fits)


WRITE_SECONDS: Final = 5.0
"""The shortest time between two writes of the record."""
MOST_MODELS: Final = 32

AVOIDED: Final = GaugeSpec(
    "topogate_avoided_nodes",
    "Nodes that all gangs avoid, since pods of several gangs failed there.",
    ("model",),
)
AVOIDED_INFO: Final = GaugeSpec(
    "topogate_avoided_node_info",
    "1 for each node that all gangs avoid; the cause is that of the last failure.",
    ("node", "cause"),
)
FAILURES: Final = GaugeSpec(
    "topogate_node_failures",
    "Recorded failures of gangs, at most 1000, whether they count against nodes or not.",
)

logger = logging.getLogger(__name__)


def _news(view: View, memory: HealthMemory) -> Iterator[ObjectEvent]:
    bad, before = memory.failing_nodes.for_all, memory.announced or {}
    for name in sorted(bad.keys() - before.keys()):
        gangs = counted(bad[name].gangs, "gang")
        why = f"{gangs} failed there and ran elsewhere, last by {bad[name].cause}"
        logger.warning("node_avoided node=%s gangs=%d cause=%r", name, bad[name].gangs, bad[name].cause)
        reset = RESET_COMMAND.replace("NODE", name)
        note = f"topogate avoids this node: pods of {why}. After its repair: {reset}"
        yield ObjectEvent(view.nodes[name], EventReason.NODE_AVOIDED, note)
    for name in sorted(before.keys() - bad.keys()):
        logger.info("node_recovered node=%s", name)
        if name in view.nodes:
            yield ObjectEvent(
                view.nodes[name], EventReason.NODE_RECOVERED, "topogate no longer avoids this node"
            )


def _gauges(memory: HealthMemory) -> Gauges:
    bad = memory.failing_nodes.for_all.values()
    counts = Counter(each.model for each in bad)
    models = sorted(counts, key=lambda model: (-counts[model], model))[:MOST_MODELS]
    return {
        AVOIDED.name: {(model,): float(counts[model]) for model in models},
        AVOIDED_INFO.name: {(each.node, each.cause): 1.0 for each in bad},
        FAILURES.name: {(): float(len(memory.failures))},
    }


class NodeHealth(Extension):
    """Avoids nodes on which pods fail, and reserves spare nodes."""

    name = "node_health"
    memory = HealthMemory()
    record = RecordSpec(NAME, seconds=WRITE_SECONDS, is_written_at_once=True)
    gauges = (AVOIDED, AVOIDED_INFO, FAILURES)
    doctor = CHECK

    def exclude_nodes(self, given: HookInput, memory: HealthMemory) -> tuple[NodeRules, HealthMemory]:
        """The nodes that are excluded or avoided, and the rule for spare nodes.

        Failed pods are not evaluated until the previous leader's record has been read.
        """
        if given.settings.bad_nodes.avoid is not Avoid.OFF and not given.is_record_pending:
            if given.record is not None:
                failures = failures_in(given.record, given.view.now.at.timestamp())
                memory = replace(memory, failures=failures, is_recorded=bool(given.record))
            if given.record is not None or memory.announced is None:
                # Do not announce again what the previous leader has announced.
                memory = observed(replace(given, failed=()), memory)
                announced = memory.failing_nodes.for_all if memory.announced is None else memory.announced
                memory = replace(memory, announced=announced)
            memory = observed(given, memory)
        return node_rules(given.gangs, given.settings, memory), memory

    def explain(self, given: HookInput, gang: PodGang) -> Iterator[str]:
        """The nodes that the gang avoids."""
        return explain(given, gang)

    def after_pass(self, given: HookInput, memory: HealthMemory) -> tuple[EndOrders, HealthMemory]:
        """Report the avoided nodes, and save the failures."""
        if memory.announced is None:
            return EndOrders(), memory  # nothing has been read, or nothing is ever avoided
        events = tuple(_news(given.view, memory))
        for name, text in memory.unreadable.items():
            if memory.warned.get(name) != text:
                logger.warning("failures_not_reset node=%s annotation=%r reason=unreadable", name, text[:100])
        memory = replace(memory, announced=memory.failing_nodes.for_all, warned=memory.unreadable)
        record = None
        if given.may_write and (memory.failures or memory.is_recorded):
            record, memory = data_of(memory.failures, memory.failing_nodes), replace(memory, is_recorded=True)
        return EndOrders(record, _gauges(memory), events=events), memory


NODE_HEALTH: Final = NodeHealth()
