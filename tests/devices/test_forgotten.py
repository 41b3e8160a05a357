"""What passes remember of devices and claims is bounded, whatever appears and disappears."""

import pytest

from tests.devices.bodies import NAMESPACE, claim, claim_spec, exactly, gpus, nodes, pod, selecting, supply
from webhook.devices import claim_capacity
from webhook.devices import supply as kept
from webhook.devices.needs import needs
from webhook.kube.objects import Pod
from webhook.placement import NodeInfo


def test_claims_that_are_gone_are_forgotten() -> None:
    found = supply(gpus("n", 1))
    for number in range(5):
        one = claim(f"c-{number}", claim_spec(exactly(1)))
        found.update([], found.classes, {f"{NAMESPACE}/{one.metadata.name}": one}, {})
        needs([pod("p", one.metadata.name)], [], nodes("n"), found, 16)
        assert list(found._asked) == [f"claim {NAMESPACE}/c-{number}"]


def test_a_share_of_very_many_is_not_counted_to_its_end() -> None:
    """Counting to this one would outlast any test."""
    found = supply(gpus("n", 1), claims=(claim("c", claim_spec(exactly(1))),))
    assert len(needs([pod("p", "c")], [], nodes("n"), found, 10**15).resources) == 1


def test_which_devices_match_is_forgotten_of_filters_that_nobody_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept, "MOST_FILTERS", 3)
    specs = [claim_spec(exactly(1, selectors=selecting(f"{number} < 9"))) for number in range(9)]
    found = supply(gpus("n", 2), claims=tuple(claim(f"c-{n}", spec) for n, spec in enumerate(specs)))

    def there_is(waiting: Pod) -> list[int]:
        made = needs([waiting], [], nodes("n"), found, 16)
        there = made.node(NodeInfo("n"))
        return [there.allocatable[each.name] for each in made.resources]

    for number in range(9):
        assert there_is(pod("p", f"c-{number}")) == [2]
        assert max(len(found._matched), len(found._reached), len(found._touched)) <= 4


def test_nodes_that_are_gone_are_forgotten() -> None:
    found = supply(gpus("n", 1), gpus("m", 1), claims=(claim("c", claim_spec(exactly(1))),))
    for names in (("n", "m"), ("m",)):
        made = needs([pod("p", "c")], [], nodes(*names), found, 16)
        for name in names:
            made.node(NodeInfo(name))
        needs([pod("p", "c")], [], nodes(*names), found, 16)
        assert sorted(found._nodes) == sorted(found._completed) == sorted(names)


def test_what_is_stored_of_equal_nodes_is_bounded_by_their_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_capacity, "MOST_CACHED", 20)
    spec = claim_spec(exactly(1), constraints=({"matchAttribute": "gpu.example.com/index"},))
    slices = [gpus(f"n{number}", number) for number in range(1, 10)]
    found = supply(*slices, claims=(claim("c", spec),))
    names = [f"n{number}" for number in range(1, 10)]
    made = needs([pod("p", "c")], [], nodes(*names), found, 16)
    (only,) = made.resources
    stored_of = []
    for number, name in enumerate(names, 1):
        assert made.node(NodeInfo(name)).allocatable[only.name] == number
        stored_of.append(len(found._claim_capacity._known))
    assert stored_of == [1, 2, 3, 4, 5, 1, 2, 1, 2], "of one to nine devices, and one more for each answer"


def test_claims_of_many_filters_keep_the_answers_of_fewer_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_capacity, "MOST_CACHED", 20)
    # Each device is judged by eleven filters, and compared by one attribute: four times what one filter is.
    requests = (exactly(1, name=f"r{n}", selectors=selecting(f"{n} < 99")) for n in range(11))
    spec = claim_spec(*requests, constraints=({"matchAttribute": "gpu.example.com/index"},))
    names = [f"n{number}" for number in range(1, 4)]
    slices = [gpus(name, number) for number, name in enumerate(names, 1)]
    found = supply(*slices, claims=(claim("c", spec),))
    made = needs([pod("p", "c")], [], nodes(*names), found, 16)
    stored_of = []
    for name in names:
        made.node(NodeInfo(name))
        stored_of.append(len(found._claim_capacity._known))
    assert stored_of == [1, 2, 1], "5 of 20, 9 more, and 13 that are too many"
