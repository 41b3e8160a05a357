"""Calls the hooks of the extensions that are on, and carries out their orders.

An extension that is off is not imported and not called. A defect of one extension is logged and stops neither
the others nor the pass. The memories of all extensions are passed from hook to hook as one mapping by name,
see Memory.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from webhook.kube.objects import Pod
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.asking import DivideGang
from webhook.sweeper.decide.node_rules import NodeRules, join, nodes_of
from webhook.sweeper.decide.orders import NO_HURRY, Cause, Done, NewPlan
from webhook.sweeper.decide.plan import without_plans
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.decide.reservations import Reservation, ReservationInput, ReservationSource
from webhook.sweeper.extension import (
    EndOrders,
    ExcludeInput,
    Extension,
    GangsInput,
    Gauges,
    NodeEvent,
    OrderInput,
    PassEnd,
    PlansInput,
    ResourcesInput,
    SwitchInput,
    WriteResult,
    dividing,
    with_resources,
)
from webhook.sweeper.extension_objects import ExtensionObjects, RecordStore
from webhook.sweeper.observe.cache import MOST_FAILED
from webhook.sweeper.observe.gangs import OWN_ERROR, GangKey, PodGang
from webhook.sweeper.observe.node_usage import CLAIMS_OFF, UNKNOWN_CLAIMS, ClaimsWait
from webhook.sweeper.observe.view import View
from webhook.text import joined

Memories = Mapping[str, Any]
"""Name of an extension -> its memory."""

logger = logging.getLogger(__name__)


class _Running:
    """An extension that is on.

    unheeded: its record as it was read, until a hook has processed it. written: the results of the writes
    that it ordered in the last pass. node_rules: the last answer of its hook exclude_nodes. failed: pods that
    this hook has not processed yet.
    """

    def __init__(self, extension: Extension, surroundings: Pass) -> None:
        self.extension = extension
        self.objects = ExtensionObjects(surroundings, extension)
        self.written: Sequence[WriteResult] = ()
        spec = extension.record
        self.record = RecordStore(surroundings, spec) if spec is not None else None
        self.unheeded: Mapping[str, str] | None = None
        self.node_rules = NodeRules()
        self.failed: deque[Pod] = deque(maxlen=MOST_FAILED)

    def read(self) -> Mapping[str, str] | None:
        """Its record, if that is news."""
        found = self.record.read() if self.record is not None else None
        self.unheeded = found if found is not None else self.unheeded
        return self.unheeded

    @property
    def may_write(self) -> bool:
        """Whether its record may be written now: only once a hook has processed what was read."""
        return self.record is not None and self.unheeded is None and self.record.may_write


class ExtensionHooks:
    """The extensions of one leader.

    sentences: of the last pass, by Placement, on the order of gangs. annotations: likewise, for pods that are
    released. notes: likewise, the notes for waiting gangs beside the reason. node_rules: the nodes that gangs
    do not use. due_seconds: after which another pass is due, as hooks of this one have answered.
    """

    def __init__(self, surroundings: Pass, now: Callable[[], float] = time.time) -> None:
        """now: seconds since 1970."""
        self._pass = surroundings
        self._now = now
        self._running: dict[int, _Running] = {}
        self._failed: set[int] = set()
        self._placed: list[NewPlan] = []
        self.sentences: Mapping[str, str] = {}
        self.notes: Mapping[GangKey, str] = {}
        self.node_rules = NodeRules()
        self.annotations: Mapping[str, Mapping[str, str]] = {}
        self.due_seconds = NO_HURRY

    def close(self) -> None:
        """End the watches, and show nothing more."""
        for running in self._running.values():
            running.objects.stop()
            self._clear(running.extension)

    def begin(self, view: View, memories: Memories) -> tuple[View, Memories]:
        """Begin a pass: apply changed settings and policy; an extension that is off loses its memory.

        The view is returned with the objects that extensions watch, and their additions to nodes and pods.
        """
        self.due_seconds = NO_HURRY
        self._failed.clear()
        memories = self._switch(view, memories)
        objects = {}
        for running in self._running.values():
            objects.update(running.objects.current())
        view = replace(view, objects=objects) if objects else view
        return self._add_resources(view, memories)

    def _add_resources(self, view: View, memories: Memories) -> tuple[View, Memories]:
        """The view with the resources that extensions add; see ResourcesInput.

        Where none is on, or one has a defect, pods with claims wait, as their devices are unknown. A defect
        may come from an extension's memory, so that is dropped.
        """
        adding = [each for each in self._running.values() if each.extension.add_resources is not None]
        if adding:
            self._pass.cache.lazy.begin()
        answered = 0
        for running in adding:
            hook, name = running.extension.add_resources, running.extension.name
            assert hook is not None
            memory = memories.get(name, running.extension.memory)
            memories = {key: each for key, each in memories.items() if key != name}
            with _guarded(name):
                read = self._pass.cache.read_collections
                given = ResourcesInput(view, self._pass.settings, read, time.monotonic)
                added, memory = hook(given, memory)
                view, memories = with_resources(view, added), {**memories, name: memory}
                answered += 1
                if added.is_freed:
                    self._pass.cache.on_freed()
        if answered < len(adding):
            return with_claims_waiting(view, UNKNOWN_CLAIMS), memories
        return view if adding else with_claims_waiting(view, CLAIMS_OFF), memories

    def check_plans(self, view: View, sent: SentReleases) -> View:
        """The view with the plans that hold, and with the pods that are not released; see PlansInput."""
        invalid, not_released = set[str](), set(view.not_released)
        for number, running in self._running.items():
            hook = running.extension.check_plans
            if hook is not None:
                with self._noted(number, running.extension.name):
                    found = hook(PlansInput(view, sent, self._pass.settings))
                    invalid |= found.invalid
                    not_released |= found.not_released
        if self._failed:
            not_released |= {pod.metadata.uid for pod in view.gated if self._waits_for_repair(pod)}
        if not_released:
            view = replace(view, not_released=not_released)
        return without_plans(view, invalid, sent)

    @contextmanager
    def _noted(self, number: int, name: str) -> Iterator[None]:
        """A hook after whose defect the pods that need its extension wait, see Switch.needs."""
        is_whole = False
        with _guarded(name):
            yield
            is_whole = True
        if not is_whole:
            self._failed.add(number)

    def _waits_for_repair(self, pod: Pod) -> bool:
        """Whether a pod needs an extension that has had a defect in this pass."""
        return any(self._pass.extensions[number].needs(pod) for number in self._failed)

    @property
    def divide(self) -> DivideGang:
        """The ways to ask about a gang."""
        return dividing(each.extension for each in self._running.values())

    def complete(self, gangs: list[PodGang], view: View) -> list[PodGang]:
        """The gangs with the facts that extensions add; see GangsInput."""
        completed: Sequence[PodGang] = gangs
        for number, running in self._running.items():
            hook = running.extension.complete_gangs
            if hook is not None:
                with self._noted(number, running.extension.name):
                    given = GangsInput(completed, view, self._pass.settings, self._pass.policy())
                    completed = hook(given)
        if not self._failed:
            return list(completed)
        return [
            replace(gang, fault=OWN_ERROR) if any(map(self._waits_for_repair, gang.pods)) else gang
            for gang in completed
        ]

    def order(
        self,
        gangs: list[PodGang],
        view: View,
        causes: Mapping[GangKey, Cause],
        stages: Mapping[str, Reservation],
        memories: Memories,
    ) -> tuple[list[PodGang], Memories]:
        """The gangs in the order in which they are placed; see OrderInput."""
        self.sentences, self.annotations = {}, {}
        ordered: Sequence[PodGang] = gangs
        for running in self._running.values():
            hook, name = running.extension.order_gangs, running.extension.name
            if hook is None:
                continue
            with _guarded(name):
                labels = self._pass.cache.namespace_labels()
                given = OrderInput(
                    ordered, view, self._pass.settings, self._pass.policy(), labels, causes, stages,
                    running.read(), time.thread_time,
                )  # fmt: skip
                found, memory = hook(given, memories.get(name, running.extension.memory))
                running.unheeded = None
                memories = {**memories, name: memory}
                ordered = found.gangs
                self.sentences = {**self.sentences, **found.sentences}
                self.annotations = _merged(self.annotations, found.annotations)
                self._show(found.gauges)
        return list(ordered), memories

    @property
    def sources(self) -> Sequence[ReservationSource]:
        """The reservations of extensions for gangs."""
        running = ((each.extension.name, each.extension.source) for each in self._running.values())
        return [
            ReservationSource(source.kind, partial(_reserve, name, source))
            for name, source in running
            if source is not None
        ]

    def on_failed(self, failed: Sequence[Pod]) -> None:
        """Record pods that have failed, for the hooks that exclude nodes."""
        for running in self._excluding:
            running.failed.extend(failed)

    @property
    def _excluding(self) -> list[_Running]:
        return [each for each in self._running.values() if each.extension.exclude_nodes is not None]

    def exclude(self, gangs: Sequence[PodGang], view: View, memories: Memories) -> Memories:
        """Bring up to date which nodes gangs do not use; see ExcludeInput."""
        for running in self._excluding:
            memories = self._exclude(running, gangs, view, memories)
        self.node_rules = join(each.node_rules for each in self._excluding)
        return memories

    def _exclude(
        self, running: _Running, gangs: Sequence[PodGang], view: View, memories: Memories
    ) -> Memories:
        """After a defect all stays excluded that was; failed pods, which may be its cause, are left out."""
        extension = running.extension
        assert extension.exclude_nodes is not None
        record, is_pending = running.read(), running.record is not None and running.record.is_pending
        failed = () if is_pending else tuple(running.failed)
        given = ExcludeInput(gangs, view, self._pass.settings, failed, record, is_pending, time.thread_time)
        for each in (given, replace(given, failed=())) if failed else (given,):
            with _guarded(extension.name):
                memory = memories.get(extension.name, extension.memory)
                running.node_rules, memory = extension.exclude_nodes(each, memory)
                running.unheeded = None
                if not is_pending:
                    running.failed.clear()
                return {**memories, extension.name: memory}
        nodes = len(nodes_of(running.node_rules.rules))
        logger.error("exclusions_reused name=%s nodes=%d", extension.name, nodes)
        return memories

    def on_result(self, done: Done) -> None:
        """Record the written plans, for the end of the pass."""
        if self._running:
            self._placed += done.placed

    def after_pass(
        self,
        view: View,
        memories: Memories,
        gangs: Sequence[PodGang] = (),
        causes: Mapping[GangKey, Cause] = MappingProxyType({}),
    ) -> Memories:
        """Give each extension the results of the pass, and carry out its orders; see PassEnd."""
        placed, self._placed, self.notes = tuple(self._placed), [], {}
        settings, policy = self._pass.settings, self._pass.policy()
        labels = self._pass.cache.namespace_labels()
        for running in self._running.values():
            hook, name = running.extension.after_pass, running.extension.name
            if hook is None:
                continue
            with _guarded(name):
                written, running.written = running.written, ()
                given = PassEnd(
                    view,
                    policy,
                    placed,
                    may_write=running.may_write,
                    written=written,
                    namespaces=labels,
                    settings=settings,
                    gangs=gangs,
                    causes=causes,
                )
                orders, memory = hook(given, memories.get(name, running.extension.memory))
                memories = {**memories, name: memory}
                running.written = self._carry_out(orders, running)
                notes = {key: joined(self.notes.get(key, ""), each) for key, each in orders.notes.items()}
                self.notes = {**self.notes, **notes}
        return memories

    def _carry_out(self, orders: EndOrders, running: _Running) -> Sequence[WriteResult]:
        """Carry out the orders of a hook; returns the results of its writes."""
        self._show(orders.gauges)
        for name, counts in orders.counts.items():
            self._pass.metrics.count(name, counts)
        for event in orders.events:
            if isinstance(event, NodeEvent):
                self._pass.announcer.announce_on_node(event.node, event.reason, event.note)
            else:
                self._pass.announcer.announce(event.pod, event.reason, event.note)
        results, due = running.objects.write(orders.writes)
        self.due_seconds = min(self.due_seconds, orders.due_seconds, due)
        if orders.record is not None and running.record is not None and running.record.write(orders.record):
            self._report_writes(running.extension)
        return results

    def _switch(self, view: View, memories: Memories) -> Memories:
        served = self._pass.cache.served()
        given = SwitchInput(self._pass.settings, self._pass.policy(), served, view)
        for number, switch in enumerate(self._pass.extensions):
            with self._noted(number, f"number {number}"):  # its name is known once it is imported
                is_on = switch.is_on(given)
                if is_on and number not in self._running:
                    self._begin(number, switch.load())
                elif not is_on and number in self._running:
                    gone = self._end(number)
                    memories = {name: memory for name, memory in memories.items() if name != gone.name}
                if is_on:
                    self._running[number].objects.watch(served)
        return memories

    def _begin(self, number: int, extension: Extension) -> None:
        self._pass.metrics.declare(extension.all_gauges, extension.counters)
        self._running[number] = _Running(extension, self._pass)
        logger.info("extension_on name=%s", extension.name)

    def _end(self, number: int) -> Extension:
        running = self._running.pop(number)
        running.objects.stop()
        gone = running.extension
        self._clear(gone)
        logger.info("extension_off name=%s", gone.name)
        return gone

    def _clear(self, extension: Extension) -> None:
        self._show({each.name: {} if each.labels else {(): 0.0} for each in extension.gauges})

    def _show(self, gauges: Gauges) -> None:
        for name, values in gauges.items():
            self._pass.metrics.show(name, values)

    def _report_writes(self, extension: Extension) -> None:
        written = extension.record.written if extension.record is not None else None
        if written is not None:
            self._pass.metrics.show(written.name, {(): self._now()})


def with_claims_waiting(view: View, problem: str = UNKNOWN_CLAIMS) -> View:
    """The view in which pods with claims on devices wait; the very same if none has any. problem: why."""
    if not any(pod.spec.resource_claims for pod in view.gated):
        return view
    return replace(view, added=(*view.added, ClaimsWait(problem)))


def _merged(
    some: Mapping[str, Mapping[str, str]], more: Mapping[str, Mapping[str, str]]
) -> Mapping[str, Mapping[str, str]]:
    """Annotations of both, by Placement."""
    return {name: {**some.get(name, {}), **more.get(name, {})} for name in some.keys() | more.keys()}


def _reserve(name: str, source: ReservationSource, given: ReservationInput) -> Iterable[Reservation]:
    """The reservations of an extension; after a defect its last ones, until they end."""
    with _guarded(name):
        return tuple(source.reserve(given))
    ledger = given.ledger
    return [each for each in ledger.of_kind(source.kind) if ledger.now.seconds < each.until]


@contextmanager
def _guarded(name: str) -> Iterator[None]:
    """A hook whose defect must not stop the others."""
    try:
        yield
    except Exception:
        logger.exception("extension_failed name=%s", name)
