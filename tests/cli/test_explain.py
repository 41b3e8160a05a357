"""What `topogate explain` says of a pod, from one reading of a cluster."""

import dataclasses
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.cli.explanations import (
    GPU,
    GRID,
    busy_pod,
    cluster,
    explained,
    job_pods,
    refused_by_kubelet,
    with_placement,
)
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.extensions.fair_order.account_use import KEY, Record, encode
from webhook.extensions.node_health.avoided_nodes import NAME, AvoidedNode
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.explanation import ExplainError, explain
from webhook.kube.objects import OwnerReference
from webhook.kube.placements import Placement
from webhook.policy.fair import FairOrder
from webhook.sweeper.decide.refusing_nodes import AVOID_SECONDS
from webhook.sweeper.observe.membership import LostOwner
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.workloads.native_gangs import POD_GROUPS, NativePodGroup
from webhook.workloads.pod_group_names import bind_group_name


def test_a_gang_that_fits_is_reported_with_its_domain() -> None:
    text = explained(cluster(job_pods(2), parallelism=2))
    assert "in the gang Job/train" in text
    assert "2 pods exist, 2 expected; 2 wait, 0 are released" in text
    assert "Now: the sweeper's next pass places it: 2 pods placed on 1 block" in text


@pytest.mark.promise("R331")
def test_a_gang_whose_controller_is_deleted_has_the_sweepers_reason() -> None:
    lost = LostOwner("its controller Job/train is deleted, so its pods are neither placed nor released")
    reading = dataclasses.replace(
        cluster(job_pods(2), parallelism=2), read_lost_owners=lambda pods: lambda _: lost
    )
    text = explained(reading)
    assert f"Now: {lost.sentence}" in text
    assert "placed on" not in text
    assert "would help" not in text


def test_a_gang_that_lacks_pods_waits_for_them() -> None:
    found = explained(cluster(job_pods(1), parallelism=4))
    assert "1 pod is there, 4 are expected; those that are there are placed once no other has come" in found


@pytest.mark.promise("R175")
def test_a_gang_that_does_not_fit_is_shown_with_the_pods_in_its_place() -> None:
    text = explained(cluster([*job_pods(4), busy_pod("node-b0-s0-h00")], parallelism=4))
    assert "capacity for 3 of 4" in text
    assert "it fits when 1 other pod ends: ns/busy-node-b0-s0-h00" in text
    assert "not have a lower priority" in text


def test_pods_in_its_place_are_named_by_their_gang() -> None:
    owners = [OwnerReference("batch/v1", "Job", "serve", "s", controller=True)]
    running = [
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=owners))
        for pod in (busy_pod(node.name) for node in GRID[:3])
    ]
    text = explained(cluster([*job_pods(4), *running], parallelism=4))
    assert "it fits when 3 other pods end: ns/Job/serve (3 pods).\n" in text


def test_pods_that_hold_a_port_which_the_pod_needs_are_named_with_what_would_help() -> None:
    container = {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}
    there = [
        decode(pod_json(f"web-{node.name}", nodeName=node.name, schedulingGates=[], containers=[container]))
        for node in GRID
    ]
    text = explained(cluster([*there, decode(pod_json("p", containers=[container]))]), "p")
    assert "Of 4 nodes, excluded: host port 80/TCP in use: 4." in text
    assert "it fits when 1 other pod ends: ns/web-node-b0-s0-h00" in text


def test_a_pod_that_names_its_node_as_a_copy_of_a_placed_one_does_is_warned_of_the_field() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["node-b0-s0-h00"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    text = explained(cluster([decode(pod_json("p", affinity=affinity))]), "p")
    assert "its own spec.affinity.nodeAffinity names the node node-b0-s0-h00 (matchFields" in text
    assert "matchFields" not in explained(cluster([decode(pod_json("p"))]), "p")


def test_rules_and_volumes_that_are_not_modelled_are_noted() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    pod = decode(pod_json("p", resourceClaims=[{"name": "gpu"}], volumes=[claim]))
    text = explained(cluster([pod]), "p")
    assert "Note: which nodes have devices for the claims (gpu) is not known here" in text
    assert "Note: topogate does not know on which nodes its volumes can be used (data)" in text


@pytest.mark.promise("O102")
def test_gangs_that_hold_nodes_are_named_for_who_may_read_their_placements() -> None:
    status = {
        "state": "Waiting",
        "reservedNodes": ["node-b0-s0-h00"],
        "reservedUntil": "2026-01-01T00:30:00Z",
    }
    body = {"metadata": {"namespace": "theirs", "name": "p"}, "spec": {"gang": "Job/big"}, "status": status}
    there = dataclasses.replace(
        cluster(job_pods(2)), placements={"theirs/p": msgspec.convert(body, Placement)}
    )
    assert "Nodes reserved for other gangs: 1 for theirs/Job/big until 2026-01-01T00:30:00Z." in explained(
        there
    )


def in_fair_order(record: Record | None) -> str:
    """The explanation of the gang of namespace ns while one of each other namespace waits as well."""
    others = [
        decode(pod_json(name, metadata={"namespace": name, "uid": name}, containers=[{"name": "c", **GPU}]))
        for name in ("team-b", "team-c")
    ]
    there = cluster([*job_pods(2), *others])
    data = {KEY: encode(record.use, record.at, record.fair)} if record is not None else None
    return explained(dataclasses.replace(there, read_record=lambda _: data))


@pytest.mark.promise("O145")
def test_nodes_that_its_namespace_avoids_are_named_with_the_reason() -> None:
    why = "pods of 3 gangs failed there and ran elsewhere"

    def by(namespace: str, *nodes: str) -> ClusterReading:
        avoided_nodes = [AvoidedNode(name, namespace, "", 3, "a fault", 0, 2**37) for name in nodes]
        data = {"avoided": msgspec.json.encode(avoided_nodes).decode()}
        return dataclasses.replace(
            cluster(job_pods(2)), read_record=lambda name: data if name == NAME else None
        )

    made = by("team-a", GRID[0].name)
    assert not any("avoids" in line for line in explain(made, "ns", "train-0", Settings()))
    made = by("ns", GRID[0].name, "gone")
    (line,) = [each for each in explain(made, "ns", "train-0", Settings()) if "avoids" in each]
    assert line.startswith(f"It avoids the node {GRID[0].name} ({why}")


def test_the_preferences_that_a_plan_does_not_meet_are_shown_for_a_planned_pod() -> None:
    first, second = job_pods(2)
    entry = {"name": first.metadata.name, "uid": first.metadata.uid, "node": GRID[1].name}
    avoided = {GRID[0].name: "its GPU failed"}
    made = with_placement(cluster([first, second]), first, pods=[entry], avoided=avoided)
    lines = list(explain(made, "ns", "train-0", Settings()))
    assert f"Its plan avoids the node {GRID[0].name} (its GPU failed)." in lines


@pytest.mark.promise("O77")
def test_the_fair_order_is_shown_to_who_may_read_what_all_have_used() -> None:
    fair = FairOrder(weights={"ns": 3.0, "team-b": 2.0})
    used = {"ns": {"H100": 6e5}, "team-b": {"H100": 3e5}, "team-c": {"H100": 1e5}}
    text = in_fair_order(Record(time.time(), used, {}, fair))
    assert text.splitlines()[-1] == (
        "Fair order: ns has used 60% of the recent GPU time, and is due 50% (weight 3), "
        "19.3 GPUs on average; team-c (10% used, 17% due) and 1 more come first."
    )
    assert in_fair_order(Record(time.time(), {"team-b": {"H100": 9.0}}, {}, fair)).endswith(
        "; it comes first."
    )


@pytest.mark.promise("O77")
def test_who_may_not_read_that_sees_what_the_sweeper_writes_about_the_own_account() -> None:
    fair_order = (
        "fair order: ns has used 60% of the recent GPU time, and is due 50% (weight 3); it comes first"
    )
    status = {"state": "Waiting", "reason": "no capacity", "fairOrder": fair_order}
    body = {"metadata": {"namespace": "ns", "name": "p"}, "spec": {"gang": "Job/train"}, "status": status}
    placement = msgspec.convert(body, Placement)
    there = cluster(job_pods(2))
    key = Snapshotter(there, Settings()).view().gang_of(there.pods[0]).placement_key
    text = explained(dataclasses.replace(there, placements={key: placement}))
    assert f"F{fair_order[1:]}." in text
    assert "team-" not in text
    assert "Fair order:" not in in_fair_order(None)


@pytest.mark.promise("R44")
def test_a_topology_request_that_alone_prevents_it_is_named() -> None:
    request = {"annotations": {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}}
    text = explained(cluster(job_pods(3, **request), parallelism=3))
    assert f"without {keys.REQUIRED_TOPOLOGY_ANNOTATION}=block it would fit now, on 2 blocks" in text
    assert text.count("What would help") == 1, "a second suggestion contradicts the first"
    assert "empty cluster" not in text


def test_a_model_that_no_node_has_is_named_with_those_that_there_are() -> None:
    selector = {"nodeSelector": {"nvidia.com/gpu.product": "RTX"}}
    pod = decode(pod_json("p", containers=[{"name": "c", **GPU}], **selector))
    text = explained(cluster([pod]), "p")
    product = GRID[0].manifest(GRID[0].topology_labels)["metadata"]["labels"]["nvidia.com/gpu.product"]
    assert f"no node has GPU model RTX (there are: {product} on 4 nodes)" in text
    assert text.count("What would help") == 1
    assert "waiting does not help" in text
    assert "Nearest miss" not in text, "nothing is near where no node has capacity"


def test_what_excludes_most_nodes_is_named_with_how_many_it_alone_excludes() -> None:
    made = cluster([decode(pod_json("p", containers=[{"name": "c", **GPU}], nodeSelector={"pool": "x"}))])
    name = GRID[0].name
    spec = msgspec.structs.replace(made.nodes[name].spec, unschedulable=True)
    there = {**made.nodes, name: msgspec.structs.replace(made.nodes[name], spec=spec)}
    text = explained(dataclasses.replace(made, nodes=there), "p")
    assert "4 nodes lack the label pool=x; for 3 it is the only reason." in text
    assert "no node has the label pool=x" in text
    assert text.count("excluded:") == 1
    assert "Gang: 1 pod exists, 1 expected; 1 waits, 0 are released." in text


def test_a_reason_that_has_not_changed_is_shown_once() -> None:
    pods = [*job_pods(4), busy_pod("node-b0-s0-h00")]
    (now,) = (line for line in explained(cluster(pods, 4)).splitlines() if line.startswith("Now: "))
    status = {"reason": now.removeprefix("Now: ")}
    text = explained(with_placement(cluster(pods, 4), pods[0], status=status))
    assert "Now: the same." in text
    assert text.count("capacity for 3 of 4") == 2, "in the last try, and in the nearest miss"


@pytest.mark.promise("R175")
def test_a_leader_in_the_wrong_place_is_named_with_where_all_would_fit() -> None:
    leader, worker = job_pods(2, annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})
    spec = msgspec.structs.replace(leader.spec, node_name="node-b0-s0-h00", scheduling_gates=[])
    pods = [msgspec.structs.replace(leader, spec=spec), worker, busy_pod("node-b0-s0-h01")]
    text = explained(cluster(pods, parallelism=2), "train-1")
    assert "Misplaced: ns/train-0 on node-b0-s0-h00. If they were recreated with the rest" in text
    assert "the whole gang would fit, on 1 block" in text
    assert "Misplaced" not in explained(cluster([*pods, busy_pod("node-b1-s0-h00")], 2), "train-1")


def test_a_placed_pod_on_the_only_node_for_the_other_one_is_why_that_waits_and_nothing_else() -> None:
    """It would fit as written, if its own pod were elsewhere."""
    there, waiting = job_pods(2)
    spec = msgspec.structs.replace(there.spec, node_name="node-b0-s0-h00", scheduling_gates=[])
    only = msgspec.structs.replace(waiting.spec, node_selector={keys.HOSTNAME_LABEL: "node-b0-s0-h00"})
    pods = [msgspec.structs.replace(there, spec=spec), msgspec.structs.replace(waiting, spec=only)]
    text = explained(cluster(pods, parallelism=2), "train-1")
    assert "Misplaced: ns/train-0 on node-b0-s0-h00. If they were recreated with the rest" in text
    assert "empty cluster" not in text


def test_a_request_for_slices_that_alone_prevents_it_is_named() -> None:
    request = {"annotations": {keys.SLICE_TOPOLOGY_ANNOTATION: "host", keys.SLICE_SIZE_ANNOTATION: "2"}}
    text = explained(cluster(job_pods(4, **request), parallelism=4))
    assert f"without {keys.SLICE_TOPOLOGY_ANNOTATION}=host it would fit now, on 2 blocks" in text


def test_of_slices_in_slices_the_inner_ones_are_named_where_they_alone_prevent_it() -> None:
    values = {keys.SLICE_TOPOLOGY_ANNOTATION: "block,host", keys.SLICE_SIZE_ANNOTATION: "4,2"}
    text = explained(cluster(job_pods(4, annotations=values), parallelism=4))
    assert f"without {keys.SLICE_TOPOLOGY_ANNOTATION}=host it would" not in text
    assert f"without {keys.SLICE_TOPOLOGY_ANNOTATION}=block,host it would fit now, on 2 blocks" in text
    values |= {keys.SLICE_SIZE_ANNOTATION: "2,1", keys.SLICE_TOPOLOGY_ANNOTATION: "block,host"}
    assert "next pass places it" in explained(cluster(job_pods(4, annotations=values), parallelism=4))


def test_a_request_to_be_spread_is_shown_and_named_where_it_alone_prevents_it() -> None:
    request = {"annotations": {keys.SPREAD_TOPOLOGY_ANNOTATION: "block:1"}}
    text = explained(cluster(job_pods(3, **request), parallelism=3))
    assert (
        "Spread: at most 1 in each domain of level block, counting 0 pods that have a node already." in text
    )
    assert "3 pods, at most 1 per block, do not fit; the cluster has capacity for 2 of 3" in text
    assert f"without {keys.SPREAD_TOPOLOGY_ANNOTATION}=block:1 it would fit now, on 2 blocks" in text
    request = {"annotations": {keys.SPREAD_TOPOLOGY_ANNOTATION: "block"}}
    assert "Spread: evenly over the domains of level block" in explained(cluster(job_pods(2, **request), 2))


@pytest.mark.promise("R175")
def test_a_gang_that_no_empty_cluster_could_hold_is_reported_as_that() -> None:
    assert "would not fit even into an empty cluster" in explained(cluster(job_pods(5), parallelism=5))


@pytest.mark.promise("R175")
@pytest.mark.parametrize("is_full", [False, True])
def test_a_gang_that_avoids_a_node_for_a_time_gets_that_time_and_does_not_read_that_it_never_fits(
    is_full: bool,
) -> None:
    """The kubelet of one node has refused two pods of it, one after the other."""
    pods, now = job_pods(4), datetime.now(UTC).replace(microsecond=0)
    refusals = [
        refused_by_kubelet(pods[0], f"{now - timedelta(seconds=ago):%Y-%m-%dT%H:%M:%SZ}") for ago in (60, 30)
    ]
    busy = [busy_pod(GRID[0].name)] if is_full else []
    text = explained(
        dataclasses.replace(cluster([*pods, *busy], parallelism=4), read_failed=lambda: refusals)
    )
    ends = f"{now + timedelta(seconds=AVOID_SECONDS - 30):%Y-%m-%d %H:%M:%SZ}"
    sentence = f"waiting until {ends}, when it no longer avoids a node; then it fits on 2 blocks"
    assert (sentence in text, "once other pods end" in text) == (not is_full, is_full)
    assert "even into an empty cluster" not in text


def test_a_constraint_that_prevents_it_even_in_an_empty_cluster_is_named() -> None:
    """3 pods in one block of 2 nodes; one node of the other block is in use."""
    pods = [*job_pods(3, annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})]
    pods += [busy_pod("node-b1-s0-h00"), busy_pod("node-b0-s0-h00")]
    text = explained(cluster(pods, parallelism=3))
    assert (
        f"What would help: without {keys.REQUIRED_TOPOLOGY_ANNOTATION}=block it would fit once other pods "
        "end; as written it would not fit even into an empty cluster."
    ) in text


def test_gates_of_others_are_named() -> None:
    gates = [{"name": keys.GATE}, {"name": "quota.example.com/wait"}]
    assert "It has other scheduling gates: quota.example.com/wait" in explained(
        cluster([decode(pod_json("p", schedulingGates=gates))]), "p"
    )


@pytest.mark.promise("R175")
@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"schedulingGates": [{"name": keys.GATE}, {"name": "quota.example.com/wait"}]},
            "its pods have the scheduling gate quota.example.com/wait; it is placed once that is removed",
        ),
        (
            {"schedulerName": "volcano"},
            "its scheduler 'volcano' is not one that topogate serves: default-scheduler",
        ),
    ],
    ids=["gate", "scheduler"],
)
def test_a_gang_that_is_not_placed_though_it_fits_waits_in_the_words_of_the_sweeper(
    spec: dict[str, Any], sentence: str
) -> None:
    pod = decode(pod_json("p", containers=[{"name": "c", **GPU}], **spec))
    text = explained(cluster([pod]), "p")
    assert f"Now: {sentence}\nBut for that it would fit now, on 1 block" in text
    assert "places it" not in text


@pytest.mark.parametrize(
    ("more", "is_known"),
    [({}, False), ({"nodeName": GRID[0].name}, True), ({keys.GAS_TIMESTAMP_ANNOTATION: "1" * 19}, True)],
    ids=["not bound", "bound", "with the time of its cards"],
)
def test_that_nothing_shows_since_when_a_released_pod_waits_for_kube_scheduler_is_stated(
    more: dict[str, str], is_known: bool
) -> None:
    leader, worker = job_pods(2)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [GRID[0].name]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    raw = msgspec.to_builtins(leader)
    node, annotations = more.get("nodeName", ""), {k: v for k, v in more.items() if k != "nodeName"}
    raw["spec"] |= {"schedulingGates": [], "affinity": {"nodeAffinity": required}, "nodeName": node}
    raw["metadata"]["annotations"] = raw["metadata"].get("annotations", {}) | annotations
    text = explained(cluster([decode(raw), worker], parallelism=2), "train-1")
    assert "1 is released" in text
    sentence = "Since when 1 released pod is not bound is not known here. The sweeper deletes one after 120 s"
    assert (sentence in text) is not is_known


@pytest.mark.promise("R175")
def test_a_gang_fits_when_pods_of_others_end_and_never_when_its_own_do() -> None:
    """Its other pod runs on one node, and a pod of another gang on each of the others."""
    leader, worker = job_pods(2)
    spec = msgspec.structs.replace(leader.spec, node_name=GRID[0].name, scheduling_gates=[])
    pods = [msgspec.structs.replace(leader, spec=spec), worker]
    busy = [busy_pod(node.name) for node in GRID[1:]]
    text = explained(cluster([*pods, *busy], parallelism=2), "train-1")
    assert f"it fits when 1 other pod ends: ns/{busy[0].metadata.name}." in text
    one_node = dataclasses.replace(cluster(pods, 2), nodes={GRID[0].name: cluster(pods).nodes[GRID[0].name]})
    text = explained(one_node, "train-1")
    assert "other pod" not in text
    assert "add nodes; as written it would not fit even into an empty cluster" in text


@pytest.mark.promise("R175")
@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"nodeName": "n1", "schedulingGates": []}, "it is bound to node n1"),
        ({"nodeName": "n1", "schedulingGates": []}, "It was never gated by topogate: it asks for no GPU"),
        (
            {"schedulingGates": [{"name": "quota.example.com/wait"}]},
            "it has the scheduling gates quota.example.com/wait",
        ),
        ({"schedulingGates": []}, "was never gated by topogate"),
    ],
    ids=["bound", "bound without us", "another gate", "no gate"],
)
def test_a_pod_that_does_not_wait_for_us_is_shown_with_its_state(spec: dict[str, Any], sentence: str) -> None:
    assert sentence in explained(cluster([decode(pod_json("p", **spec))]), "p")


def test_a_gated_pod_of_an_ignored_namespace_waits_for_ever() -> None:
    ignoring = dataclasses.replace(Settings(), excluded_namespaces=frozenset({"ns"}))
    rule = "waits for ever: the configuration leaves namespace ns alone (namespaces.excluded)."
    assert rule in explained(cluster(job_pods(1)), settings=ignoring)


def test_a_pod_whose_controller_is_gone_waits_apart_from_a_gang_with_others() -> None:
    """As after the deletion of one Job of a JobSet."""
    pods, gone = job_pods(2), LostOwner("its controller Job/train is deleted")
    made = dataclasses.replace(
        cluster(pods, 1),
        read_lost_owners=lambda _: lambda pod: gone if pod.metadata.uid == "u0" else None,
    )
    assert "apart from its gang. Now: its controller Job/train is deleted." in explained(made, "train-0")
    assert "next pass places it" in explained(made, "train-1")


def test_a_missing_pod_is_reported() -> None:
    with pytest.raises(ExplainError, match="no unfinished pod nothing in namespace ns"):
        list(explain(cluster([]), "ns", "nothing", Settings()))


@pytest.mark.promise("O225")
def test_a_configured_gate_prefix_decides_which_pods_are_ours() -> None:
    pods = [decode(pod_json("p", schedulingGates=[{"name": "example.com/wait-a"}]))]
    mine = dataclasses.replace(Settings(), gate_prefix="example.com/wait-")
    assert "waits for topogate" in explained(cluster(pods), "p", mine)


@pytest.mark.promise("O189")
def test_a_gang_that_waits_for_its_victims_is_shown_with_them() -> None:
    (pod,) = job_pods(1)
    node = GRID[0].name
    entry = {"name": "train-0", "uid": "u0", "node": node}
    victims = [{"pods": [f"uid-busy-{node}"], "whole": True}]
    of = cluster([pod, busy_pod(node, priority=-1)], parallelism=1)
    text = explained(with_placement(of, pod, pods=[entry], preempts=True, victims=victims))
    assert f"It is planned on {node}, and waits for the eviction of" in text
    assert f"ns/Pod/busy-{node} (1 pod)" in text


@pytest.mark.parametrize(
    ("minimum", "there", "expected"),
    [
        (0, 3, "the sweeper has not created it yet"),
        (2, 3, "the sweeper has not replaced it yet"),
        (3, 2, "1 planned pod is deleted"),
        (3, 3, ""),
    ],
)
def test_a_planned_gang_shows_why_it_waits_for_its_pod_group(minimum: int, there: int, expected: str) -> None:
    """minimum: minCount of the PodGroup, 0 without one. there: how many of three pods are left."""
    gang = {keys.GANG_ANNOTATION: "train"}
    name = bind_group_name({}, gang, "", "")
    pods = [
        decode(
            pod_json(
                f"train-{number}",
                metadata={"annotations": gang, "uid": f"u{number}", "namespace": "ns"},
                containers=[{"name": "c", **GPU}],
                schedulingGroup={"podGroupName": name},
            )
        )
        for number in range(3)
    ]
    entries = [
        {"name": pod.metadata.name, "uid": pod.metadata.uid, "node": GRID[number].name}
        for number, pod in enumerate(pods)
    ]
    group = {
        "metadata": {"name": name, "namespace": "ns", "labels": {keys.BIND_LABEL: keys.BIND_POD_GROUP}},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }
    groups = {f"ns/{name}": msgspec.convert(group, NativePodGroup)} if minimum else {}
    made = dataclasses.replace(
        with_placement(cluster(pods[:there]), pods[0], size=3, pods=entries),
        read_owners=lambda kind: groups if kind == POD_GROUPS else {},
    )
    lines = [line for line in explain(made, "ns", "train-0", Settings()) if "wait for PodGroup" in line]
    assert len(lines) == bool(expected)
    assert expected in "".join(lines)
