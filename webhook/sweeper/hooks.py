"""Calls the hooks of the extensions that are on, and carries out their orders.

An extension that is off is not imported and not called. A defect of one extension is logged and stops neither
the others nor the pass. The memories of all extensions are one mapping by name, see Memory.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from webhook.kube.objects import Node, Pod
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide.core_questions import DivideGang
from webhook.sweeper.decide.node_rules import NodeRules, join, nodes_of
from webhook.sweeper.decide.orders import NO_HURRY, Cause, Done, NewPlan
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.decide.reservations import Reservation, ReservationInput, ReservationSource
from webhook.sweeper.extension import (
    EndOrders,
    Extension,
    Gauges,
    HookInput,
    PlanCheck,
    Switch,
    WriteResult,
    dividing,
    with_notes,
    with_plan_checks,
    with_resources,
)
from webhook.sweeper.extension_objects import ExtensionObjects, RecordStore
from webhook.sweeper.observe.cache import MOST_FAILED
from webhook.sweeper.observe.gangs import OWN_ERROR, GangKey, PodGang
from webhook.sweeper.observe.node_usage import CLAIMS_OFF, UNKNOWN_CLAIMS, ClaimsWait
from webhook.sweeper.observe.view import View

Memories = Mapping[str, Any]
"""Name of an extension -> its memory."""

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class _Running:
    """An extension that is on.

    number: of its switch. unheeded: its record as it was read, until a hook has processed it. written: the
    results of the writes that it ordered in the last pass. node_rules: the last answer of its hook
    exclude_nodes. failed: pods that this hook has not processed yet.
    """

    def __init__(self, number: int, extension: Extension, surroundings: Pass) -> None:
        self.number = number
        self.extension = extension
        self.objects = ExtensionObjects(surroundings, extension)
        self.written: Sequence[WriteResult] = ()
        spec = extension.record
        self.record = RecordStore(surroundings, spec) if spec is not None else None
        self.unheeded: Mapping[str, str] | None = None
        self.node_rules = NodeRules()
        self.failed: deque[Pod] = deque(maxlen=MOST_FAILED)

    @property
    def is_record_pending(self) -> bool:
        """Whether the API server has not answered yet whether there is a record."""
        return self.record is not None and self.record.is_pending

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

    memories: of all extensions, by name. sentences: of the last pass, by Placement, on the order of gangs.
    annotations: likewise, for pods that are released. notes: likewise, the notes for waiting gangs beside the
    reason. node_rules: the nodes that gangs do not use. due_seconds: after which another pass is due, as
    hooks of this one have answered.
    """

    def __init__(self, surroundings: Pass, now: Callable[[], float] = time.time) -> None:
        """now: seconds since 1970."""
        self._pass = surroundings
        self._now = now
        self._given = HookInput()
        self._running: dict[int, _Running] = {}
        self._failed: set[int] = set()
        self._placed: list[NewPlan] = []
        self.memories: Memories = {}
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

    def _having(self, hook: str) -> list[_Running]:
        """The extensions with this hook."""
        return [each for each in self._running.values() if each.extension.has(hook)]

    def _memory_of(self, extension: Extension) -> Any:
        return self.memories.get(extension.name, extension.memory)

    def _remembered(self, extension: Extension, answered: tuple[Answer, Any]) -> Answer:
        """The answer of a hook, whose memory is from now on that of its extension."""
        answer, memory = answered
        self.memories = {**self.memories, extension.name: memory}
        return answer

    @contextmanager
    def _guarded(self, running: _Running) -> Iterator[None]:
        """A hook whose defect must not stop the others; the pods that need its extension then wait."""
        try:
            yield
        except Exception:
            self._failed.add(running.number)
            logger.exception("extension_failed name=%s", running.extension.name)

    def begin(self, view: View, memories: Memories) -> View:
        """Begin a pass: apply changed settings and policy; an extension that is off loses its memory.

        The view is returned with the objects that extensions watch, and their additions to nodes and pods.
        """
        self.due_seconds, self.memories = NO_HURRY, memories
        self._failed.clear()
        cache = self._pass.cache
        self._given = HookInput(
            view, self._pass.settings, self._pass.policy(), cache.namespace_labels(), cache.served()
        )
        self._switch()
        objects = {}
        for running in self._running.values():
            objects.update(running.objects.current())
        return self._with_resources(replace(view, objects=objects) if objects else view)

    def _with_resources(self, view: View) -> View:
        """The view with the resources that extensions add; see Extension.add_resources.

        Where none is on, or one has a defect, pods with claims wait, as their devices are unknown. A defect
        may come from an extension's memory, so that is dropped.
        """
        adding, cache = self._having("add_resources"), self._pass.cache
        answered = 0
        for running in adding:
            extension = running.extension
            memory = self._memory_of(extension)
            self._forget(extension)
            with self._guarded(running):
                given = replace(self._given, view=view, read=cache.read_collections)
                found = extension.add_resources(given, memory)
                added = self._remembered(extension, found)
                view = with_resources(view, added)
                answered += 1
                if added.is_freed:
                    cache.on_freed()
        if answered < len(adding):
            return with_claims_waiting(view, UNKNOWN_CLAIMS)
        return view if adding else with_claims_waiting(view, CLAIMS_OFF)

    def check_plans(self, view: View, sent: SentReleases) -> View:
        """The view with the plans that hold, and with the pods that are not released."""
        checks, given = list[PlanCheck](), replace(self._given, view=view, sent=sent)
        for running in self._having("check_plans"):
            with self._guarded(running):
                checks.append(running.extension.check_plans(given))
        if self._failed:
            unready = {pod.metadata.uid for pod in view.gated if self._waits_for_repair(pod)}
            checks.append(PlanCheck(not_released=unready))
        return with_plan_checks(view, checks, sent)

    def _waits_for_repair(self, pod: Pod) -> bool:
        """Whether a pod needs an extension that has had a defect in this pass."""
        return any(self._pass.extensions[number].needs(pod) for number in self._failed)

    @property
    def divide(self) -> DivideGang:
        """The ways to ask about a gang."""
        return dividing(each.extension for each in self._running.values())

    def complete(self, gangs: Sequence[PodGang], view: View) -> list[PodGang]:
        """The gangs with the facts that extensions add."""
        for running in self._having("complete_gangs"):
            with self._guarded(running):
                gangs = running.extension.complete_gangs(replace(self._given, view=view, gangs=gangs))
        if not self._failed:
            return list(gangs)
        return [
            replace(gang, fault=OWN_ERROR) if any(map(self._waits_for_repair, gang.pods)) else gang
            for gang in gangs
        ]

    def order(
        self,
        gangs: Sequence[PodGang],
        view: View,
        causes: Mapping[GangKey, Cause],
        stages: Mapping[str, Reservation],
    ) -> list[PodGang]:
        """The gangs in the order in which they are placed."""
        self.sentences, self.annotations = {}, {}
        given = replace(self._given, view=view, causes=causes, stages=stages)
        for running in self._having("order_gangs"):
            extension = running.extension
            with self._guarded(running):
                of_this = replace(given, gangs=gangs, record=running.read())
                found = self._remembered(
                    extension, extension.order_gangs(of_this, self._memory_of(extension))
                )
                running.unheeded = None
                gangs = found.gangs
                self.sentences = {**self.sentences, **found.sentences}
                self.annotations = _merged(self.annotations, found.annotations)
                self._show(found.gauges)
        return list(gangs)

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
        for running in self._having("exclude_nodes"):
            running.failed.extend(failed)

    def exclude(self, gangs: Sequence[PodGang], view: View) -> None:
        """Bring up to date which nodes gangs do not use."""
        excluding = self._having("exclude_nodes")
        for running in excluding:
            self._exclude(running, replace(self._given, view=view, gangs=gangs))
        self.node_rules = join(each.node_rules for each in excluding)

    def _exclude(self, running: _Running, given: HookInput) -> None:
        """After a defect all stays excluded that was; failed pods, which may be its cause, are left out."""
        extension = running.extension
        record, is_pending = running.read(), running.is_record_pending
        given = replace(given, record=record, is_record_pending=is_pending)
        failed = () if is_pending else tuple(running.failed)
        for some in (failed, ()) if failed else (failed,):
            with self._guarded(running):
                found = extension.exclude_nodes(replace(given, failed=some), self._memory_of(extension))
                running.node_rules = self._remembered(extension, found)
                running.unheeded = None
                if not is_pending:
                    running.failed.clear()
                return
        nodes = len(nodes_of(running.node_rules.rules))
        logger.error("exclusions_reused name=%s nodes=%d", extension.name, nodes)

    def on_result(self, done: Done) -> None:
        """Record the written plans, for the end of the pass."""
        if self._running:
            self._placed += done.placed

    def after_pass(
        self,
        view: View,
        retries: Retries,
        gangs: Sequence[PodGang] = (),
        causes: Mapping[GangKey, Cause] = MappingProxyType({}),
    ) -> None:
        """Give each extension the results of the pass, and carry out its orders."""
        given = replace(self._given, view=view, gangs=gangs, causes=causes, placed=tuple(self._placed))
        self._placed, self.notes = [], {}
        for running in self._having("after_pass"):
            extension = running.extension
            with self._guarded(running):
                written, running.written = running.written, ()
                of_this = replace(given, written=written, may_write=running.may_write)
                orders = self._remembered(
                    extension, extension.after_pass(of_this, self._memory_of(extension))
                )
                running.written = self._carry_out(orders, running, retries)
                self.notes = with_notes(self.notes, orders)

    def _carry_out(self, orders: EndOrders, running: _Running, retries: Retries) -> Sequence[WriteResult]:
        """Carry out the orders of a hook; returns the results of its writes."""
        self._show(orders.gauges)
        for name, counts in orders.counts.items():
            self._pass.metrics.count(name, counts)
        for event in orders.events:
            if isinstance(event.about, Node):
                self._pass.announcer.announce_on_node(event.about, event.reason, event.note)
            else:
                self._pass.announcer.announce(event.about, event.reason, event.note)
        results, due = running.objects.write(orders.writes, retries)
        self.due_seconds = min(self.due_seconds, orders.due_seconds, due)
        if orders.record is not None and running.record is not None and running.record.write(orders.record):
            self._report_writes(running.extension)
        return results

    def _switch(self) -> None:
        for number, switch in enumerate(self._pass.extensions):
            try:
                self._set(number, switch)
            except Exception:  # its name is known once it is imported
                self._failed.add(number)
                logger.exception("extension_failed name=number %d", number)

    def _set(self, number: int, switch: Switch) -> None:
        """Switch an extension on or off. Raises whatever its switch, its import or its watches raise."""
        is_on = switch.is_on(self._given)
        if is_on and number not in self._running:
            extension = switch.load()
            self._pass.metrics.declare(extension.all_gauges, extension.counters)
            self._running[number] = _Running(number, extension, self._pass)
            logger.info("extension_on name=%s", extension.name)
        elif not is_on and number in self._running:
            running = self._running.pop(number)
            running.objects.stop()
            self._clear(running.extension)
            self._forget(running.extension)
            logger.info("extension_off name=%s", running.extension.name)

    def _forget(self, extension: Extension) -> None:
        self.memories = {name: each for name, each in self.memories.items() if name != extension.name}

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
    try:
        return tuple(source.reserve(given))
    except Exception:
        logger.exception("extension_failed name=%s", name)
    ledger = given.ledger
    return [each for each in ledger.of_kind(source.kind) if ledger.now.seconds < each.until]
