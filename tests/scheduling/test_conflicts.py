"""Made-up resources say exactly which pods may share a node: compared with a plain reading of the rules."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.scheduling import neighbours
from tests.scheduling.conflicts import NAMESPACES, PODS, SELECTORS, away_from, body
from tests.scheduling.neighbours import HOSTNAME, REQUIRED, Body, is_heterogeneous, may_share
from tests.sweeper.pods import decode
from webhook.kube import objects
from webhook.kube.affinity import LabelSelector, SelectorRequirement
from webhook.placement import Gang, Member, NodeInfo, NoFit, Snapshot, place
from webhook.scheduling import antiaffinity, conflicts, convert
from webhook.scheduling.conflicts import Conflicts
from webhook.scheduling.rule_shares import lump_of

ONE_EACH = settings(max_examples=400, deadline=None, derandomize=True)


# --- pods -----------------------------------------------------------------------------------------


def taken_together(rules: Conflicts, wanting: Iterable[Body], there: Iterable[Body] = ()) -> bool:
    return neighbours.taken_together(rules, map(decode, wanting), map(decode, there))


def between(waiting: Iterable[Body], assigned: Iterable[Body] = (), most: int | None = None) -> Conflicts:
    return neighbours.between(map(decode, waiting), map(decode, assigned), most)


# --- drawing them ---------------------------------------------------------------------------------


@ONE_EACH
@given(
    waiting=st.lists(PODS, min_size=1, max_size=4), there=st.lists(PODS, max_size=3), on_it=st.integers(1, 3)
)
def test_a_node_takes_pods_together_exactly_when_no_two_of_them_exclude_each_other(
    waiting: list[Body], there: list[Body], on_it: int
) -> None:
    rules = between(waiting, there)
    wanting = waiting[:on_it]
    allowed = all(may_share(pod, other, NAMESPACES) for pod in wanting for other in there) and all(
        may_share(pod, other, NAMESPACES) for number, pod in enumerate(wanting) for other in wanting[:number]
    )
    counted = taken_together(rules, wanting, there)
    if is_heterogeneous(map(decode, waiting)):
        assert allowed or not counted
    else:
        assert counted == allowed


@ONE_EACH
@given(
    waiting=st.lists(PODS, min_size=1, max_size=4), there=st.lists(PODS, max_size=2), most=st.integers(1, 3)
)
def test_where_there_are_too_many_rules_pods_are_never_let_together_that_must_not_be(
    waiting: list[Body], there: list[Body], most: int
) -> None:
    rules = between(waiting, there, most)
    assert len(rules.capacity) <= most
    for pod in waiting:
        if taken_together(rules, [pod], there):
            assert all(may_share(pod, other, NAMESPACES) for other in there)
    if len(waiting) > 1 and taken_together(rules, waiting[:2]):
        assert may_share(waiting[0], waiting[1], NAMESPACES)


@pytest.mark.promise("R105")
@ONE_EACH
@given(one=PODS, other=PODS)
def test_two_waiting_pods_share_a_node_exactly_when_the_rules_let_them(one: Body, other: Body) -> None:
    counted = taken_together(between([one, other]), [one, other])
    assert counted == may_share(one, other, NAMESPACES)


@pytest.mark.promise("R105")
@ONE_EACH
@given(waiting=PODS, other=PODS)
def test_a_pod_on_a_node_takes_there_what_it_would_take_where_it_is_put(waiting: Body, other: Body) -> None:
    rules = between([waiting], [other])
    pod = decode(other)
    plain = convert.usage_of(pod)
    assert rules.usage(pod, plain).requests == {**plain.requests, **rules.takes(pod)}


@ONE_EACH
@given(one=PODS, other=PODS, team=st.sampled_from("ab"), selector=SELECTORS)
def test_a_namespace_selector_over_other_labels_never_lets_pods_together_that_must_not_be(
    one: Body, other: Body, team: str, selector: Body
) -> None:
    term = {
        "topologyKey": HOSTNAME,
        "labelSelector": selector,
        "namespaceSelector": {"matchLabels": {"team": team}},
    }
    one["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
    if taken_together(between([one, other]), [one, other]):
        assert may_share(one, other, NAMESPACES)


# --- single rules ---------------------------------------------------------------------------------


def test_where_nobody_has_rules_nothing_is_made_up() -> None:
    unconcerned = body("far", {"app": "y"}, [away_from("z")])
    assert between([body(labels={"app": "x"})], [unconcerned]) == conflicts.NONE
    assert not conflicts.NONE


@pytest.mark.parametrize(
    ("operator", "node", "is_about"),
    [("DoesNotExist", "", None), ("DoesNotExist", "n", {"b"}), ("Exists", "", {"a"})],
    ids=["has no such label, waits", "has no such label, bound", "has the label"],
)
def test_a_pod_that_waits_keeps_from_all_namespaces_where_kube_scheduler_reads_its_selector_so(
    operator: str, node: str, is_about: set[str] | None
) -> None:
    term = {
        "topologyKey": HOSTNAME,
        "labelSelector": {},
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": operator}]},
    }
    pod = body("p")
    pod["spec"] |= {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}, "nodeName": node}
    (found,) = antiaffinity.terms_of(decode(pod), namespaces={"a": {"team": "x"}, "b": {}})
    assert found.namespaces == is_about


def test_carriers_of_a_term_that_repels_none_of_them_share_a_node_and_keep_off_those_it_repels() -> None:
    carriers = [body(name, {"app": "train"}, [away_from("db")]) for name in "ab"]
    database = body("db", {"app": "db"})
    rules = between(carriers)
    assert taken_together(rules, carriers)
    assert not taken_together(rules, carriers[:1], [database])
    assert taken_together(rules, carriers, [body("c", {"app": "train"}, [away_from("db")])])


def test_a_leader_that_repels_its_workers_leaves_them_together() -> None:
    leader, *workers = (
        body("l", {"role": "l"}, [away_from("w")]),
        body("a", {"app": "w"}),
        body("b", {"app": "w"}),
    )
    rules = between([leader, *workers])
    assert taken_together(rules, workers)
    assert not taken_together(rules, [leader, workers[0]])


def test_where_there_are_too_many_rules_those_of_pods_that_share_nodes_stay_exact() -> None:
    alone = [body(f"a{n}", {"app": f"v{n}"}, [away_from(f"v{n}")]) for n in range(5)]
    leader, *workers = body("l", {}, [away_from("w")]), body("w1", {"app": "w"}), body("w2", {"app": "w"})
    rules = between([*alone, leader, *workers], most=2)
    lump = lump_of(conflicts.LUMP, "ns")
    assert list(rules.capacity) == [lump, "anti-affinity with pods app=w of namespace ns"]
    assert taken_together(rules, [alone[0], *workers])
    assert not taken_together(rules, [leader, workers[0]])
    assert not taken_together(rules, [alone[0], body("b", {"app": "v0"})])


def test_where_there_are_too_many_rules_carriers_that_their_term_does_not_repel_still_share_nodes() -> None:
    alone = [body(f"a{n}", {"app": f"v{n}"}, [away_from(f"v{n}")]) for n in range(5)]
    carriers = [body(name, {"app": "v"}, [away_from("w")]) for name in "ab"]
    assert taken_together(between([*alone, *carriers], most=2), carriers)


def test_pods_that_stand_already_may_be_together_against_the_rules_and_harm_nobody_else() -> None:
    there = [body(name, {"app": "x"}, [away_from("x")]) for name in "ab"]
    rules = between([body("w", {"app": "x"})], there)
    assert not taken_together(rules, [body("w", {"app": "x"})], there)
    assert taken_together(rules, [body("w", {"app": "y"})], there)


def test_a_term_is_one_resource_however_it_is_written() -> None:
    plain = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}}
    written = [plain, away_from("x"), away_from("x", "x"), away_from("x", namespaces=["ns"])]
    rules = between([body(anti=[each]) for each in written])
    assert list(rules.terms) == ["anti-affinity with pods app=x of namespace ns"]


@pytest.mark.parametrize(
    ("restart", "counts"), [("Always", True), (None, False)], ids=["a sidecar", "an init container"]
)
def test_of_init_containers_only_sidecars_hold_host_ports(restart: str | None, counts: bool) -> None:
    pod = body()
    init = {"name": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}
    pod["spec"]["initContainers"] = [init | ({"restartPolicy": restart} if restart else {})]
    assert bool(conflicts.host_ports(decode(pod))) == counts


def test_a_pod_with_a_port_at_every_address_and_at_one_does_not_block_itself() -> None:
    pod = body(ports=[{"hostPort": 80}, {"hostPort": 80, "hostIP": "10.0.0.1"}])
    neighbour = body(ports=[{"hostPort": 80, "hostIP": "10.0.0.2"}])
    rules = between([pod, neighbour])
    assert taken_together(rules, [pod])
    assert not taken_together(rules, [pod, neighbour])


@pytest.mark.promise("R111")
@pytest.mark.parametrize(
    ("expressions", "names"),
    [([["a", "b"]], {"a", "b"}), ([["a", "b"], ["b", "c"]], {"b"}), ([], None)],
    ids=["one of two", "both at once", "any"],
)
def test_a_namespace_selector_that_asks_for_names_selects_just_those(
    expressions: list[list[str]], names: set[str] | None
) -> None:
    asked = [
        SelectorRequirement(key=keys.NAMESPACE_NAME_LABEL, operator="In", values=each) for each in expressions
    ]
    assert antiaffinity.selected_names(LabelSelector(match_expressions=asked)) == names


# --- what placement makes of it -------------------------------------------------------------------

UNREAD = objects.Node(metadata=objects.NodeMetadata())


def gang(rules: Conflicts, *pods: Body) -> Gang:
    members = (
        Member(pod["metadata"]["name"], None, rules.pod_class(made, convert.pod_class_of(made)))
        for pod, made in ((pod, decode(pod)) for pod in pods)
    )
    return Gang("g", tuple(members))


def snapshot(rules: Conflicts, there: Mapping[str, Iterable[Body]], cpu: int = 9000) -> Snapshot:
    nodes = [rules.node(UNREAD, NodeInfo(name, allocatable={"cpu": cpu, "pods": 9})) for name in there]
    usage = [
        (name, rules.usage(decode(pod), convert.usage_of(decode(pod))))
        for name, pods in there.items()
        for pod in pods
    ]
    return Snapshot.build(nodes, usage)


def test_a_gang_whose_members_repel_each_other_gets_a_node_for_each_member() -> None:
    pods = [body(name, {"app": "x"}, [away_from("x")]) for name in "abc"]
    rules = between(pods)
    found = place(gang(rules, *pods), snapshot(rules, {"n1": [], "n2": [], "n3": []}))
    assert not isinstance(found, NoFit)
    assert sorted(found.nodes.values()) == ["n1", "n2", "n3"]


def test_a_refusal_names_why_a_node_takes_only_one_member() -> None:
    pods = [body(name, ports=[{"hostPort": 80}]) for name in "abc"]
    rules = between(pods)
    found = place(gang(rules, *pods), snapshot(rules, {"n1": [], "n2": []}))
    assert isinstance(found, NoFit)
    assert found.sentence == (
        "Gang g cannot be placed: 3 pods do not fit; the cluster has capacity for 2 of 3; each node takes "
        "only one of them (host port 80/TCP). None of 2 nodes is excluded."
    )


def test_a_refusal_counts_the_nodes_that_a_rule_excludes_and_names_what_is_short_first() -> None:
    waiting = body("w", {"app": "x"}, [away_from("x")], [{"hostPort": 80}])
    waiting["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    there = {
        "n1": [body("a", {"app": "x"})],
        "n2": [body("b", ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}])],
        "n3": [body("c", {"app": "x"})],
    }
    there["n3"][0]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "8"}}
    rules = between([waiting], [pod for pods in there.values() for pod in pods])
    found = place(gang(rules, waiting), snapshot(rules, there))
    assert isinstance(found, NoFit)
    assert found.causes == {
        "anti-affinity with pods app=x of namespace ns": 1,
        "host port 80/TCP in use": 1,
        'resource "cpu"': 1,
    }


def test_rules_with_all_that_is_needed_stay_the_same_until_too_much_is_left_over() -> None:
    def repelling(count: int) -> list[Body]:
        return [body(f"p{n}", {"app": f"v{n}"}, [away_from(f"v{n}")]) for n in range(count)]

    many = between(repelling(conflicts.SPARE + 1))
    assert many.serves(between(repelling(1)))
    assert not many.serves(conflicts.NONE)
    assert not between(repelling(1)).serves(many)
    loner = between([body(anti=[away_from("v0")])])
    assert loner.loners == {"anti-affinity with pods app=v0 of namespace ns"}
    assert not many.serves(loner)


def test_rules_that_lump_some_do_not_stand_for_rules_that_lump_others() -> None:
    pods = [body(f"p{n}", {"app": f"v{n}"}, [away_from(f"v{n}")]) for n in range(4)]
    some = between(pods[:3], most=2)
    assert some.serves(between(pods[:3], most=2))
    assert not some.serves(between([*pods[:2], pods[3]], most=2))


def test_ports_inside_the_pod_and_volumes_without_a_claim_are_not_stored_in_memory() -> None:
    pod = body(ports=[{"hostPort": 80}, {"containerPort": 8080}])
    claim = {"persistentVolumeClaim": {"claimName": "data"}}
    pod["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}, {"name": "data", **claim}]
    spec = decode(pod).spec
    assert [port.host_port for port in spec.containers[0].ports] == [80]
    assert [volume.name for volume in spec.volumes] == ["data"]
