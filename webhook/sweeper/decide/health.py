"""What failures say of nodes: takes in failed and running pods, tells which nodes a gang avoids.

What it remembers beside the failures, since when a pod runs or does not start, only delays if it is lost.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Node, Pod
from webhook.sweeper.decide import ledger
from webhook.sweeper.decide.ledger import Failures, Running
from webhook.sweeper.decide.node_exclusions import ExcludedNodes, Exclusion, SpareRule
from webhook.sweeper.decide.refusals import Refusals, why_refused
from webhook.sweeper.decide.spare_nodes import spares
from webhook.sweeper.decide.verdicts import NodeFacts, NodeVerdict, Verdicts, verdicts, why_bad
from webhook.sweeper.node_rules import Avoid
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.node_failures import (
    NOT_STARTED,
    asks_of,
    failure_of,
    gang_id,
    gpus_of,
    is_troubled,
    refusal_of,
    seconds_of,
)
from webhook.sweeper.observe.pods import Pods, Sort
from webhook.sweeper.observe.view import View
from webhook.sweeper.pace import Pace
from webhook.sweeper.settings import Settings

SHARE: Final = 0.02
"""Of the time, that looking at the pods that run may take in the long run."""

_OWN: Final = "a pod of this gang failed there"


class NodeHealth:
    """Of which nodes it is known that pods fail on them.

    failures: what is kept, which the API server keeps between processes. verdicts: what that comes to.
    unreadable: Node -> what an operator wrote there to forgive failures, where that is no time.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """now: seconds since 1970."""
        self._settings = settings
        self._rules = settings.bad_nodes
        self._clock = clock
        self._now = now
        self._since: dict[str, float] = {}
        self._unstarted: Mapping[str, int] = {}
        self._pace = Pace(SHARE, clock)
        self._facts: dict[str, tuple[Node, NodeFacts]] = {}
        self._refusals = Refusals()
        self.failures: Failures = ()
        self.verdicts = Verdicts()
        self.unreadable: Mapping[str, str] = {}

    @property
    def is_on(self) -> bool:
        """Whether any node is ever avoided."""
        return self._rules.avoid is not Avoid.OFF

    def saw(self, view: View, failed: Iterable[Pod]) -> None:
        """Take in the pods that have failed, and those that run."""
        if not self.is_on:
            return
        rules, now = self._rules, self._now()
        failed = list(failed)
        refused = (refusal_of(pod, now, self._settings.owner_rules) for pod in failed)
        self._refusals.saw(filter(None, refused), now, rules.avoid_seconds)
        troubled = view.index.of[Sort.TROUBLED].values()
        found, unstarted = [], dict[str, int]()
        for pod in (*failed, *troubled):
            told = failure_of(
                pod, self._settings.counting, rules.soon_seconds, now, self._settings.owner_rules
            )
            if told is None or pod.metadata.namespace in view.protected or told.node not in view.nodes:
                continue
            if told.cause in NOT_STARTED:
                # Nobody tells when that was: at first sight, or it would be another failure in each pass.
                first = self._unstarted.get(told.uid, told.at)
                told = replace(told, at=first if now - first < rules.keep_seconds else told.at)
                unstarted[told.uid] = told.at
            if now - told.at < rules.keep_seconds:
                found.append(told)
        self._unstarted = unstarted
        failures = ledger.added(self.failures, *found)
        failures = ledger.kept(failures, now, rules.keep_seconds)
        self.failures = self._judged(view, failures)
        if self.failures or self._refusals or self.verdicts != Verdicts():
            self.verdicts = verdicts(self.failures, self._node_facts(view), rules, now)
        else:
            self.unreadable, self._facts = {}, {}

    def excluded(self, gangs: Iterable[PodGang]) -> ExcludedNodes:
        """The nodes that gangs do not use. gangs: those that may be asked about."""
        rules, verdicts = self._settings.spare_nodes, self.verdicts
        for_all = self._exclusions(verdicts.for_all.values())
        for_namespaces = {
            namespace: self._exclusions(each for name, each in those.items() if name not in for_all)
            for namespace, those in verdicts.for_namespaces.items()
        }
        for_gangs = {}
        if verdicts.for_gangs or self._refusals:
            for_gangs = {gang.key: own for gang in gangs if (own := self._of_gang(gang))}
        rule = None
        if rules.per_block:
            choose = partial(
                spares,
                counting=self._settings.counting,
                per_block=rules.per_block,
                without=frozenset(for_all),
            )
            rule = SpareRule(choose, is_hard=not rules.if_nothing_else_fits)
        return ExcludedNodes(for_all, for_namespaces, for_gangs, rule)

    def _exclusions(self, bad: Iterable[NodeVerdict]) -> dict[str, Exclusion]:
        is_hard = self._rules.avoid is Avoid.HARD
        return {each.node: Exclusion(why_bad(each.gangs, each.at, each.cause), is_hard) for each in bad}

    def _of_gang(self, gang: PodGang) -> dict[str, Exclusion]:
        """Nodes where pods of it have failed or were refused: its next ones go there last."""
        namespace, names = gang.key.namespace, {gang_id(key) for key in (gang.key, gang.maker)}
        failed = (self.verdicts.for_gangs.get((namespace, name), ()) for name in names)
        why = dict.fromkeys(chain.from_iterable(failed), _OWN) | self._refused(namespace, names)
        return {name: Exclusion(each) for name, each in why.items()}

    def _refused(self, namespace: str, gangs: Set[str]) -> dict[str, str]:
        """Nodes where a pod of one of these gangs was refused, and why; not what is forgiven there."""
        found = self._refusals.of(namespace, gangs) if self._refusals else {}
        return {
            name: why_refused(each)
            for name, each in found.items()
            if (facts := self._fact(name)) is not None and each.at > max(facts.forgiven, facts.since - 1)
        }

    def _fact(self, name: str) -> NodeFacts | None:
        known = self._facts.get(name)
        return known[1] if known is not None else None

    def _judged(self, view: View, failures: Failures) -> Failures:
        """By the pods that run. Many may say something, so it takes a small share of the time."""
        if not self._pace.is_due:
            return failures
        with self._pace.work():
            running = self._running(view, failures)
            rules = self._rules
            return ledger.judged(failures, running, rules.outlive_seconds, rules.soon_seconds)

    def _running(self, view: View, failures: Failures) -> list[Running]:
        """The pods that may say something of a failure, with how long they have been seen to run."""
        gangs, nodes = ledger.of_interest(failures)
        if not gangs and not nodes:
            self._since = {}
            return []
        now, before, found = self._clock(), self._since, []
        self._since = {}
        for pod in candidates(view.index, gangs, nodes):
            metadata = pod.metadata
            if pod.status.phase != "Running" or metadata.deletion_timestamp or is_troubled(pod):
                continue
            since = self._since[metadata.uid] = before.get(metadata.uid, now)
            found.append(
                Running(
                    metadata.namespace, gang_id(view.maker_of(pod)), asks_of(pod),
                    gpus_of(pod, self._settings.counting), pod.spec.node_name,
                    seconds_of(metadata.creation_timestamp) or 0, now - since,
                )
            )  # fmt: skip
        return found

    def _node_facts(self, view: View) -> dict[str, NodeFacts]:
        """What decides about the failures of each node; of nodes that have not changed as before."""
        before, self._facts = self._facts, {}
        unreadable = {}
        for name, node in view.nodes.items():
            known = before.get(name)
            facts = known[1] if known is not None and known[0] is node else self._read(node)
            self._facts[name] = node, facts
            text = node.metadata.annotations.get(keys.FORGIVE_FAILURES_ANNOTATION)
            if text is not None and seconds_of(text) is None:
                unreadable[name] = text
        self.unreadable = unreadable
        return {name: facts for name, (_, facts) in self._facts.items()}

    def _read(self, node: Node) -> NodeFacts:
        metadata = node.metadata
        forgiven = seconds_of(metadata.annotations.get(keys.FORGIVE_FAILURES_ANNOTATION))
        model = self._settings.counting.model(metadata.labels)
        return NodeFacts(model, seconds_of(metadata.creation_timestamp) or 0, forgiven or 0)


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
