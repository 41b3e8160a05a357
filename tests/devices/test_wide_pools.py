"""One pool with devices of many nodes, as a driver may publish them."""

import msgspec

from tests.devices.bodies import Body, claim, claim_spec, exactly, given, gpu, nodes, pod, supply
from webhook.devices.needs import needs
from webhook.devices.supply import Supply
from webhook.kube.devices import ResourceSlice
from webhook.placement import NodeInfo

ALLOCATED = claim("held", claim_spec(exactly(4)), given=given("a-0", "b-0", "b-1", "c-3", pool="all"))
MINE = claim("mine", claim_spec(exactly(1)))


def wide(*parts: str) -> list[ResourceSlice]:
    """Four devices of each node; parts: the nodes of each slice."""
    pool = {"name": "all", "generation": 1, "resourceSliceCount": len(parts)}
    found = []
    for number, part in enumerate(parts):
        devices = [gpu(f"{node}-{n}", index=n, more={"nodeName": node}) for node in part for n in range(4)]
        spec: Body = {"driver": "gpu.example.com", "pool": pool, "perDeviceNodeSelection": True}
        body = {"metadata": {"name": f"wide-{number}"}, "spec": {**spec, "devices": devices}}
        found.append(msgspec.convert(body, ResourceSlice))
    return found


def allocated_from(*slices: ResourceSlice) -> Supply:
    return supply(*slices, claims=(ALLOCATED, MINE))


def test_what_is_taken_elsewhere_in_a_pool_is_not_stored_for_each_node() -> None:
    found = allocated_from(*wide("ab", "cd"))
    there = {name: found.on(name, {}).taken.devices for name in "abcd"}
    assert {name: sorted(device for *_, device in each) for name, each in there.items()} == {
        "a": ["a-0"],
        "b": ["b-0", "b-1"],
        "c": ["c-3"],
        "d": [],
    }


def test_each_node_has_what_is_free_of_its_own_devices() -> None:
    found = allocated_from(*wide("ab", "cd"))
    made = needs([pod("p", "mine")], [], nodes(*"abcde"), found, 64)
    (only,) = made.resources
    there = {name: made.node(NodeInfo(name)).allocatable[only.name] for name in "abcde"}
    assert there == {"a": 3, "b": 2, "c": 3, "d": 4, "e": 0}


def test_a_share_is_taken_once_for_every_claim_that_has_one() -> None:
    memory = {"capacity": {"memory": {"value": "80Gi"}}, "allowMultipleAllocations": True, "nodeName": "a"}
    pool = {"name": "all", "generation": 1, "resourceSliceCount": 1}
    body = {"driver": "gpu.example.com", "pool": pool, "perDeviceNodeSelection": True}
    one = {"metadata": {"name": "one"}, "spec": {**body, "devices": [gpu("s", more=memory)]}}
    result = {"request": "r", "driver": "gpu.example.com", "pool": "all", "device": "s", "shareID": "x"}
    share = {"devices": {"results": [{**result, "consumedCapacity": {"memory": "20Gi"}}]}}
    shares = [claim(f"share-{number}", claim_spec(exactly(1)), given=share) for number in range(2)]
    wanted = claim("mine", claim_spec(exactly(1, capacity={"requests": {"memory": "15Gi"}})))
    found = supply(msgspec.convert(one, ResourceSlice), claims=(*shares, wanted))
    made = needs([pod("p", "mine")], [], nodes("a"), found, 64)
    (only,) = made.resources
    assert made.node(NodeInfo("a")).allocatable[only.name] == 2, "of the 40 GiB that are left"
