"""How many pods with claims each node takes, and that no node is promised twice."""

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
    gpus,
    nodes,
    part,
    pod,
    selecting,
    slice_of,
    supply,
    template,
)
from tests.devices.needed import capacity_of, one, problem
from webhook.devices.needs import _digest, needs
from webhook.kube.devices import ResourceSlice
from webhook.placement import Assignment, Gang, Member, NodeInfo, Snapshot, capacity, place
from webhook.scheduling import convert

MODEL = 'device.attributes["gpu.example.com"].model == "{}"'


@pytest.mark.parametrize(("count", "pods"), [(1, 8), (2, 4), (3, 2), (8, 1), (9, 0)])
def test_a_node_takes_as_many_pods_as_its_devices_suffice_for(count: int, pods: int) -> None:
    assert one(claim_spec(exactly(count)), gpus("n", 8)) == {"n": pods}


def test_a_device_that_a_claim_was_given_is_free_for_nobody_else() -> None:
    taken = claim("other", claim_spec(exactly(3)), given=given("g0", "g1", "g5", pool="n"))
    assert one(claim_spec(exactly(1)), gpus("n", 8), gpus("m", 2), claims=(taken,)) == {"n": 5, "m": 2}


@pytest.mark.promise("R133")
def test_selectors_of_the_class_and_of_the_request_hold_both() -> None:
    heterogeneous = slice_of("n", [gpu(f"g{n}", model="H100" if n < 3 else "A100") for n in range(8)])
    assert one(claim_spec(exactly(1, selectors=selecting(MODEL.format("H100")))), heterogeneous) == {"n": 3}


@pytest.mark.promise("R126")
def test_a_pool_that_is_not_complete_gives_nothing() -> None:
    incomplete = slice_of("n", [gpu("a")], pool={"name": "n", "generation": 1, "resourceSliceCount": 2})
    assert one(claim_spec(exactly(1)), incomplete) == {"n": 0}


@pytest.mark.promise("R126")
@pytest.mark.parametrize(("late", "order"), [("a", ["b", "a"]), ("b", ["a", "b"]), ("", ["a", "b"])])
def test_pools_with_binding_conditions_are_tried_last(late: str, order: list[str]) -> None:
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    slices = [
        slice_of(
            "n",
            [gpu("g", more=conditions if name == late else None)],
            pool={"name": name, "generation": 1, "resourceSliceCount": 1},
            name=name,
        )
        for name in "ab"
    ]
    assert [pool.id[1] for pool in supply(*slices).on("n", {}).pools] == order


@pytest.mark.promise("R126")
def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = slice_of("n", [gpu("a"), gpu("b"), gpu("c")])
    new = slice_of("n", [gpu("a")], pool={"name": "n", "generation": 2, "resourceSliceCount": 1})
    assert one(claim_spec(exactly(1)), old, new) == {"n": 1}


@pytest.mark.promise("R133")
@pytest.mark.parametrize(
    ("toleration", "pods"),
    [
        ({}, 1),
        ({"key": "k", "operator": "Exists"}, 2),
        ({"key": "k", "value": "v"}, 2),
        ({"key": "k", "value": "x"}, 1),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, 1),
    ],
    ids=["none", "its key", "its value", "another value", "another effect"],
)
def test_a_tainted_device_is_given_to_those_alone_that_tolerate_it(toleration: Body, pods: int) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    there = slice_of("n", [gpu("a", taints=(taint,)), gpu("b", taints=({**taint, "effect": "None"},))])
    tolerations = [toleration] if toleration else []
    assert one(claim_spec(exactly(1, tolerations=tolerations)), there) == {"n": pods}


@pytest.mark.promise("R133")
def test_devices_that_must_match_are_counted_together() -> None:
    there = slice_of("n", [gpu(f"g{n}", numa=n % 2) for n in range(6)])
    same = ({"matchAttribute": "gpu.example.com/numa"},)
    assert one(claim_spec(exactly(2), constraints=same), there) == {"n": 2}
    assert one(claim_spec(exactly(3), constraints=same), there) == {"n": 2}
    assert one(claim_spec(exactly(4), constraints=same), there) == {"n": 0}


@pytest.mark.promise("R133")
def test_devices_that_must_differ_are_not_given_together() -> None:
    there = slice_of("n", [gpu(f"g{n}", numa=n % 2) for n in range(6)])
    apart = ({"distinctAttribute": "gpu.example.com/numa"},)
    requests = exactly(1, name="a"), exactly(1, name="b")
    assert one(claim_spec(*requests, constraints=apart), there) == {"n": 3}
    assert one(claim_spec(*requests, exactly(1, name="c"), constraints=apart), there) == {"n": 0}


@pytest.mark.promise("R133")
def test_the_first_alternative_that_can_be_had_is_taken() -> None:
    first = {"name": "x", "deviceClassName": "gpu", "count": 3}
    second = {"name": "y", "deviceClassName": "gpu", "count": 1}
    assert one(claim_spec({"name": "r", "firstAvailable": [first, second]}), gpus("n", 5)) == {"n": 3}


@pytest.mark.promise("R133")
def test_all_devices_of_a_node_make_one_pod_and_none_where_one_is_taken() -> None:
    taken = claim("other", claim_spec(exactly(1)), given=given("g0", pool="m"))
    assert one(claim_spec(exactly(None)), gpus("n", 4), gpus("m", 4), claims=(taken,)) == {"n": 1, "m": 0}


@pytest.mark.promise("R133")
def test_admin_access_needs_devices_and_takes_none() -> None:
    assert one(claim_spec(exactly(2, adminAccess=True)), gpus("n", 2), gpus("m", 1)) == {"n": 20, "m": 0}


@pytest.mark.promise("R126")
def test_pods_with_different_claims_on_the_same_devices_take_them_from_each_other() -> None:
    small = claim_spec(exactly(2))
    large = claim_spec(exactly(4, selectors=selecting(MODEL.format("H100"))))
    supplied = supply(gpus("n", 8), templates=(template("s", small), template("l", large)), claims=(
        claim("a-s", small, "a"), claim("b-l", large, "b"),
    ))  # fmt: skip
    waiting = pod("b", "l", template=True)
    sent = pod("a", "s", template=True, node="n")
    found = needs([waiting], [sent], nodes("n"), supplied, 16)
    assert capacity_of(found, waiting) == {"n": 2}
    assert capacity_of(found, waiting, sent) == {"n": 1}


def test_claims_that_can_never_be_met_keep_nobody_else_s_pods_off() -> None:
    heterogeneous = slice_of("n", [gpu(f"g{n}", model="H100" if n else "H200") for n in range(8)])
    for_h200 = claim_spec(exactly(1, selectors=selecting(MODEL.format("H200"))))
    allocated = claim("t", for_h200, given=given("g0", pool="n"))
    supplied = supply(
        heterogeneous, claims=(claim("c", claim_spec(exactly(4))), claim("d", for_h200), allocated)
    )
    waiting, never = pod("p", "c"), pod("q", "d")
    found = needs([waiting, never], [], nodes("n"), supplied, 16)
    assert capacity_of(found, never) == {"n": 0}
    assert capacity_of(found, waiting) == {"n": 1}


@pytest.mark.promise("R126")
def test_pods_of_one_gang_with_different_claims_leave_each_other_enough() -> None:
    heterogeneous = slice_of("n", [gpu(f"g{n}", model="H100" if n else "H200") for n in range(8)])
    for_h200 = claim_spec(exactly(1, selectors=selecting(MODEL.format("H200"))))
    supplied = supply(heterogeneous, claims=(claim("c", claim_spec(exactly(1))), claim("d", for_h200)))
    both = [pod("p", "c"), pod("q", "d")]
    apart = needs(both, [], nodes("n"), supplied, 16)
    together = needs(both, [], nodes("n"), supplied, 16, gang_of=lambda _: "gang")
    assert [capacity_of(each, both[0]) for each in (apart, together)] == [{"n": 8}, {"n": 1}]


@pytest.mark.promise("R126")
def test_what_a_pass_has_planned_for_others_is_left_to_them() -> None:
    supplied = supply(gpus("n", 8), claims=(
        claim("c", claim_spec(exactly(6))), claim("d", claim_spec(exactly(3, selectors=selecting("true")))),
    ))  # fmt: skip
    first, second = pod("p", "c"), pod("q", "d")
    found = needs([first, second], [], nodes("n"), supplied, 16)
    state = Snapshot.build([found.node(NodeInfo("n", allocatable={"pods": 20}))], [])
    kinds = [found.pod_class(each, convert.pod_class_of(each)) for each in (first, second)]
    gang = Gang("g", (Member("p", 0, kinds[0]),))
    answer = place(gang, state)
    assert isinstance(answer, Assignment)
    after = state.assume(answer, gang).nodes["n"]
    assert capacity.count_slots(kinds[1], state.nodes["n"]).pods == 2
    assert capacity.count_slots(kinds[1], after).pods == 0


def test_pods_with_claims_on_other_devices_take_nothing_from_each_other() -> None:
    heterogeneous = slice_of("n", [gpu(f"g{n}", model="H100" if n < 4 else "A100") for n in range(8)])
    specs = {
        name: claim_spec(exactly(2, selectors=selecting(MODEL.format(name)))) for name in ("H100", "A100")
    }
    supplied = supply(heterogeneous, claims=(claim("c", specs["H100"]), claim("d", specs["A100"])))
    waiting, sent = pod("p", "c"), pod("q", "d", node="n")
    found = needs([waiting, pod("r", "d")], [], nodes("n"), supplied, 16)
    assert capacity_of(found, waiting) == {"n": 2} == capacity_of(found, waiting, sent)


@pytest.mark.promise("R126")
def test_a_pod_with_an_allocated_claim_is_placed_on_the_nodes_of_its_devices_alone() -> None:
    only = {"key": "metadata.name", "operator": "In", "values": ["m"]}
    where = given("g0", pool="m") | {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]}}
    supplied = supply(gpus("n", 2), gpus("m", 2), claims=(claim("c", claim_spec(exactly(1)), given=where),))
    waiting = pod("p", "c")
    assert capacity_of(needs([waiting], [], nodes("n", "m"), supplied, 16), waiting) == {"n": 0, "m": 20}


@pytest.mark.promise("R140")
@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (claim_spec(exactly(1, capacity={"requests": {"memory": "1Gix"}})), "a capacity that cannot be read"),
        (
            claim_spec(exactly(1, "missing")),
            'names in its request r the DeviceClass "missing", which does not exist',
        ),
        (claim_spec(exactly(33)), "asks for 33 devices; a claim gets at most 32"),
        (claim_spec({"name": "r"}), "of a kind that topogate does not model"),
        (claim_spec(exactly(1, allocationMode="Some")), "unknown allocationMode 'Some'"),
        (claim_spec(exactly(1, selectors=[{"rego": {}}])), "a selector that is not CEL"),
        (claim_spec(exactly(1), constraints=({"atMost": 2},)), "a constraint of a kind"),
    ],
    ids=["capacity", "no class", "too many", "new request", "new mode", "new selector", "new constraint"],
)
def test_what_is_not_modelled_is_refused_with_a_sentence(spec: Body, sentence: str) -> None:
    assert sentence in problem(spec, supply(gpus("n", 8), claims=(claim("c", spec),)))


@pytest.mark.promise("R140")
@pytest.mark.parametrize(
    ("slices", "sentence"),
    [
        ([slice_of("", [gpu("a")], allNodes=True)], "it is one that several nodes share"),
        (
            [slice_of("", [part("a", 1, "n"), part("b", 1, "m")], perDeviceNodeSelection=True), counters(2)],
            "it shares counters with devices of other nodes",
        ),
    ],
    ids=["of all nodes", "a partition over nodes"],
)
def test_a_claim_that_only_devices_that_are_not_modelled_could_meet_is_reported_as_that(
    slices: list[ResourceSlice], sentence: str
) -> None:
    spec = claim_spec(exactly(1))
    assert sentence in problem(spec, supply(*slices, claims=(claim("c", spec),)))


@pytest.mark.promise("R141")
def test_missing_claims_and_those_of_others_are_reported() -> None:
    spec = claim_spec(exactly(1))
    assert problem(spec, supply()) == 'there is no ResourceClaim "c" for its claim c'
    shared = supply(gpus("n", 8), claims=(claim("c", spec),))
    assert "shared by several pods, which topogate does not model" in problem(spec, shared, pod("q", "c"))
    going = supply(gpus("n", 8), claims=(claim("c", spec, deletionTimestamp="2026-01-01T00:00:00Z"),))
    assert problem(spec, going) == 'the ResourceClaim "c" is being deleted'
    waiting = pod("p", "t", template=True)
    strange = supply(gpus("n", 8), templates=(template("t", spec),), claims=(claim("p-t", spec, "q"),))
    found = needs([waiting], [], nodes("n"), strange, 16)
    kind = found.pod_class(waiting, convert.pod_class_of(waiting))
    assert kind.problem == 'the ResourceClaim "p-t" was not created for this pod'


def test_nobody_s_many_kinds_of_claims_take_the_share_of_another_namespace() -> None:
    specs = {f"c{n}": claim_spec(exactly(1, selectors=selecting(f"{n} == {n}"))) for n in range(20)}
    supplied = supply(gpus("n", 8), claims=tuple(claim(name, spec) for name, spec in specs.items()))
    waiting = [pod(f"p{n}", f"c{n}") for n in range(20)]
    found = needs(waiting, [], nodes("n"), supplied, 4)
    kinds = [found.pod_class(each, convert.pod_class_of(each)) for each in waiting]
    assert [kind.problem == "" for kind in kinds] == [True] * 4 + [False] * 16
    assert "waits until others are placed" in kinds[-1].problem
    assert len(found.resources) == 4


def test_nobody_finds_a_claim_that_is_counted_as_another_s() -> None:
    """Of 24 bits a few among so many are the same, and one that is like a given one is found in a minute."""
    count = 20_000
    assert len({_digest(f"device.driver == {n}") for n in range(count)}) == count


@pytest.mark.promise("S49")
def test_claims_equal_to_another_s_beyond_one_s_share_do_not_keep_that_one_waiting() -> None:
    specs = [claim_spec(exactly(1, selectors=selecting(f"{n} == {n}"))) for n in range(9)]
    many = [claim(f"c{n}", spec) for n, spec in enumerate(specs)]
    same = claim("c", specs[8], namespace="other")
    supplied = supply(gpus("n", 8), claims=tuple(many))
    supplied.update([gpus("n", 8)], supplied.classes, {**supplied.claims, "other/c": same}, {})
    theirs = [pod(f"p{n}", f"c{n}") for n in range(9)]
    own = pod("q", "c")
    own = msgspec.structs.replace(own, metadata=msgspec.structs.replace(own.metadata, namespace="other"))
    for waiting in ([*theirs, own], [own, *theirs]):
        assert capacity_of(needs(waiting, [], nodes("n"), supplied, 4), own) == {"n": 8}


def test_a_node_whose_devices_are_as_before_stays_the_same_value() -> None:
    spec = claim_spec(exactly(1))
    supplied = supply(gpus("n", 8), claims=(claim("c", spec),))
    info = NodeInfo("n", allocatable={"pods": 20})
    there = nodes("n")
    first, again = (needs([pod("p", "c")], [], there, supplied, 16).node(info) for _ in range(2))
    assert first is again
