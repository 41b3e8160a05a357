"""A place from labels that the cloud has put on the Node, under the cloud's own keys.

The option ``topology`` lists these keys, coarsest first; on EKS for example::

    - node-labels:
        topology:
        - topology.k8s.aws/network-node-layer-1
        - topology.k8s.aws/network-node-layer-2
        - topology.k8s.aws/network-node-layer-3
"""

from collections.abc import Callable
from threading import Event

from labeler.contract import keys
from labeler.facts import Facts, SourceError
from labeler.sources import Context, OptionError, Options, check_options


def create(options: Options, context: Context) -> "NodeLabelsSource":
    """Source with the option ``topology``."""
    check_options("node-labels", options, ("topology",))
    levels = options.get("topology")
    if not isinstance(levels, list) or not levels or not all(isinstance(key, str) and key for key in levels):
        raise OptionError("source node-labels: topology must list the labels' keys, coarsest first")
    own = [key for key in levels if key in keys.PRERELEASE_TOPOLOGY]
    if own:
        raise OptionError(f"source node-labels: {', '.join(own)} is written by the labeler itself")
    return NodeLabelsSource(context, tuple(levels))


class NodeLabelsSource:
    """The Node's own labels; changes are found at the loop's interval."""

    def __init__(self, context: Context, levels: tuple[str, ...]) -> None:
        """levels: label keys, coarsest first."""
        self._context = context
        self._levels = levels

    def discover(self) -> Facts:
        """No place where all labels are missing. Raises SourceError where some are, or for no answer."""
        labels = self._context.node_metadata().get("labels") or {}
        missing = [key for key in self._levels if not labels.get(key)]
        if len(missing) == len(self._levels):
            return Facts()
        if missing:
            raise SourceError(f"the Node has only some of the labels, {', '.join(missing)} missing")
        return Facts(topology=tuple(labels[key] for key in self._levels))

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """Nothing to listen to: watching Nodes would need a permission that the labeler does not have."""
