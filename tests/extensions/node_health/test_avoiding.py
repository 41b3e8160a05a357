"""Failing nodes and spare ones: which nodes gangs avoid, and what their reasons say."""

from dataclasses import replace

import pytest

from labeler.contract import keys
from tests.extensions.node_health.failing import clock_time, ended, exited, node, proven
from tests.extensions.node_health.placing import HealthPlacing
from tests.sweeper.cluster import Nodes, gpu_pod, places
from tests.sweeper.subblocks import subblocks
from webhook.configuration.settings import Avoid, BadNodes, Settings, SpareNodes
from webhook.extensions.node_health.failing_nodes import (
    MOST_OF_A_NAMESPACE,
    FailingNode,
    FailingNodes,
    FailureState,
)
from webhook.extensions.node_health.node_health import HealthMemory, spares
from webhook.extensions.node_health.pod_failures import seconds_of
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.decide.node_rules import GangNodes, NodeRule, steps_of
from webhook.sweeper.decide.orders import Orders

SETTINGS = Settings(settle_seconds=0)


def bad(*names: str) -> FailingNodes:
    found = {name: FailingNode(name, "", 3, "exit status 1", 100, 10_000) for name in names}
    return FailingNodes(found)


def placing(cluster: Nodes, failing_nodes: FailingNodes, settings: Settings = SETTINGS) -> HealthPlacing:
    """Passes in which these nodes are bad."""
    return HealthPlacing(cluster, settings, HealthMemory(failing_nodes=failing_nodes))


def gang(count: int, name: str = "train", gpus: int = 1) -> list[Pod]:
    annotations = {"annotations": {"topogate.io/gang": name, "topogate.io/gang-size": str(count)}}
    return [gpu_pod(f"{name}-{number}", gpus=gpus, metadata=annotations) for number in range(count)]


def reasons(orders: Orders) -> str:
    return "; ".join(each.reason for each in orders.outcomes)


def test_a_gang_is_placed_where_no_node_is_bad_as_long_as_it_fits_there() -> None:
    orders = placing(Nodes(4, *gang(2)), bad("n0", "n1")).one()
    assert sorted(places(orders).values()) == ["n2", "n3"]


@pytest.mark.promise("O145")
def test_it_gets_a_sentence_on_which_nodes_it_does_without_and_why() -> None:
    (plan,) = placing(Nodes(3, *gang(2)), bad("n0")).one().plans
    assert list(plan.avoided) == ["n0"]
    assert (
        "avoids the node n0 (pods of 3 gangs failed there and ran elsewhere, last at 1970" in plan.description
    )


@pytest.mark.promise("O143")
def test_a_bad_node_is_used_where_nothing_else_fits_and_then_it_is_not_reported() -> None:
    (plan,) = placing(Nodes(3, *gang(3)), bad("n0")).one().plans
    assert {entry.node for entry in plan.entries} == {"n0", "n1", "n2"}
    assert plan.avoided == {}


@pytest.mark.parametrize(
    ("nodes", "evicted"), [(3, {"low-2"}), (2, {"low-1"})], ids=["two of three", "one of two"]
)
def test_a_gang_that_preempts_passes_over_a_bad_node_as_well(nodes: int, evicted: set[str]) -> None:
    """Who stands on the bad nodes would be the cheaper victim."""
    low = [gpu_pod(f"low-{number}", node=f"n{number}", priority=number) for number in range(nodes)]
    failing_nodes = bad("n0", "n1") if nodes == 3 else bad("n0")
    (plan,) = placing(Nodes(nodes, *low, gpu_pod("high", priority=100)), failing_nodes).one().plans
    by_uid = {pod.metadata.uid: pod.metadata.name for pod in low}
    assert {by_uid[uid] for group in plan.victims for uid in group.pods} == evicted


def test_who_preempts_takes_a_bad_node_where_nothing_else_can_be_had() -> None:
    low = gpu_pod("low", node="n0", priority=1)
    stays = gpu_pod("stays", node="n1", priority=100)
    orders = placing(Nodes(2, low, stays, gpu_pod("high", priority=100)), bad("n0")).one()
    assert places(orders) == {"high": "n0"}


@pytest.mark.promise("O143")
def test_where_the_operator_asks_for_it_a_gang_waits_instead_with_the_reason() -> None:
    settings = replace(SETTINGS, bad_nodes=BadNodes(avoid=Avoid.HARD))
    orders = placing(Nodes(3, *gang(3)), bad("n0"), settings).one()
    assert not orders.plans
    assert "avoids the node n0" in reasons(orders)


@pytest.mark.promise("R204", "O143")
def test_where_it_is_off_nothing_is_taken_in() -> None:
    settings = replace(SETTINGS, bad_nodes=BadNodes(avoid=Avoid.OFF))
    status = {"phase": "Failed", "containerStatuses": [exited(1, 10)]}
    made = HealthPlacing(Nodes(1), settings)
    assert made.observe(1e10, ended("p", "n0", status=status)) == HealthMemory()


@pytest.mark.promise("O137")
def test_a_gang_that_has_failed_somewhere_is_placed_elsewhere_first() -> None:
    """Also though it is not known yet whether the node is at fault."""
    cluster = Nodes(2, *gang(1))
    made = placing(cluster, FailingNodes())
    (own,) = made.gangs()
    failure = ended("old", "n0", status={"phase": "Failed", "containerStatuses": [exited(1, 10)]}, gpus=1,
                    annotations=dict(own.pods[0].metadata.annotations))  # fmt: skip
    now = seconds_of(clock_time(20))
    assert now is not None
    made.observe(now, failure)
    assert [each.state for each in made.health.failures] == [FailureState.OPEN]
    assert places(made.one()) == {"train-0": "n1"}


@pytest.mark.promise("O139")
def test_others_use_a_node_that_fails_for_one_namespace_alone() -> None:
    alone = {"other": bad("n0").for_all}
    orders = placing(Nodes(1, *gang(1)), FailingNodes(for_namespaces=alone)).one()
    assert places(orders) == {"train-0": "n0"}


@pytest.mark.promise("O141")
def test_a_pod_that_runs_on_proves_and_later_takes_back_what_a_failed_one_shows() -> None:
    cluster = Nodes(2)
    made = HealthPlacing(cluster, SETTINGS)
    now = seconds_of(clock_time(100)) or 0
    annotations = {"topogate.io/gang": "train", "topogate.io/gang-size": "2"}
    status = {"phase": "Failed", "containerStatuses": [exited(1, 50, started=20)]}
    cluster.pods = [
        ended("peer", "n1", status={"phase": "Running"}, annotations=annotations, uid="peer"),
        ended("next", "n0", status={"phase": "Running"}, annotations=annotations, uid="next", created=60),
    ]
    states = []
    for at in (0, 39, 40, 599, 600):
        made.clock.now = at
        made.observe(now, ended("old", "n0", status=status, annotations=annotations, uid="old"))
        states.append([each.state for each in made.health.failures])
    assert states == [
        [FailureState.OPEN],
        [FailureState.OPEN],
        [FailureState.PROVEN],
        [FailureState.PROVEN],
        [FailureState.CLEARED],
    ]


def test_containers_that_do_not_start_have_failed_once_however_often_they_are_looked_at() -> None:
    cluster = Nodes(1)
    made = HealthPlacing(cluster, SETTINGS)
    now = float(seconds_of(clock_time(100)) or 0)
    status = {
        "phase": "Pending",
        "containerStatuses": [{"state": {"waiting": {"reason": "RunContainerError"}}}],
    }
    cluster.pods = [
        ended(
            f"p{number}",
            "n0",
            status=status,
            uid=str(number),
            annotations={keys.GANG_ANNOTATION: str(number)},
        )
        for number in range(MOST_OF_A_NAMESPACE + 5)
    ]
    failures = made.observe(now).failures
    assert len(failures) == MOST_OF_A_NAMESPACE
    assert made.observe(now + 10).failures is failures


def test_failures_on_missing_nodes_or_in_namespaces_of_the_system_are_not_stored() -> None:
    made = HealthPlacing(Nodes(1), SETTINGS)
    status = {"phase": "Failed", "containerStatuses": [exited(1, 50)]}
    elsewhere = ended("p", "gone", status=status)
    of_system = ended("q", "n0", status=status, namespace="kube-system")
    assert made.observe(float(seconds_of(clock_time(100)) or 0), elsewhere, of_system).failures == ()


@pytest.mark.promise("W11")
def test_a_reset_of_failures_that_is_no_time_resets_nothing_and_is_reported() -> None:
    cluster = Nodes(2)
    cluster.nodes["n0"] = node("n0", annotations={"topogate.io/reset-failures": "yes"})
    failures = (proven("n0", gang="g", namespace="a", at=int(9e8)),)
    health = HealthPlacing(cluster, SETTINGS, HealthMemory(failures)).observe(9e8 + 10)
    assert health.unreadable == {"n0": "yes"}
    assert health.failing_nodes.for_gangs


# --- spare nodes --------------------------------------------------------------------------------


def in_blocks(blocks: int, each: int, *pods: Pod) -> Nodes:
    """So many nodes of one GPU in each of so many blocks."""
    cluster = Nodes(0, *pods)
    for number in range(blocks * each):
        place = {
            "topology.gke.io/cluster": f"b{number // each}",
            "topology.gke.io/rack": "r",
            "topology.gke.io/host": f"h{number}",
        }
        cluster.nodes[f"n{number}"] = node(f"n{number}", gpus=1, labels=place)
    return cluster


ONE_SPARE = replace(SETTINGS, spare_nodes=SpareNodes(per_block=1))


@pytest.mark.promise("O150")
def test_a_new_gang_leaves_a_node_of_each_block_free() -> None:
    made = HealthPlacing(in_blocks(2, 3, *gang(5)), ONE_SPARE)
    orders = made.one()
    assert not orders.plans
    assert "2 free nodes are reserved for replacements of failed pods" in reasons(orders)
    made = HealthPlacing(in_blocks(2, 3, *gang(4)), ONE_SPARE)
    assert sorted(places(made.one()).values()) == ["n0", "n1", "n3", "n4"]


@pytest.mark.promise("O150")
def test_a_new_gang_takes_them_if_nothing_else_fits_where_the_operator_allows_it() -> None:
    settings = replace(SETTINGS, spare_nodes=SpareNodes(per_block=1, if_nothing_else_fits=True))
    assert len(places(HealthPlacing(in_blocks(2, 3, *gang(5)), settings).one())) == 5
    assert "n2" not in places(HealthPlacing(in_blocks(1, 3, *gang(2)), settings).one()).values()


@pytest.mark.promise("O150")
@pytest.mark.parametrize(("left", "nodes"), [(2, {"n2"}), (0, set[str]())], ids=["one is lost", "all are"])
def test_a_gang_that_loses_all_its_pods_at_once_begins_as_a_new_one(left: int, nodes: set[str]) -> None:
    annotations = {"topogate.io/gang": "train", "topogate.io/gang-size": "3"}

    def member(number: int, life: int, node: str = "") -> Pod:
        metadata = {"annotations": annotations, "uid": f"{number}-{life}"}
        return gpu_pod(f"train-{number}", node=node, metadata=metadata)

    cluster = in_blocks(1, 3, *(member(number, 0, f"n{number}") for number in range(3)))
    (key,) = (each.key for each in HealthPlacing(Nodes(1, member(0, 1)), ONE_SPARE).gangs())
    entries = [
        PlannedPod(each.metadata.name, each.metadata.uid, each.spec.node_name) for each in cluster.pods
    ]
    spec = PlacementSpec(gang="Gang/train", size=3, pods=entries)
    metadata = Metadata(namespace="ns", name=key.placement_name)
    cluster.placements = {key.placement_key: Placement(metadata=metadata, spec=spec)}
    made = HealthPlacing(cluster, ONE_SPARE)
    made.one()
    cluster.pods = [*cluster.pods[:left], *(member(number, 1) for number in range(left, 3))]
    assert set(places(made.one()).values()) == nodes


@pytest.mark.parametrize(("nodes", "spread"), [(3, True), (2, False)], ids=["capacity beside it", "a spare"])
def test_a_gang_is_not_replaced_onto_nodes_that_are_reserved_for_replacements(
    nodes: int, spread: bool
) -> None:
    """Replacements go there beside what their gang has left; of this one all would be new."""
    spare = SpareNodes(per_block=1)
    case = HealthPlacing(subblocks(1, nodes), Settings(patience_seconds=0, spare_nodes=spare))
    case.one()
    (gang,) = case.gangs()
    assert bool(case.place_again(gang)) is spread


def test_a_gang_is_not_replaced_onto_nodes_that_are_bad() -> None:
    case = HealthPlacing(subblocks(1, 2), Settings(patience_seconds=0, bad_nodes=BadNodes(Avoid.HARD)))
    bad = FailingNode("n1", "", 3, "exit status 1", 0, 10**10)
    case.health = HealthMemory(failing_nodes=FailingNodes({"n1": bad}))
    case.one()
    (gang,) = case.gangs()
    assert case.place_again(gang) == ""


def test_nodes_in_use_or_closed_or_bad_are_no_spares() -> None:
    cluster = in_blocks(1, 4, gpu_pod("runs", node="n3"))
    made = HealthPlacing(cluster, SETTINGS)
    snapshot = made.snapshotter.snapshot(made.view())
    assert spares(snapshot, SETTINGS.counting, 1) == {"n2"}
    assert spares(snapshot, SETTINGS.counting, 1, {"n2"}) == {"n1"}
    assert spares(snapshot, SETTINGS.counting, 9) == {"n0", "n1", "n2"}
    assert spares(snapshot, SETTINGS.counting, 0) == frozenset()


@pytest.mark.parametrize(
    ("sets", "steps"),
    [
        (([], []), ()),
        ((["a"], ["b"]), ({"a", "b"}, {"a"})),
        (([], ["b"]), ({"b"},)),
        ((["a"], []), ({"a"},)),
    ],
)
def test_all_are_skipped_before_the_cheaper_ones_are_taken(
    sets: tuple[list[str], ...], steps: tuple[set[str], ...]
) -> None:
    assert steps_of(*sets) == steps


def test_of_many_bad_nodes_ten_are_named_and_those_of_other_models_not() -> None:
    rule = NodeRule(frozenset(f"n{number}" for number in range(20)), "bad")
    unused_nodes = GangNodes((rule,)).unused({"n1"}, lambda name: name != "n0")
    assert len(unused_nodes) == 10
    assert not {"n0", "n1"} & unused_nodes.keys()
