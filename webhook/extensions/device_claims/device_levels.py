"""Nodes whose place in the topology drivers tell by attributes of devices: as if it stood in their labels."""

import logging
from collections.abc import Mapping

from msgspec import structs

from webhook.devices.attribute_levels import attribute_keys
from webhook.devices.supply import Supply
from webhook.identity_cache import IdentityCache
from webhook.kube.objects import Node
from webhook.placement.topology import Topology

logger = logging.getLogger(__name__)


class DeviceLevels:
    """Completes nodes; one of which nothing has changed stays the very same value."""

    def __init__(self, topology: Topology) -> None:
        """topology: nodes are completed only if some of its levels stand for attributes."""
        self._attributes = attribute_keys(topology)
        self._completed = IdentityCache[object, Node]()
        self._logged: Mapping[str, str] = {}

    @property
    def are_wanted(self) -> bool:
        """Whether any level has to be read from devices."""
        return bool(self._attributes)

    def of(self, nodes: Mapping[str, Node], supply: Supply | None) -> Mapping[str, Node]:
        """The nodes with what their devices say; a sentence in the log on each whose devices disagree."""
        if not self._attributes or supply is None:
            return nodes
        completed: dict[str, Node] = {}
        reasons: dict[str, str] = {}
        for name, node in nodes.items():
            added, problems = supply.labels(name, node.metadata.labels, self._attributes)
            if problems:
                reasons[name] = "; ".join(problems)
            key = name, tuple(added.items())
            completed[name] = self._completed.find(key, node) or self._completed.keep(
                key, _with_labels(node, added), node
            )
        self._completed.end_pass()
        for name, reason in reasons.items():
            if self._logged.get(name) != reason:
                logger.warning("level_not_known node=%s reason=%r", name, reason)
        self._logged = reasons
        return completed


def _with_labels(node: Node, added: Mapping[str, str]) -> Node:
    metadata = structs.replace(node.metadata, labels={**node.metadata.labels, **added})
    return structs.replace(node, metadata=metadata)
