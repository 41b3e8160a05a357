"""What hooks are given after gangs were asked about, and what becomes of what they order."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from labeler.contract.event_reasons import EventReason
from tests.extensions.made import extension, none_failed
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Node, Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Pass, Silent
from webhook.sweeper.decide.core_questions import DividedGang, DivisionInput, outside
from webhook.sweeper.decide.node_rules import GangNodes, NodeRule, NodeRules, nodes_of
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.decide.release_queue import SentRelease, SentReleases
from webhook.sweeper.decide.reservations import (
    Reservation,
    ReservationInput,
    ReservationKind,
    ReservationLedger,
    ReservationSource,
    opened,
)
from webhook.sweeper.extension import (
    EndOrders,
    Extension,
    HookInput,
    ObjectEvent,
    Ordered,
    PlanCheck,
    RecordSpec,
    Switch,
)
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.metrics import CounterSpec
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import OWN_ERROR, GangKey
from webhook.sweeper.observe.view import Moment, View

ASKED = CounterSpec("topogate_asked", "What was asked.", ("of",))


class Scene(Silent):
    """Two gangs that wait, of which one found no capacity, and extensions with these hooks."""

    def __init__(self, *extensions: Extension) -> None:
        self.cluster = cluster = Nodes(1, gpu_pod("a"), gpu_pod("b"))
        placing = Placing(cluster, Settings())
        self.gangs, self.view = placing.gangs(), placing.view()
        self.events: list[tuple[str, str, bool]] = []
        switches = tuple(Switch(lambda *_: True, lambda found=each: found) for each in extensions)  # type: ignore[misc]
        self.surroundings = Pass(
            cast(Api, None), cast(ClusterCache, cluster), Settings(), announcer=self, clock=Clock(),
            extensions=switches,
        )  # fmt: skip
        self.hooks = ExtensionHooks(self.surroundings)

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        self.events.append((pod.metadata.name, reason, reason.is_warning))

    def announce_on_node(self, node: Node, reason: EventReason, note: str) -> None:
        self.events.append((node.metadata.name, reason, reason.is_warning))

    def exclude(self, *failed: Pod) -> NodeRules:
        view = self.hooks.begin(self.view, self.hooks.memories)
        self.hooks.on_failed(failed)
        self.hooks.exclude(self.gangs, view)
        return self.hooks.node_rules

    def after_pass(self) -> dict[GangKey, str]:
        view = self.hooks.begin(self.view, self.hooks.memories)
        causes = {self.gangs[0].key: Cause.INSUFFICIENT_CAPACITY}
        self.hooks.after_pass(view, none_failed(self.hooks), self.gangs, causes)
        return dict(self.hooks.notes)


def counting(given: HookInput, memory: int) -> tuple[EndOrders, int]:
    """Notes which call it is, of each gang that found no capacity."""
    waiting = [gang for gang in given.gangs if given.causes.get(gang.key) is Cause.INSUFFICIENT_CAPACITY]
    orders = EndOrders(
        notes={gang.key: f"call {memory}" for gang in waiting},
        events=[ObjectEvent(gang.gated[0], EventReason.GANG_WAITS, "a sentence") for gang in waiting],
        counts={ASKED.name: {("nodes",): len(waiting)}},
        due_seconds=7.0,
    )
    return orders, memory + 1


COUNTING = extension("counting", 1, counters=(ASKED,), after_pass=counting)


def test_after_pass_is_given_who_waits_and_why_and_adds_a_note_to_the_reason() -> None:
    scene = Scene(COUNTING)
    first = scene.gangs[0].key
    assert [scene.after_pass(), scene.after_pass()] == [{first: "call 1"}, {first: "call 2"}]


def test_notes_of_several_extensions_are_one_sentence() -> None:
    scene = Scene(COUNTING, extension("other", 5, type(COUNTING)))
    assert list(scene.after_pass().values()) == ["call 1; call 5"]


def test_events_counts_and_the_next_pass_are_as_a_hook_orders() -> None:
    scene = Scene(COUNTING)
    scene.after_pass()
    scene.after_pass()
    assert scene.events == [("a", "GangWaits", True)] * 2
    registry = scene.surroundings.metrics.registry
    assert registry.get_sample_value("topogate_asked_total", {"of": "nodes"}) == 2
    assert scene.hooks.due_seconds == 7.0


def test_a_pass_is_due_when_the_first_hook_asks_for_it() -> None:
    def ends(given: HookInput, memory: Any) -> tuple[EndOrders, Any]:
        return EndOrders(due_seconds=3.0), memory

    scene = Scene(COUNTING, extension("ends", after_pass=ends))
    scene.after_pass()
    scene.hooks.after_pass(scene.view, none_failed(scene.hooks))
    assert scene.hooks.due_seconds == 3.0
    scene.hooks.begin(scene.view, scene.hooks.memories)
    assert scene.hooks.due_seconds == float("inf"), "it holds for one pass"


def test_a_defect_after_a_pass_stops_neither_the_pass_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(given: HookInput, memory: Any) -> tuple[EndOrders, Any]:
        raise ZeroDivisionError

    scene = Scene(extension("broken", after_pass=broken), COUNTING)
    assert list(scene.after_pass().values()) == ["call 1"]
    assert "extension_failed name=broken" in caplog.text


SHELF = ReservationKind("shelf", "nodes stand on the shelf")


def shelved(given: ReservationInput) -> Sequence[Reservation]:
    """n0 for the first gang that waits, for a minute."""
    now, gang = given.ledger.now, given.gangs[0]
    nodes = frozenset({"n0"}) - GangNodes(given.rules.of(gang)).hard
    placement, end = gang.key.placement_key, now.at + timedelta(seconds=60)
    return [Reservation(SHELF, placement, nodes, now.seconds, now.seconds + 60, end, holder=placement)]


def broken_shelf(given: ReservationInput) -> Sequence[Reservation]:
    raise ZeroDivisionError


def shelf(scene: Scene, ledger: ReservationLedger, seconds: float = 0.0, excluded: str = "") -> list[str]:
    """The nodes that are reserved by the extension in a pass at this time."""
    scene.hooks.begin(scene.view, {})
    view = replace(scene.view, now=Moment(seconds, datetime.now(UTC)))
    rules = NodeRules((NodeRule(frozenset({excluded}), is_hard=True),))
    given = ReservationInput(ledger, scene.gangs, view, rules=rules)
    ledger = opened(given, scene.hooks.sources, Settings())
    return sorted(ledger.nodes(SHELF))


def after_a_pass(scene: Scene) -> ReservationLedger:
    scene.hooks.begin(scene.view, {})
    given = ReservationInput(ReservationLedger(), scene.gangs, scene.view)
    return opened(given, scene.hooks.sources, Settings())


ON_SHELF = extension("shelf", source=ReservationSource(SHELF, shelved))


@pytest.mark.parametrize(("excluded", "nodes"), [("", ["n0"]), ("n0", [])])
def test_an_extension_reserves_nodes_but_none_that_the_gang_cannot_use(
    excluded: str, nodes: list[str]
) -> None:
    assert shelf(Scene(ON_SHELF), ReservationLedger(), excluded=excluded) == nodes


def test_what_an_extension_has_reserved_is_free_once_it_is_off() -> None:
    ledger = after_a_pass(Scene(ON_SHELF))
    assert ledger.nodes() == {"n0"}
    assert shelf(Scene(), ledger) == []


@pytest.mark.parametrize(("seconds", "nodes"), [(59, ["n0"]), (60, [])])
def test_while_reserving_has_a_defect_what_was_reserved_stays_to_its_end(
    seconds: float, nodes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    ledger = after_a_pass(Scene(ON_SHELF))
    broken = Scene(extension("shelf", source=ReservationSource(SHELF, broken_shelf)))
    assert shelf(broken, ledger, seconds) == nodes
    assert "extension_failed name=shelf" in caplog.text


def annotating(**annotations: str) -> Extension:
    def order(given: HookInput, memory: None) -> tuple[Ordered, None]:
        keys = (gang.key.placement_key for gang in given.gangs)
        return Ordered(given.gangs, annotations=dict.fromkeys(keys, annotations)), memory

    return extension(f"notes {annotations}", order_gangs=order)


def test_pods_get_the_annotations_of_all_extensions() -> None:
    scene = Scene(annotating(color="red"), annotating(size="large"), COUNTING)
    view = scene.hooks.begin(scene.view, {})
    scene.hooks.order(scene.gangs, view, {}, {})
    found = scene.hooks.annotations
    assert found == {gang.key.placement_key: {"color": "red", "size": "large"} for gang in scene.gangs}


# --- nodes that gangs do not use ----------------------------------------------------------------------


def excluding(given: HookInput, memory: tuple[str, ...]) -> tuple[NodeRules, tuple[str, ...]]:
    """Excludes the nodes of all pods that have failed by now; one without a node is a defect."""
    assert all(pod.spec.node_name for pod in given.failed)
    memory += tuple(pod.spec.node_name for pod in given.failed)
    return NodeRules((NodeRule(frozenset(memory), "a pod failed there", is_hard=True),)), memory


EXCLUDING = extension("excluding", (), exclude_nodes=excluding)


def names(rules: NodeRules) -> frozenset[str]:
    return nodes_of(rules.rules)


def test_exclude_nodes_is_given_each_failed_pod_once() -> None:
    scene = Scene(EXCLUDING)
    assert not names(scene.exclude())
    assert names(scene.exclude(gpu_pod("x", node="n1"))) == {"n1"}
    assert names(scene.exclude()) == {"n1"}
    assert scene.hooks.memories == {"excluding": ("n1",)}


def test_a_failed_pod_that_a_hook_cannot_read_hides_no_exclusion(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(EXCLUDING)
    scene.exclude(gpu_pod("x", node="n1"))
    assert names(scene.exclude(gpu_pod("y"))) == {"n1"}
    assert "extension_failed name=excluding" in caplog.text
    assert names(scene.exclude(gpu_pod("z", node="n2"))) == {"n1", "n2"}


def test_after_a_defect_of_exclude_nodes_all_stays_excluded_that_was_and_the_log_reports_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(EXCLUDING)
    scene.exclude(gpu_pod("x", node="n1"))
    scene.hooks.memories = {"excluding": None}
    assert GangNodes(scene.exclude().of(scene.gangs[0])).hard == {"n1"}
    assert "exclusions_reused name=excluding nodes=1" in caplog.text


def test_nodes_that_several_extensions_exclude_are_all_excluded_and_the_harder_one_counts() -> None:
    def softly(given: HookInput, memory: Any) -> tuple[NodeRules, Any]:
        slow, far = frozenset({"n1", "n2"}), frozenset({"n3"})
        own = NodeRule(far, "is far", applies_to=scene.gangs[0].key)
        return NodeRules((own, NodeRule(slow, "is slow"), NodeRule(slow, "is old", applies_to="ns"))), memory

    scene = Scene(extension("softly", exclude_nodes=softly), EXCLUDING)
    rules = scene.exclude(gpu_pod("x", node="n1"))
    first, second = (GangNodes(rules.of(gang)) for gang in scene.gangs)
    assert first.hard == second.hard == {"n1"}
    why = {"n1": "a pod failed there", "n2": "is slow", "n3": "is far"}
    assert first.unused(frozenset(), lambda _: True) == why
    assert second.unused(frozenset(), lambda _: True).keys() == {"n1", "n2"}


def test_what_is_switched_off_excludes_nothing() -> None:
    scene = Scene(EXCLUDING)
    assert names(scene.exclude(gpu_pod("x", node="n1")))
    scene.hooks._pass = replace(scene.surroundings, extensions=(Switch(lambda *_: False, lambda: EXCLUDING),))
    assert not names(scene.exclude())


@pytest.mark.parametrize(
    ("status", "given"), [(0, ()), (404, ("x",))], ids=["no answer yet", "there is none"]
)
def test_failed_pods_are_given_once_it_is_known_whether_there_is_a_record(
    status: int, given: tuple[str, ...]
) -> None:
    class Refusing:
        def json(self, *_: Any, **__: Any) -> dict[str, Any]:
            raise ApiError(status, "No", "no answer")

    seen: list[HookInput] = []

    def looks(given: HookInput, memory: Any) -> tuple[NodeRules, Any]:
        seen.append(given)
        return NodeRules(), memory

    scene = Scene()
    looking = extension("looks", record=RecordSpec("name"), exclude_nodes=looks)
    switch = Switch(lambda *_: True, lambda: looking)
    api = cast(Api, Refusing())
    scene.hooks = ExtensionHooks(replace(scene.surroundings, api=api, extensions=(switch,)))
    scene.exclude(gpu_pod("x", node="n1"))
    assert tuple(pod.metadata.name for pod in seen[0].failed) == given
    assert seen[0].is_record_pending is (status == 0)


def test_events_on_nodes_are_as_a_hook_orders() -> None:
    def ends(given: HookInput, memory: Any) -> tuple[EndOrders, Any]:
        return EndOrders(
            events=[ObjectEvent(given.view.nodes["n0"], EventReason.NODE_AVOIDED, "a sentence")]
        ), memory

    scene = Scene(extension("ends", after_pass=ends))
    scene.after_pass()
    assert scene.events == [("n0", "NodeAvoided", True)]


# --- plans, and pods that need an extension -----------------------------------------------------------


def planned(view: View) -> View:
    """The view with a plan for each gated pod."""
    plans = (PlannedPod(name=pod.metadata.name, uid=pod.metadata.uid, node="n0") for pod in view.gated)
    return view.with_plans({each.uid: each for each in plans})


def named_a(pod: Pod) -> bool:
    return pod.metadata.name == "a"


def test_plans_that_do_not_hold_are_dropped_and_pods_that_lack_something_are_not_released() -> None:
    def checks(given: HookInput) -> PlanCheck:
        uids = {pod.metadata.name: pod.metadata.uid for pod in given.view.gated}
        invalid = {uids["a"]} if uids["a"] not in given.sent else set[str]()
        return PlanCheck(not_released={uids["b"]}, invalid=invalid)

    scene = Scene(extension("checks", check_plans=checks))
    view = scene.hooks.begin(planned(scene.view), {})
    seen = scene.hooks.check_plans(view, SentReleases())
    assert seen.planned.keys() == {"uid-b"}
    assert seen.not_released == {"uid-b"}
    sent = SentReleases({"uid-a": SentRelease(view.planned["uid-a"], 0.0)})
    assert len(scene.hooks.check_plans(view, sent).planned) == 2


def fails(*_: Any) -> Any:
    raise ZeroDivisionError


DEFECTS = {
    "it cannot be asked whether it is on": Switch(fails, lambda: extension("broken"), named_a),
    "it cannot be imported": Switch(lambda _: True, fails, named_a),
    "plans cannot be checked": Switch(
        lambda _: True,
        lambda: extension("broken", check_plans=fails, complete_gangs=lambda given: given.gangs),
        named_a,
    ),
    "gangs cannot be completed": Switch(
        lambda _: True, lambda: extension("broken", complete_gangs=fails), named_a
    ),
}


@pytest.mark.parametrize("switch", DEFECTS.values(), ids=DEFECTS.keys())
def test_pods_that_need_an_extension_are_not_placed_while_it_has_a_defect(switch: Switch) -> None:
    scene = Scene()
    scene.hooks = ExtensionHooks(replace(scene.surroundings, extensions=(switch,)))
    view = scene.hooks.begin(planned(scene.view), {})
    view = scene.hooks.check_plans(view, SentReleases())
    gangs = scene.hooks.complete(scene.gangs, view)
    assert {gang.key.name: gang.fault for gang in gangs} == {"a": OWN_ERROR, "b": ""}
    if switch is not DEFECTS["gangs cannot be completed"]:
        assert view.not_released == {"uid-a"}, "nor are those that were planned before"


def test_pods_that_need_an_extension_are_placed_once_it_works_again() -> None:
    works = [False]
    switch = Switch(lambda _: works[0] or fails(), lambda: extension("mended"), named_a)
    scene = Scene()
    scene.hooks = ExtensionHooks(replace(scene.surroundings, extensions=(switch,)))
    for works[0] in (False, True):
        view = scene.hooks.begin(planned(scene.view), {})
        view = scene.hooks.check_plans(view, SentReleases())
        faults = {gang.fault for gang in scene.hooks.complete(scene.gangs, view)}
        assert (faults, view.not_released) == (({""}, set()) if works[0] else ({"", OWN_ERROR}, {"uid-a"}))


def test_the_first_extension_that_is_on_and_divides_gangs_does_so() -> None:
    def divides(given: DivisionInput) -> DividedGang:
        return DividedGang(given.gang, (outside(frozenset({"n0"}), "a sentence"),))

    scene = Scene(extension("plain"), extension("divides", divide_gang=divides))
    given = DivisionInput(scene.gangs[0], scene.view, (), Settings().topology)
    assert [each.note for each in scene.hooks.divide(given).rules] == [""], "it is not on yet"
    scene.hooks.begin(scene.view, {})
    assert [each.note for each in scene.hooks.divide(given).rules] == ["a sentence"]
