"""How long the allocator waits for certainty, and what it answers when there is none."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from labeler.allocator.choose import default_devices
from labeler.allocator.listing import ListingError
from labeler.allocator.resolve import DEFAULT, OLDEST, PLANNED, Grant, Patience, Resolver
from labeler.allocator.values import Listing, LocalCard, LocalContainer, LocalPod, Refusal
from labeler.api import NodeApiError
from labeler.contract.annotations import SlotCard

I915 = "gpu.intel.com/i915"
CARDS = {number: LocalCard(number, I915, (f"/dev/dri/card{number}",), tiles=2) for number in range(3)}
FREE = [f"card{card}-{share}" for card in range(3) for share in range(2)]


class World:
    """What kubelet and API server say, as functions of the time that has been slept."""

    def __init__(self) -> None:
        self.slept = 0.0
        self.pods: Callable[[float], tuple[LocalPod, ...]] = lambda _: ()
        self.listing: Callable[[float], Listing] = lambda _: {pod.key: {} for pod in self.pods(self.slept)}
        self.events: list[tuple[str, str]] = []
        self.old = False

    def resolver(self, **more: bool) -> Resolver:
        world = self

        class Kubelet:
            def now(self) -> Listing:
                return world.listing(world.slept)

            def lists_the_living_alone(self) -> bool:
                return not world.old

        class Server:
            def now(self) -> tuple[LocalPod, ...]:
                return world.pods(world.slept)

        class Warner:
            def warn(self, pod: LocalPod, reason: str, text: str) -> None:
                world.events.append((pod.name, reason))

        def sleep(seconds: float) -> None:
            self.slept += seconds

        return Resolver(
            Kubelet(), Server(), Warner(), Patience(), sleep=sleep, clock=lambda: self.slept, **more
        )

    def prefer(self, size: int = 1, **more: bool) -> tuple[list[str], Grant]:
        def default(taken: Mapping[str, int]) -> list[str]:
            return default_devices(FREE, [], size, taken)

        return self.resolver(**more).prefer(I915, size, FREE, [], CARDS, default)


def pod(name: str, cards: str | None = None, count: int = 1, stamp: int = 1) -> LocalPod:
    annotations = {"gas-ts": f"170000000000000000{stamp}"} if cards is not None else {}
    annotations |= {"gas-container-cards": cards} if cards is not None else {}
    return LocalPod("ns", name, name, annotations, (LocalContainer("c", {I915: count}),))


@pytest.mark.parametrize(("tiles", "refused"), [("card2:gt1", True), ("", False)])
def test_an_init_container_in_another_hierarchy_is_refused_where_tiles_are_at_stake(
    tiles: str, refused: bool
) -> None:
    world = World()
    planned = pod("p", "card2")
    annotations = dict(planned.annotations) | ({"gas-container-tiles": tiles} if tiles else {})
    init = (LocalContainer("i", {I915: 1}, "COMPOSITE"),)
    world.pods = lambda _: (replace(planned, annotations=annotations, init=init),)
    if refused:
        with pytest.raises(Refusal, match="their ZE_FLAT_DEVICE_HIERARCHY differ"):
            world.prefer()
    else:
        assert world.prefer()[0] == ["card2-0"]


@pytest.mark.promise("O27")
def test_it_waits_500_milliseconds_for_a_plan_and_three_seconds_for_certainty() -> None:
    assert Patience() == Patience(for_plan=0.5, for_certainty=3)


def test_a_planned_pod_is_answered_at_once() -> None:
    world = World()
    world.pods = lambda _: (pod("p", "card2"),)
    devices, grant = world.prefer()
    assert devices == ["card2-0"]
    assert (grant.how, grant.shares) == (PLANNED, (SlotCard(2),))
    assert world.slept == 0
    assert world.events == []


def test_an_annotation_that_comes_late_is_waited_for() -> None:
    world = World()
    world.pods = lambda slept: (pod("p", "card2" if slept > 0.3 else None),)
    assert world.prefer()[0] == ["card2-0"]


@pytest.mark.promise("O27")
def test_a_pod_without_annotation_gets_a_default_after_a_while_and_one_event() -> None:
    world = World()
    world.pods = lambda _: (pod("p"), pod("planned", "card0", count=2))
    resolver = world.resolver()
    for _ in range(2):
        _, grant = resolver.prefer(
            I915, 1, FREE, [], CARDS, lambda taken: default_devices(FREE, [], 1, taken)
        )
        assert grant.how == DEFAULT
    assert Patience().for_plan <= world.slept < 2 * Patience().for_plan
    assert world.events == [("p", "CardsByDefault")]


@pytest.mark.promise("O27")
def test_a_default_keeps_off_the_cards_of_planned_pods_that_still_come() -> None:
    world = World()
    later = LocalPod(
        "ns", "later", "later", {"gas-container-cards": "card0,card1"}, (LocalContainer("c", {I915: 2}),)
    )
    world.pods = lambda _: (pod("p"), later)
    assert world.prefer()[0] == ["card2-0"]


@pytest.mark.promise("O27")
def test_two_pods_that_fit_are_refused_with_their_names_and_both_get_an_event() -> None:
    world = World()
    world.pods = lambda _: (pod("a", "card0"), pod("b", "card1"))
    with pytest.raises(Refusal, match="any of ns/a, ns/b may be the one asking for 1"):
        world.prefer()
    assert world.slept >= Patience().for_certainty
    assert sorted(world.events) == [("a", "CardsRefused"), ("b", "CardsRefused")]


def test_ambiguity_that_passes_is_waited_for() -> None:
    world = World()
    both = (pod("a", "card0"), pod("b", "card1"))
    world.pods = lambda slept: (replace(both[0], over=slept > 1), both[1])
    assert world.prefer()[0] == ["card1-0"]


@pytest.mark.promise("O27")
def test_two_pods_that_fit_get_a_default_only_where_that_was_asked_for() -> None:
    world = World()
    world.pods = lambda _: (pod("a", "card0"), pod("b", "card1"))
    _, grant = world.prefer(default_when_unsure=True)
    assert grant == Grant(DEFAULT)
    assert sorted(world.events) == [("a", "CardsByDefault"), ("b", "CardsByDefault")]


@pytest.mark.promise("O30")
def test_an_old_kubelet_is_helped_by_the_order_of_planning_and_an_event_reports_it() -> None:
    world = World()
    world.old = True
    world.pods = lambda _: (pod("late", "card0", stamp=2), pod("early", "card1", stamp=1))
    devices, grant = world.prefer()
    assert devices == ["card1-0"]
    assert grant.how == OLDEST
    assert world.events == [("early", "CardsGuessed")]


def test_two_pods_without_plans_may_have_any_devices() -> None:
    world = World()
    world.pods = lambda _: (pod("a"), pod("b"))
    assert world.prefer()[1] == Grant(DEFAULT)


def test_a_pod_that_only_the_kubelet_knows_gets_a_default() -> None:
    world = World()
    world.listing = lambda _: {("kube-system", "static-gpu"): {"c": {}}}
    assert world.prefer()[1] == Grant(DEFAULT)


def test_a_pod_that_the_api_server_never_knew_is_no_obstacle_once_it_was_seen_at_rest() -> None:
    world = World()
    world.pods = lambda _: (pod("p", "card2"),)
    static: Listing = {("kube-system", "static"): {"c": {}}}
    world.listing = lambda _: {("ns", "p"): {}, **static}
    resolver = world.resolver()

    def prefer() -> list[str]:
        return resolver.prefer(I915, 1, FREE, [], CARDS, lambda taken: [])[0]

    with pytest.raises(Refusal, match="kube-system/static, ns/p may be the one"):
        prefer()
    world.listing = lambda _: static
    resolver.observe()
    resolver.observe()
    world.listing = lambda _: {("ns", "p"): {}, **static}
    assert prefer() == ["card2-0"]
    resolver.observe()
    assert prefer() == ["card2-0"]


def test_a_pod_that_only_the_kubelet_knows_is_no_obstacle_to_those_that_come_after_it() -> None:
    """However often they come: no quiet moment is needed."""
    world = World()
    static: Listing = {("kube-system", "static"): {"c": {}}}
    world.listing = lambda _: static
    resolver = world.resolver()
    resolver.observe()
    for number in range(3):
        came = pod(f"p{number}", "card2")
        world.pods = lambda _, came=came: (came,)  # type: ignore[misc]
        world.listing = lambda _, came=came: {**static, came.key: {}}  # type: ignore[misc]
        assert resolver.prefer(I915, 1, FREE, [], CARDS, lambda taken: [])[0] == ["card2-0"]


def test_one_that_came_last_may_be_the_one_that_asks() -> None:
    world = World()
    world.pods = lambda _: (pod("p", "card2"),)
    world.listing = lambda _: {("ns", "p"): {}}
    resolver = world.resolver()
    resolver.observe()
    world.listing = lambda _: {("ns", "p"): {}, ("kube-system", "static"): {"c": {}}}
    with pytest.raises(Refusal, match="none of them is guessed"):
        resolver.prefer(I915, 1, FREE, [], CARDS, lambda taken: [])


def test_after_a_restart_of_the_kubelet_its_order_is_learned_again() -> None:
    world = World()
    static: Listing = {("kube-system", "static"): {"c": {}}}
    world.pods = lambda _: (pod("p", "card2"),)
    world.listing = lambda _: static
    resolver = world.resolver()
    resolver.observe()
    resolver.restarted()
    world.listing = lambda _: {("ns", "p"): {}, **static}
    with pytest.raises(Refusal, match="none of them is guessed"):
        resolver.prefer(I915, 1, FREE, [], CARDS, lambda taken: [])


def test_lists_that_are_taken_during_a_request_settle_nothing() -> None:
    world = World()
    world.pods = lambda _: (pod("p", "card2"),)
    world.listing = lambda _: {("ns", "p"): {}, ("kube-system", "static"): {"c": {}}}
    resolver = world.resolver()

    def look(_: float) -> tuple[LocalPod, ...]:
        resolver.observe()
        return (pod("p", "card2"),)

    world.pods = look
    with pytest.raises(Refusal, match="none of them is guessed"):
        resolver.prefer(I915, 1, FREE, [], CARDS, lambda taken: [])


def test_a_list_that_a_question_crossed_settles_nothing() -> None:
    world = World()
    world.pods = lambda _: (pod("p", "card2"),)
    unknown: Listing = {("ns", "p"): {}, ("kube-system", "static"): {"c": {}}}
    world.listing = lambda _: unknown
    resolver = world.resolver()
    resolver.observe()
    for _ in range(2):
        with pytest.raises(Refusal):
            resolver.prefer(I915, 1, FREE, [], CARDS, lambda taken: [])
        resolver.observe()


def test_a_request_that_fits_no_pod_is_refused() -> None:
    world = World()
    world.pods = lambda _: (pod("p", "card0"),)
    with pytest.raises(Refusal, match="no pod of this node asks for 2"):
        world.prefer(size=2)


@pytest.mark.promise("O25")
@pytest.mark.parametrize("error", [NodeApiError(0, "no answer"), ListingError("no answer")])
def test_a_side_that_does_not_answer_is_asked_again_and_then_nothing_is_given(error: Exception) -> None:
    world = World()

    def fails_for_a_second(slept: float) -> tuple[LocalPod, ...]:
        if slept < 1:
            raise error
        return (pod("p", "card2"),)

    def fails(slept: float) -> tuple[LocalPod, ...]:
        raise error

    world.listing = lambda _: {("ns", "p"): {}}
    world.pods = fails_for_a_second
    assert world.prefer()[0] == ["card2-0"]
    world.pods = fails
    with pytest.raises(Refusal, match=r"cannot be told which pod asks for .*: no answer"):
        world.prefer()


@pytest.mark.promise("O25")
def test_a_refusal_names_the_pod_and_is_an_event_for_its_owner() -> None:
    world = World()
    world.pods = lambda _: (pod("p", "card9"),)
    with pytest.raises(Refusal, match="pod ns/p: its annotations name card9"):
        world.prefer()
    assert world.events == [("p", "CardsRefused")]


def test_what_the_kubelet_gives_is_confirmed_or_refused() -> None:
    world = World()
    world.pods = lambda _: (pod("p", "card1"),)
    assert world.resolver().confirm(I915, ["card1-1"], CARDS).shares == (SlotCard(1),)
    with pytest.raises(Refusal, match="pod ns/p: the kubelet gives card0-0, but the annotations name card1"):
        world.resolver().confirm(I915, ["card0-0"], CARDS)


def test_devices_of_a_pod_without_a_plan_are_confirmed_as_they_are() -> None:
    world = World()
    world.pods = lambda _: (pod("p"),)
    grant = world.resolver().confirm(I915, ["card0-0"], CARDS)
    assert (grant.how, grant.pod) == (DEFAULT, pod("p"))
