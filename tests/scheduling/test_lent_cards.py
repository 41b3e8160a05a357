"""Cards of sidecars and init containers: what the sweeper counts is what the node's allocator hands out."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.allocator.choose import planned_shares
from labeler.allocator.identify import Kind
from labeler.allocator.pods import decode_pods
from labeler.allocator.values import LocalCard, Refusal
from labeler.contract import keys
from labeler.contract.annotations import SlotCard, encode_allocation
from webhook.kube import objects
from webhook.placement.cards.choose import choose
from webhook.placement.cards.state import card_state
from webhook.placement.model import Card as PlacedCard
from webhook.scheduling.convert import pod_class_of, usage_of

I915, XE, SHARE, TILES = keys.I915, keys.XE, keys.MILLICORES, keys.TILES
NOW = 1_700_000_000_000_000_000
CARDS = {number: LocalCard(number, I915, (f"/dev/dri/card{number}",), tiles=2) for number in range(4)}


def container(name: str, amounts: dict[str, int], *, is_sidecar: bool = False) -> dict[str, Any]:
    limits = {key: str(amount) for key, amount in amounts.items() if amount}
    made: dict[str, Any] = {"name": name, "resources": {"limits": limits}}
    return made | ({"restartPolicy": "Always"} if is_sidecar else {})


def manifest(
    containers: list[dict[str, int]],
    sidecars: list[dict[str, int]] | None = None,
    init: list[dict[str, int]] | None = None,
    slots: list[list[int]] | None = None,
) -> dict[str, Any]:
    """A pod; slots: its plan."""
    annotations = encode_allocation([tuple(map(SlotCard, s)) for s in slots], NOW) if slots else {}
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations},
        "spec": {
            "containers": [container(f"c{n}", each) for n, each in enumerate(containers)],
            "initContainers": [container(f"i{n}", each) for n, each in enumerate(init or ())]
            + [container(f"s{n}", each, is_sidecar=True) for n, each in enumerate(sidecars or ())],
        },
    }


def seen_by_the_sweeper(pod: dict[str, Any]) -> objects.Pod:
    return msgspec.convert(pod, objects.Pod)


def reserved(pod: dict[str, Any]) -> dict[str, dict[str, int]]:
    """What of each card the sweeper takes for used."""
    usage = usage_of(seen_by_the_sweeper(pod))
    return {card: dict(amounts) for card, amounts in usage.cards.items()}


def handed_out(pod: dict[str, Any]) -> Counter[str]:
    """Devices of each card that the allocator gives the pod's containers and sidecars. Raises Refusal."""
    (read,) = decode_pods(json.dumps({"items": [pod]}).encode())
    for each in read.init:
        if each.wants(I915):
            planned_shares(read, Kind.INIT, each, I915, CARDS)  # handed on, so it counts once
    served = [(Kind.REGULAR, each) for each in read.containers]
    served += [(Kind.SIDECAR, each) for each in read.sidecars]
    return Counter(
        f"card{share.card}"
        for kind, each in served
        if each.wants(I915)
        for share in planned_shares(read, kind, each, I915, CARDS)
    )


@pytest.mark.parametrize(
    ("sidecar", "slots", "expected"),
    [
        ({I915: 1, SHARE: 100}, [[1], [2]], {"card1": {I915: 2, SHARE: 600}, "card2": {I915: 1, SHARE: 500}}),
        ({I915: 1}, [[2], [2]], {"card2": {I915: 3, SHARE: 1000}}),
        ({SHARE: 100}, [[1], [2]], {"card1": {I915: 1, SHARE: 500}, "card2": {I915: 1, SHARE: 500}}),
    ],
)
def test_a_sidecars_share_is_counted_on_the_first_card_of_its_pod(
    sidecar: dict[str, int], slots: list[list[int]], expected: dict[str, dict[str, int]]
) -> None:
    each = {I915: 1, SHARE: 500}
    assert reserved(manifest([each, each], [sidecar], slots=slots)) == expected


def test_amounts_of_a_sidecar_are_divided_by_its_own_cards() -> None:
    pod = manifest([{I915: 3}], [{I915: 2, SHARE: 100}], slots=[[0, 1, 3]])
    lent = {I915: 2, SHARE: 50}
    assert reserved(pod) == {"card0": lent, "card1": lent, "card3": {I915: 1}}


def test_a_card_that_fits_the_container_alone_is_not_chosen_for_it_and_its_sidecar() -> None:
    states = [
        card_state(PlacedCard(f"card{n}", {I915: 10, SHARE: 1000}), used, frozenset())
        for n, used in enumerate(({SHARE: 450}, {}))
    ]
    pod = seen_by_the_sweeper(manifest([{I915: 1, SHARE: 500}], [{I915: 1, SHARE: 100}]))
    found, exact = choose(states, [pod_class_of(pod)])
    assert exact
    assert found is not None
    ((slot,),) = found
    assert [share.card for share in slot] == ["card1"]
    assert choose(states[:1], [pod_class_of(pod)]).slots is None


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (manifest([{I915: 1}], [{I915: 2}]), 'sidecar "s0": asks for 2 GPUs of the 1 of container "c0"'),
        (manifest([{I915: 1}], init=[{I915: 2}]), 'init container "i0": asks for 2 GPUs of the 1'),
        (manifest([{}], [{I915: 1}]), f'sidecar "s0": no container asks for {I915}'),
        (manifest([{I915: 1}], [{XE: 1}]), f'sidecar "s0": no container asks for {XE}'),
        (manifest([{I915: 1, TILES: 1}], [{I915: 1, TILES: 1}]), "uses a container's tiles, ask for none"),
        (manifest([{I915: 2}], [{I915: 2, SHARE: 501}]), f'sidecar "s0": {SHARE} 501 does not divide'),
    ],
)
def test_what_the_node_could_not_keep_has_no_place(pod: dict[str, Any], words: str) -> None:
    assert words in pod_class_of(seen_by_the_sweeper(pod)).problem


@pytest.mark.parametrize(
    "pod",
    [
        manifest([{}], init=[{I915: 1}]),
        manifest([{I915: 2}], init=[{I915: 1}]),
        manifest([{I915: 1, TILES: 1}], [{I915: 1}]),
        manifest([{I915: 1}], [{keys.I915_MONITORING: 1}]),
    ],
)
def test_what_the_node_can_keep_has_a_place(pod: dict[str, Any]) -> None:
    assert pod_class_of(seen_by_the_sweeper(pod)).problem == ""


@st.composite
def planned_pods(draw: st.DrawFn) -> dict[str, Any]:
    slots = draw(
        st.lists(
            st.sets(st.integers(0, 3), max_size=3).map(sorted), min_size=1, max_size=3
        ).filter(any)
    )  # fmt: skip
    asked = st.lists(st.fixed_dictionaries({I915: st.integers(0, 3)}), max_size=2)
    return manifest([{I915: len(slot)} for slot in slots], draw(asked), draw(asked), slots)


def refused(pod: dict[str, Any]) -> bool:
    """Whether the allocator hands out nothing."""
    try:
        handed_out(pod)
    except Refusal:
        return True
    return False


@given(planned_pods())
def test_a_pod_that_has_a_place_is_not_refused_on_its_node(pod: dict[str, Any]) -> None:
    assert pod_class_of(seen_by_the_sweeper(pod)).problem or not refused(pod)


@pytest.mark.promise("O26")
@given(planned_pods())
def test_what_the_node_hands_out_is_what_the_sweeper_counts(pod: dict[str, Any]) -> None:
    assert refused(pod) or handed_out(pod) == {card: each[I915] for card, each in reserved(pod).items()}


def annotated(asked: list[int], text: str, init: list[dict[str, int]] | None = None) -> Any:
    """The use of a pod whose containers ask for so many cards, with these slots."""
    body = manifest([{I915: count, SHARE: 100 * count} for count in asked], init=init)
    body["metadata"]["annotations"] = {keys.GAS_CARDS_ANNOTATION: text}
    return usage_of(seen_by_the_sweeper(body))


ONE = {I915: 1, SHARE: 100}
TWO = {I915: 2, SHARE: 200}


@pytest.mark.parametrize(
    ("asked", "text", "expected"),
    [
        pytest.param([1], "card0|card1", {"card0": ONE, "card1": ONE}, id="more slots than containers"),
        pytest.param([2], "card0|card1", {"card0": TWO, "card1": TWO}, id="a card a slot for one container"),
        pytest.param([1], "|card3", {"card3": ONE}, id="empty slots name nothing"),
        pytest.param([0, 1], "card2", {"card2": ONE}, id="a slot less, for the container that asks for none"),
        pytest.param(
            [1, 2], "card0|card1,card2|", {"card0": ONE, "card1": ONE, "card2": ONE}, id="one too many"
        ),
        pytest.param([0], "card0|card1", {}, id="nobody asks"),
    ],
)
def test_slots_of_a_wrong_number_book_the_cards_that_they_name(
    asked: list[int], text: str, expected: dict[str, dict[str, int]]
) -> None:
    found = annotated(asked, text)
    assert {card: dict(amounts) for card, amounts in found.cards.items()} == expected
    assert found.unmanaged == ()


@pytest.mark.parametrize("text", ["card0", "card0|"])
def test_a_container_without_a_name_has_cards_of_the_node_s_choice(text: str) -> None:
    found = annotated([1, 2], text)
    assert {card: dict(amounts) for card, amounts in found.cards.items()} == {"card0": ONE}
    assert [request.count for request in found.unmanaged] == [2]
