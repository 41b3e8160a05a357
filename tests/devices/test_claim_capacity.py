"""How many pods with claims fit: the same for equal nodes, and at a bounded cost."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given as drawing
from hypothesis import settings
from hypothesis import strategies as st

from tests.devices.bodies import (
    DRIVER,
    NAMESPACE,
    Body,
    claim,
    claim_spec,
    counters,
    exactly,
    gpu,
    nodes,
    part,
    pod,
    selecting,
    slice_of,
    supply,
    template,
)
from tests.sweeper.pods import decode, pod_json
from webhook.devices import claim_capacity
from webhook.devices.allocate import allocate
from webhook.devices.claims import read
from webhook.devices.needs import MOST_PODS, Needs, needs
from webhook.devices.supply import Supply
from webhook.kube.devices import DeviceClaim, ResourceClaim, ResourceSlice
from webhook.placement import NodeInfo, Usage
from webhook.scheduling import convert

HOPELESS = claim_spec(
    *(exactly(name=f"r{number}") for number in range(8)),
    constraints=({"matchAttribute": f"{DRIVER}/index", "requests": ["r6", "r7"]},),
)
"""Eight devices of eight, in any order, of which two have an index that none has in common."""


def eight(node: str, **more: Any) -> ResourceSlice:
    """Eight devices with an index each."""
    return slice_of(node, [gpu(f"{node}-{n}", index=n, **more) for n in range(8)])


def waiting(spec: Body, names: list[str], *slices: ResourceSlice) -> tuple[Needs, Supply]:
    """A pod that waits with a claim of a template, and nodes with some devices."""
    found = supply(*slices, templates=(template("t", spec),))
    body = pod_json("p", resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}])
    body["metadata"]["namespace"] = NAMESPACE
    return needs([decode(body)], [], nodes(*names), found, 64), found


def capacities(made: Needs) -> dict[str, int]:
    """What each node has of the one resource."""
    (only,) = made.resources
    return {name: made.node(NodeInfo(name)).allocatable[only.name] for name in made.nodes}


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of each search that is done."""
    steps: list[int] = []

    def counted(*arguments: Any) -> Any:
        found = allocate(*arguments)
        steps.append(found.steps)
        return found

    monkeypatch.setattr(claim_capacity, "allocate", counted)
    return steps


def test_nodes_that_differ_in_names_alone_are_searched_once(searches: list[int]) -> None:
    spec = claim_spec(exactly(2), constraints=({"matchAttribute": f"{DRIVER}/model"},))
    names = [f"n{number}" for number in range(20)]
    made, _ = waiting(spec, names, *(eight(name, model=name, uuid=f"u-{name}") for name in names))
    assert capacities(made) == dict.fromkeys(names, 4)
    assert len(searches) == 5, "four pods of one node, and the one that finds no capacity"


@pytest.mark.promise("S49")
def test_what_all_nodes_cost_together_is_bounded_in_a_pass_and_continues_in_the_next(
    searches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_capacity, "STEPS", 2000)
    names = [f"n{number}" for number in range(6)]
    # No two nodes are equal: each has one more device than the one before.
    slices = [
        slice_of(name, [gpu(f"{name}-{n}", index=n) for n in range(8 + number)])
        for number, name in enumerate(names)
    ]
    made, found = waiting(HOPELESS, names, *slices)
    found._claim_capacity.most_steps = 4000
    found._claim_capacity.divide(1)
    done = []
    for _ in names:
        before = sum(searches)
        capacities(made)
        assert sum(searches) - before <= 4000 + 16
        done.append(len(searches))
        if not found.is_undecided:
            break
        found.update(slices, found.classes, found.claims, found.templates)
    assert not found.is_undecided
    assert len(done) > 1, "it took more than one pass"
    assert capacities(made) == dict.fromkeys(names, 0)


@pytest.mark.promise("S49")
def test_claims_that_exhaust_their_share_leave_others_theirs() -> None:
    slices = [slice_of("n", [gpu(f"n-{n}", index=n, numa=n % 2) for n in range(9)]), eight("m", numa=0)]
    modest = claim_spec(exactly(4), constraints=({"matchAttribute": f"{DRIVER}/numa"},))
    own = (claim("hopeless", HOPELESS), claim("modest", modest))
    found = supply(*slices, claims=own)
    found._claim_capacity.most_steps = 1000
    made = needs([pod("a", "hopeless"), pod("b", "modest")], [], nodes("n", "m"), found, 64)
    (first, second) = (each.name for each in made.resources)
    there = {name: made.node(NodeInfo(name)).allocatable for name in ("n", "m")}
    assert {name: each[second] for name, each in there.items()} == {"n": 2, "m": 2}
    assert {name: each[first] for name, each in there.items()} == {"n": 0, "m": 0}


def test_an_answer_that_was_cut_short_while_many_asked_is_looked_for_again_when_few_do() -> None:
    modest = claim_spec(exactly(4), constraints=({"matchAttribute": f"{DRIVER}/numa"},))
    slices = [slice_of("n", [gpu(f"n-{n}", index=n, numa=n % 2) for n in range(9)])]
    own = (claim("modest", modest),)
    found = supply(*slices, claims=own)
    found._claim_capacity.most_steps = 1000
    others = [
        claim(f"c{n}", claim_spec(exactly(1), constraints=({"matchAttribute": f"{DRIVER}/a{n}"},)))
        for n in range(40)
    ]
    asking = [pod("p", "modest"), *(pod(f"p{n}", f"c{n}") for n in range(40))]
    found.update(slices, found.classes, {f"{NAMESPACE}/{e.metadata.name}": e for e in (*own, *others)}, {})
    made = needs(asking, [], nodes("n"), found, 64)
    name = made.resources[0].name
    assert made.node(NodeInfo("n")).allocatable[name] == 0
    found.update(slices, found.classes, {f"{NAMESPACE}/modest": own[0]}, {})
    made = needs(asking[:1], [], nodes("n"), found, 64)
    assert made.resources[0].name == name
    assert made.node(NodeInfo("n")).allocatable[name] == 2


@pytest.mark.promise("R140")
@pytest.mark.parametrize(("claims", "count"), [(65, 1), (9, 32)], ids=["requests", "devices"])
def test_claims_that_are_too_many_to_search_are_refused_with_a_sentence(claims: int, count: int) -> None:
    found = supply(eight("n"), templates=(template("t", claim_spec(exactly(count))),))
    listed = [{"name": f"c{number}", "resourceClaimTemplateName": "t"} for number in range(claims)]
    body = pod_json("p", resourceClaims=listed)
    body["metadata"]["namespace"] = NAMESPACE
    one = decode(body)
    # Shared devices are searched, not counted.
    shared = slice_of("n", [gpu("s", more={"allowMultipleAllocations": True})])
    found.update([shared], found.classes, found.claims, found.templates)
    made = needs([one], [], nodes("n"), found, 64)
    assert (
        "make more than 64 requests, or ask for more than 256 devices"
        in made.pod_class(one, convert.pod_class_of(one)).problem
    )


def test_a_pod_whose_claims_cannot_be_judged_yet_counts_as_taking_all_it_could() -> None:
    own = claim_spec(exactly(1, selectors=selecting("device.allowMultipleAllocations == false")))
    found = supply(
        eight("n"), claims=(claim("mine", claim_spec(exactly(1))), claim("slow", own, owner="other"))
    )
    made = needs([pod("p", "mine")], [], nodes("n"), found, 64)
    (only,) = made.resources
    found.selectors._seconds = -1.0  # no time is left
    taken = made.usage(pod("other", "slow", node="n"), Usage({}))
    assert taken.requests[only.name] == MOST_PODS
    found.selectors._seconds = 1.0
    made = needs([pod("p", "mine")], [], nodes("n"), found, 64)
    assert made.usage(pod("other", "slow", node="n"), Usage({})).requests[only.name] == 1


# --- nodes that are equal, at random --------------------------------------------------------------

MODEL = 'device.attributes["gpu.example.com"].model == "{}"'
ASKED = (
    claim_spec(exactly(1), constraints=({"matchAttribute": f"{DRIVER}/numa"},)),
    claim_spec(exactly(2), constraints=({"matchAttribute": f"{DRIVER}/numa"},)),
    claim_spec(exactly(2, selectors=selecting(MODEL.format("A")))),
    claim_spec(exactly(None, selectors=selecting(MODEL.format("B")))),
    claim_spec(exactly(1, capacity={"requests": {"memory": "30Gi"}})),
    claim_spec(exactly(1, tolerations=[{"operator": "Exists"}]), exactly(1, name="s")),
)


def small(dice: random.Random, node: str) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    """A node of few devices, so that many are equal, and what of them others hold."""
    kind = dice.choice(("plain", "plain", "shared", "parts"))
    count = 2 if kind == "parts" else 1
    pool = {"name": node, "generation": 1, "resourceSliceCount": count + (dice.random() < 0.15)}
    devices, allocated = [], []
    for number in range(dice.choice((1, 2, 2))):
        more: Body = {"capacity": {"memory": {"value": dice.choice(("40Gi", "80Gi"))}}}
        if kind == "shared":
            more["allowMultipleAllocations"] = True
        if kind == "parts":  # those are equal but for their counters
            more = {"consumesCounters": part("x", dice.choice((3, 7)))["consumesCounters"]}
        elif dice.random() < 0.2:
            more["nodeAllocatableResourceMappings"] = {"cpu": {}}
        taints = [{"key": "k", "value": "v", "effect": "NoSchedule"}] if dice.random() < 0.2 else []
        name, model = f"{node}-{number}", "A" if kind == "parts" else dice.choice("AB")
        devices.append(gpu(name, taints=taints, more=more, numa=dice.randrange(2), model=model, uuid=name))
        if dice.random() < 0.3:
            result: Body = {"request": "r", "driver": DRIVER, "pool": node, "device": name}
            if kind == "shared":
                result |= {"shareID": "s", "consumedCapacity": {"memory": dice.choice(("10Gi", "40Gi"))}}
            allocated.append(
                claim(f"held-{name}", claim_spec(exactly(1)), given={"devices": {"results": [result]}})
            )
    slices = [slice_of(node, devices, pool=pool)]
    if kind == "parts":
        slices.append(counters(2, dice.choice((4, 7)), node=node))
    if dice.random() < 0.3:
        empty = {"name": f"{node}-x", "generation": 1, "resourceSliceCount": dice.choice((1, 2))}
        slices.append(slice_of(node, [], pool=empty))
    return slices, allocated


@drawing(st.integers(0, 2**32))
@settings(max_examples=60)
def test_an_answer_for_equal_nodes_is_that_of_a_search_on_each(seed: int) -> None:
    dice = random.Random(seed)
    names = [f"n{number}" for number in range(16)]
    drawn = [small(dice, name) for name in names]
    slices = [each for own, _ in drawn for each in own]
    found = supply(*slices, claims=tuple(each for _, allocated in drawn for each in allocated))
    for spec in ASKED:
        asked = read(msgspec.convert(spec["devices"], DeviceClaim), found.classes)
        for name in names:
            there = found.on(name, {})
            alone = claim_capacity.ClaimCapacity().pods(there.pools, there.taken, (asked,), found.matches, 3)
            assert found.pods(there, (asked,), 3) == alone
