"""Whose turn it is on a node with cards: one pod is released at a time, the next when that one is bound.

The device plugin hands cards to the pending pod with the lowest gas-ts, whichever pod kubelet has admitted:
so kubelet must see them one after the other, in that order. A release that fails gives its turn away only
once it is known that it has not arrived and will not: else two might be pending. So does one that was
answered as done, and that somebody's webhook has undone. Who goes before others whose turn it was by the
plans is first written down as the first: the next leader knows no more than the plans.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.kube.planned import PlannedPod
from webhook.sweeper.decide.expectations import Expectations
from webhook.sweeper.decide.orders import NO_HURRY, Pair
from webhook.sweeper.decide.timestamps import turn_before, turn_of
from webhook.sweeper.decide.tries import Tries
from webhook.sweeper.observe.view import View

_SOON_SECONDS: Final = 1.0


@dataclass(frozen=True)
class AwaitedTurn:
    """A pod that waits for its turn on a node, as the release of another may still arrive there.

    is_known: whether there was such a release; else the leader before may have sent one.
    """

    pod: Pod
    node: str
    other: Pod
    until: datetime
    is_known: bool = True


class Turns:
    """The nodes on which a pod with cards is under way, in one pass.

    looks: releases in doubt whose pods are to be read now, as others wait for their nodes; unseen: likewise
    those that should show by now. ahead: entries of plans, to be written before their pods are released, of
    those that go out of line. awaited: who waits for a release in doubt, by uid. due_seconds: when a turn
    may come, whatever is heard.
    """

    def __init__(
        self,
        view: View,
        expectations: Expectations,
        unrepairable: Set[str] = frozenset(),
        tries: Tries | None = None,
    ) -> None:
        """unrepairable: uids of released pods that will not be bound and that nobody makes again."""
        self._tries = tries or Tries()
        self._view = view
        self._expectations = expectations
        self._taken = {
            node
            for pod in view.under_way
            if not pod.spec.node_name
            and not pod.spec.scheduling_gates  # what others hold may stay so for long
            and pod.metadata.uid not in unrepairable
            and (node := view.occupied(pod)) is not None
            and _has_cards(pod, node, view)
        }
        self._unseen: dict[str, Pair] = {
            planned.node: (view.by_uid[uid], planned)
            for uid, planned in view.planned.items()
            if uid in expectations and planned.annotations
        }
        """By node, who has been let go and does not show yet."""
        self._taken |= self._unseen.keys()
        self._doubted: defaultdict[str, dict[str, Pair]] = defaultdict(dict)
        """node -> uid -> a release that may have arrived there, or may still do so."""
        for pair in self._tries.in_doubt():
            self._doubted[pair[1].node][pair[1].uid] = pair
        self.looks: list[Pair] = []
        self.unseen: list[Pair] = []
        self.ahead: list[PlannedPod] = []
        self.awaited: dict[str, AwaitedTurn] = {}
        self.due_seconds = NO_HURRY
        self._behind: dict[str, str] = {}
        """uid -> that of the first of the line, for which the leader before may have sent."""

    def take(self, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
        """Those whose turn it is, in the order of the line; they have it from now on."""
        line = sorted(pairs, key=self._tries.place_in_line)
        self.plans(planned for _, planned in line if planned.uid not in self._view.planned)
        waiting: defaultdict[str, set[str]] = defaultdict(set)
        for _, planned in line:
            if planned.annotations:
                waiting[planned.node].add(planned.uid)
        chosen = []
        for pod, planned in line:
            if planned.annotations:
                if planned.node in self._taken or not self._may_go((pod, planned), waiting[planned.node]):
                    continue
                if not self._is_in_line(planned):
                    continue
                self._taken.add(planned.node)
            chosen.append((pod, planned))
        for node in waiting.keys() & self._doubted.keys() - self._taken:
            self._end_doubts(node, waiting[node])
        for pod, planned in line:
            if planned.annotations and planned.node not in self._taken:
                self._awaits(pod, planned)
        for node in waiting.keys() & self._unseen.keys():
            self._look_whether_it_shows(node)
        return tuple(chosen)

    def plans(self, entries: Iterable[PlannedPod]) -> None:
        """These are planned in this pass, and stand in the line whether they may go now or not."""
        for planned in entries:
            _note(self._lowest, planned)

    @cached_property
    def _lowest(self) -> dict[str, list[tuple[str, str]]]:
        """By node, the turns of the first two pods of its line by the plans, with their uids.

        All that is written counts, whether it may go or not, or holds no more: the next leader will not know
        what this one knows against it.
        """
        found: dict[str, list[tuple[str, str]]] = {}
        for planned in itertools.chain(self._view.written, self._view.planned.values()):
            _note(found, planned)
        return found

    def _is_in_line(self, planned: PlannedPod) -> bool:
        """Whether a pod may go now as far as the plans go; out of line it may once that is written."""
        others = [each for each in self._lowest.get(planned.node, ()) if each[1] != planned.uid]
        if not others or turn_of(planned) < others[0][0]:
            return True
        turn, first = others[0]
        if planned.uid not in self._view.planned:
            self._due(_SOON_SECONDS)  # its plan is yet to be written
            return False
        if seconds := self._tries.seconds_unknown():
            self._due(seconds)  # the leader before may have sent for the first, though this one may not
            self._behind[planned.uid] = first
            return False
        if before := turn_before(turn):
            self.ahead.append(
                replace(planned, annotations=planned.annotations | {keys.TURN_ANNOTATION: before})
            )
        return True

    def _may_go(self, pair: Pair, waiting: Set[str]) -> bool:
        planned = pair[1]
        doubted = self._doubted.get(planned.node, {})
        if doubted.keys() - {planned.uid}:
            return False
        if planned.uid in doubted and waiting != {planned.uid} and self._tries.rests(planned):
            return False
        seconds = self._tries.seconds_left(planned)
        self._due(seconds or NO_HURRY)
        return not seconds

    def _end_doubts(self, node: str, waiting: Set[str]) -> None:
        """Have the pods read whose releases can arrive no more, if others wait for the node."""
        for uid, pair in self._doubted[node].items():
            if waiting != {uid}:
                if seconds := self._tries.seconds_in_doubt(pair[1]):
                    self._due(seconds)
                else:
                    self.looks.append(pair)
                    self._due(_SOON_SECONDS)

    def _awaits(self, pod: Pod, planned: PlannedPod) -> None:
        """Note for which release a pod waits: the one in doubt that may arrive last, or one before it."""
        others = [pair for uid, pair in self._doubted.get(planned.node, {}).items() if uid != planned.uid]
        if others:
            until, other = max(
                ((self._tries.in_doubt_until(its), other) for other, its in others), key=lambda each: each[0]
            )
            self.awaited[planned.uid] = AwaitedTurn(pod, planned.node, other, until)
        elif first := self._view.by_uid.get(self._behind.get(planned.uid, "")):
            until = self._tries.unknown_until()
            self.awaited[planned.uid] = AwaitedTurn(pod, planned.node, first, until, is_known=False)

    def _look_whether_it_shows(self, node: str) -> None:
        """Have the pod read that has been let go there and should show by now, as others wait for it."""
        pair = self._unseen[node]
        if seconds := self._expectations.seconds_to_show(pair[1].uid):
            self._due(seconds)
        else:
            self.unseen.append(self._unseen.pop(node))
            self._due(_SOON_SECONDS)

    def _due(self, seconds: float) -> None:
        self.due_seconds = min(self.due_seconds, seconds)


def _note(lowest: dict[str, list[tuple[str, str]]], planned: PlannedPod) -> None:
    """Of each node two of different pods are kept, so that each pod finds the first of the others."""
    if not planned.annotations:
        return
    known = lowest.setdefault(planned.node, [])
    turn = turn_of(planned)
    if len(known) < 2 or turn < known[1][0]:
        own = min([turn, *(other for other, uid in known if uid == planned.uid)])
        known[:] = sorted([(own, planned.uid), *(each for each in known if each[1] != planned.uid)])[:2]


def _has_cards(pod: Pod, node: str, view: View) -> bool:
    """Whether it was given cards there: by what it says or, as a webhook may take that off, by its plan."""
    of_cards = (pod.metadata.namespace, pod.metadata.uid, node)
    return keys.GAS_TIMESTAMP_ANNOTATION in pod.metadata.annotations or bool(view.cards.get(of_cards))
