"""Nodes on which pods fail: what is known of them is kept in a record, counted, and told to people. Pure."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from labeler.contract.event_reasons import EventReason
from webhook.extensions.node_health.avoided_nodes import CHECK, RESET_COMMAND, explain
from webhook.extensions.node_health.health import HealthMemory, exclude_nodes
from webhook.extensions.node_health.saved_failures import NAME, data_of
from webhook.sweeper.extension import (
    EndOrders,
    Extension,
    Gauges,
    NodeEvent,
    PassEnd,
    RecordSpec,
)
from webhook.sweeper.metrics import GaugeSpec
from webhook.sweeper.observe.view import View
from webhook.text import counted

WRITE_SECONDS: Final = 5.0
"""Between two writes of the record."""
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


def after_pass(given: PassEnd, memory: HealthMemory) -> tuple[EndOrders, HealthMemory]:
    """Tell people which nodes are avoided, and keep the failures."""
    if memory.announced is None:
        return EndOrders(), memory  # nothing has been read, or nothing is ever avoided
    events = tuple(_news(given.view, memory))
    for name, text in memory.unreadable.items():
        if memory.warned.get(name) != text:
            logger.warning("not_forgiven node=%s annotation=%r reason='is no time'", name, text[:100])
    memory = replace(memory, announced=memory.failing_nodes.for_all, warned=memory.unreadable)
    record = None
    if given.may_write and (memory.failures or memory.is_recorded):
        record, memory = data_of(memory.failures, memory.failing_nodes), replace(memory, is_recorded=True)
    return EndOrders(record, _gauges(memory), events=events), memory


def _news(view: View, memory: HealthMemory) -> Iterator[NodeEvent]:
    bad, before = memory.failing_nodes.for_all, memory.announced or {}
    for name in sorted(bad.keys() - before.keys()):
        gangs = counted(bad[name].gangs, "gang")
        why = f"{gangs} failed there and ran elsewhere, last by {bad[name].cause}"
        logger.warning("node_avoided node=%s gangs=%d cause=%r", name, bad[name].gangs, bad[name].cause)
        mended = RESET_COMMAND.replace("NODE", name)
        note = f"topogate avoids this node: pods of {why}. Once it is mended: {mended}"
        yield NodeEvent(view.nodes[name], EventReason.NODE_AVOIDED, note)
    for name in sorted(before.keys() - bad.keys()):
        logger.info("node_used_again node=%s", name)
        if name in view.nodes:
            yield NodeEvent(
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


NODE_HEALTH: Final = Extension(
    "node_health",
    memory=HealthMemory(),
    record=RecordSpec(NAME, seconds=WRITE_SECONDS, is_written_at_once=True),
    gauges=(AVOIDED, AVOIDED_INFO, FAILURES),
    exclude_nodes=exclude_nodes,
    after_pass=after_pass,
    explain=explain,
    doctor=CHECK,
)
