"""What hooks are given after gangs were asked about, and what becomes of what they order."""

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.kube.client import Api
from webhook.kube.objects import Pod
from webhook.sweeper.context import Pass, Silent
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.extension import (
    EndOrders,
    Extension,
    NoFitInput,
    NoFitOrders,
    PassEnd,
    PodEvent,
    Switch,
)
from webhook.sweeper.hooks import ExtensionHooks, Memories
from webhook.sweeper.metrics import CounterSpec
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.settings import Settings

ASKED = CounterSpec("topogate_asked", "What was asked.", ("of",))


class Scene(Silent):
    """Two gangs that wait, of which one found no room, and extensions with these hooks."""

    def __init__(self, *extensions: Extension) -> None:
        cluster = Nodes(1, gpu_pod("a"), gpu_pod("b"))
        placing = Placing(cluster, Settings())
        self.gangs, self.view = placing.gangs(), placing.view()
        self.said: list[tuple[str, str, bool]] = []
        switches = tuple(Switch(lambda *_: True, lambda found=each: found) for each in extensions)  # type: ignore[misc]
        self.surroundings = Pass(
            cast(Api, None), cast(ClusterCache, cluster), Settings(), announcer=self, clock=Clock(),
            extensions=switches,
        )  # fmt: skip
        self.hooks = ExtensionHooks(self.surroundings)
        self.memories: Memories = {}

    def say(self, pod: Pod, reason: str, note: str, *, warning: bool) -> None:
        self.said.append((pod.metadata.name, reason, warning))

    def after_no_fit(self) -> dict[GangKey, str]:
        view, self.memories = self.hooks.begin(self.view, self.memories)
        causes = {self.gangs[0].key: Cause.NO_ROOM}
        notes, self.memories = self.hooks.after_no_fit(self.gangs, view, causes, self.memories)
        return dict(notes)


def counting(given: NoFitInput, memory: int) -> tuple[NoFitOrders, int]:
    """Notes which call it is, of each gang that found no room."""
    waiting = [gang for gang in given.gangs if given.causes.get(gang.key) is Cause.NO_ROOM]
    orders = NoFitOrders(
        notes={gang.key: f"call {memory}" for gang in waiting},
        events=[PodEvent(gang.gated[0], "Asked", "a sentence", is_warning=True) for gang in waiting],
        counts={ASKED.name: {("nodes",): len(waiting)}},
        due_seconds=7.0,
    )
    return orders, memory + 1


COUNTING = Extension("counting", 1, counters=(ASKED,), after_no_fit=counting)


def test_after_no_fit_is_given_who_waits_and_why_and_adds_a_note_to_the_reason() -> None:
    scene = Scene(COUNTING)
    first = scene.gangs[0].key
    assert [scene.after_no_fit(), scene.after_no_fit()] == [{first: "call 1"}, {first: "call 2"}]


def test_notes_of_several_extensions_are_one_sentence() -> None:
    scene = Scene(COUNTING, replace(COUNTING, name="other", memory=5))
    assert list(scene.after_no_fit().values()) == ["call 1; call 5"]


def test_events_counts_and_the_next_pass_are_as_a_hook_orders() -> None:
    scene = Scene(COUNTING)
    scene.after_no_fit()
    scene.after_no_fit()
    assert scene.said == [("a", "Asked", True)] * 2
    registry = scene.surroundings.metrics.registry
    assert registry.get_sample_value("topogate_asked_total", {"of": "nodes"}) == 2
    assert scene.hooks.due_seconds == 7.0


def test_a_pass_is_due_when_the_first_hook_says() -> None:
    def ends(given: PassEnd, memory: Any) -> tuple[EndOrders, Any]:
        return EndOrders(due_seconds=3.0), memory

    scene = Scene(COUNTING, Extension("ends", after_pass=ends))
    scene.after_no_fit()
    scene.memories = scene.hooks.after_pass(scene.view, scene.memories)
    assert scene.hooks.due_seconds == 3.0
    scene.hooks.begin(scene.view, scene.memories)
    assert scene.hooks.due_seconds == float("inf"), "it holds for one pass"


def test_a_defect_after_no_fit_stops_neither_the_pass_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(given: NoFitInput, memory: Any) -> tuple[NoFitOrders, Any]:
        raise ZeroDivisionError

    scene = Scene(Extension("broken", after_no_fit=broken), COUNTING)
    assert list(scene.after_no_fit().values()) == ["call 1"]
    assert "extension_failed name=broken" in caplog.text
