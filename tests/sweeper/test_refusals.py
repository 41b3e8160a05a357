"""Where successors go after kube-scheduler has refused a pod: elsewhere, and at last where it likes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.sweeper.applies import Applies
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.deferred import PODS
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.releases import Answers as Refusing
from tests.sweeper.repairs import job_with
from tests.sweeper.reports import Answers, Copy, Reports
from webhook.configuration.settings import Settings
from webhook.kube.client import ApiError
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.scheduling.unmodelled_rules import broken_over
from webhook.sweeper.context import Pass, Silent
from webhook.sweeper.decide.orders import Done, Orders
from webhook.sweeper.decide.refusing_nodes import AVOID_SECONDS, LONGEST_AVOID_SECONDS, RefusingNodes
from webhook.sweeper.decide.retries import Write
from webhook.sweeper.decide.steps import may_run_unpinned
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.gangs import GangKey, key_of
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.repair.allowance import Allowance
from webhook.sweeper.repair.repair import RepairMemory, repair_released

SETTINGS = Settings(settle_seconds=0.2, bind_seconds=1)
KEY = GangKey("ns", "Job", "train", "u")


def beside(app: str, key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.promise("R122")
def test_a_domain_that_breaks_a_rule_is_left_at_once_by_the_successor_too() -> None:
    message = "0/4 nodes are available: 1 node(s) didn't match pod affinity rules."
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    body = pod_json(schedulingGates=[], affinity={"nodeAffinity": required, **beside("db", "rack")})
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    body["status"]["conditions"] = [condition]
    pod = decode(body)
    nodes = {
        name: msgspec.convert({"metadata": {"name": name, "labels": {"rack": rack}}}, Node)
        for name, rack in {"n0": "a", "n1": "a", "n2": "b"}.items()
    }
    allowance = Allowance(SETTINGS, job_with())
    view = View([], [pod], nodes, {}, named={("ns", pod.metadata.uid)})
    _, memory = repair_released(view, RepairMemory(), allowance, SETTINGS)
    later = replace(view, now=Moment(SETTINGS.bind_seconds))
    repaired, _ = repair_released(later, memory, allowance, SETTINGS)
    refusing = repaired.with_refusing(RefusingNodes(), later.now.seconds)
    assert refusing.nodes_of(view.controller_of(pod)) == {"n0", "n1"}


@pytest.mark.promise("O93")
def test_each_later_failure_is_avoided_for_twice_as_long_and_with_all_nodes_before() -> None:
    first = AVOID_SECONDS - 1
    refusing = RefusingNodes().refused(KEY, {"a"}, 0.0).refused(KEY, {"b"}, first)
    assert refusing.at(first + 2 * AVOID_SECONDS - 1).nodes_of(KEY) == {"a", "b"}
    assert refusing.at(first + 2 * AVOID_SECONDS).nodes_of(KEY) == frozenset()


@pytest.mark.promise("O93")
def test_a_node_that_fails_again_once_it_may_be_used_is_avoided_for_twice_as_long() -> None:
    again = AVOID_SECONDS + 120
    known = RefusingNodes().refused(KEY, {"a"}, 0.0).at(again)
    assert (known.nodes_of(KEY), list(known.rules())) == (frozenset(), [])
    refusing = known.refused(KEY, {"a"}, again)
    assert refusing.at(again + 2 * AVOID_SECONDS - 1).nodes_of(KEY) == {"a"}
    assert refusing.at(again + 2 * AVOID_SECONDS).nodes_of(KEY) == frozenset()


@pytest.mark.promise("O93")
def test_a_failure_is_forgotten_after_twice_the_time_for_which_its_node_is_avoided() -> None:
    later = 2 * AVOID_SECONDS
    refusing = RefusingNodes().refused(KEY, {"a"}, 0.0).refused(KEY, {"b"}, later)
    assert refusing.at(later + AVOID_SECONDS).nodes_of(KEY) == frozenset()


def test_pods_that_fail_together_are_one_failure() -> None:
    refusing = RefusingNodes()
    for node in "abcdefgh":
        refusing = refusing.refused(KEY, {node}, 0.0)
    assert refusing.nodes_of(KEY) == set("abcdefgh")
    assert refusing.at(AVOID_SECONDS).nodes_of(KEY) == frozenset()


def test_the_reason_of_a_gang_that_waits_names_the_nodes_that_did_not_take_its_pod() -> None:
    pod = gpu_pod("p", metadata={"annotations": {keys.REQUIRED_TOPOLOGY_ANNOTATION: "node"}})
    placing = Placing(Nodes(1, pod), Settings(settle_seconds=0))
    placing.avoid(placing.gangs()[0].key, "n0")
    (outcome,) = placing.one().outcomes
    assert "avoids the node n0 (a pod of this gang was not bound or released there)" in outcome.reason


@pytest.mark.parametrize("pods", [1, 8])
def test_a_gang_is_left_alone_for_twice_as_long_each_time_however_many_of_its_pods_are_refused(
    pods: int,
) -> None:
    def refuse(_: str) -> None:
        raise ApiError(403, "Forbidden", "a policy forbids it")

    clock, cache = Clock(), cast(Any, SimpleNamespace(expect=lambda _: None))
    applier = Applies(Pass(Refusing(refuse, {}), cache, Settings(), clock=clock))
    pairs = [(pod, PlannedPod(pod.metadata.name, pod.metadata.uid, "n0")) for pod in PODS[:pods]]
    left = []
    for clock.now in (0, 2):
        applier.apply(Orders(releases=tuple(pairs)), View(PODS, [], {}, {}))
        left.append(applier.table.seconds_left((Write.GANG, key_of(PODS[0])), clock.now))
    applier.close()
    assert left == [2.0, 4.0]


@pytest.mark.parametrize(("status", "node"), [(400, "n0"), (403, "")], ids=["invalid", "without the right"])
def test_a_refused_release_excludes_its_node_unless_the_right_is_missing(status: int, node: str) -> None:
    def refuse(_: str) -> None:
        raise ApiError(status, "Refused", "no")

    applier = Applies(
        Pass(Refusing(refuse, {}), cast(Any, SimpleNamespace(expect=lambda _: None)), Settings())
    )
    pair = PODS[0], PlannedPod(PODS[0].metadata.name, PODS[0].metadata.uid, "n0")
    done = applier.apply(Orders(releases=(pair,)), View(PODS, [], {}, {}))
    applier.close()
    assert [refusal.node for refusal in done.refused] == [node]


def test_no_node_is_avoided_for_ever() -> None:
    refusing = RefusingNodes()
    for number in range(40):
        refusing = refusing.refused(KEY, {str(number)}, number * 61.0)
    assert refusing.at(40 * 61.0 + LONGEST_AVOID_SECONDS).nodes_of(KEY) == frozenset()


SPREAD = {
    "topologySpreadConstraints": [
        {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, "labelSelector": {}}
    ]
}
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}


@pytest.mark.promise("R122")
@pytest.mark.parametrize(
    ("spec", "message", "expected"),
    [
        (SPREAD, "1 node(s) didn't match pod topology spread constraints", {"zone"}),
        (SPREAD, "1 Insufficient cpu", set()),
        ({"affinity": beside("x", "rack")}, "1 node(s) didn't match pod affinity rules", {"rack"}),
        ({"affinity": beside("x", keys.HOSTNAME_LABEL)}, "1 node(s) didn't match pod affinity rules", set()),
        (CLAIM, "1 node(s) had volume node affinity conflict", {"topology.kubernetes.io/zone"}),
        ({}, "1 node(s) had volume node affinity conflict", set()),
    ],
    ids=["spread", "another reason", "affinity", "one node", "volumes", "no volumes"],
)
def test_the_rule_that_was_broken_names_the_domain(
    spec: dict[str, Any], message: str, expected: set[str]
) -> None:
    assert broken_over(decode(pod_json(**spec)), message) == expected


@pytest.mark.promise("R124")
@pytest.mark.parametrize(
    ("annotations", "others", "unpinned"),
    [
        ({}, 0, True),
        ({keys.REQUIRED_TOPOLOGY_ANNOTATION: "node"}, 0, False),
        ({keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: "2"}, 1, False),
    ],
    ids=["alone", "with a required level", "of a gang that has not begun"],
)
def test_no_pod_is_released_unpinned_if_that_breaks_what_was_asked_for(
    annotations: dict[str, str], others: int, unpinned: bool
) -> None:
    pods = [gpu_pod(f"p{number}", metadata={"annotations": annotations}) for number in range(others + 1)]
    placing = Placing(Nodes(2, *pods), Settings(settle_seconds=0))
    for gang in placing.gangs():
        placing.avoid(gang.key, "n0", "n1")
    assert [plan.is_unpinned for plan in placing.one().plans] == ([True] if unpinned else [])


@pytest.mark.promise("R124")
@pytest.mark.parametrize(
    ("amounts", "may"),
    [({"nvidia.com/gpu": "1"}, True), ({keys.I915: "1", keys.MILLICORES: "500"}, False)],
    ids=["whole GPUs", "a share of a card"],
)
def test_no_pod_with_cards_is_released_unpinned(amounts: dict[str, str], may: bool) -> None:
    container = {"name": "c", "resources": {"limits": amounts, "requests": amounts}}
    placing = Placing(Nodes(1, decode(pod_json("p", containers=[container]))), Settings())
    (gang,) = placing.gangs()
    assert may_run_unpinned(gang, gang.gated, placing.view()) is may


@pytest.mark.promise("R124")
def test_no_pod_is_released_unpinned_while_others_are_being_bound() -> None:
    placing = Placing(Nodes(3, gpu_pod("mine"), gpu_pod("theirs")), Settings(settle_seconds=0))
    (mine,) = (gang for gang in placing.gangs() if gang.key.name == "mine")
    placing.avoid(mine.key, "n0", "n1", "n2")
    assert places(placing.one()) == {"theirs": "n0"}
    placing.cluster.pods[1] = gpu_pod("theirs", node="n0")
    assert places(placing.one()) == {"mine": ""}


def pinned(name: str, node: str) -> Pod:
    """A released pod that is not bound; node: "" for one that may go anywhere."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return gpu_pod(name, schedulingGates=[], affinity={"nodeAffinity": required} if node else {})


@pytest.mark.parametrize(
    ("node", "blocked", "unpinned"),
    [("n0", frozenset[str](), False), ("n0", frozenset({"n0"}), True), ("", frozenset[str](), True)],
    ids=["on its way", "stuck", "free to go anywhere"],
)
def test_a_pod_that_was_released_delays_others_only_until_it_is_bound(
    node: str, blocked: frozenset[str], unpinned: bool
) -> None:
    cluster = Nodes(2, pinned("theirs", node), gpu_pod("mine"))
    entry = PlannedPod("theirs", "uid-theirs", node)
    metadata = Metadata(namespace="ns", name="p")
    cluster.placements["ns/p"] = Placement(metadata=metadata, spec=PlacementSpec(pods=[entry]))
    placing = Placing(cluster, Settings(settle_seconds=0))
    (gang,) = placing.gangs()
    placing.avoid(gang.key, "n0", "n1")
    assert places(placing.one(blocked)) == ({"mine": ""} if unpinned else {})


@pytest.mark.promise("O93")
def test_what_is_avoided_for_a_pod_of_a_replica_set_is_avoided_for_the_next() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    first, second = (gpu_pod(name, metadata={"ownerReferences": [owner]}) for name in ("one", "two"))
    placing = Placing(Nodes(2, second), Settings(settle_seconds=0))
    placing.avoid(placing.view().controller_of(first), "n0")
    (plan,) = placing.one().plans
    assert [entry.node for entry in plan.entries] == ["n1"]


@pytest.mark.promise("R124")
def test_an_event_reports_that_kube_scheduler_chooses_the_node_of_a_pod() -> None:
    placing = Placing(Nodes(1, gpu_pod("p")), Settings(settle_seconds=0))
    (gang,) = placing.gangs()
    placing.avoid(gang.key, "n0")
    events: list[tuple[str, str]] = []

    class Listener(Silent):
        def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
            events.append((reason, note))

    cache: Any = Copy()
    reporter = Reports(Pass(Answers(), cache, Settings(), Metrics(), Listener()))
    reporter.on_result(Done(placed=placing.one().plans))
    ((reason, note),) = events
    assert reason == "GangPlaced"
    assert "kube-scheduler has refused every node with capacity, so it now chooses" in note
