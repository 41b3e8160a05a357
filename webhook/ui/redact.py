"""Limits a picture to the rights of one viewer: names of pods that may not be listed are hidden. Pure."""

from dataclasses import dataclass

import msgspec

from webhook.ui.availability import Troubles
from webhook.ui.gang_rows import GangRow
from webhook.ui.picture import NodeTile, PodTile

HIDDEN = "(hidden)"


@dataclass(frozen=True)
class Rights:
    """The objects that a viewer may list.

    namespaces: where pods may be listed, None for everywhere. nodes: whether nodes may be listed.
    """

    namespaces: frozenset[str] | None = None
    nodes: bool = True

    def may_list(self, namespace: str) -> bool:
        """Whether the viewer may list the pods of a namespace."""
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING = Rights()


def gangs_for(rows: list[GangRow], rights: Rights) -> tuple[list[GangRow], int]:
    """The gangs that the viewer may see, and the number of the others."""
    seen = [row for row in rows if rights.may_list(row.namespace)]
    return seen, len(rows) - len(seen)


def node_for(tile: NodeTile, rights: Rights) -> NodeTile:
    """The tile without names of pods that the viewer may not list; their GPUs stay."""
    if rights.namespaces is None:
        return tile
    pods = [pod if rights.may_list(pod.namespace) else _hidden(pod) for pod in tile.pods]
    reserved_for = tile.reserved_for
    if reserved_for and not rights.may_list(reserved_for.partition("/")[0]):
        reserved_for = HIDDEN
    return msgspec.structs.replace(tile, pods=pods, reserved_for=reserved_for)


def _hidden(pod: PodTile) -> PodTile:
    return PodTile(HIDDEN, HIDDEN, pod.gpus, pod.state)


def troubles_for(troubles: Troubles, rights: Rights) -> Troubles:
    """The problems of nodes, without names for a viewer who may not list nodes."""
    return troubles if rights.nodes else msgspec.structs.replace(troubles, nodes=[])
