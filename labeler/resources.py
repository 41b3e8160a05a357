"""Extended resources from the labels: millicores, memory and tiles in the Node's capacity.

Readers of the gpu.intel.com labels count what is free of these resources; since Intel's device plugin 0.34 no
other program makes them. The kubelet copies capacity to allocatable by itself. It is a write to the Node's
status, hence off by default and with a role of its own (manifests/components/labeler-extended-resources).
https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from labeler.api import NodeApi
from labeler.contract import keys
from labeler.contract.quantities import QuantityError, parse
from labeler.labels import Wanted
from labeler.publisher import LabelChange, NodePublisher

log: Final = logging.getLogger(__name__)


class ResourcePublisher:
    """Publishes labels, then the resources of the same names."""

    def __init__(self, api: NodeApi, labels: NodePublisher) -> None:
        """labels: writes the labels first."""
        self._api = api
        self._labels = labels

    def publish(self, want: Wanted) -> LabelChange:
        """Bring labels and capacity to what is wanted. Raises NodeApiError."""
        change = self._labels.publish(want)
        if keys.INTEL_PREFIX in want.unknown:
            return change
        capacity = self._api.node().get("status", {}).get("capacity") or {}
        resources = resource_changes(capacity, want.labels)
        if resources:
            self._api.patch({"status": {"capacity": resources}}, "status")
            log.info("wrote capacity %s", resources)
        return change


def resource_changes(capacity: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str | None]:
    """What to change in a capacity (pure): all three resources, or none where a node has no usable cards."""
    complete = all(key in labels for key in keys.CARD_AMOUNTS)
    goal = {key: labels[key] if complete else None for key in keys.CARD_AMOUNTS}
    return {key: value for key, value in goal.items() if _amount(capacity.get(key)) != _amount(value)}


def _amount(quantity: Any) -> int | str | None:
    """A capacity in thousandths: the API server writes 68719476736 as "64Gi". What is none stays as it is."""
    if quantity is None:
        return None
    try:
        return parse(quantity)
    except QuantityError:
        return str(quantity)
