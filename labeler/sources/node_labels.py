"""A place from labels that the cloud has put on the Node, under the cloud's own keys.

The option ``topology`` lists these keys, coarsest first, the last one of the node itself. Two forms stand
for more than one key: ``PREFIX[-1]`` is the numbered label of that prefix with the highest number,
``PREFIX[-2]`` the one above it, and of ``KEY|KEY`` the first counts that the Node has. On EKS for example,
where an instance type has three or four layers and an instance hangs on the lowest one, which it shares
with others::

    - node-labels:
        topology:
        - topology.k8s.aws/network-node-layer-[-2]
        - topology.k8s.aws/ultraserver-id|topology.k8s.aws/network-node-layer-[-1]
        - kubernetes.io/hostname
"""

import re
from collections.abc import Callable, Mapping
from threading import Event
from typing import Final

from labeler.contract import keys
from labeler.facts import Facts, SourceError
from labeler.sources import Context, OptionError, Options

_FROM_BELOW: Final = re.compile(r"(.+)\[-([1-9])\]")
_OF_EVERY_NODE: Final = (keys.HOSTNAME_LABEL, keys.ZONE_LABEL)

OPTIONS: Final = ("topology",)


def create(options: Options, context: Context) -> "NodeLabelsSource":
    """Source with the option ``topology``."""
    levels = options.get("topology")
    if not isinstance(levels, list) or not levels or not all(isinstance(key, str) and key for key in levels):
        raise OptionError("source node-labels: topology must list the labels' keys, coarsest first")
    own = [key for level in levels for key in level.split("|") if key in keys.PRERELEASE_TOPOLOGY]
    if own:
        raise OptionError(f"source node-labels: {', '.join(own)} is written by the labeler itself")
    return NodeLabelsSource(context, tuple(levels))


class NodeLabelsSource:
    """The Node's own labels; changes are found at the loop's interval."""

    def __init__(self, context: Context, levels: tuple[str, ...]) -> None:
        """levels: label keys, coarsest first, in the forms of the module's text."""
        self._context = context
        self._levels = levels

    def discover(self) -> Facts:
        """No place where all labels are missing. Raises SourceError where some are, or for no answer.

        Hostname and zone, which every Node has, do not count for that.
        """
        labels = self._context.node_metadata().get("labels") or {}
        values = {level: _value(labels, level) for level in self._levels}
        missing = [level for level in self._levels if not values[level]]
        if set(self._levels) - set(missing) <= set(_OF_EVERY_NODE) and missing:
            return Facts()
        if missing:
            raise SourceError(f"the Node has only some of the labels, {', '.join(missing)} missing")
        return Facts(topology=tuple(values[level] for level in self._levels))

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """Nothing to listen to: watching Nodes would need a permission that the labeler does not have."""


def _value(labels: Mapping[str, str], level: str) -> str:
    """The first value of a level's keys, "" for none. Raises SourceError for numbered labels with a gap."""
    return next((value for key in level.split("|") if (value := _label(labels, key))), "")


def _label(labels: Mapping[str, str], key: str) -> str:
    match = _FROM_BELOW.fullmatch(key)
    if match is None:
        return labels.get(key, "")
    prefix, position = match[1], int(match[2])
    ends = (
        label.removeprefix(prefix) for label, value in labels.items() if label.startswith(prefix) and value
    )
    numbers = sorted(int(end) for end in ends if end.isdecimal())
    if numbers != list(range(1, len(numbers) + 1)):
        raise SourceError(f"the Node's labels {prefix}N have a gap: N is {', '.join(map(str, numbers))}")
    return labels[f"{prefix}{numbers[-position]}"] if position <= len(numbers) else ""
