"""The pods of a plan on the wire: they survive a round trip, take little space, and nothing else is read."""

import binascii
import gzip
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.plans import drawn
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PLAIN_PODS, UNPACKED_BYTES, PlannedPod, pack, unpack

pods = st.lists(
    st.builds(
        PlannedPod,
        name=st.text(),
        uid=st.text(),
        node=st.text(),
        rank=st.none() | st.integers(-(2**63), 2**63 - 1),
        annotations=st.dictionaries(st.text(), st.text()),
    )
)


@given(pods)
def test_what_is_packed_comes_out_as_it_was(given_pods: list[PlannedPod]) -> None:
    assert unpack(pack(given_pods)) == given_pods


def test_equal_plans_are_packed_equally() -> None:
    assert pack(drawn(50)) == pack(drawn(50))


def test_people_see_the_fields_of_all_pods_in_what_base64_and_zcat_show() -> None:
    shown = json.loads(gzip.decompress(binascii.a2b_base64(pack(drawn(3)))))
    assert shown["node"] == [pod.node for pod in drawn(3)]
    assert shown["rank"] == [0, 1, 2]


def sealed(plain: bytes, times: int = 1) -> str:
    """Packed without our codec, and without the time: the text names a test, the same in all workers."""
    return binascii.b2a_base64(gzip.compress(plain, mtime=0) * times, newline=False).decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not one gzip stream"),
        ("%", "not gzip in base64"),
        ("é", "not gzip in base64"),
        (binascii.b2a_base64(b"plain", newline=False).decode(), "not gzip in base64"),
        (pack([])[:-8], "not "),
        (sealed(b"{}", times=2), "not one gzip stream"),
        (sealed(b"{}"), "missing required field"),
        (sealed(b'{"name":["a"],"uid":[],"node":[],"rank":[],"annotations":[]}'), "argument 2 is shorter"),
    ],
)
def test_other_text_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpack(text)


def test_a_short_text_that_stands_for_gigabytes_is_not_read() -> None:
    bomb = gzip.compress(b" " * (UNPACKED_BYTES + 1), 9)
    with pytest.raises(ValueError, match=f"at most {UNPACKED_BYTES:,} bytes"):
        unpack(binascii.b2a_base64(bomb, newline=False).decode())


@pytest.mark.promise("O327")
def test_a_plan_that_people_may_read_is_not_packed() -> None:
    plan = PlacementSpec(gang="Job/small", pods=drawn(PLAIN_PODS))
    assert plan.on_the_wire() == msgspec.to_builtins(plan)


@pytest.mark.promise("O327", "W32")
def test_a_large_plan_is_packed_and_read_as_if_it_were_not() -> None:
    plan = PlacementSpec(gang="Job/large", size=7, pods=drawn(PLAIN_PODS + 1), later_pod_nodes=["n"])
    wire = plan.on_the_wire()
    assert sorted(wire) == ["gang", "laterPodNodes", "packed", "size"]
    assert msgspec.convert(wire, PlacementSpec) == plan


def test_of_a_plan_with_its_pods_in_both_forms_the_plain_ones_count() -> None:
    wire = {"pods": [msgspec.to_builtins(drawn(1)[0])], "packed": pack(drawn(2))}
    placement = msgspec.convert({"metadata": {"name": "p"}, "spec": wire}, Placement)
    assert (placement.spec.pods, placement.spec.packed) == (drawn(1), "")
