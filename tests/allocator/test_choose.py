"""Which devices a container gets."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.allocator.choose import (
    by_name,
    check_devices,
    confirmed_shares,
    default_devices,
    devices_of,
    planned_devices,
    planned_shares,
    promised,
)
from labeler.allocator.identify import Kind
from labeler.allocator.values import LocalCard, LocalContainer, LocalPod, Refusal, card_of
from labeler.contract.annotations import SlotCard, encode_allocation

I915 = "gpu.intel.com/i915"
XE = "gpu.intel.com/xe"
NOW = 1_700_000_000_000_000_000
FOUR = ["card0-0", "card0-1", "card1-0", "card1-1"]


def cards(*numbers: int, resource: str = I915, tiles: int = 2) -> dict[int, LocalCard]:
    return {
        number: LocalCard(number, resource, (f"/dev/dri/card{number}",), tiles=tiles) for number in numbers
    }


def asking(name: str, count: int, resource: str = I915) -> LocalContainer:
    return LocalContainer(name, {resource: count} if count else {})


def planned(cards_: str, *counts: int, tiles: str = "", init: int = 0, sidecar: int = 0) -> LocalPod:
    annotations = {"gas-container-cards": cards_, "gas-ts": str(NOW)}
    if tiles:
        annotations["gas-container-tiles"] = tiles
    return LocalPod(
        "ns",
        "p",
        "uid",
        annotations,
        tuple(asking(f"c{index}", count) for index, count in enumerate(counts)),
        (asking("i", init),) if init else (),
        (asking("s", sidecar),) if sidecar else (),
    )


# --- as Intel's device plugin chose (its tests: R1, R2, R4) -------------------------------------------


def test_a_named_card_gives_its_first_free_device() -> None:
    assert devices_of(["card0"], FOUR) == ["card0-0"]


def test_a_card_without_a_free_device_gives_none() -> None:
    assert devices_of(["card0"], ["card6-0", "card5-1"]) == []


def test_a_card_that_is_named_twice_gives_two_devices() -> None:
    assert devices_of(["card0", "card1", "card0"], FOUR) == ["card0-0", "card1-0", "card0-1"]


def test_devices_that_must_be_included_come_first() -> None:
    assert devices_of(["card1", "card0"], FOUR, ["card1-1"]) == ["card1-1", "card0-0"]


def test_shares_are_taken_in_the_order_of_their_numbers() -> None:
    assert devices_of(["card0"], ["card0-10", "card0-9"]) == ["card0-9"]


# --- and what is refused where the cards are used up -------------------------------------------------


def test_a_card_of_the_plan_without_a_free_device_is_refused() -> None:
    with pytest.raises(Refusal, match=r"name card2, of which no device is free"):
        planned_devices(["card0", "card2"], FOUR)


def test_devices_that_must_be_included_against_the_plan_are_refused() -> None:
    with pytest.raises(Refusal, match="insists on card1-1"):
        planned_devices(["card0"], FOUR, ["card1-1"])


def test_other_devices_than_planned_are_refused() -> None:
    check_devices(["card0", "card1"], ["card1-7", "card0-3"])
    with pytest.raises(Refusal, match="gives card0-0, card0-1, but the annotations name card0, card1"):
        check_devices(["card0", "card1"], ["card0-0", "card0-1"])


# --- what a plan means -------------------------------------------------------------------------------


def shares_of(pod: LocalPod, index: int, known: dict[int, LocalCard]) -> list[int]:
    shares = planned_shares(pod, Kind.REGULAR, pod.containers[index], I915, known)
    return [share.card for share in shares]


def test_a_slot_belongs_to_the_container_of_its_place() -> None:
    pod = planned("card0||card2,card1", 1, 0, 2)
    assert shares_of(pod, 0, cards(0, 1, 2)) == [0]
    assert shares_of(pod, 2, cards(0, 1, 2)) == [2, 1]


def test_tiles_are_given_to_the_container_that_they_were_chosen_for() -> None:
    pod = planned("card0|card0", 1, 1, tiles="|card0:gt0+gt1")
    known = cards(0)
    assert planned_shares(pod, Kind.REGULAR, pod.containers[0], I915, known) == (SlotCard(0),)
    assert planned_shares(pod, Kind.REGULAR, pod.containers[1], I915, known) == (SlotCard(0, (0, 1)),)


@pytest.mark.parametrize(
    ("cards_", "counts", "tiles", "words"),
    [
        ("card9", (1,), "", "card9, and the cards of this node are card0, card1"),
        ("card0", (2,), "", "asks for 2 gpu.intel.com/i915, but .* names card0"),
        ("|card0", (1, 1), "", "c0 asks for 1 gpu.intel.com/i915, but .* names no card"),
        ("card0|card1", (1,), "", "has 2 slots, the pod has 1"),
        ("card0, card1", (2,), "", "' card1' .* is no card name"),
        ("card0", (1,), "card0:gt2", "tile gt2 of card0, which has 2"),
        ("card0", (1,), "card1:gt0", "does not match"),
        ("card0,card0", (2,), "", "card twice"),
    ],
)
def test_an_ambiguous_plan_is_refused(cards_: str, counts: tuple[int, ...], tiles: str, words: str) -> None:
    pod = planned(cards_, *counts, tiles=tiles)
    with pytest.raises(Refusal, match=words):
        shares_of(pod, 0, cards(0, 1))


def test_of_a_slot_only_the_cards_of_the_resource_count() -> None:
    known = cards(0) | cards(1, resource=XE)
    container = LocalContainer("c", {I915: 1, XE: 1})
    pod = LocalPod("ns", "p", "uid", {"gas-container-cards": "card0,card1"}, (container,))
    assert planned_shares(pod, Kind.REGULAR, container, I915, known) == (SlotCard(0),)
    assert planned_shares(pod, Kind.REGULAR, container, XE, known) == (SlotCard(1),)


@pytest.mark.promise("O26")
def test_an_init_container_gets_cards_of_the_container_that_inherits_its_devices() -> None:
    pod = planned("|card1,card2|card3", 0, 2, 1, init=1)
    assert planned_shares(pod, Kind.INIT, pod.init[0], I915, cards(1, 2, 3)) == (SlotCard(1),)


def test_an_init_container_larger_than_its_heir_is_refused_unless_all_is_one_card() -> None:
    pod = planned("card1|card2", 1, 1, init=2)
    with pytest.raises(Refusal, match=r"init container i asks for 2 .* and can have 1"):
        planned_shares(pod, Kind.INIT, pod.init[0], I915, cards(1, 2))
    same = planned("card1|card1", 1, 1, init=2)
    assert planned_shares(same, Kind.INIT, same.init[0], I915, cards(1, 2)) == (SlotCard(1), SlotCard(1))


def test_an_init_container_without_heir_never_gets_an_empty_answer() -> None:
    pod = planned("card1", 0, init=2)
    shares = planned_shares(pod, Kind.INIT, pod.init[0], I915, cards(1))
    assert shares == (SlotCard(1), SlotCard(1))
    devices = ["card1-0", "card1-1"]
    assert confirmed_shares(pod, Kind.INIT, pod.init[0], I915, cards(1), devices) == (SlotCard(1),)


@pytest.mark.promise("O26")
def test_a_sidecar_gets_cards_of_its_own_pod() -> None:
    pod = planned("card1|card1,card3", 1, 2, sidecar=2)
    assert planned_shares(pod, Kind.SIDECAR, pod.sidecars[0], I915, cards(1, 2, 3)) == (
        SlotCard(1),
        SlotCard(3),
    )


def test_what_the_kubelet_hands_on_among_init_containers_is_confirmed_if_it_is_of_the_pods_cards() -> None:
    pod = planned("card1,card2", 2, init=1)
    known = cards(0, 1, 2)
    assert confirmed_shares(pod, Kind.INIT, pod.init[0], I915, known, ["card2-0"]) == (SlotCard(2),)
    with pytest.raises(Refusal, match="gives card0-0"):
        confirmed_shares(pod, Kind.INIT, pod.init[0], I915, known, ["card0-0"])
    with pytest.raises(Refusal, match="gives card2-0, card2-1"):
        confirmed_shares(pod, Kind.INIT, pod.init[0], I915, known, ["card2-0", "card2-1"])


# --- against a plain oracle ------------------------------------------------------------------------------

free_devices = st.sets(
    st.builds("card{}-{}".format, st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12
)


@given(free_devices, st.lists(st.integers(0, 4), max_size=6), st.data())
def test_devices_are_of_the_cards_wanted_and_as_many_as_there_are(
    available: set[str], numbers: list[int], data: st.DataObject
) -> None:
    wanted = [f"card{number}" for number in numbers]
    must = data.draw(st.sets(st.sampled_from(sorted(available)), max_size=2))
    found = devices_of(wanted, available - must, must)
    assert len(set(found)) == len(found)
    assert set(found) <= available
    # The oracle: of each card the smaller of what is wanted and what there is.
    have = Counter(map(card_of, available))
    assert Counter(map(card_of, found)) == Counter(wanted) & have
    for device in must:
        wanted_of_card = wanted.count(card_of(device))
        must_of_card = sum(card_of(each) == card_of(device) for each in must)
        assert device in found or wanted_of_card < must_of_card


@pytest.mark.promise("O27")
@given(free_devices, st.integers(0, 12), st.data())
def test_a_default_takes_all_cards_once_before_any_twice(
    available: set[str], size: int, data: st.DataObject
) -> None:
    must = data.draw(st.sets(st.sampled_from(sorted(available)), max_size=2))
    size = max(size, len(must))
    found = default_devices(available, must, size, {})
    assert len(set(found)) == len(found) == min(size, len(available))
    assert must <= set(found) <= available
    chosen, have = Counter(map(card_of, found)), Counter(map(card_of, available))
    forced = Counter(map(card_of, must))
    for card in chosen:
        for other in have:
            more = chosen[card] - chosen[other]
            assert more <= 1 or chosen[other] == have[other] or chosen[card] == forced[card]


@pytest.mark.promise("O27")
def test_defaults_fill_cards_from_the_highest_number_down_as_plans_do_from_the_lowest_up() -> None:
    free = {f"card{number}-{share}" for number in (2, 9, 10) for share in range(2)}
    order = []
    while free:
        (device,) = default_devices(free, [], 1, {})
        free.remove(device)
        order.append(device)
    assert order == ["card10-0", "card10-1", "card9-0", "card9-1", "card2-0", "card2-1"]


def test_a_default_keeps_off_cards_that_are_promised() -> None:
    waiting = planned("card0,card1|card0", 2, 1)
    counted = promised([waiting], {waiting.key: {}}, cards(0, 1, 2), I915)
    assert counted == {"card0": 2, "card1": 1}
    available = [f"card{number}-{share}" for number in range(3) for share in range(2)]
    assert default_devices(available, [], 1, counted) == ["card2-0"]


def test_nothing_is_promised_to_a_pod_that_is_over() -> None:
    over = replace(planned("card0", 1), over=True)
    assert promised([over], {over.key: {}}, cards(0), I915) == {}


def test_what_is_served_is_no_longer_promised() -> None:
    waiting = planned("card0|card1", 1, 1)
    listing = {waiting.key: {"c0": {I915: ("card0-0",)}}}
    assert promised([waiting], listing, cards(0, 1), I915) == {"card1": 1}


@st.composite
def plans(draw: st.DrawFn) -> tuple[LocalPod, list[list[SlotCard]]]:
    slots = [
        [
            SlotCard(number, tuple(sorted(draw(st.sets(st.integers(0, 1), min_size=1)))))
            for number in sorted(draw(st.sets(st.integers(0, 3), max_size=3)))
        ]
        for _ in range(draw(st.integers(1, 3)))
    ]
    annotations = encode_allocation([tuple(slot) for slot in slots], NOW)
    containers = tuple(asking(f"c{index}", len(slot)) for index, slot in enumerate(slots))
    return LocalPod("ns", "p", "uid", annotations, containers), slots


@pytest.mark.promise("R5")
@given(plans())
def test_what_the_sweeper_writes_is_what_each_container_gets(
    plan: tuple[LocalPod, list[list[SlotCard]]],
) -> None:
    pod, slots = plan
    known = cards(0, 1, 2, 3)
    for container, slot in zip(pod.containers, slots, strict=True):
        assert list(planned_shares(pod, Kind.REGULAR, container, I915, known)) == slot
        devices = [f"card{share.card}-5" for share in reversed(slot)]
        assert list(confirmed_shares(pod, Kind.REGULAR, container, I915, known, devices)) == slot or not slot


def test_pods_are_known_by_namespace_and_name() -> None:
    pod = planned("card0", 1)
    assert by_name([pod]) == {("ns", "p"): pod}
