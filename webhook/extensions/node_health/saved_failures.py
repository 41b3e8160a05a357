"""Failures of nodes as they are kept in the API server: the data of the extension's record, a ConfigMap.

`failures` is what the next leader goes on from, as JSON; `avoided` is for people and `topogate nodes`, and
never read to decide anything.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from webhook.extensions.node_health.failing_nodes import FailingNode, FailingNodes
from webhook.extensions.node_health.gang_failures import Failures, GangFailure
from webhook.kube.struct import Struct

NAME: Final = "topogate-node-failures"

EVERYBODY: Final = "*"
"""Stands for all namespaces, as no namespace is called so."""

logger = logging.getLogger(__name__)


class AvoidedNode(Struct, frozen=True):
    """A node that is avoided, for people. by: EVERYBODY, or the namespace whose pods avoid it."""

    node: str
    by: str
    model: str
    gangs: int
    cause: str
    last: int
    until: int


def data_of(failures: Failures, failing_nodes: FailingNodes) -> dict[str, str]:
    """The data of the ConfigMap."""
    return {"failures": encoded(failures), "avoided": _avoided_text(failing_nodes)}


def failures_in(data: Mapping[str, str]) -> Failures:
    """The failures that the ConfigMap's data hold; see decoded."""
    return decoded(data.get("failures", ""))


def encoded(failures: Failures) -> str:
    """Failures as the ConfigMap keeps them."""
    return msgspec.json.encode(failures).decode()


def decoded(text: str) -> Failures:
    """Those that are kept; none of what cannot be read, which is told."""
    try:
        return msgspec.json.decode(text, type=tuple[GangFailure, ...]) if text else ()
    except msgspec.MsgspecError as error:
        logger.warning("node_failures error=%r", f"what is kept cannot be read, and is begun anew: {error}")
        return ()


def avoided(data: Mapping[str, Any]) -> list[AvoidedNode]:
    """The nodes that the ConfigMap's data say are avoided. Raises msgspec.MsgspecError."""
    text = data.get("avoided", "")
    return msgspec.json.decode(text, type=list[AvoidedNode]) if text else []


def _avoided_text(failing_nodes: FailingNodes) -> str:
    found = [_avoided(each, EVERYBODY) for each in failing_nodes.for_all.values()]
    for namespace, those in sorted(failing_nodes.for_namespaces.items()):
        found += [
            _avoided(each, namespace) for name, each in those.items() if name not in failing_nodes.for_all
        ]
    return msgspec.json.encode(sorted(found, key=lambda each: (each.node, each.by))).decode()


def _avoided(failing: FailingNode, by: str) -> AvoidedNode:
    return AvoidedNode(
        node=failing.node, by=by, model=failing.model, gangs=failing.gangs, cause=failing.cause,
        last=failing.at, until=failing.until,
    )  # fmt: skip
