"""The record of failing nodes, and the messages about avoided nodes. Pure."""

import logging
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import msgspec

from labeler.contract import keys
from webhook.extensions.node_health.failing_nodes import (
    MOST,
    FailingNode,
    FailingNodes,
    Failures,
    GangFailure,
    why_bad,
)
from webhook.extensions.node_health.pod_failures import seconds_of
from webhook.kube.decoding import decoded
from webhook.kube.objects import Node
from webhook.kube.struct import Struct
from webhook.sweeper.decide.node_rules import avoided_sentence
from webhook.sweeper.extension import DoctorCheck, DoctorLine, HookInput
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.watches import WatchedCollection
from webhook.text import counted, few

# In the ConfigMap's data, `failures` (JSON) is the state for the next leader. `avoided` is for users and for
# `topogate nodes`; no decision reads it.

NAME: Final = "topogate-node-failures"

EVERYBODY: Final = "*"
"""All namespaces: no namespace has this name."""

_LONGEST_TEXT: Final = 253
_MOST_PODS: Final = 10_000
_CLOCK_SKEW: Final = 86_400.0
_LAST: Final = 253_402_300_799
"""The end of the year 9999, in seconds since 1970: later times cannot be shown."""

logger = logging.getLogger(__name__)


class AvoidedNode(Struct, frozen=True):
    """An avoided node, for display. by: EVERYBODY, or the namespace whose pods avoid it."""

    node: str
    by: str
    model: str
    gangs: int
    cause: str
    last: int
    until: int


_failures_decoder: Final = msgspec.json.Decoder(tuple[GangFailure, ...])
_avoided_decoder: Final = msgspec.json.Decoder(list[AvoidedNode])


def data_of(failures: Failures, failing_nodes: FailingNodes) -> dict[str, str]:
    """The data of the ConfigMap."""
    return {"failures": encoded(failures), "avoided": _avoided_text(failing_nodes)}


def encoded(failures: Failures) -> str:
    """Failures as text for the ConfigMap."""
    return msgspec.json.encode(failures).decode()


def failures_in(data: Mapping[str, str], now: float = _LAST) -> Failures:
    """The failures in the ConfigMap's data, without those that no sweeper has written, which is logged.

    now: seconds since 1970. Another sweeper's clock may be a day ahead.
    """
    text = data.get("failures", "")
    try:
        found = decoded(_failures_decoder, text.encode(errors="replace")) if text else ()
    except msgspec.MsgspecError as error:
        logger.warning("node_failures error=%r", f"the record cannot be read, and starts empty: {error}")
        return ()
    believed = tuple(each for each in found if _is_believable(each, now + _CLOCK_SKEW))[:MOST]
    if len(believed) < len(found):
        logger.warning(
            "node_failures left_out=%d reason='no sweeper writes such'", len(found) - len(believed)
        )
    return believed


def _is_believable(failure: GangFailure, latest: float) -> bool:
    """Whether a sweeper may have written it: a client may edit the ConfigMap."""
    texts = (failure.namespace, failure.gang, failure.cause, failure.asks, *chain.from_iterable(failure.pods))
    numbers = failure.created, failure.at, failure.ran, failure.gpus
    is_short = all(len(text) <= _LONGEST_TEXT for text in texts) and 0 < len(failure.pods) <= _MOST_PODS
    return is_short and failure.at <= latest and all(0 <= each <= _LAST for each in numbers)


def avoided(data: Mapping[str, Any]) -> list[AvoidedNode]:
    """The avoided nodes in the ConfigMap's data. Raises msgspec.MsgspecError."""
    text = data.get("avoided", "")
    found = decoded(_avoided_decoder, text.encode(errors="replace")) if text else []
    return [each for each in found if 0 <= each.last <= _LAST and 0 <= each.until <= _LAST]


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


RESET_COMMAND: Final = (
    f'kubectl annotate node NODE --overwrite {keys.RESET_FAILURES_ANNOTATION}="$(date -u +%FT%TZ)"'
)


def avoided_now(data: Mapping[str, str], now: float) -> list[AvoidedNode]:
    """The avoided nodes whose time has not ended: without a leader, ended ones stay in the data.

    Raises msgspec.MsgspecError.
    """
    return [each for each in avoided(data) if each.until > now]


def reasons(data: Mapping[str, str], now: float, namespace: str = "") -> dict[str, str]:
    """Node -> why all gangs, or those of the namespace, avoid it; {} if the data is unreadable."""
    try:
        found = avoided_now(data, now)
    except msgspec.MsgspecError:
        return {}  # see doctor
    those = (each for each in found if each.by in (EVERYBODY, namespace))
    return {each.node: why_bad(each.gangs, each.last, each.cause) for each in those}


def explain(given: HookInput, gang: PodGang) -> Iterator[str]:
    """The nodes that its plan avoids, else those that the gang avoids now, if the record is readable."""
    nodes, placement = given.view.nodes, given.view.placements.get(gang.key.placement_key)
    found = reasons(given.record or {}, given.view.now.at.timestamp(), gang.key.namespace)
    there = {name: why for name, why in found.items() if name in nodes}
    if placement is not None and placement.spec.avoided:
        yield f"Its plan {avoided_sentence(placement.spec.avoided)}."
    elif there:
        yield f"It {avoided_sentence(there)}; with nodeHealth.avoid: soft it uses them as a last resort."


def unreadable_resets(annotations: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Node -> its annotation to reset failures, if that is not a time. annotations: by node."""
    texts = {name: each.get(keys.RESET_FAILURES_ANNOTATION) for name, each in annotations.items()}
    return {name: text for name, text in texts.items() if text is not None and seconds_of(text) is None}


def examine(given: HookInput) -> Iterator[DoctorLine]:
    """Report avoided nodes, and unreadable annotations of operators that reset failures."""
    try:
        bad = avoided_now(given.record or {}, given.view.now.at.timestamp())
    except msgspec.MsgspecError as error:
        yield DoctorLine(f"{NAME} cannot be read: {error}", "Delete its data; the sweeper starts again.")
        return
    nodes = NODES.of(given.view) or {}
    annotations = {name: each.metadata.annotations for name, each in nodes.items()}
    found = [
        *_avoided_lines(bad),
        *_reset_lines(unreadable_resets(annotations)),
        *_v01_lines(sorted(name for name, each in annotations.items() if keys.RESET_FAILURES_V01 in each)),
    ]
    yield from found or [DoctorLine("no node is avoided")]


def _avoided_lines(bad: Collection[AvoidedNode]) -> Iterator[DoctorLine]:
    names = {each.node for each in bad if each.by == EVERYBODY}
    others = {each.node for each in bad} - names
    if names:
        nodes = counted(len(names), "node is", "nodes are")
        yield DoctorLine(
            f"{nodes} avoided since pods of several gangs failed there: {few(sorted(names))}",
            "Run topogate nodes for the reasons, and to have them used again.",
        )
    if others:
        yield DoctorLine(
            f"some namespaces avoid nodes where their pods failed: {few(sorted(others))}", "topogate nodes"
        )


def _reset_lines(unreadable: Mapping[str, str]) -> Iterator[DoctorLine]:
    if unreadable:
        name, text = min(unreadable.items())
        yield DoctorLine(
            f"node {name}: {keys.RESET_FAILURES_ANNOTATION} is not a time: {text[:100]!r}",
            RESET_COMMAND.replace("NODE", name),
        )


def _v01_lines(names: list[str]) -> Iterator[DoctorLine]:
    if names:
        nodes = counted(len(names), "node has", "nodes have")
        yield DoctorLine(
            f"{nodes} the annotation {keys.RESET_FAILURES_V01}, which v0.3 does not read: {few(names)}",
            f"{RESET_COMMAND} {keys.RESET_FAILURES_V01}-",
        )


NODES: Final = WatchedCollection("/api/v1/nodes", "Node", Node)
CHECK: Final = DoctorCheck(
    "failures",
    off="nodes on which pods fail are not avoided: nodeHealth.avoid is off",
    reads=NODES,
    examine=examine,
)
