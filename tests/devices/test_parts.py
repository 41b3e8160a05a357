"""Devices that are given in parts: partitions that use up counters, and shares of capacity."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from tests.devices.bodies import (
    Body,
    claim,
    claim_spec,
    counters,
    exactly,
    given,
    gpu,
    nodes,
    part,
    pod,
    selecting,
    slice_of,
    supply,
)
from tests.devices.needed import capacity_of, one, problem
from webhook.devices.needs import needs
from webhook.devices.shares import Amount
from webhook.kube.devices import CapacityPolicy, ResourceSlice

GIB = 1024**3
ENGINES = 'device.attributes["gpu.example.com"].engines == {}'


def parted(*engines: int, count: int = 2) -> tuple[ResourceSlice, ResourceSlice]:
    """A node's GPU of seven engines, and its partitions."""
    pool = {"name": "n", "generation": 1, "resourceSliceCount": count}
    devices = [part(f"p{number}", each) for number, each in enumerate(engines)]
    return slice_of("n", devices, pool=pool), counters(count, node="n")


def shared(**policy: Any) -> ResourceSlice:
    """A node's device of 80 GiB, of which shares are given."""
    memory = {"value": "80Gi", **({"requestPolicy": policy} if policy else {})}
    return slice_of("n", [gpu("g", more={"allowMultipleAllocations": True, "capacity": {"memory": memory}})])


def wanting(memory: str) -> Body:
    return claim_spec(exactly(1, capacity={"requests": {"memory": memory}}))


def selected(engines: int) -> Body:
    return claim_spec(exactly(1, selectors=selecting(ENGINES.format(engines))))


@pytest.mark.promise("R133")
def test_partitions_are_given_while_the_counters_of_their_gpu_last() -> None:
    assert one(selected(3), *parted(7, 3, 3, 3, 1)) == {"n": 2}
    assert one(selected(7), *parted(7, 3, 3, 3, 1)) == {"n": 1}
    assert one(selected(1), *parted(*[1] * 9)) == {"n": 7}


def test_a_partition_in_use_takes_what_others_would_need() -> None:
    taken = claim("t", selected(3), given=given("p1", pool="n"))
    assert one(selected(7), *parted(7, 3, 1), claims=(taken,)) == {"n": 0}
    assert one(selected(1), *parted(7, 3, 1, 1), claims=(taken,)) == {"n": 2}


def test_nothing_is_given_of_a_pool_whose_counters_are_not_published() -> None:
    devices, _ = parted(1, 1)
    assert one(selected(1), devices) == {"n": 0}
    alone = slice_of("n", [part("p0", 1)])
    assert one(selected(1), alone) == {"n": 0}
    with_others = problem(claim_spec(exactly(None)), supply(alone, claims=(claim("c", selected(1)),)))
    assert with_others == ""


def test_a_large_partition_takes_the_place_of_all_the_small_ones_it_may_displace() -> None:
    small, large = selected(1), selected(3)
    supplied = supply(*parted(3, 3, *[1] * 7), claims=(claim("s", small), claim("l", large)))
    waiting, sent = pod("p", "s"), pod("q", "l", node="n")
    found = needs([waiting, pod("r", "l")], [], nodes("n"), supplied, 16)
    assert capacity_of(found, waiting) == {"n": 7}
    assert capacity_of(found, waiting, sent) == {"n": 4}


@pytest.mark.promise("R133")
def test_shares_are_given_while_the_capacity_lasts() -> None:
    assert one(wanting("30Gi"), shared()) == {"n": 2}
    assert one(claim_spec(exactly(1)), shared()) == {"n": 1}
    assert one(claim_spec(exactly(1)), shared(default="20Gi", validRange={"min": "1Gi"})) == {"n": 4}
    assert one(wanting("90Gi"), shared()) == {"n": 0}


def test_a_share_in_use_is_not_given_again() -> None:
    taken = claim(
        "t", wanting("60Gi"), given=given("g", pool="n", shareID="x", consumedCapacity={"memory": "60Gi"})
    )
    assert one(wanting("10Gi"), shared(), claims=(taken,)) == {"n": 2}


def test_one_claim_gets_no_two_shares_of_one_device_for_one_request() -> None:
    twice = claim_spec(exactly(2, capacity={"requests": {"memory": "1Gi"}}))
    assert one(twice, shared()) == {"n": 0}
    two = claim_spec(*(exactly(1, name=name, capacity={"requests": {"memory": "30Gi"}}) for name in "ab"))
    assert one(two, shared()) == {"n": 1}


def test_a_capacity_is_asked_of_whole_devices_too() -> None:
    capacities = ("40Gi", "80Gi", "141Gi")
    devices = [
        gpu(f"g{n}", more={"capacity": {"memory": {"value": each}}}) for n, each in enumerate(capacities)
    ]
    assert one(wanting("80Gi"), slice_of("n", devices)) == {"n": 2}
    lanes = claim_spec(exactly(1, capacity={"requests": {"lanes": "1"}}))
    assert one(lanes, slice_of("n", devices)) == {"n": 0}


def test_a_large_share_takes_the_place_of_all_the_small_ones_it_may_displace() -> None:
    supplied = supply(shared(), claims=(claim("s", wanting("10Gi")), claim("l", wanting("25Gi"))))
    waiting, sent = pod("p", "s"), pod("q", "l", node="n")
    found = needs([waiting, pod("r", "l")], [], nodes("n"), supplied, 16)
    assert capacity_of(found, waiting) == {"n": 8}
    assert capacity_of(found, waiting, sent) == {"n": 5}


@pytest.mark.parametrize(
    ("policy", "asked", "consumed", "is_allowed"),
    [
        (None, None, 80, True),
        (None, 7, 7, True),
        ({"default": "20Gi", "validRange": {"min": "8Gi"}}, None, 20, True),
        ({"default": "20Gi", "validRange": {"min": "8Gi"}}, 3, 8, True),
        ({"default": "10Gi", "validRange": {"min": "5Gi", "max": "60Gi", "step": "5Gi"}}, 11, 15, True),
        ({"default": "10Gi", "validRange": {"min": "5Gi", "max": "60Gi", "step": "5Gi"}}, 61, 65, False),
        ({"default": "16Gi", "validValues": ["4Gi", "16Gi", "32Gi"]}, 5, 16, True),
        ({"default": "16Gi", "validValues": ["4Gi", "16Gi", "32Gi"]}, 33, 33, False),
    ],
    ids=["all", "as asked", "default", "least", "a step up", "above", "a value up", "above all values"],
)
def test_what_is_asked_for_is_rounded_up_by_the_device_s_policy(
    policy: Body | None, asked: int | None, consumed: int, is_allowed: bool
) -> None:
    converted = msgspec.convert(policy, CapacityPolicy) if policy else None
    amount = Amount("memory", Fraction(80 * GIB), converted)
    taken = amount.consumed(None if asked is None else Fraction(asked * GIB))
    assert taken == consumed * GIB
    assert amount.allows(taken) == is_allowed
