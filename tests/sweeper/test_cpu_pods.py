"""CPU-only pods of a gang: they are placed beside the others, and cost them nothing.

The GPU nodes have the taint that such pods do not tolerate, as the nodes of most clusters.
"""

from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import GPU, Placing, places
from tests.sweeper.launchers import SETTINGS, TOLERATION, node, placing, some_devices
from tests.sweeper.pods import decode, pod_json
from webhook.inquiry.explanation import explain_gated
from webhook.inquiry.next_pass import PassFacts, run_pass
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.observe.gangs import OwnerFacts, gather
from webhook.sweeper.observe.owner_sizes import facts_of
from webhook.workloads import marks
from webhook.workloads.kinds import WORKLOADS


def no_devices() -> bool:
    """What an owner says none of whose pods asks for any."""
    return False


def pod(
    name: str, amounts: dict[str, str], *, on: str = "", asked: dict[str, str] | None = None, **spec: Any
) -> Pod:
    """A pod of the MPIJob "train" as its controller makes it; with a node, one that was released to it."""
    role, _, index = name.partition("-")
    labels = {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/job-role": role}
    if index:
        labels["training.kubeflow.org/replica-type"] = role
        labels["training.kubeflow.org/replica-index"] = index
    container = {"name": "c", "resources": {"limits": amounts, "requests": amounts}}
    tolerations = {"tolerations": [TOLERATION]} if GPU in amounts else {}
    bound = {"nodeName": on, "schedulingGates": []} if on else {}
    metadata = {"labels": labels, "annotations": asked or {}}
    return decode(
        pod_json(name, metadata=metadata, containers=[container], **{**tolerations, **bound, **spec})
    )


def launcher(**more: Any) -> Pod:
    return pod("launcher", {"cpu": "2"}, **more)


def workers(count: int, **more: Any) -> list[Pod]:
    return [pod(f"worker-{index}", {GPU: "8", "cpu": "4"}, **more) for index in range(count)]


GPUS = [node(f"g{b}{h}", f"b{b}/s{b}/h{h}", gpus=8) for b in range(2) for h in range(2 + b)]
"""Two nodes in block b0, three in b1, each block with one subblock."""

NEAREST = {
    "same-subblock": ([node("far", "b1/s1/c"), node("block", "b0/s9/c"), node("near", "b0/s0/c")], "near"),
    "same-block": ([node("far", "b1/s1/c"), node("near", "b0/s9/c")], "near"),
    "another-block": ([node("near", "b1/s1/c")], "near"),
    "no-labels": ([node("near", "")], "near"),
    "labels-before-none": ([node("bare", ""), node("near", "b0/s7/c")], "near"),
    "no-room-near": ([node("full", "b0/s0/c", cpu="1"), node("near", "b0/s9/c")], "near"),
    "none": ([], ""),
    "none-with-room": ([node("full", "b0/s0/c", cpu="1")], ""),
}


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
BESIDE: dict[str, Any] = {
    "topologyKey": keys.HOSTNAME_LABEL,
    "labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": "train"}},
}


@pytest.mark.promise("R74")
@pytest.mark.parametrize("case", NEAREST)
def test_a_launcher_is_placed_on_the_nearest_node_that_it_may_use_and_its_workers_as_without_it(
    case: str,
) -> None:
    beside, expected = NEAREST[case]
    alone = places(placing([*GPUS, *beside], *workers(2)).one())
    found = places(placing([*GPUS, *beside], *workers(2), launcher()).one())
    assert found == {**alone, "launcher": expected}
    assert set(alone.values()) == {"g00", "g01"}, "the tightest block"


def test_a_launcher_that_tolerates_it_is_placed_on_a_node_of_its_workers() -> None:
    found = places(
        placing([*GPUS, node("near", "b0/s0/c")], *workers(2), launcher(tolerations=[TOLERATION])).one()
    )
    assert found["launcher"] in {"g00", "g01"}


@pytest.mark.promise("R74")
def test_all_of_it_is_one_plan_that_shows_where_the_launcher_is() -> None:
    (plan,) = placing([*GPUS, node("near", "b0/s0/c")], *workers(2), launcher()).one().plans
    assert (
        plan.description
        == "2 pods placed on 1 block, 1 subblock, 2 hosts, 2 nodes; 1 without GPUs near the others, on near"
    )
    assert [entry.name for entry in plan.entries][-1] == "launcher"


def test_a_launcher_uses_no_node_that_its_gang_must_not_use() -> None:
    made = placing([*GPUS, node("near", "b0/s0/c"), node("far", "b1/s1/c")], *workers(2), launcher())
    made.rules = NodeRules((NodeRule(frozenset({"near"}), "a pod failed there", is_hard=True),))
    assert places(made.one())["launcher"] == "far"


@pytest.mark.parametrize("level", ["block", "subblock"])
def test_the_level_that_workers_require_does_not_bind_their_launcher(level: str) -> None:
    asked = {keys.REQUIRED_TOPOLOGY_ANNOTATION: level}
    found = places(placing([*GPUS, node("bare", "")], *workers(2, asked=asked), launcher()).one())
    assert found["launcher"] == "bare"
    assert len(found) == 3


@pytest.mark.promise("R74")
def test_a_launcher_that_requires_the_level_itself_is_a_member_as_the_others() -> None:
    asked = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
    made = placing([*GPUS, node("c", "b1/s1/c")], *workers(2, asked=asked), launcher(asked=asked))
    found = places(made.one())
    assert found["launcher"] == "c"
    assert {found["worker-0"][:2], found["worker-1"][:2]} == {"g1"}, "where all of them fit"


@pytest.mark.promise("R74")
def test_nobody_is_placed_where_the_workers_do_not_fit() -> None:
    made = placing([*GPUS, node("near", "b0/s0/c")], *workers(6), launcher())
    orders = made.one()
    assert not orders.plans
    assert "capacity for 5" in orders.outcomes[0].reason


def test_a_recreated_launcher_is_placed_beside_the_workers_that_run() -> None:
    near = [node("c0", "b0/s0/c"), node("c1", "b1/s1/c")]
    running = [pod("worker-0", {GPU: "8"}, on="g10"), pod("worker-1", {GPU: "8"}, on="g11")]
    made = placing([*GPUS, *near], *running, launcher(), owner_facts=OwnerFacts(99, devices=some_devices))
    assert places(made.one()) == {"launcher": "c1"}, "and waits for nobody, though its size is not there"


def test_a_recreated_worker_does_not_follow_its_launcher() -> None:
    there = [pod("worker-0", {GPU: "8"}, on="g10"), launcher(on="c0")]
    made = placing(
        [*GPUS, node("c0", "b0/s0/c")], *there, pod("worker-1", {GPU: "8"}, tolerations=[TOLERATION])
    )
    entries = [
        PlannedPod(name=each.metadata.name, uid=each.metadata.uid, node=each.spec.node_name) for each in there
    ]
    placement = Placement(metadata=made.gangs()[0].pods[0].metadata, spec=PlacementSpec(pods=entries))
    made.cluster.placements = {made.gangs()[0].key.placement_key: placement}
    assert places(made.one())["worker-1"].startswith("g1")


@pytest.mark.promise("R76")
@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]},
        {"affinity": {"podAffinity": {REQUIRED: [BESIDE]}}},
        {"affinity": {"podAntiAffinity": {REQUIRED: [BESIDE | {"topologyKey": keys.ZONE_LABEL}]}}},
        {"topologySpreadConstraints": [BESIDE | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
    ],
    ids=["volume", "affinity", "anti-affinity", "spread"],
)
def test_a_launcher_with_rules_that_are_not_counted_runs_wherever_kube_scheduler_places_it(spec: Any) -> None:
    found = places(placing([*GPUS, node("near", "b0/s0/c")], *workers(2), launcher(**spec)).one())
    assert found["launcher"] == ""
    assert len(found) == 3


@pytest.mark.promise("R76")
def test_of_several_that_do_not_all_fit_each_is_placed_as_near_as_it_can() -> None:
    large = pod("evaluator-0", {"cpu": "65"})
    found = places(placing([*GPUS, node("near", "b0/s0/c")], *workers(2), launcher(), large).one())
    assert (found["launcher"], found["evaluator-0"]) == ("near", "")


def explained(made: Placing, name: str) -> list[str]:
    view = made.view()
    found = run_pass(view, made.snapshotter.snapshot(view), SETTINGS, PassFacts(made.owner_facts))
    (gang,) = found.seen.gangs
    (only,) = (each for each in gang.gated if each.metadata.name == name)
    return list(explain_gated(only, gang, found))


def test_explain_shows_what_a_launcher_waits_for_and_why_its_gang_waits() -> None:
    lines = explained(placing([*GPUS, node("near", "b0/s0/c")], *workers(6), launcher()), "launcher")
    assert any("is placed near the GPU pods of its gang" in line for line in lines)
    assert any("capacity for 5 of 6" in line for line in lines)


def test_explain_reports_of_a_gang_without_gpus_that_it_is_released() -> None:
    lines = explained(
        placing([node("c", "")], launcher(), owner_facts=OwnerFacts(1, devices=no_devices)), "launcher"
    )
    assert any("released at once" in line for line in lines)
    assert (
        "Now: the sweeper's next pass places it: 1 without GPUs released, for kube-scheduler to place."
        in lines
    )


# --- gangs without any GPU -------------------------------------------------------------------------------


def free(orders: Orders) -> bool:
    return bool(orders.plans) and all(each.is_unpinned for each in orders.plans)


@pytest.mark.promise("R76")
def test_a_gang_of_which_no_pod_asks_for_a_gpu_is_released_at_once() -> None:
    made = placing(
        [node("c", "b0/s0/c")],
        launcher(),
        pod("worker-0", {"cpu": "1"}),
        owner_facts=OwnerFacts(8, devices=no_devices),
    )
    orders = made.one()
    assert free(orders)
    assert orders.plans[0].description == "2 without GPUs released, for kube-scheduler to place"


@pytest.mark.promise("R76")
def test_one_whose_owner_gives_no_size_is_released_when_it_is_quiet() -> None:
    made = placing([node("c", "b0/s0/c")], launcher(), owner_facts=OwnerFacts())
    assert not made.one().plans
    made.clock.now += SETTINGS.settle_seconds
    assert free(made.one())


def test_one_whose_workers_are_to_come_waits_for_them() -> None:
    made = placing(
        [*GPUS, node("near", "b0/s0/c")], launcher(), owner_facts=OwnerFacts(3, devices=some_devices)
    )
    assert not made.one().plans
    made.cluster.pods += workers(2)
    assert places(made.one())["launcher"] == "near"


@pytest.mark.parametrize(
    ("gate", "asked"),
    [(keys.GATE_PREFIX + "mine", {}), (keys.GATE, {keys.PREFERRED_TOPOLOGY_ANNOTATION: "block"})],
    ids=["a gate of its author", "a wish"],
)
def test_one_whose_author_asks_for_it_is_placed_though_it_has_no_gpu(
    gate: str, asked: dict[str, str]
) -> None:
    only = launcher(schedulingGates=[{"name": gate}], asked=asked)
    made = placing([node("c", "b0/s0/c")], only, owner_facts=OwnerFacts(1, devices=no_devices))
    assert places(made.one()) == {"launcher": "c"}


# --- stages ----------------------------------------------------------------------------------------------

LWS = next(each for each in WORKLOADS if each.kind == "LeaderWorkerSet")


@pytest.mark.promise("R72", "R74")
def test_a_leader_on_cpus_that_its_workers_wait_for_is_placed_where_they_are_planned() -> None:
    def template(amounts: dict[str, str]) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": "c", "resources": {"limits": amounts}}]}}

    body = {
        "metadata": {"name": "train"},
        "spec": {
            "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {
                "size": 4,
                "leaderTemplate": template({"cpu": "1"}),
                "workerTemplate": template({GPU: "8"}),
            },
        },
    }
    owner = msgspec.convert(body, LWS.struct)
    labels = {"leaderworkerset.sigs.k8s.io/name": "train", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    leader = decode(pod_json("train-0", metadata={"labels": labels}))
    owner_facts = facts_of([LWS.pods(owner)])
    made = placing([*GPUS, node("c0", "b0/s0/c"), node("c1", "b1/s1/c")], leader, owner_facts=owner_facts)
    (plan,) = made.one().plans
    assert places(made.one()) == {"train-0": "c1"}
    assert plan.later_pod_nodes == ("g10", "g11", "g12"), "the only block with capacity for three"
    made.cluster.pods += [pod(f"other-{h}", {GPU: "8"}, on=f"g1{h}") for h in range(3)]
    assert not made.one().plans, "without capacity for the workers the leader waits with them"


def test_a_leader_without_a_rank_takes_none_from_its_workers() -> None:
    plain = launcher()
    bare = msgspec.structs.replace(
        plain, metadata=msgspec.structs.replace(plain.metadata, labels={marks.JOBSET_NAME_LABEL: "x"})
    )
    mates = [
        decode(
            pod_json(
                f"w{i}",
                metadata={"labels": {marks.JOBSET_NAME_LABEL: "x", marks.JOB_INDEX_KEY: str(i)}},
                containers=[{"name": "c", "resources": {"limits": {GPU: "1"}}}],
            )
        )
        for i in range(2)
    ]
    (gang,) = gather([bare, *mates], [], lambda _: OwnerFacts())
    assert sorted(gang.ranks.values()) == [0, 1]
    assert not gang.problems
