"""Which pod, and which container of it, is being served."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.allocator.choose import by_name
from labeler.allocator.identify import Ambiguous, Kind, Nobody, Served, identify, oldest_plan
from labeler.allocator.values import Listing, LocalContainer, LocalPod

I915 = "gpu.intel.com/i915"
XE = "gpu.intel.com/xe"


def container(name: str, i915: int = 0, **more: int) -> LocalContainer:
    asks = {key: value for key, value in {I915: i915, **more}.items() if value}
    return LocalContainer(name, asks)


def pod(name: str, *containers: LocalContainer, cards: str | None = None, **more: object) -> LocalPod:
    annotations = {} if cards is None else {"gas-container-cards": cards, "gas-ts": "1700000000000000000"}
    return LocalPod("ns", name, f"uid-{name}", annotations, containers, **more)  # type: ignore[arg-type]


def listing(*pods: LocalPod, **devices: dict[str, tuple[str, ...]]) -> Listing:
    """The kubelet's list: every pod, devices as "pod_container": {resource: ids}."""
    return {
        each.key: {
            of.name: devices.get(f"{each.name}_{of.name}", {}) for of in (*each.sidecars, *each.containers)
        }
        for each in pods
    }


def ask(size: int, listed: Listing, *pods: LocalPod, resource: str = I915) -> Served | Ambiguous | Nobody:
    return identify(resource, size, listed, by_name(pods))


def served(found: Served | Ambiguous | Nobody) -> tuple[str, list[tuple[Kind, str]]]:
    assert isinstance(found, Served), found
    return found.pod.name, [(kind, each.name) for kind, each in found.containers]


def test_the_one_pod_without_its_devices_is_served() -> None:
    done, new, cpu = pod("done", container("c", 1)), pod("new", container("c", 1)), pod("cpu", container("c"))
    listed = listing(done, new, cpu, done_c={I915: ("card0-0",)})
    assert served(ask(1, listed, done, new, cpu)) == ("new", [(Kind.REGULAR, "c")])


def test_containers_are_served_in_their_order_and_those_without_gpu_are_skipped() -> None:
    new = pod("new", container("a", 1), container("b"), container("c", 1))
    assert served(ask(1, listing(new), new)) == ("new", [(Kind.REGULAR, "a")])
    assert served(ask(1, listing(new, new_a={I915: ("card0-0",)}), new)) == ("new", [(Kind.REGULAR, "c")])


def test_of_a_pod_in_the_middle_of_its_containers_the_next_alone_is_served() -> None:
    new = pod("new", container("a", 1), container("b", 1), container("c", 1))
    assert served(ask(1, listing(new, new_a={I915: ("card0-0",)}), new)) == ("new", [(Kind.REGULAR, "b")])


def test_a_pod_whose_next_container_asks_for_another_number_is_not_the_one() -> None:
    one, two = pod("one", container("c", 1)), pod("two", container("c", 2))
    assert served(ask(2, listing(one, two), one, two)) == ("two", [(Kind.REGULAR, "c")])
    assert isinstance(ask(3, listing(one, two), one, two), Nobody)


def test_two_pods_that_fit_are_ambiguous() -> None:
    one, two = pod("one", container("c", 1), cards="card0"), pod("two", container("c", 1))
    found = ask(1, listing(one, two), one, two)
    assert isinstance(found, Ambiguous)
    assert {each.pod.name for each in found.candidates} == {"one", "two"}
    assert not found.is_unmanaged


def test_two_pods_that_fit_and_have_no_plan_may_have_any_devices() -> None:
    one, two = pod("one", container("c", 1)), pod("two", container("c", 1), cards="|")
    found = ask(1, listing(one, two), one, two)
    assert isinstance(found, Ambiguous)
    assert found.is_unmanaged


def test_a_pod_that_has_ended_is_not_served() -> None:
    old, new = pod("old", container("c", 1), over=True), pod("new", container("c", 1))
    assert served(ask(1, listing(old, new), old, new))[0] == "new"


def test_a_pod_that_the_kubelet_does_not_have_is_not_served() -> None:
    elsewhere, new = pod("elsewhere", container("c", 1)), pod("new", container("c", 1))
    assert served(ask(1, listing(new), elsewhere, new))[0] == "new"


def test_a_pod_that_the_api_server_has_forgotten_makes_it_ambiguous() -> None:
    gone, new = pod("gone", container("c", 1)), pod("new", container("c", 1), cards="card0")
    found = ask(1, listing(gone, new), new)
    assert isinstance(found, Ambiguous)
    assert found.unknown == (("ns", "gone"),)
    assert not found.is_unmanaged


def test_a_forgotten_pod_that_has_its_devices_makes_nothing_ambiguous() -> None:
    gone, new = pod("gone", container("c", 1)), pod("new", container("c", 1))
    assert served(ask(1, listing(gone, new, gone_c={I915: ("card0-0",)}), new))[0] == "new"


def test_each_resource_of_a_container_is_served_for_itself() -> None:
    new = pod("new", container("c", 1, **{XE: 2}))
    listed = listing(new, new_c={I915: ("card0-0",)})
    assert isinstance(ask(1, listed, new), Nobody)
    assert served(ask(2, listed, new, resource=XE)) == ("new", [(Kind.REGULAR, "c")])


def test_an_init_container_is_served_before_any_container_has_devices_and_never_after() -> None:
    new = pod("new", container("a", 2), container("b", 2), init=(container("i", 1),))
    assert served(ask(1, listing(new), new)) == ("new", [(Kind.INIT, "i")])
    assert isinstance(ask(1, listing(new, new_a={I915: ("card0-0", "card1-0")}), new), Nobody)


def test_an_init_container_as_large_as_the_first_container_cannot_be_distinguished_from_it() -> None:
    new = pod("new", container("a", 2), init=(container("i", 2),))
    assert served(ask(2, listing(new), new)) == ("new", [(Kind.REGULAR, "a"), (Kind.INIT, "i")])


def test_a_pod_with_gpus_in_an_init_container_alone_is_past_it_once_it_is_started() -> None:
    first = pod("first", container("c"), init=(container("i", 1),))
    new = pod("new", container("c", 1))
    assert isinstance(ask(1, listing(first, new), first, new), Ambiguous)
    assert served(ask(1, listing(first, new), replace(first, started=True), new))[0] == "new"


def test_a_sidecar_is_served_before_the_containers() -> None:
    new = pod("new", container("a", 1), sidecars=(container("s", 1),))
    assert served(ask(1, listing(new), new)) == ("new", [(Kind.SIDECAR, "s")])
    assert served(ask(1, listing(new, new_s={I915: ("card0-0",)}), new)) == ("new", [(Kind.REGULAR, "a")])


def test_the_fallback_of_old_kubelets_takes_the_oldest_plan() -> None:
    def stamped(name: str, stamp: str) -> LocalPod:
        annotations = {"gas-container-cards": "card0", "gas-ts": stamp}
        return LocalPod("ns", name, name, annotations, (container("c", 1),))

    late, early = stamped("late", "1700000000000000002"), stamped("early", "1700000000000000001")
    none = pod("none", container("c", 1))
    found = ask(1, listing(late, none, early), late, none, early)
    assert isinstance(found, Ambiguous)
    oldest = oldest_plan(found)
    assert oldest is not None
    assert oldest.pod.name == "early"


containers = st.lists(st.integers(0, 2), min_size=1, max_size=3)


@st.composite
def nodes(draw: st.DrawFn) -> list[LocalPod]:
    """Pods of a node, in the order of their admission."""
    return [
        pod(
            f"p{number}",
            *(container(f"c{index}", size) for index, size in enumerate(draw(containers))),
            init=tuple(container(f"i{index}", size) for index, size in enumerate(draw(containers)[:1])),
        )
        for number in range(draw(st.integers(1, 5)))
    ]


def admissions(pods: list[LocalPod]) -> Iterator[tuple[LocalPod, Kind, LocalContainer, Listing]]:
    """A plain kubelet: every call that it makes, with what its list shows at that moment."""
    devices: dict[str, dict[str, tuple[str, ...]]] = {}
    numbers = itertools.count()
    for index, each in enumerate(pods):
        pods[:index] = [replace(earlier, started=True) for earlier in pods[:index]]
        reusable = 0
        for kind, of in [*((Kind.INIT, i) for i in each.init), *((Kind.REGULAR, c) for c in each.containers)]:
            size = of.wants(I915)
            if not size:
                continue
            if size > reusable:  # else the kubelet hands on what an init container had, and asks nobody
                yield each, kind, of, listing(*pods[: index + 1], **devices)
            reusable = max(size, reusable) if kind is Kind.INIT else reusable - min(size, reusable)
            if kind is Kind.REGULAR:
                allocated = tuple(f"card{next(numbers)}-0" for _ in range(size))
                devices[f"{each.name}_{of.name}"] = {I915: allocated}


@pytest.mark.promise("O31")
@given(nodes())
def test_in_any_run_of_a_kubelet_the_pod_of_each_call_is_identified(pods: list[LocalPod]) -> None:
    for whose, kind, of, listed in admissions(pods):
        name, options = served(identify(I915, of.wants(I915), listed, by_name(pods)))
        assert name == whose.name
        assert (kind, of.name) in options
