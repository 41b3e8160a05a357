"""Placing of gangs on a cluster in memory with node health on."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from tests.sweeper.cluster import Nodes, Placing
from webhook.configuration.settings import Settings
from webhook.extensions.node_health.node_health import NODE_HEALTH, HealthMemory, node_rules
from webhook.kube.objects import Pod
from webhook.sweeper.decide.node_rules import NodeRules
from webhook.sweeper.extension import HookInput
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import Moment, View


class HealthPlacing(Placing):
    """Passes in which node health excludes nodes. health: what it remembers."""

    def __init__(self, cluster: Nodes, settings: Settings, health: HealthMemory | None = None) -> None:
        super().__init__(cluster, settings)
        self.health = health or HealthMemory()

    def exclude(self, gangs: Iterable[PodGang]) -> NodeRules:
        return node_rules(gangs, self.settings, self.health)

    def observe(self, at: float, *failed: Pod) -> HealthMemory:
        """With what a pass sees at this second since 1970, and these pods that have failed."""
        self.health = observed(self.view(), self.settings, self.health, at, *failed)
        return self.health


def observed(view: View, settings: Settings, memory: HealthMemory, at: float, *failed: Pod) -> HealthMemory:
    """What is remembered after a pass."""
    view = replace(view, now=Moment(view.now.seconds, datetime.fromtimestamp(at, UTC)))
    given = HookInput(view, settings, failed=failed, cpu_seconds=lambda: 0.0)
    return NODE_HEALTH.exclude_nodes(given, memory)[1]
