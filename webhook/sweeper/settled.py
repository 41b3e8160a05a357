"""Gangs of which nothing more is to be said, as all their pods are bound: in a large cluster nearly all."""

from collections.abc import Mapping
from typing import NamedTuple

from webhook.kube.objects import Node
from webhook.kube.placements import BOUND, Placement, PlacementStatus
from webhook.sweeper.observe.pods import Pods
from webhook.sweeper.observe.view import View, identity


class _LastRound(NamedTuple):
    """What was seen in the round before."""

    pods: Pods
    nodes: Mapping[str, Node]


class Settled:
    """Remembers plans whose status stands, until one of their pods changes, or the labels of a node do."""

    def __init__(self) -> None:
        self._plans: dict[str, Placement] = {}
        self._seen: _LastRound | None = None

    def begin_round(self, view: View) -> None:
        """Forget the plans of pods that have changed since the round before."""
        seen, self._seen = self._seen, _LastRound(view.index, view.nodes)
        changed = view.index.changed_since(seen.pods) if seen is not None else None
        if seen is None or changed is None or _relabelled(seen.nodes, view.nodes):
            self._plans = {}
            return
        for uid in changed:
            pod = view.by_uid.get(uid) or seen.pods.by_uid.get(uid)
            if pod is not None:
                for name in view.naming.get(identity(pod), ()):
                    self._plans.pop(name, None)

    def has(self, placement: Placement | None) -> bool:
        """Whether the plan is the very same, and nothing of its gang has changed."""
        return placement is not None and self._plans.get(placement.key) is placement

    def saw(self, placement: Placement, status: PlacementStatus) -> None:
        """Take in the status of a gang none of whose pods waits.

        Once all are bound and the plan says so, it depends on nothing but these pods and their nodes; while
        nodes are held for it, on the time as well.
        """
        if status == placement.status and status.state == BOUND and status.complete and not status.held:
            self._plans[placement.key] = placement

    def keep_only(self, placements: Mapping[str, Placement]) -> None:
        """Other plans are gone."""
        if self._plans.keys() - placements.keys():
            self._plans = {name: plan for name, plan in self._plans.items() if name in placements}


def _relabelled(before: Mapping[str, Node], now: Mapping[str, Node]) -> bool:
    """Whether any node has come, gone or got other labels."""
    if now is before:
        return False
    if now.keys() != before.keys():
        return True
    return any(
        node is not (old := before[name]) and node.metadata.labels != old.metadata.labels
        for name, node in now.items()
    )
