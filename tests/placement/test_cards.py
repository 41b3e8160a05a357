"""Choice of cards: against trying everything, and the cases known from GPU Aware Scheduling.

Expected values differ from GPU Aware Scheduling where it takes the first card that fits and we keep cards
whole, count cards by number (card2 before card10), and refuse what its node side would misread.
"""

import random
from collections.abc import Iterator, Sequence

import pytest

from labeler.contract import keys
from tests.placement.cards import feasible, gpu_node, gpu_pod, text_of
from webhook.kube import objects
from webhook.placement import CardRequest, PodClass, Snapshot
from webhook.placement.cards.choose import choose, count_slots, fits
from webhook.placement.cards.search import POLISH
from webhook.placement.cards.state import CardState, card_state, tile_run
from webhook.placement.model import Card
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of

MILLI, PLUGIN = keys.MILLICORES, keys.I915


def states_of(dice: random.Random) -> list[CardState]:
    cards = []
    for number in range(dice.randint(1, 4)):
        capacity = {PLUGIN: 4, MILLI: 10}
        links = tuple((0, f"card{n}", 0) for n in range(number + 1, 4) if dice.random() < 0.5)
        card = Card(
            f"card{number}", capacity, 2, dice.choice((0, 1)), dice.random() < 0.1, frozenset(), links
        )
        used = {MILLI: dice.choice((0, 0, 3, 5, 8)), PLUGIN: dice.choice((0, 1, 3))}
        cards.append(card_state(card, used, frozenset(dice.sample((0, 1), dice.randint(0, 1)))))
    return cards


def pod_of(dice: random.Random) -> PodClass:
    requests = tuple(
        CardRequest(dice.choice((0, 1, 1, 2)), ((PLUGIN, 1), (MILLI, dice.choice((1, 3, 5, 7)))))
        for _ in range(dice.randint(1, 3))
    )
    singles = tuple(number for number, request in enumerate(requests) if request.count == 1)
    return PodClass(
        (),
        cards=requests,
        same_card=singles if len(singles) > 1 and dice.random() < 0.3 else (),
        allowed_cards=("card0", "card2") if dice.random() < 0.15 else None,
        denied_cards=("card1",) if dice.random() < 0.15 else (),
        single_numa=dice.random() < 0.3,
        linked=all(request.count in (0, 2) for request in requests) and dice.random() < 0.5,
    )


@pytest.mark.parametrize("seed", range(30))
def test_a_feasible_choice_of_cards_is_never_missed(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(60):
        states = states_of(dice)
        pods = [pod_of(dice) for _ in range(dice.randint(1, 3))]
        assert fits(states, pods) is feasible(states, pods)


@pytest.mark.parametrize("seed", range(10))
def test_the_capacity_for_identical_pods_is_the_most_that_fit_together(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(40):
        states, pod = states_of(dice), pod_of(dice)
        if not pod.wants_cards:
            continue
        expected = 0
        while expected < 4 and feasible(states, [pod] * (expected + 1)):
            expected += 1
        assert count_slots(states, pod, 4) == (expected, True)


@pytest.mark.parametrize("polish", [0, POLISH], ids=["the first found", "the best"])
@pytest.mark.parametrize("seed", range(10))
def test_the_cards_that_are_chosen_hold_what_is_asked_of_them(seed: int, polish: int) -> None:
    dice = random.Random(seed)
    for _ in range(30):
        states = states_of(dice)
        pods = [pod_of(dice) for _ in range(dice.randint(1, 3))]
        found = choose(states, pods, polish).slots
        if found is None:
            assert not feasible(states, pods)
            continue
        free = {state.card.name: dict(state.free) for state in states}
        cards = {state.card.name: state.card for state in states}
        for pod, slots in zip(pods, found, strict=True):
            for request, slot in zip(pod.cards, slots, strict=True):
                names = [share.card for share in slot]
                assert len(set(names)) == request.count
                assert not any(cards[name].disabled or name in pod.denied_cards for name in names)
                assert pod.allowed_cards is None or set(names) <= set(pod.allowed_cards)
                assert not pod.single_numa or len({cards[name].numa for name in names}) <= 1
                for name in names:
                    for resource, amount in request.per_card:
                        free[name][resource] -= amount
            assert len({slots[number] for number in pod.same_card}) <= 1
        assert all(amount >= 0 for amounts in free.values() for amount in amounts.values())


def test_tiles_are_given_out_once_also_where_the_choice_is_not_polished() -> None:
    states = [
        card_state(Card(f"card{n}", {PLUGIN: 4}, 4), {PLUGIN: 1}, frozenset({used}))
        for n, used in enumerate((1, 2))
    ]
    request = CardRequest(2, ((PLUGIN, 1),), 1)
    found = choose(states, [PodClass((), cards=(request, request, request))], polish=0).slots
    assert found is not None
    given = sorted((share.card, share.tiles) for slot in found[0] for share in slot)
    assert given == [("card0", (n,)) for n in (0, 2, 3)] + [("card1", (n,)) for n in (0, 1, 3)]


# --- cases in the words of nodes and pods -----------------------------------------------------------


TWO = gpu_node("0.1", i915="20", millicores="2000", memory_max="17")


def one_by_one(node: objects.Node, pods: Sequence[objects.Pod]) -> Iterator[str]:
    """Each pod's cards, with those before it running."""
    running: list[objects.Pod] = []
    for pod in pods:
        text = text_of(node, pod, running)
        yield text
        if text != "no":
            annotations = {**pod.metadata.annotations, keys.GAS_CARDS_ANNOTATION: text}
            metadata = objects.PodMetadata(name=f"p{len(running)}", annotations=annotations)
            running.append(objects.Pod(metadata=metadata, spec=pod.spec))


def one(milli: int) -> objects.Pod:
    return gpu_pod({"i915": 1, "millicores": milli})


def test_shares_fill_cards_until_nothing_fits() -> None:
    pods = [one(500), one(600), one(500), one(401), one(400)]
    assert list(one_by_one(TWO, pods)) == ["card0", "card1", "card0", "no", "card1"]


def test_whole_cards_and_what_is_left_of_them() -> None:
    pods = [gpu_pod({"i915": 2, "millicores": 2000}), gpu_pod({"i915": 1}), one(1)]
    assert list(one_by_one(TWO, pods)) == ["card0,card1", "card0", "no"]


def test_card_memory_is_the_node_s_shared_out_and_rounded_down() -> None:
    pods = [gpu_pod({"i915": 1, "memory_max": amount}) for amount in (9, 8, 8, 1)]
    assert list(one_by_one(TWO, pods)) == ["no", "card0", "card1", "no"]


def test_cards_are_ordered_by_number_not_by_text() -> None:
    node = gpu_node("0.1.10.2", i915="4")
    pods = [gpu_pod({"i915": 1}) for _ in range(5)]
    assert list(one_by_one(node, pods)) == ["card0", "card1", "card2", "card10", "no"]


CASES: list[tuple[str, objects.Node, objects.Pod, str]] = [
    ("a container without cards", TWO, gpu_pod({}, {"i915": 1, "millicores": 10}), "|card0"),
    ("sums suffice but no card does", TWO, gpu_pod(*[{"i915": 1, "millicores": 700}] * 3), "no"),
    (
        "an empty slot between",
        TWO,
        gpu_pod({"i915": 1, "millicores": 700}, {}, {"i915": 1, "millicores": 700}),
        "card0||card1",
    ),
    ("more cards than there are", TWO, gpu_pod({"i915": 3}), "no"),
    (
        "shares that do not divide",
        TWO,
        gpu_pod({"i915": 2, "millicores": 3}),
        f'container "c1": {MILLI} 3 does not divide by 2 GPUs',
    ),
    ("xe", gpu_node("0.1", xe="20", millicores="2000"), gpu_pod({"xe": 2, "millicores": 100}), "card0,card1"),
    ("malformed card numbers", gpu_node("0.x", i915="2"), gpu_pod({"i915": 1}), "no"),
    (
        "one NUMA node",
        gpu_node("0.1.2.3", i915="4", millicores="4000", label_numa_gpu_map="0-0.1_1-2.3"),
        gpu_pod({"i915": 2, "millicores": 800}, gas_allocate_single_numa="true"),
        "card0,card1",
    ),
    ("allowed and denied", TWO, gpu_pod({"i915": 1}, gas_allow="card0, card1", gas_deny="card0"), "card1"),
    ("nothing allowed", TWO, gpu_pod({"i915": 1}, gas_allow=""), "no"),
    ("denied on a one-card node", gpu_node("0", i915="1"), gpu_pod({"i915": 1}, gas_deny="card0"), "no"),
    (
        "tiles side by side",
        gpu_node("0", i915="4", tiles="4"),
        gpu_pod({"i915": 1, "tiles": 2}),
        "card0:gt0:gt1",
    ),
    (
        "tiles of two containers are disjoint",
        gpu_node("0", i915="4", tiles="4"),
        gpu_pod({"i915": 1, "tiles": 2}, {"i915": 1, "tiles": 2}),
        "card0:gt0:gt1|card0:gt2:gt3",
    ),
    (
        "linked pairs",
        gpu_node("0.1.2.3", i915="16", tiles="16", label_xe_links="0.0-1.0_2.1-3.2"),
        gpu_pod({"i915": 2, "tiles": 2}, {"i915": 2, "tiles": 2}, gas_allocate_xelink="true"),
        "card0:gt0,card1:gt0|card2:gt1,card3:gt2",
    ),
    (
        "no link within a NUMA node",
        gpu_node(
            "0.1.2.3",
            i915="16",
            tiles="16",
            label_xe_links="0.0-2.0_2.1-3.2",
            label_numa_gpu_map="0-0.1_1-2.3",
        ),
        gpu_pod(*[{"i915": 2, "tiles": 8}] * 2, gas_allocate_xelink="true", gas_allocate_single_numa="true"),
        "no",
    ),
    (
        "containers on one card",
        TWO,
        gpu_pod({"i915": 1, "millicores": 400}, {"i915": 1, "millicores": 500}, gas_same_gpu="c1,c2"),
        "card0|card0",
    ),
    (
        "too much for one card",
        TWO,
        gpu_pod({"i915": 1, "millicores": 600}, {"i915": 1, "millicores": 500}, gas_same_gpu="c1, c2"),
        "no",
    ),
    (
        "tiles in some containers only, which the node side would give to the wrong one",
        gpu_node("0.1", i915="4", tiles="8"),
        gpu_pod({"i915": 1}, {"i915": 1, "tiles": 4}),
        'container "c1" asks for a GPU without tiles, and others ask for tiles; ask for tiles in all or none',
    ),
]


@pytest.mark.promise("W26")
@pytest.mark.parametrize(("node", "pod", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_known_case_has_its_known_cards(node: objects.Node, pod: objects.Pod, expected: str) -> None:
    assert text_of(node, pod) == expected


@pytest.mark.promise("W26")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("c1", '"c1" must name two or more different containers'),
        ("c1,c1", '"c1,c1" must name two or more different containers'),
        ("c1,zz", 'the pod has no container "zz"'),
        ("", '"" must name two or more different containers'),
    ],
    ids=["one", "twice", "unknown", "none"],
)
def test_a_malformed_request_for_one_card_is_refused_in_words(names: str, expected: str) -> None:
    problem = text_of(TWO, gpu_pod({"i915": 1}, {"i915": 1}, gas_same_gpu=names))
    assert problem == f"gas-same-gpu: {expected}"


@pytest.mark.promise("W26")
def test_one_card_and_linked_cards_exclude_each_other() -> None:
    pod = gpu_pod({"i915": 1}, {"i915": 1}, gas_same_gpu="c1,c2", gas_allocate_xelink="true")
    assert "exclude each other" in text_of(TWO, pod)


@pytest.mark.promise("W21")
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"telemetry.aware.scheduling.p/gas-disable-card0": "true"}, "card1"),
        ({"telemetry.aware.scheduling.p/gas-disable-card0": "PCI_GROUP"}, "card2"),
        ({"telemetry.aware.scheduling.p/gas-disable-carrd0": "true"}, "card0"),
        ({"telemetry.aware.scheduling.p/x/gas-disable-card0": "true"}, "card0"),
    ],
    ids=["one card", "its PCI group", "no such card", "no such key"],
)
def test_a_policy_s_labels_take_cards_out_of_use(labels: dict[str, str], expected: str) -> None:
    base = gpu_node("0.1.2", i915="3", label_pci_groups="0.1_2")
    metadata = objects.NodeMetadata(name="n", labels=base.metadata.labels | labels)
    assert text_of(objects.Node(metadata=metadata, status=base.status), gpu_pod({"i915": 1})) == expected


@pytest.mark.promise("W21")
@pytest.mark.parametrize(
    ("tile", "expected"), [("gt0", "no"), ("gt6", "card0:gt0")], ids=["its tile", "another"]
)
@pytest.mark.parametrize("word", ["disable", "deschedule"])
def test_a_disabled_tile_is_not_used(word: str, tile: str, expected: str) -> None:
    base = gpu_node("0", i915="1", tiles="1")
    labels = base.metadata.labels | {f"telemetry.aware.scheduling.p/gas-tile-{word}-card0_{tile}": "true"}
    node = objects.Node(metadata=objects.NodeMetadata(name="n", labels=labels), status=base.status)
    assert text_of(node, gpu_pod({"i915": 1, "tiles": 1})) == expected


def test_usage_is_divided_by_the_cards_in_the_slot_and_rounded_down() -> None:
    pod = gpu_pod({"i915": 2, "millicores": 100}, gas_container_cards="card0,card1,card2")
    assert convert.usage_of(pod).cards == {f"card{n}": {PLUGIN: 0, MILLI: 33} for n in range(3)}


BROKEN = {
    "tiles of a pod without any": {"gas_container_tiles": "|"},
    "a tile slot too many": {"gas_container_tiles": "card0:gt0|card0:gt1"},
    "tiles that name no tile": {"gas_container_tiles": ","},
    "a time of 18 digits": {"gas_ts": "1" * 18},
    "a time that is none": {"gas_ts": "now"},
}


@pytest.mark.parametrize("case", BROKEN)
def test_cards_are_reserved_whatever_the_tiles_and_the_time_are(case: str) -> None:
    """Other schedulers write such; a reader that passed the cards over would give them out once more."""
    running = gpu_pod({"i915": 1, "millicores": 600}, gas_container_cards="card0", **BROKEN[case])
    assert text_of(TWO, one(500), [running]) == "card1"


def test_tiles_are_reserved_beside_cards_that_cannot_be_read() -> None:
    node = gpu_node("0", i915="4", tiles="4")
    texts = {"gas_container_cards": "the first", "gas_container_tiles": "card0:gt0+gt1"}
    running = gpu_pod({"i915": 1, "tiles": 2}, **texts)
    assert convert.usage_of(running).tiles == {"card0": {0, 1}}
    assert text_of(node, gpu_pod({"i915": 1, "tiles": 2}), [running]) == "card0:gt2:gt3"


@pytest.mark.parametrize(
    "asked",
    [{}, {"millicores": 5000}, {"i915_monitoring": 1}],
    ids=["nothing", "a share of none", "monitoring"],
)
def test_annotations_of_a_pod_that_asks_for_no_gpu_take_nothing_from_others(asked: dict[str, int]) -> None:
    every = "card0:gt0+gt1,card1:gt0+gt1"
    running = gpu_pod(asked, gas_container_cards="card0,card1", gas_container_tiles=every)
    usage = convert.usage_of(running)
    assert (usage.cards, usage.tiles) == ({}, {})


def test_tiles_are_not_reserved_for_a_pod_that_asks_for_none() -> None:
    running = gpu_pod({"i915": 1}, gas_container_cards="card0", gas_container_tiles="card0:gt0+gt1+gt2")
    assert convert.usage_of(running).tiles == {}


def test_usage_with_a_slot_too_few_books_the_card_that_is_named() -> None:
    pod = gpu_pod({"i915": 1}, {"i915": 1}, gas_container_cards="card0")
    usage = convert.usage_of(pod)
    assert (usage.cards, usage.requests) == ({"card0": {PLUGIN: 1}}, {PLUGIN: 2, "pods": 1})


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [((0, 2, 3), 2, (2, 3)), ((0, 1, 2, 4, 5), 2, (4, 5)), ((0, 2, 4), 2, (0, 2)), ((0, 1), 0, ())],
    ids=["a run", "the tightest run", "no run", "none"],
)
def test_tiles_lie_side_by_side_where_they_can(
    free: tuple[int, ...], count: int, expected: tuple[int, ...]
) -> None:
    assert tile_run(free, count) == expected


def test_a_used_card_is_preferred_to_a_whole_one() -> None:
    running = gpu_pod({"i915": 1, "millicores": 500}, gas_container_cards="card1")
    assert text_of(TWO, one(500), [running]) == "card1"


def test_packing_keeps_cards_whole_where_a_balanced_scheduler_spreads_over_them() -> None:
    """GPU Aware Scheduling with a balanced resource spreads over cards 0, 1, 2, 1 and then takes 2 and 1.

    Ours has no such mode: whole cards are what the next pod that asks for a whole card needs.
    """
    node = gpu_node("0.1.2", i915="30", millicores="3000")
    pods = [one(300), one(100), one(100), one(50), gpu_pod({"i915": 2, "millicores": 200})]
    assert list(one_by_one(node, pods)) == ["card0", "card0", "card0", "card0", "card0,card1"]


@pytest.mark.parametrize(
    ("label", "containers", "expected"),
    [
        ("gas-prefer-gpu", {"i915": 1}, "card0"),
        ("gas-tile-preferred-card0", {"i915": 1, "tiles": 1}, "card0:gt0"),
    ],
    ids=["card", "tile"],
)
def test_a_preferred_card_or_tile_yields_to_packing(
    label: str, containers: dict[str, int], expected: str
) -> None:
    """A preference by telemetry would open a whole card, or break a run of tiles, so it is not weighed."""
    base = gpu_node("0.1", i915="2", tiles="8")
    value = "card1" if label == "gas-prefer-gpu" else "gt3"
    labels = base.metadata.labels | {f"telemetry.aware.scheduling.p/{label}": value}
    node = objects.Node(metadata=objects.NodeMetadata(name="n", labels=labels), status=base.status)
    assert text_of(node, gpu_pod(containers)) == expected


@pytest.mark.parametrize(("used", "expected"), [(5, "no"), (3, "|".join(["card0"] * 5))], ids=["3", "5"])
def test_containers_that_share_a_card_need_a_share_of_it_each(used: int, expected: str) -> None:
    """Two cards of eight shares: five containers on one card need five free shares of that card."""
    node = gpu_node("0.1", i915="16")
    running = [gpu_pod({"i915": 1}, gas_container_cards=f"card{n}") for n in (0, 1) for _ in range(used)]
    pod = gpu_pod(*[{"i915": 1}] * 5, gas_same_gpu="c1,c2,c3,c4,c5")
    assert text_of(node, pod, running) == expected


def test_amounts_beyond_64_bits_add_up_exactly_and_leave_no_capacity() -> None:
    """GPU Aware Scheduling refuses such a sum as an overflow; ours has no largest number to overflow."""
    huge = 2**63 - 1
    running = [gpu_pod({"i915": 1, "millicores": huge}, gas_container_cards="card0") for _ in range(2)]
    node = gpu_node("0", i915="4", millicores="1000")
    state = Snapshot.build([node_of(node)], [("n", convert.usage_of(pod)) for pod in running])
    assert state.nodes["n"].free[MILLI] == 1000 - 2 * huge
    assert text_of(node, one(1), running) == "no"
