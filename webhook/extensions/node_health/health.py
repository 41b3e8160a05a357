"""What failed and running pods say of nodes, and which nodes gangs avoid by that. Pure.

What is remembered beside the failures, as since when a pod runs or does not start, only delays if it is lost.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final

from labeler.contract import keys
from webhook.extensions.node_health import gang_failures
from webhook.extensions.node_health.failing_nodes import (
    FailingNode,
    FailingNodes,
    NodeFacts,
    failing_nodes,
    why_bad,
)
from webhook.extensions.node_health.gang_failures import Failures, Running
from webhook.extensions.node_health.pod_failures import (
    NOT_STARTED,
    NodeFailure,
    asks_of,
    failure_of,
    gang_id,
    refusal_of,
    seconds_of,
)
from webhook.extensions.node_health.refusals import Refusals, why_refused
from webhook.extensions.node_health.saved_failures import failures_in
from webhook.extensions.node_health.spare_nodes import spares
from webhook.kube.objects import Node, Pod
from webhook.scheduling.gpu_counts import gpus_of
from webhook.scheduling.gpus import Counting
from webhook.sweeper.decide.node_exclusions import ExcludedNodes, Exclusion, SpareRule
from webhook.sweeper.extension import ExcludeInput
from webhook.sweeper.extension_settings import Avoid, BadNodes
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.pods import Pods, Sort, is_troubled
from webhook.sweeper.settings import Settings

SHARE: Final = 0.02
"""Of the time, that looking at the pods that run may take in the long run."""

_OWN: Final = "a pod of this gang failed there"


@dataclass(frozen=True)
class HealthMemory:
    """Of which nodes it is known that pods fail on them.

    failures: what is kept, also in the record. failing_nodes: what that comes to. running: uid -> since when
    a pod is seen to run. unstarted: uid -> when a pod was first seen not to start. due_at: when running pods
    are looked at again. facts: of each node, as long as it does not change. unreadable: node -> what an
    operator wrote there to reset failures, where that is no time. announced: the nodes of which people know
    that all avoid them, None before any failure was read; warned: of what is unreadable. is_recorded: whether
    the record may hold failures.
    """

    failures: Failures = ()
    refusals: Refusals = field(default_factory=Refusals)
    failing_nodes: FailingNodes = field(default_factory=FailingNodes)
    running: Mapping[str, float] = field(default_factory=dict)
    unstarted: Mapping[str, int] = field(default_factory=dict)
    due_at: float = float("-inf")
    facts: Mapping[str, tuple[Node, NodeFacts]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    announced: Mapping[str, FailingNode] | None = None
    warned: Mapping[str, str] = field(default_factory=dict)
    is_recorded: bool = False

    def fact(self, node: str) -> NodeFacts | None:
        """What is known of a node, None for one that is gone."""
        known = self.facts.get(node)
        return known[1] if known is not None else None


def exclude_nodes(given: ExcludeInput, memory: HealthMemory) -> tuple[ExcludedNodes, HealthMemory]:
    """The nodes that are excluded or avoided, and the rule of the spare ones.

    What has not been read yet is not judged: failed pods wait until what the leader before has kept is there.
    """
    if given.settings.bad_nodes.avoid is not Avoid.OFF and not given.is_record_pending:
        if given.record is not None:
            memory = replace(memory, failures=failures_in(given.record), is_recorded=bool(given.record))
        if given.record is not None or memory.announced is None:
            # What the leader before has announced is not announced again.
            memory = observed(replace(given, failed=()), memory)
            announced = memory.failing_nodes.for_all if memory.announced is None else memory.announced
            memory = replace(memory, announced=announced)
        memory = observed(given, memory)
    return excluded(given.gangs, given.settings, memory), memory


def observed(given: ExcludeInput, memory: HealthMemory) -> HealthMemory:
    """With the pods that have failed, and those that run."""
    settings, rules, now = given.settings, given.settings.bad_nodes, given.view.now.at.timestamp()
    refused = (refusal_of(pod, now, settings.owner_rules) for pod in given.failed)
    refusals = memory.refusals.with_more(filter(None, refused), now, rules.avoid_seconds)
    found, unstarted = _new_failures(given, memory, now)
    failures = gang_failures.added(memory.failures, *found)
    failures = gang_failures.unexpired(failures, now, rules.keep_seconds)
    memory = replace(memory, failures=failures, refusals=refusals, unstarted=unstarted)
    if given.view.now.seconds >= memory.due_at:
        memory = _judged(given, memory)
    if memory.failures or memory.refusals or memory.failing_nodes != FailingNodes():
        memory = _with_facts(given, memory)
        facts = {name: each for name, (_, each) in memory.facts.items()}
        return replace(memory, failing_nodes=failing_nodes(memory.failures, facts, rules, now))
    return replace(memory, unreadable={}, facts={})


def _new_failures(
    given: ExcludeInput, memory: HealthMemory, now: float
) -> tuple[list[NodeFailure], dict[str, int]]:
    """The failures that count, and since when pods do not start."""
    view, settings, rules = given.view, given.settings, given.settings.bad_nodes
    found, unstarted = list[NodeFailure](), dict[str, int]()
    for pod in (*given.failed, *view.index.of[Sort.TROUBLED].values()):
        each = failure_of(pod, settings.counting, rules.soon_seconds, now, settings.owner_rules)
        if each is None or pod.metadata.namespace in view.protected or each.node not in view.nodes:
            continue
        if each.cause in NOT_STARTED:
            # Nobody tells when that was: at first sight, or it would be another failure in each pass.
            first = memory.unstarted.get(each.uid, each.at)
            each = replace(each, at=first if now - first < rules.keep_seconds else each.at)
            unstarted[each.uid] = each.at
        if now - each.at < rules.keep_seconds:
            found.append(each)
    return found, unstarted


def _judged(given: ExcludeInput, memory: HealthMemory) -> HealthMemory:
    """By the pods that run. Many may say something, so it takes a small share of the time."""
    before, rules = given.cpu_seconds(), given.settings.bad_nodes
    running, since = _running(given, memory)
    failures = gang_failures.judged(memory.failures, running, rules.outlive_seconds, rules.soon_seconds)
    pause = (given.cpu_seconds() - before) / SHARE
    return replace(memory, failures=failures, running=since, due_at=given.view.now.seconds + pause)


def _running(given: ExcludeInput, memory: HealthMemory) -> tuple[list[Running], dict[str, float]]:
    """The pods that may say something of a failure, with how long they have been seen to run; since when."""
    gangs, nodes = gang_failures.of_interest(memory.failures)
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
                metadata.namespace, gang_id(view.maker_of(pod)), asks_of(pod), gpus_of(pod, counting),
                pod.spec.node_name, seconds_of(metadata.creation_timestamp) or 0, now - since,
            )
        )  # fmt: skip
    return found, running


def candidates(pods: Pods, gangs: Set[tuple[str, str]], nodes: Set[tuple[str, str]]) -> Iterable[Pod]:
    """Pods of these gangs (namespace, gang_id), and those of namespaces on nodes (namespace, node)."""
    found: dict[str, Pod] = {}
    for namespace, node in nodes:
        there = pods.bound.get(node, ())
        found.update((pod.metadata.uid, pod) for pod in there if pod.metadata.namespace == namespace)
    namespaces = {namespace for namespace, _ in gangs}
    for made in (pods.mates, pods.siblings) if gangs else ():
        for maker, there in made.items():
            if maker.namespace in namespaces and (maker.namespace, gang_id(maker)) in gangs:
                found.update((pod.metadata.uid, pod) for pod in there)
    return found.values()


def _with_facts(given: ExcludeInput, memory: HealthMemory) -> HealthMemory:
    """What decides about the failures of each node; of nodes that have not changed as before."""
    facts, unreadable = dict[str, tuple[Node, NodeFacts]](), dict[str, str]()
    for name, node in given.view.nodes.items():
        known = memory.facts.get(name)
        if known is None or known[0] is not node:
            known = node, _facts(node, given.settings.counting)
        facts[name] = known
        text = node.metadata.annotations.get(keys.FORGIVE_FAILURES_ANNOTATION)
        if text is not None and seconds_of(text) is None:
            unreadable[name] = text
    return replace(memory, facts=facts, unreadable=unreadable)


def _facts(node: Node, counting: Counting) -> NodeFacts:
    metadata = node.metadata
    reset_at = seconds_of(metadata.annotations.get(keys.FORGIVE_FAILURES_ANNOTATION))
    created = seconds_of(metadata.creation_timestamp)
    return NodeFacts(counting.model(metadata.labels), created or 0, reset_at or 0)


# --- what gangs avoid by that -------------------------------------------------------------------------


def excluded(gangs: Iterable[PodGang], settings: Settings, memory: HealthMemory) -> ExcludedNodes:
    """The nodes that gangs do not use. gangs: those that may be asked about."""
    bad, rules = memory.failing_nodes, settings.spare_nodes
    for_all = _exclusions(bad.for_all.values(), settings.bad_nodes)
    for_namespaces = {
        namespace: _exclusions(those.values(), settings.bad_nodes)
        for namespace, those in bad.for_namespaces.items()
    }
    for_gangs = {}
    if bad.for_gangs or memory.refusals:
        for_gangs = {gang.key: own for gang in gangs if (own := _of_gang(gang, memory))}
    rule = None
    if rules.per_block:
        choose = partial(
            spares, counting=settings.counting, per_block=rules.per_block, without=frozenset(for_all)
        )
        rule = SpareRule(choose, is_hard=not rules.if_nothing_else_fits)
    return ExcludedNodes(for_all, for_namespaces, for_gangs, rule)


def _exclusions(bad: Iterable[FailingNode], rules: BadNodes) -> dict[str, Exclusion]:
    is_hard = rules.avoid is Avoid.HARD
    return {each.node: Exclusion(why_bad(each.gangs, each.at, each.cause), is_hard) for each in bad}


def _of_gang(gang: PodGang, memory: HealthMemory) -> dict[str, Exclusion]:
    """Nodes where pods of it have failed or were refused: its next ones go there last."""
    namespace, names = gang.key.namespace, {gang_id(key) for key in (gang.key, gang.maker)}
    failed = (memory.failing_nodes.for_gangs.get((namespace, name), ()) for name in names)
    why = dict.fromkeys(chain.from_iterable(failed), _OWN)
    for name, each in memory.refusals.of(namespace, names).items():
        facts = memory.fact(name)
        if facts is not None and each.at > max(facts.reset_at, facts.since - 1):
            why[name] = why_refused(each)
    return {name: Exclusion(sentence) for name, sentence in why.items()}
