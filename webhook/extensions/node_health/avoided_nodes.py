"""What people are told of avoided nodes, by what the leader has written into the record. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from labeler.contract import keys
from webhook.extensions.node_health.failing_nodes import why_bad
from webhook.extensions.node_health.pod_failures import seconds_of
from webhook.extensions.node_health.saved_failures import EVERYBODY, NAME, AvoidedNode, avoided
from webhook.kube.objects import Node
from webhook.kube.placements import Placement
from webhook.sweeper.decide.node_exclusions import avoided_sentence
from webhook.sweeper.extension import DoctorCheck, DoctorInput, DoctorLine, ExplainInput, WatchedCollection
from webhook.text import counted

RESET_COMMAND: Final = (
    f'kubectl annotate node NODE --overwrite {keys.FORGIVE_FAILURES_ANNOTATION}="$(date -u +%FT%TZ)"'
)
_NAMED: Final = 3


def avoided_now(data: Mapping[str, str], now: float) -> list[AvoidedNode]:
    """Those whose time is not over: while nothing leads, nobody takes them out.

    Raises msgspec.MsgspecError.
    """
    return [each for each in avoided(data) if each.until > now]


def reasons(data: Mapping[str, str], now: float, namespace: str = "") -> dict[str, str]:
    """Node -> why all gangs, and those of the namespace, avoid it; nothing of what cannot be read."""
    try:
        found = avoided_now(data, now)
    except msgspec.MsgspecError:
        return {}  # see doctor
    those = (each for each in found if each.by in (EVERYBODY, namespace))
    return {each.node: why_bad(each.gangs, each.last, each.cause) for each in those}


def explain(given: ExplainInput) -> Iterator[str]:
    """Which nodes the gang avoids, as far as the record may be read."""
    nodes = given.view.nodes
    found = reasons(given.record or {}, given.now, given.gang.key.namespace)
    there = {name: why for name, why in found.items() if name in nodes}
    return avoided_line(given.view.placements.get(given.gang.key.placement_key), there)


def avoided_line(placement: Placement | None, there: Mapping[str, str]) -> Iterator[str]:
    """What its plan did without, else what a gang avoids. there: node -> why."""
    if placement is not None and placement.spec.avoided:
        yield f"Its plan {avoided_sentence(placement.spec.avoided)}."
    elif there:
        yield f"It {avoided_sentence(there)}, or uses them where nothing else fits, as is set (bad_nodes)."


def unreadable_resets(annotations: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Node -> what stands there to reset failures and is no time. annotations: by node."""
    texts = {name: each.get(keys.FORGIVE_FAILURES_ANNOTATION) for name, each in annotations.items()}
    return {name: text for name, text in texts.items() if text is not None and seconds_of(text) is None}


def examine(given: DoctorInput) -> Iterator[DoctorLine]:
    """Nodes that are avoided want mending, and what an operator wrote there must be readable."""
    try:
        bad = avoided_now(given.record or {}, given.now.timestamp())
    except msgspec.MsgspecError as error:
        yield DoctorLine(f"{NAME} cannot be read: {error}", "Delete its data; the sweeper begins anew.")
        return
    annotations = {each.metadata.name: each.metadata.annotations for each in given.objects}
    found = [*_avoided_lines(bad), *_reset_lines(unreadable_resets(annotations))]
    yield from found or [DoctorLine("no node is avoided")]


def _avoided_lines(bad: Collection[AvoidedNode]) -> Iterator[DoctorLine]:
    names = {each.node for each in bad if each.by == EVERYBODY}
    others = {each.node for each in bad} - names
    if names:
        nodes = counted(len(names), "node is", "nodes are")
        yield DoctorLine(
            f"{nodes} avoided since pods of several gangs failed there: {_some(names)}",
            "topogate nodes says why, and how to have them used again.",
        )
    if others:
        yield DoctorLine(
            f"some namespaces avoid nodes where their pods failed: {_some(others)}", "topogate nodes"
        )


def _reset_lines(unreadable: Mapping[str, str]) -> Iterator[DoctorLine]:
    if unreadable:
        name, text = min(unreadable.items())
        yield DoctorLine(
            f"node {name}: {keys.FORGIVE_FAILURES_ANNOTATION} is no time: {text[:100]!r}",
            RESET_COMMAND.replace("NODE", name),
        )


CHECK: Final = DoctorCheck(
    "failures",
    off="nodes on which pods fail are not avoided: bad_nodes is off",
    reads=WatchedCollection("/api/v1/nodes", "Node", Node),
    examine=examine,
)


def _some(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:_NAMED]) + (" ..." if len(names) > _NAMED else "")
