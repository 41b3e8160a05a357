"""One gang in full: its explanation, the nearest domain, the best possible spread, and its Events."""

import dataclasses
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from webhook.configuration.settings import Settings
from webhook.extensions.node_health.avoided_nodes import NAME as NODE_FAILURES
from webhook.inquiry.explanation import explain_gated, lines_of_extensions
from webhook.inquiry.next_pass import PassFacts, run_pass, state_for, waiting_gangs
from webhook.inquiry.remedies import answer_now
from webhook.placement import Assignment, NoFit, Snapshot
from webhook.scheduling import conflicts
from webhook.sweeper.decide.attempt import GangPlaced
from webhook.sweeper.decide.placement_pass import answer_for
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.plans import unpinned
from webhook.text import counted
from webhook.ui.gang_events import EventLine
from webhook.ui.gang_rows import GangRow
from webhook.ui.live import Scene
from webhook.ui.picture import Shown
from webhook.ui.redact import HIDDEN, Rights


class Detail(Shown, frozen=True):
    """A gang in full.

    sentences: those of `topogate explain`, without the line on fair order; nearest: the id of the domain that
    came closest, or "". nodes: where the core would place each waiting pod now, for viewers who may list
    nodes; best: its spread in an empty cluster. domains: id of a top-level domain -> its number of pods
    there.
    """

    gang: GangRow
    sentences: list[str]
    nearest: str = ""
    nodes: list[str] = msgspec.field(default_factory=list)
    best: str = ""
    domains: dict[str, int] = msgspec.field(default_factory=dict)
    events: list[EventLine] = msgspec.field(default_factory=list)
    events_missing: str = ""


PASS_SECONDS: Final = 1.0
"""The longest time for the gangs before the one that a viewer asks about."""


def detail(row: GangRow, scene: Scene, settings: Settings, facts: PassFacts, rights: Rights) -> Detail:
    """The details of a gang in a scene, without its Events."""
    best = _best(row, scene, settings, facts)
    if not any(key.placement_key == row.id for key in scene.view.index.waiting):
        return Detail(row, [_released_pods(row)], best=best)
    bounded = dataclasses.replace(settings, pass_seconds=PASS_SECONDS)
    made = run_pass(scene.view, scene.snapshot, bounded, facts, first=row.id)
    gang = made.gang(row.id)
    if gang is None:
        return Detail(row, [_released_pods(row)], best=best)
    first = min(gang.gated, key=lambda pod: (gang.ranks.get(pod.metadata.uid, 0), pod.metadata.name))

    def named(name: str) -> str:
        return name if rights.may_list(name.partition("/")[0]) else HIDDEN

    def record_of(name: str) -> Mapping[str, str] | None:
        """That of fair order names accounts of others."""
        return facts.record_of(name) if name == NODE_FAILURES and rights.nodes else None

    shown = dataclasses.replace(facts, record_of=record_of)
    sentences = [*explain_gated(first, gang, made, named=named), *lines_of_extensions(gang, made, shown)]
    now = answer_now(gang, made)
    if isinstance(now, GangPlaced):
        nodes = [each.node for each in now.plan.answer.placed] if rights.nodes else []
        return Detail(row, sentences, nodes=nodes, best=best)
    if now is None or now.attempt is None:
        return Detail(row, sentences, best=best)
    return Detail(row, sentences, nearest=_nearest(now.attempt.answer, scene.snapshot), best=best)


def find(row: GangRow, scene: Scene, settings: Settings, facts: PassFacts) -> PodGang | None:
    """The gang of a row, None if no pod of it waits any more."""
    gangs = waiting_gangs(scene.view, settings, facts)
    return next((gang for gang in gangs if gang.key.placement_key == row.id), None)


def _released_pods(row: GangRow) -> str:
    where = f", on {row.spread}" if row.spread else ""
    whose = f"of {row.kind}/{row.name}"
    pods = counted(row.pods, f"pod {whose} is", f"pods {whose} are")
    return f"{pods} released{where}; {row.bound} bound."


def _nearest(answer: Assignment | NoFit, snapshot: Snapshot) -> str:
    """The id of the domain that came closest: the answer has its values, the snapshot its family."""
    if not isinstance(answer, NoFit) or answer.nearest is None or not answer.nearest.domain:
        return ""
    wanted = answer.nearest.domain
    for state in snapshot.nodes.values():
        if state.path is not None and state.path[1 : len(wanted) + 1] == wanted:
            return "/".join(state.path[: len(wanted) + 1])
    return ""


def _best(row: GangRow, scene: Scene, settings: Settings, facts: PassFacts) -> str:
    """The spread of a gang in the cluster without any other pod; "" if the steps find no place for it."""
    view, snapshot = scene.view, scene.snapshot
    pods = [
        unpinned(pod, view.occupied(pod) or "")
        for pod in (*view.gated, *view.others)
        if pod.metadata.namespace == row.namespace and view.gang_of(pod).placement_key == row.id
    ]
    pods = [replace(pod, spec=replace(pod.spec, node_name="")) for pod in pods]
    alone = dataclasses.replace(
        view, gated=pods, others=(), placements={}, planned={}, written=(), named=frozenset(), cards={},
        conflicts=conflicts.NONE, volumes=None, pods=None, objects={},
    )  # fmt: skip
    facts = PassFacts(facts.size_of, facts.owners_of)
    gang = next(iter(waiting_gangs(alone, settings, facts)), None)
    if gang is None:
        return ""
    empty = snapshot.without(snapshot.nodes.keys(), lambda use: True)
    outcome = answer_for(gang, state_for([gang], alone, empty, settings, facts))
    return outcome.plan.answer.spread if isinstance(outcome, GangPlaced) else ""
