"""Pods for which nobody chose cards have some all the same, and nobody is planned onto what they have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.allocator.choose import default_devices
from labeler.allocator.values import card_of
from labeler.contract import keys
from tests.placement.cards import gpu_node, gpu_pod, text_of
from webhook.kube import containers, objects
from webhook.placement.cards.state import unmanaged_use
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of


def annotated(node: objects.Node, cards: str | None = None, unmanaged: str | None = None) -> objects.Node:
    """The node with what its allocator reports."""
    given = {keys.OFFERED_CARDS_ANNOTATION: cards, keys.UNPLANNED_CARDS_ANNOTATION: unmanaged}
    annotations = {key: text for key, text in given.items() if text is not None}
    metadata = objects.NodeMetadata(name="n", labels=node.metadata.labels, annotations=annotations)
    return objects.Node(metadata=metadata, status=node.status)


def running(name: str, *containers: dict[str, int], **annotations: str) -> objects.Pod:
    """A pod on the node."""
    made = gpu_pod(*containers, **annotations)
    metadata = objects.PodMetadata(
        name=name, namespace="ns", uid=f"uid-{name}", annotations=made.metadata.annotations
    )
    return objects.Pod(metadata=metadata, spec=made.spec)


def offered(*shares: int, resource: str = keys.I915) -> str:
    return ",".join(f"card{number}={resource}:{count}" for number, count in enumerate(shares))


SYNTHETIC_CAPACITY = gpu_node("0.1", i915="2")
ONE = gpu_pod({"i915": 1})


@pytest.mark.promise("O46")
@pytest.mark.parametrize(("has", "next_gets"), [("card0", "card1"), ("card1", "card0")])
def test_the_card_that_the_node_reports_is_not_planned_for_another(has: str, next_gets: str) -> None:
    node = annotated(SYNTHETIC_CAPACITY, offered(1, 1), f"uid-a={has}")
    assert text_of(node, ONE, [running("a", {"i915": 1})]) == next_gets


@pytest.mark.promise("O46")
def test_what_is_not_reported_is_taken_to_be_given_from_the_highest_card_down() -> None:
    assert text_of(SYNTHETIC_CAPACITY, ONE, [running("a", {"i915": 1})]) == "card0"
    assert text_of(SYNTHETIC_CAPACITY, ONE, [running("a", {"i915": 1}), running("b", {"i915": 1})]) == "no"


def test_a_pod_that_is_not_reported_is_taken_to_have_what_the_others_leave() -> None:
    node = annotated(SYNTHETIC_CAPACITY, offered(1, 1), "uid-b=card1")
    assert text_of(node, ONE, [running("a", {"i915": 1}), running("b", {"i915": 1})]) == "no"


def test_what_is_reported_of_a_pod_that_is_gone_takes_nothing() -> None:
    assert text_of(annotated(SYNTHETIC_CAPACITY, offered(1, 1), "uid-gone=card0"), ONE) == "card0"


def test_a_plan_counts_more_than_what_a_node_reports_of_its_pod() -> None:
    node = annotated(SYNTHETIC_CAPACITY, offered(1, 1), "uid-a=card0")
    assert text_of(node, ONE, [running("a", {"i915": 1}, gas_container_cards="card1")]) == "card0"


def test_a_pod_s_amounts_are_reserved_by_its_containers_in_their_order() -> None:
    node = annotated(
        gpu_node("0.1", i915="20", millicores="2000"), offered(10, 10), "uid-a=card1+card0+card1"
    )
    pod = running("a", {"i915": 1, "millicores": 300}, {}, {"i915": 2, "millicores": 1000})
    assert unmanaged_use(node_of(node), [convert.usage_of(pod)]) == {
        "card0": {keys.I915: 1, keys.MILLICORES: 500},
        "card1": {keys.I915: 2, keys.MILLICORES: 800},
    }


@pytest.mark.parametrize(("asked_first", "reserved"), [(1, {"card1"}), (2, {"card0", "card1"})])
def test_what_an_init_container_asked_for_beyond_the_others_stays_the_pods(
    asked_first: int, reserved: set[str]
) -> None:
    pod = running("a", {"i915": 1})
    resources = containers.Resources(requests={keys.I915: asked_first}, limits={keys.I915: asked_first})
    init = containers.Container(name="i", resources=resources)
    spec = objects.PodSpec(containers=pod.spec.containers, init_containers=[init])
    with_init = objects.Pod(metadata=pod.metadata, spec=spec)
    node = node_of(annotated(SYNTHETIC_CAPACITY, offered(1, 1), "uid-a=card1"))
    assert unmanaged_use(node, [convert.usage_of(with_init)]).keys() == reserved


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), max_size=5),
    st.integers(1, 4),
    st.booleans(),
)
def test_without_a_report_the_sweeper_guesses_what_the_allocator_gives(
    asked: list[list[int]], shares: int, is_planned_beside: bool
) -> None:
    """Pods that come one after the other, by their names; a planned pod has a share of card1 before."""
    node = gpu_node("0.1.2", i915=str(3 * shares))
    free = {f"card{card}-{share}" for card in range(3) for share in range(shares)}
    pods = [running("0", {"i915": 1}, gas_container_cards="card1")] if is_planned_beside else []
    free -= {"card1-0"} if is_planned_beside else set()
    given_by_card: dict[str, dict[str, int]] = {}
    for number, sizes in enumerate(asked):
        if sum(sizes) > len(free):
            break
        pods.append(running(f"p{number}", *({"i915": size} for size in sizes)))
        for size in sizes:
            chosen = default_devices(free, (), size, {})
            free -= set(chosen)
            for device in chosen:
                own = given_by_card.setdefault(card_of(device), {keys.I915: 0})
                own[keys.I915] += 1
    assert unmanaged_use(node_of(node), [convert.usage_of(pod) for pod in pods]) == given_by_card


@pytest.mark.promise("O46")
@pytest.mark.parametrize("allocatable", ["20", "10"], ids=["before the kubelet says so", "after"])
def test_a_card_that_the_allocator_took_out_of_use_is_planned_for_nobody(allocatable: str) -> None:
    node = annotated(gpu_node("0.1", i915=allocatable), offered(0, 10))
    pods = [running(f"p{number}", {"i915": 1}, gas_container_cards="card1") for number in range(9)]
    assert text_of(node, ONE, pods) == "card1"
    assert text_of(node, ONE, [*pods, running("p9", {"i915": 1}, gas_container_cards="card1")]) == "no"


def test_a_card_that_its_allocator_took_back_into_use_leaves_the_others() -> None:
    """Its devices are missing in the Node's status for seconds."""
    assert text_of(annotated(gpu_node("0.1.2", i915="2"), offered(1, 1, 1)), gpu_pod({"i915": 2})) != "no"


def test_a_card_that_its_allocator_does_not_know_is_planned_for_nobody() -> None:
    assert text_of(annotated(SYNTHETIC_CAPACITY, "card1=gpu.intel.com/i915:1"), ONE) == "card1"
    assert text_of(annotated(SYNTHETIC_CAPACITY, ""), ONE) == "no"


PARTLY_PLANNED = annotated(
    gpu_node("0.1.2", i915="10", xe="20", millicores="3000"),
    "card0=gpu.intel.com/i915:10,card1=gpu.intel.com/xe:10,card2=gpu.intel.com/xe:10",
)


@pytest.mark.promise("O47")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"i915": 1}, "card0"),
        ({"xe": 1}, "card1"),
        ({"xe": 2, "millicores": 2000}, "card1,card2"),
        ({"i915": 2}, "no"),
    ],
)
def test_where_drivers_meet_each_card_is_planned_by_its_own_resource(
    asked: dict[str, int], expected: str
) -> None:
    assert text_of(PARTLY_PLANNED, gpu_pod(asked)) == expected


def test_where_drivers_meet_a_card_has_all_shares_of_its_own() -> None:
    pods = [running(f"p{number}", {"i915": 1}, gas_container_cards="card0") for number in range(9)]
    assert text_of(PARTLY_PLANNED, ONE, pods) == "card0"
    assert (
        text_of(PARTLY_PLANNED, ONE, [*pods, running("p9", {"i915": 1}, gas_container_cards="card0")]) == "no"
    )


def test_what_an_allocator_reports_unreadably_costs_a_node_that_alone() -> None:
    node = annotated(SYNTHETIC_CAPACITY, "card0", "?")
    made = node_of(node)
    assert (made.problem, made.unmanaged) == ("", {})
    assert text_of(node, ONE) == "card0"
