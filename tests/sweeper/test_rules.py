"""Gangs whose pods have rules on other pods: topology spread, pod affinity, anti-affinity over any label."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import GPU, Nodes, Placing, gpu_pod, places
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.scheduling.antiaffinity import AntiAffinityTerm

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SETTINGS = Settings(settle_seconds=0)
TRAIN = {"matchLabels": {"app": "train"}}


def cluster(zones: Sequence[str], *pods: Pod, gpus: int = 4) -> Nodes:
    """Nodes n0, n1, ... in these zones."""
    made = Nodes(0, *pods)
    for number, zone in enumerate(zones):
        body = {
            "metadata": {"name": f"n{number}", "uid": f"n{number}", "labels": {ZONE: zone}},
            "status": {"allocatable": {GPU: str(gpus), "pods": "110"}},
        }
        made.nodes[f"n{number}"] = msgspec.convert(body, Node)
    return made


def gang(count: int, app: str = "train", **spec: Any) -> list[Pod]:
    annotations = {keys.GANG_ANNOTATION: app, keys.GANG_SIZE_ANNOTATION: str(count)}
    metadata = {"labels": {"app": app}, "annotations": annotations}
    return [gpu_pod(f"{app}-{number}", metadata=metadata, **spec) for number in range(count)]


def spread(skew: int = 1, **more: Any) -> dict[str, Any]:
    rule = {
        "topologyKey": ZONE,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": TRAIN,
    }
    return {"topologySpreadConstraints": [rule | more]}


def near(kind: str, app: str = "train", **more: Any) -> dict[str, Any]:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}} | more
    return {"affinity": {kind: {REQUIRED: [term]}}}


def zones_of(nodes: Nodes, placed: dict[str, str]) -> list[str]:
    return [nodes.nodes[node].metadata.labels[ZONE] for node in placed.values()]


def resident(app: str, node: str, **spec: Any) -> Pod:
    return gpu_pod(f"{app}-there", node=node, metadata={"labels": {"app": app}}, **spec)


@pytest.mark.parametrize(
    ("spec", "count", "zones"),
    [
        ({}, 4, "aaaa"),
        (spread(), 4, "aabb"),
        (spread(2), 2, "aa"),
        (spread(), 3, "aab"),
        (near("podAntiAffinity"), 2, "ab"),
        (near("podAffinity"), 4, "aaaa"),
    ],
    ids=["no rule", "spread", "spread less", "an odd number", "apart", "together"],
)
def test_a_gang_is_spread_over_zones_by_its_rule(spec: dict[str, Any], count: int, zones: str) -> None:
    nodes = cluster("ab", *gang(count, **spec))
    assert sorted(zones_of(nodes, places(Placing(nodes, SETTINGS).one()))) == sorted(zones)


@pytest.mark.promise("R111")
def test_pods_are_planned_in_an_order_in_which_none_breaks_its_rule() -> None:
    nodes = cluster("ab", *gang(6, **spread()))
    order = zones_of(nodes, places(Placing(nodes, SETTINGS).one()))
    counts = {"a": 0, "b": 0}
    for zone in order:
        counts[zone] += 1
        assert abs(counts["a"] - counts["b"]) <= 1, order


def test_pods_that_want_to_be_together_are_placed_where_all_of_them_fit() -> None:
    nodes = cluster("abb", *gang(6, **near("podAffinity")))
    assert zones_of(nodes, places(Placing(nodes, SETTINGS).one())) == ["b"] * 6


def test_a_pod_that_wants_to_be_near_another_waits_for_it_and_is_placed_there() -> None:
    placing = Placing(cluster("ab", *gang(1, **near("podAffinity", "db"))), SETTINGS)
    orders = placing.one()
    assert "pod affinity over topology.kubernetes.io/zone: 2" in orders.outcomes[0].reason
    placing.cluster.pods.append(resident("db", "n1"))
    assert places(placing.one()) == {"train-0": "n1"}


@pytest.mark.promise("R111")
def test_pods_that_run_keep_others_out_of_their_zone_by_their_own_rule() -> None:
    nodes = cluster("aab", *gang(2), resident("alone", "n0", **near("podAntiAffinity")))
    assert zones_of(nodes, places(Placing(nodes, SETTINGS).one())) == ["b", "b"]


def test_gangs_of_one_pass_see_what_the_pass_has_planned_before() -> None:
    nodes = cluster("ab", *gang(1, "one", **near("podAntiAffinity", "two")), *gang(1, "two"))
    assert sorted(zones_of(nodes, places(Placing(nodes, SETTINGS).one()))) == ["a", "b"]


def test_what_is_planned_and_not_released_counts_in_the_next_pass() -> None:
    nodes = cluster("ab", *gang(1, **spread()), resident("train", "n0"))
    assert places(Placing(nodes, SETTINGS).one()) == {"train-0": "n1"}


@pytest.mark.promise("R115")
def test_a_gang_for_which_its_rules_leave_no_layout_names_them() -> None:
    orders = Placing(cluster("ab", *gang(3, **near("podAntiAffinity"))), SETTINGS).one()
    (outcome,) = orders.outcomes
    assert "no placement was found that also keeps their rules on other pods" in outcome.reason
    assert "pod anti-affinity over topology.kubernetes.io/zone" in outcome.reason


@pytest.mark.promise("R115")
@pytest.mark.parametrize(("count", "is_found"), [(64, True), (65, False)])
def test_a_layout_for_different_pods_is_searched_up_to_64_of_them(count: int, is_found: bool) -> None:
    nodes = cluster("ab", *gang(count, **spread())[:-1], gang(count, **spread(2))[-1], gpus=80)
    orders = Placing(nodes, SETTINGS).one()
    assert (len(places(orders)) == count) == is_found
    if not is_found:
        assert "no placement was found that also keeps their rules on other pods" in orders.outcomes[0].reason


@pytest.mark.promise("R115")
@pytest.mark.parametrize(("zones", "is_found"), [(64, True), (65, False)])
def test_a_layout_is_searched_over_up_to_64_domains_of_a_label(zones: int, is_found: bool) -> None:
    nodes = cluster([f"z{number}" for number in range(zones)], *gang(130, **spread()), gpus=4)
    assert (len(places(Placing(nodes, SETTINGS).one())) == 130) == is_found


def test_two_rules_hold_together() -> None:
    both = [
        *spread()["topologySpreadConstraints"],
        *spread(topologyKey=keys.HOSTNAME_LABEL)["topologySpreadConstraints"],
    ]
    nodes = cluster("aabb", *gang(8, topologySpreadConstraints=both))
    for name, node in nodes.nodes.items():
        node.metadata.labels[keys.HOSTNAME_LABEL] = name
    placed = places(Placing(nodes, SETTINGS).one())
    assert sorted(placed.values()) == ["n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"]


def test_a_leader_and_workers_of_another_shape_are_spread_together() -> None:
    pods = gang(4, **spread())
    pods[0] = gpu_pod(
        "train-0",
        gpus=2,
        metadata={"labels": pods[0].metadata.labels, "annotations": pods[0].metadata.annotations},
        **spread(),
    )
    nodes = cluster("ab", *pods)
    assert sorted(zones_of(nodes, places(Placing(nodes, SETTINGS).one()))) == ["a", "a", "b", "b"]


@pytest.mark.promise("R111")
@pytest.mark.parametrize("namespace_knows", [True, False])
def test_a_namespace_selector_of_affinity_is_judged_by_labels_or_not_at_all(namespace_knows: bool) -> None:
    rule = near("podAffinity", "db", namespaceSelector={"matchLabels": {"team": "b"}})
    nodes = cluster("ab", *gang(1, **rule), resident("db", "n1"))
    if namespace_knows:
        nodes.labels = {"ns": {"team": "b"}}
    orders = Placing(nodes, SETTINGS).one()
    assert places(orders) == ({"train-0": "n1"} if namespace_knows else {})
    if not namespace_knows:
        assert "labels of namespaces cannot be read" in orders.outcomes[0].reason


@pytest.mark.parametrize(("operator", "begins"), [("DoesNotExist", True), ("Exists", False)])
def test_the_first_of_a_series_is_one_that_kube_scheduler_takes_for_one_of_them(
    operator: str, begins: bool
) -> None:
    selector = {"matchExpressions": [{"key": "team" if begins else "other", "operator": operator}]}
    nodes = cluster("ab", *gang(1, **near("podAffinity", "train", namespaceSelector=selector)))
    nodes.labels = {"ns": {"team": "b"}}
    placed = places(Placing(nodes, SETTINGS).one())
    assert bool(placed) == begins


def comparisons(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """Pods that are compared with terms while so many gangs of one pod each are placed."""
    made = 0
    repels = AntiAffinityTerm.repels

    def counted(self: AntiAffinityTerm, *args: Any) -> bool:
        nonlocal made
        made += 1
        return repels(self, *args)

    pods = [
        pod
        for number in range(count)
        for pod in gang(1, f"app{number}", **near("podAntiAffinity", f"app{number}"))
    ]
    with monkeypatch.context() as patched:
        patched.setattr(AntiAffinityTerm, "repels", counted)
        assert len(places(Placing(cluster("abcd", *pods, gpus=count), SETTINGS).one())) == count
    return made


def test_pods_with_terms_of_their_own_are_not_each_compared_with_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert comparisons(monkeypatch, 80) < 3 * comparisons(monkeypatch, 40)


@pytest.mark.parametrize(
    ("skew", "there", "count", "expected"),
    [(1, 0, 2, [1, 1]), (2, 1, 3, [1, 2]), (2, 0, 6, [3, 3]), (3, 0, 4, [1, 3])],
)
def test_no_domain_of_a_level_ends_with_more_than_the_rule_allows(
    skew: int, there: int, count: int, expected: list[int]
) -> None:
    """The label is that of the topology's blocks, so the placement core meets the rule itself."""
    block = keys.GCE_TOPOLOGY[0]
    rule = spread(skew, topologyKey=block)
    nodes = cluster("ab", *gang(count, **rule), *[resident("train", "n0")] * there, gpus=8)
    for number, name in enumerate(list(nodes.nodes)):
        nodes.label(name, dict(zip(keys.GCE_TOPOLOGY, (f"b{number}", "s", name), strict=True)))
    placed = places(Placing(nodes, SETTINGS).one())
    assert sorted(Counter(placed.values()).values()) == expected
