"""How many volumes nodes take: attach limits, free volumes, capacity of drivers, claims for one pod alone."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.scheduling.shelf import DRIVER, Shelf, node, pod
from webhook.kube.drivers import CSIDriver, CSIStorageCapacity, VolumeAttachment
from webhook.kube.volume_objects import PersistentVolume
from webhook.placement import NoFit
from webhook.scheduling import claim_kinds, convert, free_volumes
from webhook.scheduling import storage as storage_module
from webhook.scheduling.free_volumes import FreeVolumes
from webhook.scheduling.volume_counts import volume_counts

# --- how many are attached ------------------------------------------------------------------------


@pytest.mark.promise("R106")
def test_a_node_takes_as_many_volumes_as_its_driver_allows() -> None:
    shelf = Shelf()
    shelf.limit("a", 2)
    shelf.limit("b", 1)
    pods = [pod(f"p{n}", shelf.disk(f"d{n}")) for n in range(3)]
    assert sorted(shelf.placed(pods)) == ["a", "a", "b"]
    assert shelf.placed([*pods, pod("p3", shelf.disk("d3"))]) == []


def test_a_volume_that_pods_share_counts_once_on_a_node() -> None:
    shelf = Shelf()
    shelf.limit("a", 1)
    shelf.limit("b", 0)
    shelf.disk("d")
    assert shelf.placed([pod(f"p{n}", "d") for n in range(5)]) == ["a"] * 5
    shelf.disk("own")
    assert shelf.placed([pod("p0", "d", "own"), pod("p1", "d")]) == []


def test_a_volume_that_stands_on_the_node_is_no_new_one_even_if_it_is_full() -> None:
    shelf = Shelf()
    shelf.limit("a", 1)
    shelf.limit("b", 0)
    shelf.disk("d")
    shelf.disk("other")
    there = [(pod("r", "d"), "a")]
    assert shelf.placed([pod("p", "d")], there) == ["a"]
    assert shelf.placed([pod("p", "other")], there) == []


def test_what_is_attached_for_no_pod_counts_as_well() -> None:
    shelf = Shelf()
    shelf.limit("a", 1)
    shelf.limit("b", 0)
    shelf.disk("left")
    shelf.disk("d")
    spec = {"attacher": DRIVER, "nodeName": "a", "source": {"persistentVolumeName": "left"}}
    shelf.attachments.append(msgspec.convert({"metadata": {"name": "x"}, "spec": spec}, VolumeAttachment))
    assert shelf.placed([pod("p", "d")]) == []


def test_a_volume_that_is_still_to_be_made_counts() -> None:
    shelf = Shelf()
    shelf.limit("a", 1)
    shelf.limit("b", 1)
    pods = [pod(f"p{n}", shelf.wait(f"c{n}", by=DRIVER)) for n in range(2)]
    assert sorted(shelf.placed(pods)) == ["a", "b"]


def test_pods_of_another_gang_that_is_placed_first_count() -> None:
    shelf = Shelf()
    shelf.limit("a", 1)
    shelf.limit("b", 0)
    shelf.disk("d")
    shelf.disk("other")
    assert shelf.placed([pod("p0", "d"), pod("p1", "d")], None, pod("first", "other")) == []


# --- free volumes ---------------------------------------------------------------------------------


def test_two_pods_do_not_find_the_same_free_volume() -> None:
    shelf = Shelf()
    shelf.local("v0", on=("a",))
    shelf.local("v1", on=("b",))
    pods = [pod(f"p{n}", shelf.wait(f"c{n}")) for n in range(3)]
    assert sorted(shelf.placed(pods[:2])) == ["a", "b"]
    assert shelf.placed(pods) == []


def test_each_claim_gets_the_smallest_volume_that_fits() -> None:
    shelf = Shelf()
    for name, size in (("v0", "1Gi"), ("v1", "2Gi"), ("v2", "4Gi")):
        shelf.local(name, size, on=("a",))
    small = [pod(f"s{n}", shelf.wait(f"s{n}")) for n in range(2)]
    large = pod("l", shelf.wait("l", "3Gi"))
    assert shelf.placed([*small, large]) == ["a"] * 3
    assert shelf.placed([small[0], large, pod("m", shelf.wait("m", "3Gi"))]) == []


def test_a_volume_that_several_nodes_can_use_counts_if_there_are_enough_for_all() -> None:
    shelf = Shelf()
    shelf.local("v0", on=("a", "b"))
    pods = [pod(f"p{n}", shelf.wait(f"c{n}")) for n in range(2)]
    assert shelf.placed(pods[:1]) == ["a"]
    assert shelf.placed(pods) == []
    shelf.local("v1", on=("a", "b"))
    assert shelf.placed(pods) == ["a", "a"]


def test_one_pod_with_claims_of_two_classes_needs_one_shared_volume_of_each() -> None:
    shelf = Shelf()
    for each in ("fast", "slow"):
        shelf.local(f"v-{each}", class_name=each, on=("a", "b"))
    names = [shelf.wait(f"{number}-{each}", class_name=each) for number in "01" for each in ("fast", "slow")]
    assert shelf.placed([pod("p", *names[:2])]) == ["a"]
    both = [pod("p", *names[:2]), pod("q", *names[2:])]
    assert shelf.placed(both) == []
    for each in ("fast", "slow"):
        shelf.local(f"w-{each}", class_name=each, on=("a", "b"))
    assert shelf.placed(both) == ["a", "a"]


def test_a_pod_that_was_sent_to_a_node_and_waits_there_for_its_volume_counts() -> None:
    shelf = Shelf()
    shelf.local("v0", on=("a",))
    sent = pod("r", shelf.wait("r")), "a"
    waits = pod("p", shelf.wait("p"))
    assert shelf.placed([waits], [sent]) == []
    shelf.local("v1", on=("a",))
    assert shelf.placed([waits], [sent]) == ["a"]


def test_where_volumes_can_be_made_all_fit() -> None:
    shelf = Shelf()
    shelf.local("v0", on=("a",))
    pods = [pod(f"p{n}", shelf.wait(f"c{n}", by="example.com/makes")) for n in range(3)]
    assert shelf.placed(pods) == ["a"] * 3


@pytest.mark.parametrize(("volumes", "is_late"), [(3, True), (4, False)])
def test_volumes_that_another_gang_of_the_pass_got_are_promised_to_no_other(
    volumes: int, is_late: bool
) -> None:
    shelf = Shelf()
    for number in range(volumes):
        shelf.local(f"v{number}", on=("a", "b"))
    gangs = {each: [pod(f"{each}{n}", shelf.wait(f"{each}{n}")) for n in range(2)] for each in "gh"}
    counts = volume_counts(shelf.storage, {name: node(name) for name in "ab"}, gangs, [], 64, {})
    assert counts is not None
    assert not counts.are_late(gangs["h"])
    after = counts.with_promised(gangs["g"])
    assert after.are_late(gangs["h"]) == is_late
    assert not counts.are_late(gangs["h"]), "what was counted before stays as it is"


def test_a_volume_that_a_single_pod_of_the_pass_got_is_promised_to_no_other() -> None:
    shelf = Shelf()
    shelf.local("v0", on=("a", "b"))
    one, other = (pod(name, shelf.wait(name)) for name in "pq")
    counts = volume_counts(
        shelf.storage, {name: node(name) for name in "ab"}, {"g": [one], "h": [other]}, [], 64, {}
    )
    assert counts is not None
    assert counts.with_promised([one]).are_late([other])


# --- capacity of drivers--------------------------------------------------------------------------


@pytest.mark.promise("R106")
@pytest.mark.parametrize(
    ("publishes", "capacity", "maximum", "found"),
    [
        (True, "1Gi", None, ["b"]),
        (True, "1023Mi", None, []),
        (True, "10Gi", "500Mi", []),
        (True, None, None, []),
        (False, None, None, ["a"]),
    ],
)
def test_a_volume_is_made_where_its_driver_publishes_capacity_for_it(
    publishes: bool, capacity: str | None, maximum: str | None, found: list[str]
) -> None:
    shelf = Shelf()
    spec = {"storageCapacity": publishes}
    shelf.drivers[DRIVER] = msgspec.convert({"metadata": {"name": DRIVER}, "spec": spec}, CSIDriver)
    capacity_object = {
        "metadata": {"name": "x"},
        "storageClassName": "local",
        "capacity": capacity,
        "maximumVolumeSize": maximum,
        "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "b"}},
    }
    shelf.capacities.append(msgspec.convert(capacity_object, CSIStorageCapacity))
    assert shelf.placed([pod("p", shelf.wait("c", by=DRIVER))]) == found


# --- claims for one pod ---------------------------------------------------------------------------


@pytest.mark.promise("R106")
def test_a_claim_for_one_pod_makes_all_others_wait_and_names_who_has_it() -> None:
    shelf = Shelf()
    shelf.disk("d", ("ReadWriteOncePod",))
    assert shelf.placed([pod("p", "d")]) == ["a"]
    answer = shelf.answer([pod("p", "d")], [(pod("r", "d"), "b")])
    assert isinstance(answer, NoFit)
    assert 'the PersistentVolumeClaim "d" is ReadWriteOncePod, and pod r uses it' in answer.sentence
    assert shelf.placed([pod("p0", "d"), pod("p1", "d")]) == []


def test_large_gangs_on_volumes_of_several_nodes_cost_no_more_than_their_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf, asked = Shelf(), [0]
    overlaps = FreeVolumes._overlaps

    def counted(*of: Any) -> bool:
        asked[0] += 1
        return overlaps(*of)

    monkeypatch.setattr(FreeVolumes, "_overlaps", counted)
    for number in range(60):
        shelf.local(f"v-{number}", on=("a", "b"))
    gang = [pod(f"p-{number}", shelf.wait(f"c-{number}")) for number in range(40)]
    there = [(pod(f"q-{number}", shelf.wait(f"d-{number}")), "a") for number in range(20)]
    assert len(shelf.placed(gang, there)) == 40
    assert asked[0] < 10


def test_what_a_pod_takes_for_its_volumes_is_beside_what_it_takes_else() -> None:
    shelf = Shelf()
    shelf.limit("a", 3)
    one = pod("p", shelf.disk("d"))
    counts = volume_counts(shelf.storage, {"a": node("a")}, {"g": [one]}, [], 64, {})
    assert counts is not None
    plain = convert.pod_class_of(one)
    found = counts.pod_class(one, replace(plain, beside=(("others", 2),)))
    assert found.requests != plain.requests
    assert found.beside == (("others", 2),)


def test_volumes_are_looked_through_once_for_claims_that_ask_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf, looked = Shelf(), [0]
    is_enough = storage_module._is_enough

    def counted(*of: Any) -> bool:
        looked[0] += 1
        return is_enough(*of)

    monkeypatch.setattr(storage_module, "_is_enough", counted)
    for number in range(30):
        shelf.local(f"v-{number}", on=("a",))
    gang = [pod(f"p-{number}", shelf.wait(f"c-{number}")) for number in range(30)]
    storage = shelf.storage
    found = {storage.pod_class(each, convert.pod_class_of(each)).rules.volumes for each in gang}
    assert len(found) == 1
    assert looked[0] == 30


def test_a_volume_that_is_reserved_for_one_claim_is_for_none_that_asks_the_same() -> None:
    shelf = Shelf()
    shelf.local("v-a", on=("a",))
    shelf.local("v-b", on=("b",))
    reserved = shelf.volumes["v-b"]
    reference = {"namespace": "ns", "name": "second"}
    body = {
        **msgspec.to_builtins(reserved),
        "spec": {**msgspec.to_builtins(reserved.spec), "claimRef": reference},
    }
    shelf.volumes["v-b"] = msgspec.convert(body, PersistentVolume)
    first, second, third = (pod(name, shelf.wait(name)) for name in ("first", "second", "third"))
    assert shelf.placed([first]) == ["a"]
    assert shelf.placed([second]) == ["b"]
    assert shelf.placed([first, second]) == ["a", "b"]
    assert shelf.placed([first, third]) == []


def test_no_more_volumes_are_looked_at_on_a_node_than_its_pods_could_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf, sized = Shelf(), [0]
    for number in range(300):
        shelf.local(f"v-{number}", f"{1 + number % 3}Gi", on=("a", "b"))
    one = pod("p", shelf.wait("c"))
    nodes = {name: node(name) for name in "ab"}
    counts = volume_counts(shelf.storage, nodes, {"g": [one]}, [], 64, {})
    assert counts is not None
    size = claim_kinds.size_of

    def counted(volume: PersistentVolume) -> int:
        sized[0] += 1
        return size(volume)

    monkeypatch.setattr(free_volumes, "size_of", counted)
    assert set(counts.free.on("a").values()) == {free_volumes.MOST_PODS}
    assert sized[0] <= 2 * free_volumes.MOST_PODS
