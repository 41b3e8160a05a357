"""What a pass does not convert again, and what pods that repel each other change about that."""

from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import GPU, Nodes, Placing, gpu_pod, places
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.readings import HOSTNAME, Cluster
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Snapshot
from webhook.scheduling import conflicts
from webhook.sweeper.observe.snapshotter import Snapshotter


def pod(name: str, app: str, away_from: str = "", node: str = "", port: int = 0) -> Pod:
    spec: dict[str, Any] = {}
    if away_from:
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": away_from}}}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAntiAffinity": required}
    if port:
        spec["containers"] = [{"name": "c", "ports": [{"containerPort": port, "hostPort": port}]}]
    if node:
        spec |= {"nodeName": node, "schedulingGates": []}
    return decode(pod_json(name, metadata={"labels": {"app": app}}, **spec))


def look(snapshotter: Snapshotter) -> tuple[Snapshot, conflicts.Conflicts]:
    view = snapshotter.view()
    return snapshotter.snapshot(view), view.conflicts


RULES = [{"away_from": "x"}, {"port": 80}]
IDS = ["anti-affinity", "host port"]


@pytest.mark.promise("I36")
@pytest.mark.parametrize("rule", [{}, *RULES], ids=["no rules", *IDS])
def test_a_pass_in_which_nothing_changed_takes_every_state_from_the_one_before(rule: dict[str, Any]) -> None:
    snapshotter = Snapshotter(Cluster(pod("w", "x", **rule), pod("a", "x", node="n1", **rule)), Settings())
    before, rules = look(snapshotter)
    after, same_rules = look(snapshotter)
    assert same_rules is rules
    assert all(after.nodes[name] is before.nodes[name] for name in ("n1", "n2"))
    assert all(after.blocks[key] is block for key, block in before.blocks.items())


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_rule_that_nobody_waits_under_any_more_costs_no_new_states(rule: dict[str, Any]) -> None:
    cluster = Cluster(pod("w", "x", **rule), pod("a", "x", node="n1"))
    snapshotter = Snapshotter(cluster, Settings())
    before, _ = look(snapshotter)
    cluster.pods[0] = pod("v", "y")
    after, _ = look(snapshotter)
    assert all(after.nodes[name] is before.nodes[name] for name in ("n1", "n2"))


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_node_where_a_pod_is_in_conflict_has_nothing_left_for_one_that_waits(
    rule: dict[str, Any],
) -> None:
    cluster = Cluster(pod("v", "y"), pod("a", "x", node="n1", port=80))
    snapshotter = Snapshotter(cluster, Settings())
    look(snapshotter)
    waiting = pod("w", "x", **rule)
    cluster.pods.append(waiting)
    view = snapshotter.view()
    snapshot = snapshotter.snapshot(view)
    wanted = dict(view.class_of(waiting).requests)
    fits = {
        name: all(state.free.get(each, 0) >= amount for each, amount in wanted.items())
        for name, state in snapshot.nodes.items()
    }
    assert fits == {"n1": False, "n2": True}


def test_a_pod_there_that_repels_one_that_waits_excludes_it_though_that_one_has_no_rule() -> None:
    waiting = pod("w", "x")
    snapshotter = Snapshotter(Cluster(waiting, pod("a", "y", away_from="x", node="n1")), Settings())
    view = snapshotter.view()
    name = "anti-affinity with pods app=x of namespace ns"
    assert dict(view.class_of(waiting).requests)[name] == 1
    assert snapshotter.snapshot(view).nodes["n1"].free[name] == 0
    assert snapshotter.snapshot(view).nodes["n2"].free[name] > 0


def test_where_nobody_waits_rules_are_not_even_looked_for() -> None:
    snapshotter = Snapshotter(Cluster(pod("a", "x", away_from="x", node="n1")), Settings())
    assert snapshotter.view().conflicts is conflicts.NONE


# --- whose word counts on a pod's cards ------------------------------------------------------------

GIVEN = {keys.GAS_TIMESTAMP_ANNOTATION: "1764000000000000000", keys.GAS_CARDS_ANNOTATION: "card0"}
TAMPERED = [
    {**GIVEN, keys.GAS_TILES_ANNOTATION: "x"},
    {**GIVEN, keys.GAS_TILES_ANNOTATION: "card1:gt0"},
    {**GIVEN, keys.GAS_CARDS_ANNOTATION: "card1"},
    {},
]


def with_cards(annotations: dict[str, str], node: str = "n1") -> Pod:
    """A running pod with one card."""
    container = {"name": "c", "resources": {"requests": {keys.I915: "1"}}}
    metadata = {"annotations": annotations}
    return decode(pod_json("a", metadata=metadata, containers=[container], nodeName=node, schedulingGates=[]))


def plan_for(namespace: str = "ns", node: str = "n1", cards: str = "card0") -> Placement:
    """Says that the pod runs with a card of a node."""
    entry = PlannedPod("a", "uid-a", node, annotations={**GIVEN, keys.GAS_CARDS_ANNOTATION: cards})
    metadata = Metadata(name="p", namespace=namespace)
    return Placement(metadata=metadata, spec=PlacementSpec(pods=[entry]))


def cards_taken(pod: Pod, *plans: Placement) -> set[str]:
    """Names of the cards that are booked on node n1."""
    cluster = Cluster(pod)
    cluster.placements = {str(number): plan for number, plan in enumerate(plans)}
    snapshot, _ = look(Snapshotter(cluster, Settings()))
    return {name for usage in snapshot.nodes["n1"].usages for name in usage.cards}


@pytest.mark.parametrize("annotations", TAMPERED, ids=["no tiles", "other tiles", "another card", "none"])
def test_a_pod_that_we_placed_has_the_cards_of_its_plan_whatever_is_written_on_it(
    annotations: dict[str, str],
) -> None:
    assert cards_taken(with_cards(annotations), plan_for()) == {"card0"}


@pytest.mark.parametrize(
    "plans",
    [[], [plan_for("another", cards="card1")], [plan_for(node="n2", cards="card1")]],
    ids=["no plan", "a plan in another namespace", "a plan for another node"],
)
def test_a_pod_that_no_plan_speaks_of_has_the_cards_that_are_written_on_it(plans: list[Placement]) -> None:
    assert cards_taken(with_cards(GIVEN), *plans) == {"card0"}


def test_of_two_plans_for_a_pod_the_one_for_its_node_counts() -> None:
    plans = plan_for(), plan_for(node="n2", cards="card1")
    assert {frozenset(cards_taken(with_cards({}), *each)) for each in (plans, plans[::-1])} == {
        frozenset({"card0"})
    }


def test_of_two_plans_for_a_pod_on_one_node_the_newer_counts_however_they_are_called() -> None:
    """Its author may have changed its gang between them."""
    older, newer = plan_for(), plan_for(cards="card1")
    newer.spec.pods[0].annotations[keys.GAS_TIMESTAMP_ANNOTATION] = "1764000000000000001"
    taken = {frozenset(cards_taken(with_cards({}), *each)) for each in ((older, newer), (newer, older))}
    assert taken == {frozenset({"card1"})}


def test_a_new_plan_for_a_pod_is_seen_though_the_pod_is_the_same() -> None:
    cluster = Cluster(with_cards({}))
    snapshotter = Snapshotter(cluster, Settings())
    taken = []
    for cards in ("card0", "card1"):
        cluster.placements = {"p": plan_for(cards=cards)}
        snapshot, _ = look(snapshotter)
        taken.append({name for usage in snapshot.nodes["n1"].usages for name in usage.cards})
    assert taken == [{"card0"}, {"card1"}]


def test_a_plan_read_again_with_the_same_cards_costs_no_new_states() -> None:
    cluster = Cluster(with_cards({}))
    snapshotter = Snapshotter(cluster, Settings())
    cluster.placements = {"p": plan_for()}
    before, _ = look(snapshotter)
    cluster.placements = {"p": plan_for()}
    after, _ = look(snapshotter)
    assert after.nodes["n1"].usages[0] is before.nodes["n1"].usages[0]
    assert after.nodes["n1"] is before.nodes["n1"]


def test_a_label_that_is_left_out_is_logged_once_and_again_only_when_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(pod("a", "x"))
    snapshotter = Snapshotter(cluster, Settings())

    def heartbeat(links: str) -> None:
        """The node as the API server sends it again, with this label."""
        metadata = {"name": "n1", "uid": "n1", "labels": {keys.XE_LINKS_LABEL: links}}
        cluster.nodes["n1"] = msgspec.convert({"metadata": metadata}, Node)
        look(snapshotter)

    for links in ("0.0-1", "0.0-1", "0.0-2", "0.0-1.0", "0.0-1"):
        heartbeat(links)
    messages = [record.getMessage() for record in caplog.records if "label_left_out" in record.getMessage()]
    assert [("'0.0-1'" in text, "'0.0-2'" in text) for text in messages] == [
        (True, False),
        (False, True),
        (True, False),
    ]


@pytest.mark.promise("O252")
@pytest.mark.parametrize(("cpu", "node"), [("1", "n0"), ("much", "n1")], ids=["readable", "unreadable"])
def test_a_pod_that_cannot_be_read_fills_its_node(cpu: str, node: str) -> None:
    amounts = {GPU: "1", "cpu": cpu}
    container = {"name": "c", "resources": {"limits": amounts, "requests": amounts}}
    there = decode(pod_json("there", nodeName="n0", schedulingGates=[], containers=[container]))
    made = Nodes(2, there, gpu_pod("p"), gpus=8)
    for name in made.nodes:
        status = {"allocatable": {GPU: "8", "cpu": "8", "pods": "110"}}
        made.nodes[name] = msgspec.convert({"metadata": {"name": name}, "status": status}, Node)
    assert places(Placing(made, Settings(settle_seconds=0)).one()) == {"p": node}


@pytest.mark.promise("O252")
@pytest.mark.parametrize(("gpus", "node"), [("8", "n0"), ("many", "n1")], ids=["readable", "unreadable"])
def test_a_node_that_cannot_be_read_takes_no_pods(gpus: str, node: str) -> None:
    made = Nodes(2, gpu_pod("p"), gpus=8)
    status = {"allocatable": {GPU: gpus, "pods": "110"}}
    made.nodes["n0"] = msgspec.convert({"metadata": {"name": "n0"}, "status": status}, Node)
    assert places(Placing(made, Settings(settle_seconds=0)).one()) == {"p": node}
