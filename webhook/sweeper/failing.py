"""Nodes on which pods fail: each pass takes failures in, keeps them in the API server, and tells people.

What has not been read yet is not judged: failed pods wait until what the leader before has kept is there.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from labeler.contract.event_reasons import EventReason
from webhook.sweeper.apply.failure_log import FailureLog
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.health import NodeHealth
from webhook.sweeper.decide.verdicts import NodeVerdict
from webhook.sweeper.metrics import replace
from webhook.sweeper.observe.view import View
from webhook.text import counted

MOST_MODELS: Final = 32
FORGIVE: Final = 'kubectl annotate node {node} --overwrite topogate.io/forgive-failures="$(date -u +%FT%TZ)"'

logger = logging.getLogger(__name__)


class Failing:
    """Brings what is known of nodes up to date with the cluster, and the cluster with that."""

    def __init__(self, surroundings: Pass, health: NodeHealth) -> None:
        self._pass = surroundings
        self._health = health
        self._log = FailureLog(surroundings.api)
        self._told: Mapping[str, NodeVerdict] | None = None
        self._unreadable: Mapping[str, str] = {}

    def step(self, view: View) -> None:
        """One pass of it."""
        health = self._health
        if not health.is_on:
            return
        if not self._log.loaded:
            failures = self._log.load(self._pass.clock())
            if not self._log.loaded:
                return
            if failures is not None:
                health.failures = failures
            # What the leader before has told is not told again.
            health.saw(view, ())
            self._told = health.verdicts.for_all if self._told is None else self._told
        health.saw(view, self._pass.cache.take_failed())
        self._tell(view)
        if self._pass.may_act():
            self._pass.beat()
            self._log.save(health.failures, health.verdicts, self._pass.clock())

    def _tell(self, view: View) -> None:
        verdicts, before = self._health.verdicts, self._told or {}
        metrics, announcer = self._pass.metrics, self._pass.announcer
        bad = verdicts.for_all
        for name in sorted(bad.keys() - before.keys()):
            gangs = counted(bad[name].gangs, "gang")
            why = f"{gangs} failed there and ran elsewhere, last by {bad[name].cause}"
            logger.warning("node_avoided node=%s gangs=%d cause=%r", name, bad[name].gangs, bad[name].cause)
            note = f"topogate avoids this node: pods of {why}. Once it is mended: {FORGIVE.format(node=name)}"
            announcer.say_of_node(view.nodes[name], EventReason.NODE_AVOIDED, note)
        for name in sorted(before.keys() - bad.keys()):
            logger.info("node_used_again node=%s", name)
            if name in view.nodes:
                announcer.say_of_node(
                    view.nodes[name], EventReason.NODE_RECOVERED, "topogate no longer avoids this node"
                )
        self._told = bad
        counts = Counter(each.model for each in bad.values())
        models = sorted(counts, key=lambda model: (-counts[model], model))[:MOST_MODELS]
        replace(metrics.avoided, {(model,): float(counts[model]) for model in models})
        replace(metrics.avoided_info, {(each.node, each.cause): 1.0 for each in bad.values()})
        metrics.failures.set(len(self._health.failures))
        for name, text in self._health.unreadable.items():
            if self._unreadable.get(name) != text:
                logger.warning("not_forgiven node=%s annotation=%r reason='is no time'", name, text[:100])
        self._unreadable = self._health.unreadable
