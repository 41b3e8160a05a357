"""What is written on the Node: which pods have cards without a plan, and which cards are handed out."""

import json
import time
from collections.abc import Mapping
from typing import Any, cast

import pytest

from labeler.allocator.card_report import AGAIN_SECONDS, CardReporter, offers, unmanaged
from labeler.allocator.devices import Inventory
from labeler.allocator.listing import ListingError, PodResources
from labeler.allocator.plugin import CardsPlugin
from labeler.allocator.register import Registration
from labeler.allocator.values import Listing, LocalCard, LocalContainer, LocalPod
from labeler.allocator.vendors import Places
from labeler.allocator.vendors.intel import Intel
from labeler.api import ApiClient, NodeApiError
from labeler.contract import keys
from labeler.contract.offers import CardOffer
from tests.allocator.conftest import Kubelet

I915 = keys.I915
CARDS = [LocalCard(number, I915, (f"/dev/dri/card{number}",)) for number in range(2)]


def pod(name: str, *containers: str, plan: str = "", sidecars: tuple[str, ...] = ()) -> LocalPod:
    made = [LocalContainer(each, {I915: 1}) for each in containers or ("c",)]
    beside = tuple(LocalContainer(each, {I915: 1}) for each in sidecars)
    texts = {keys.GAS_CARDS_ANNOTATION: plan} if plan else {}
    return LocalPod("ns", name, f"uid-{name}", texts, tuple(made), sidecars=beside)


class Setup:
    """Kubelet, API server and clock as a test sets them, and what was written to the Node."""

    def __init__(self) -> None:
        self.pods: tuple[LocalPod, ...] = ()
        self.listing: dict[tuple[str, str], dict[str, dict[str, tuple[str, ...]]]] = {}
        self.time = 100.0
        self.is_new = True
        """Whether the kubelet is 1.34 or newer."""
        self.serves = True
        self.written: list[dict[str, str | None]] = []
        self.fault: Exception | None = None
        setup = self

        class Kubelet:
            def now(self) -> Listing:
                if isinstance(setup.fault, ListingError):
                    raise setup.fault
                return setup.listing

            def lists_the_living_alone(self) -> bool:
                return setup.is_new

        class Server:
            def now(self) -> tuple[LocalPod, ...]:
                return setup.pods

        class Client:
            def call(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
                assert (method, path.partition("?")[0]) == ("PATCH", "/api/v1/nodes/n")
                if isinstance(setup.fault, NodeApiError):
                    raise setup.fault
                setup.written.append(json.loads(body)["metadata"]["annotations"])
                return b""

        self.reporter = CardReporter(
            Kubelet(), Server(), cast(ApiClient, Client()), "n", clock=lambda: self.time
        )

    def give(self, to: LocalPod, **devices: str) -> None:
        """A pod's containers get devices, as the allocator is asked and the kubelet lists."""
        self.pods = (*self.pods, to)
        self.listing[to.key] = {name: {I915: (device,)} for name, device in devices.items()}
        self.reporter.changed()

    def tick(self, seconds: float = 1, cards: list[LocalCard] = CARDS) -> list[Any]:
        """What is written at the next turn."""
        self.time += seconds
        before = len(self.written)
        self.reporter.report(cards, 10, serves=self.serves)
        return self.written[before:]


@pytest.fixture
def setup() -> Setup:
    return Setup()


OFFERED = "card0=gpu.intel.com/i915:10,card1=gpu.intel.com/i915:10"
IDENTIFIES = {keys.IDENTIFIES_PODS_ANNOTATION: "true"}


@pytest.mark.promise("O46")
def test_at_the_start_everything_is_reported_and_then_only_what_changes(setup: Setup) -> None:
    setup.give(pod("a"), c="card1-3")
    expected = {keys.OFFERED_CARDS_ANNOTATION: OFFERED, keys.UNPLANNED_CARDS_ANNOTATION: "uid-a=card1"}
    assert setup.tick() == [expected | IDENTIFIES]
    assert [setup.tick() for _ in range(5)] == [[]] * 5
    setup.give(pod("b"), c="card0-0")
    assert setup.tick()[0][keys.UNPLANNED_CARDS_ANNOTATION] == "uid-a=card1,uid-b=card0"


def test_devices_that_the_kubelet_lists_a_moment_later_are_reported_then(setup: Setup) -> None:
    setup.tick()
    setup.reporter.changed()
    assert setup.tick() == []
    setup.pods, setup.listing = (pod("a"),), {("ns", "a"): {"c": {I915: ("card0-1",)}}}
    reported = {keys.OFFERED_CARDS_ANNOTATION: OFFERED, keys.UNPLANNED_CARDS_ANNOTATION: "uid-a=card0"}
    assert setup.tick() == [reported | IDENTIFIES]


@pytest.mark.promise("O49")
def test_a_card_that_fails_is_reported_at_once(setup: Setup) -> None:
    setup.tick()
    ill = LocalCard(0, I915, ("/dev/dri/card0",), problem="it is gone")
    reported = {keys.OFFERED_CARDS_ANNOTATION: "card0=gpu.intel.com/i915:0,card1=gpu.intel.com/i915:10"}
    assert setup.tick(60, [ill, CARDS[1]]) == [reported | IDENTIFIES]


def test_an_allocator_without_cards_reports_that(setup: Setup) -> None:
    assert setup.tick(cards=[])[0][keys.OFFERED_CARDS_ANNOTATION] == ""


def test_everything_is_reported_again_periodically_because_a_node_may_be_recreated(setup: Setup) -> None:
    setup.tick()
    assert setup.tick(AGAIN_SECONDS - 2) == []
    reported = {keys.OFFERED_CARDS_ANNOTATION: OFFERED, keys.UNPLANNED_CARDS_ANNOTATION: None}
    assert setup.tick(2) == [reported | IDENTIFIES]


def identifies(setup: Setup, seconds: float = 1) -> list[str | None]:
    """What is written of whether the allocator knows whom it serves."""
    return [reported[keys.IDENTIFIES_PODS_ANNOTATION] for reported in setup.tick(seconds)]


@pytest.mark.promise("I33")
@pytest.mark.parametrize(("is_new", "serves"), [(False, True), (True, False), (False, False)])
def test_one_that_guesses_or_does_not_serve_does_not_report_that_it_identifies_pods(
    setup: Setup, is_new: bool, serves: bool
) -> None:
    """A kubelet before 1.34 lists pods that have ended; another plugin may guess by gas-ts."""
    setup.is_new, setup.serves = is_new, serves
    assert identifies(setup) == [None]


@pytest.mark.promise("I33")
def test_when_another_plugin_takes_the_cards_over_that_is_reported_at_once(setup: Setup) -> None:
    setup.tick()
    setup.serves = False
    assert identifies(setup) == [None]
    setup.serves = True
    assert identifies(setup) == ["true"]


@pytest.mark.promise("I33")
def test_of_a_kubelet_that_was_put_back_and_cannot_be_asked_nothing_is_claimed(kubelet: Kubelet) -> None:
    """As after a failed upgrade of the node: what the newer one knew does not hold for the older."""
    now, noted = [100.0], dict[str, str | None]()

    class Pods:
        def now(self) -> tuple[LocalPod, ...]:
            return ()

    class Resources:
        def healthy(self, _: str) -> frozenset[str]:
            return frozenset()

    class Client:
        def call(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
            noted.update(json.loads(body)["metadata"]["annotations"])
            return b""

    resources = PodResources(kubelet.folder / "pod-resources" / "kubelet.sock")
    reporter = CardReporter(resources, Pods(), cast(ApiClient, Client()), "n", clock=lambda: now[0])
    inventory = Inventory(lambda: tuple(CARDS))
    inventory.look()
    plugin = CardsPlugin(I915, Intel(Places()), inventory, None, 10, reporter=reporter)
    registration = Registration(plugin, kubelet.plugins, Resources())  # type: ignore[arg-type]

    def register(lists: int) -> str | None:
        deadline = time.monotonic() + 90
        while len(kubelet.lists) < lists and time.monotonic() < deadline:
            now[0] += 1
            registration.poll(now[0])
            time.sleep(0.02)
        kubelet.wait_for_devices(lists)
        reporter.report(CARDS, 10, serves=True)
        return noted[keys.IDENTIFIES_PODS_ANNOTATION]

    try:
        assert register(1) == "true"
        kubelet.stop()
        kubelet.start(lists_pods=False)
        assert register(2) is None
    finally:
        registration.close()
        resources.close()


def test_another_kubelet_is_asked_at_once_though_the_last_one_did_not_answer(setup: Setup) -> None:
    setup.tick()
    setup.fault = ListingError("away")
    setup.reporter.changed()
    assert identifies(setup) == []
    setup.fault = None
    setup.reporter.kubelet_began()
    setup.give(pod("a"), c="card1-3")
    assert identifies(setup) == ["true"]


def test_a_card_that_fails_is_reported_though_the_kubelet_does_not_answer(setup: Setup) -> None:
    setup.tick()
    setup.fault = ListingError("away")
    setup.reporter.changed()
    ill = LocalCard(0, I915, ("/dev/dri/card0",), problem="it is gone")
    reported = setup.tick(cards=[ill, CARDS[1]])
    assert [text[keys.OFFERED_CARDS_ANNOTATION].partition(",")[0] for text in reported] == [
        "card0=gpu.intel.com/i915:0"
    ]


def test_an_allocator_that_ends_takes_back_that_it_knows_whom_it_serves(setup: Setup) -> None:
    """Another plugin may serve the node next."""
    setup.tick()
    setup.reporter.withdraw()
    assert setup.written[-1] == {keys.IDENTIFIES_PODS_ANNOTATION: None}


def test_an_allocator_ends_though_it_can_take_nothing_back(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.fault = NodeApiError(0, "away")
    setup.reporter.withdraw()
    assert "cannot write on the Node that this allocator no longer serves its cards: away" in caplog.text


@pytest.mark.parametrize("fault", [NodeApiError(0, "away"), NodeApiError(403, "no"), ListingError("away")])
def test_what_could_not_be_reported_is_reported_later(setup: Setup, fault: Exception) -> None:
    setup.tick()
    setup.give(pod("a"), c="card1-3")
    setup.fault = fault
    assert [setup.tick() for _ in range(20)] == [[]] * 20
    setup.fault = None
    reported = [text for _ in range(6) for text in setup.tick()]
    assert [text[keys.UNPLANNED_CARDS_ANNOTATION] for text in reported] == ["uid-a=card1"]


def test_pods_with_a_plan_are_not_reported() -> None:
    pods = [pod("a", plan="card0"), pod("b"), pod("separators", plan="|")]
    listing = {each.key: {"c": {I915: ("card1-0",)}} for each in pods}
    assert unmanaged(listing, pods, {I915}) == {"uid-b": (1,), "uid-separators": (1,)}


def test_neither_are_those_that_are_over_unknown_or_have_other_devices() -> None:
    over = LocalPod("ns", "over", "u", containers=(LocalContainer("c", {I915: 1}),), over=True)
    listing: Listing = {
        over.key: {"c": {I915: ("card0-0",)}},
        ("ns", "unknown"): {"c": {I915: ("card0-1",)}},
        ("ns", "nic"): {"c": {"example.com/nic": ("card7-0",)}},
        ("ns", "none"): {"c": {}},
    }
    assert unmanaged(listing, [over, pod("nic"), pod("none")], {I915}) == {}


def test_cards_are_reported_in_the_order_of_containers_then_sidecars() -> None:
    served = pod("a", "z", "a", sidecars=("s",))
    allocated = {"s": ("card0-1",), "a": ("card10-0", "card2-0"), "z": ("card1-0",)}
    listing = {served.key: {name: {I915: devices} for name, devices in allocated.items()}}
    assert unmanaged(listing, [served], {I915}) == {"uid-a": (1, 10, 2, 0)}


def test_devices_that_another_plugin_named_otherwise_are_left_out() -> None:
    served = pod("a")
    listing: Listing = {served.key: {"c": {I915: ("0000:3a:00.0-1", "card-0", "card1-0", "x")}}}
    assert unmanaged(listing, [served], {I915}) == {"uid-a": (1,)}


def test_each_card_is_offered_by_its_own_resource() -> None:
    cards = [CARDS[0], LocalCard(3, keys.XE, ()), LocalCard(4, keys.XE, (), problem="ill")]
    assert offers(cards, 5) == {0: CardOffer(I915, 5), 3: CardOffer(keys.XE, 5), 4: CardOffer(keys.XE, 0)}
