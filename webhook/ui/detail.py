"""One gang in full: its explanation, the nearest domain, the best possible spread, and its Events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from webhook.extensions.known import completed
from webhook.extensions.node_health.avoided_nodes import avoided_line
from webhook.inquiry.explanation import CurrentAnswer, explain_gated, try_now
from webhook.kube.objects import Pod
from webhook.placement import Assignment, Gang, NoFit, Snapshot, place
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, PodGang, gather
from webhook.sweeper.settings import Settings
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


def detail(row: GangRow, scene: Scene, settings: Settings, owners: "KnownOwners", rights: Rights) -> Detail:
    """The details of a gang in a scene, without its Events."""
    gang = find(row, scene, settings, owners)
    if gang is None or not gang.gated:
        return Detail(row, [_released_pods(row)], best=_best_of_released(row, scene, settings))
    view, snapshot = scene.view, scene.snapshot
    now = try_now(gang, view, snapshot, settings.options)
    first = min(gang.gated, key=lambda pod: (gang.ranks.get(pod.metadata.uid, 0), pod.metadata.name))

    def named(name: str) -> str:
        return name if rights.may_list(name.partition("/")[0]) else HIDDEN

    tiles = scene.picture.nodes.values() if rights.nodes else ()
    avoided = {tile.name: tile.avoided for tile in tiles if tile.avoided}
    return Detail(
        row,
        [
            *explain_gated(first, gang, view, snapshot, settings, now=now, named=named),
            *avoided_line(view.placements.get(gang.key.placement_key), avoided),
        ],
        nearest=_nearest(now, snapshot),
        nodes=(
            [each.node for each in now.answer.placed]
            if rights.nodes and isinstance(now.answer, Assignment)
            else []
        ),
        best=_best(now.asked, snapshot, settings),
    )


@dataclass(frozen=True)
class KnownOwners:
    """The known owners of gangs. all_of: the owners of a kind ("jobs.batch") by "namespace/name"."""

    size_of: Callable[[GangKey], OwnerFacts]
    all_of: Callable[[str], Mapping[str, Any] | None]


def find(row: GangRow, scene: Scene, settings: Settings, owners: KnownOwners) -> PodGang | None:
    """The gang of a row, None if no pod of it waits any more."""
    names = {member.name for member in row.members}

    def mine(pod: Pod) -> bool:
        return pod.metadata.namespace == row.namespace and pod.metadata.name in names

    gated = [pod for pod in scene.view.gated if mine(pod)]
    others = [pod for pod in scene.view.others if mine(pod)]
    gathered = gather(gated, others, owners.size_of, scene.view.gang_of)
    gangs = completed(gathered, scene.view, settings, owners.all_of)
    return next((gang for gang in gangs if gang.key.placement_key == row.id), None)


def _released_pods(row: GangRow) -> str:
    where = f", on {row.spread}" if row.spread else ""
    whose = f"of {row.kind}/{row.name}"
    pods = counted(row.pods, f"pod {whose} is", f"pods {whose} are")
    return f"{pods} released{where}; {row.bound} bound."


def _nearest(now: CurrentAnswer, snapshot: Snapshot) -> str:
    """The id of the domain that came closest: the answer has its values, the snapshot its family."""
    if not isinstance(now.answer, NoFit) or now.answer.nearest is None or not now.answer.nearest.domain:
        return ""
    wanted = now.answer.nearest.domain
    for state in snapshot.nodes.values():
        if state.path is not None and state.path[1 : len(wanted) + 1] == wanted:
            return "/".join(state.path[: len(wanted) + 1])
    return ""


def _best(asked: Gang | None, snapshot: Snapshot, settings: Settings) -> str:
    """The spread of a gang in the cluster without any other pod."""
    if asked is None:
        return ""
    empty = snapshot.without(snapshot.nodes.keys(), lambda use: True)
    spread = None if asked.spread is None else replace(asked.spread, peers=())
    alone = replace(asked, anchors=(), excluded_nodes=frozenset(), spread=spread)
    found = place(alone, empty, settings.options)
    return found.spread if isinstance(found, Assignment) else ""


def _best_of_released(row: GangRow, scene: Scene, settings: Settings) -> str:
    names = {member.name for member in row.members}
    pods = [
        pod
        for pod in scene.view.others
        if pod.metadata.namespace == row.namespace and pod.metadata.name in names
    ]
    gangs = gather(pods, [], lambda _: OwnerFacts(), scene.view.gang_of)
    gang = next((gang for gang in gangs if gang.key.placement_key == row.id), None)
    if gang is None:
        return ""
    try:
        return _best(question(gang, pods, {}, class_of=scene.view.class_of).gang, scene.snapshot, settings)
    except ValueError:
        return ""
