"""What a tenant writes on its own objects does not change how another's are counted, reported or ordered."""

import io
import logging
from typing import Any

import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, gpu_pod
from tests.sweeper.pods import decode, gather_all, job_pod, pod_json
from webhook import logs
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.apply.patches import release_patch
from webhook.sweeper.observe.gangs import OwnerFacts, gather, key_of
from webhook.sweeper.observe.plans import occupied_node, pinned_node
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.sweeper.repair.allowance import Allowance, Deletions, after_deletion, by_owner, deletions_of
from webhook.workloads.builtin import (
    FailureCondition,
    FailureRule,
    Job,
    JobSpec,
    JobStatus,
    PodFailurePolicy,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = "nvidia.com/gpu"


def term(*names: str, **more: Any) -> dict[str, Any]:
    """A node selector term with one field requirement for each group of names ("n1,n2")."""
    fields = [{"key": "metadata.name", "operator": "In", "values": each.split(",")} for each in names]
    return {"matchFields": fields, **more}


def pinned(*terms: dict[str, Any]) -> str | None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}
    return pinned_node(decode(pod_json(schedulingGates=[], affinity=affinity)))


EXPRESSIONS = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}


@pytest.mark.promise("I24")
@pytest.mark.parametrize(
    ("terms", "node"),
    [
        ([term("n1")], "n1"),
        ([term("n1", "n1"), term("n2", "n1")], "n1"),
        ([term("n1,n2", "n1"), term("n2,n3", "n1")], "n1"),
        ([term("n1", **EXPRESSIONS), term("n1")], "n1"),
        ([term("n1"), {}], "n1"),
        ([term("n1"), term("n2")], None),
        ([term("n1,n2")], None),
        ([term("n1"), EXPRESSIONS], None),
        ([term("n2", "n1")], None),
        ([], None),
    ],
    ids=[
        "one name",
        "alternatives that another name contradicts",
        "alternatives of several names",
        "a name beside an expression",
        "an empty alternative, which matches nothing",
        "two alternatives",
        "two names",
        "an alternative without a name",
        "names that contradict",
        "no terms",
    ],
)
def test_a_pod_counts_on_the_only_node_that_its_terms_leave_together(
    terms: list[dict[str, Any]], node: str | None
) -> None:
    assert pinned(*terms) == node


def test_a_pod_whose_author_names_other_nodes_in_other_terms_counts_where_it_was_sent() -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term("n1"), term("n2")]}}}
    body = pod_json(affinity=affinity)
    pod = decode(body)
    for operation in release_patch(pod, "n1", {}):
        if operation["op"] == "add" and "matchFields" in operation["path"]:
            index = int(operation["path"].split("/")[-3])
            affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][index]["matchFields"].append(
                operation["value"]
            )
    body["spec"]["schedulingGates"] = []
    assert pinned_node(decode(body)) == "n1"


@pytest.mark.parametrize(("where", "is_ours"), [("ns", True), ("another", False)])
def test_a_plan_of_another_namespace_makes_no_pod_one_of_ours(where: str, is_ours: bool) -> None:
    pod = decode(pod_json("a", schedulingGates=[]))
    cluster = Nodes(2, pod)
    cluster.placements = one_plan(where)
    view: View = Snapshotter(cluster, Settings()).view()
    assert view.is_ours(pod) is is_ours


GATED = [{"name": keys.GATE}]


def one_plan(where: str) -> dict[str, Placement]:
    """Sends pod "a" to n1."""
    metadata, entry = Metadata(name="p", namespace=where), PlannedPod("a", "uid-a", "n1")
    return {f"{where}/p": Placement(metadata=metadata, spec=PlacementSpec(pods=[entry]))}


def left_on_n1(cluster: Nodes) -> int:
    snapshotter = Snapshotter(cluster, Settings())
    return snapshotter.snapshot(snapshotter.view()).nodes["n1"].free[GPU]


@pytest.mark.promise("D12")
@pytest.mark.parametrize(
    ("where", "gates", "left"),
    [
        ("ns", [], 0),
        ("ns", [{"name": keys.GATE}], 0),
        ("another", [], 8),
        ("another", [{"name": keys.GATE}], 8),
    ],
    ids=["released", "planned", "released, by nobody's plan", "planned by another namespace"],
)
def test_a_pod_uses_capacity_from_its_plan_to_its_end_and_by_a_plan_of_its_own_namespace_alone(
    where: str, gates: list[dict[str, str]], left: int
) -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term("n1")]}}}
    cluster = Nodes(2, gpu_pod("a", gpus=8, schedulingGates=gates, affinity=affinity), gpus=8)
    cluster.placements = one_plan(where)
    assert left_on_n1(cluster) == left


@pytest.mark.promise("I21")
@pytest.mark.parametrize(
    ("more", "node"),
    [
        ({}, "n1"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["of/a-tenant"]}, None),
    ],
    ids=["waits to be bound", "was deleted before, and a finalizer keeps it"],
)
def test_a_released_pod_that_no_scheduler_can_bind_any_more_takes_no_place(
    more: dict[str, Any], node: str | None
) -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term("n1")]}}}
    assert occupied_node(decode(pod_json(metadata=more, schedulingGates=[], affinity=affinity))) == node


IGNORES_EVICTIONS = PodFailurePolicy(
    [FailureRule("Ignore", on_pod_conditions=[FailureCondition("DisruptionTarget")])]
)


def bears_two_failures(namespace: str, name: str, uid: str) -> Job:
    """Every Job bears two more; in one namespace evictions are none, in another some pods have ended."""
    policy = IGNORES_EVICTIONS if namespace == "tolerant" else None
    status = JobStatus(succeeded=1 if namespace == "finishing" else 0)
    spec = JobSpec(backoff_limit=2, pod_failure_policy=policy)
    return Job(Metadata(name, namespace, uid), spec, status)


@pytest.mark.promise("S4", "S2")
@pytest.mark.parametrize(("namespace", "may_be_evicted"), [("ns", False), ("thief", True)])
def test_pods_that_name_another_namespace_s_job_spend_none_of_its_failures(
    namespace: str, may_be_evicted: bool
) -> None:
    own = [job_pod(index) for index in range(2)]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "ns-train", "controller": True}
    other = job_pod(7, namespace=namespace, ownerReferences=[owner])
    allowance = Allowance(Settings(), bears_two_failures, after_deletion({}, [other], 0.0))
    assert (allowance.why_not(own) == "") is may_be_evicted
    assert len(by_owner([*own, other])) == (2 if may_be_evicted else 1)


def test_deletions_of_a_controller_are_remembered_only_while_they_count() -> None:
    """Its pods may be deleted again and again for as long as it is there."""
    deletions: Deletions = {}
    for minute in range(10):
        deletions = after_deletion(deletions, [job_pod(0), job_pod(1)], 60.0 * minute)
    deletions = after_deletion(deletions, [job_pod(0)], 541.0)
    (times,) = deletions.values()
    assert sorted(times.values()) == [540.0, 541.0]
    assert not deletions_of(deletions, set(), 601.0)
    assert deletions_of(deletions, set(), 600.0) == deletions


@pytest.mark.promise("O192")
@pytest.mark.parametrize(("namespace", "may_be_evicted"), [("ns", False), ("tolerant", True)])
def test_what_a_job_does_not_count_as_failures_is_evicted_however_few_it_bears(
    namespace: str, may_be_evicted: bool
) -> None:
    allowance = Allowance(Settings(), bears_two_failures)
    pods = [job_pod(index, namespace=namespace) for index in range(3)]
    assert (allowance.why_not_evicted(pods) == "") is may_be_evicted
    assert (allowance.why_jobs_end(pods) == "") is may_be_evicted


def test_pods_of_a_job_of_which_some_have_ended_by_themselves_are_not_what_is_left_of_it() -> None:
    allowance = Allowance(Settings(), bears_two_failures)
    why = allowance.why_not_evicted([job_pod(0, namespace="finishing")])
    assert why == "pods of its Job train have ended by themselves, so it may continue without them"


def member(name: str, priority: int, *, gpus: int = 1, gated: bool = True) -> Pod:
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    gates = [{"name": keys.GATE}] if gated else []
    metadata = {"annotations": {keys.GANG_ANNOTATION: "g"}}
    containers = [{"name": "c", "resources": resources}]
    return decode(
        pod_json(name, metadata=metadata, priority=priority, containers=containers, schedulingGates=gates)
    )


@pytest.mark.promise("O180", "R178")
@pytest.mark.parametrize(
    ("lender", "what"),
    [
        (member("z", 100, gpus=0, gated=False), "a running pod without GPU"),
        (member("z", 100, gated=False), "a running pod"),
        (member("z", 100, gpus=0), "a waiting pod without GPU"),
        (member("z", 100), "one of the waiting pods"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_gang_is_as_urgent_as_those_that_wait_whatever_class_joins_it(lender: Pod, what: str) -> None:
    gated = [member("a", 1), *([lender] if lender.spec.scheduling_gates else [])]
    released = [] if lender.spec.scheduling_gates else [lender]
    (gang,) = gather(gated, released, lambda _: OwnerFacts())
    assert gang.priority == 1, what


def test_a_gang_is_no_less_urgent_for_one_of_a_low_class_that_runs_already() -> None:
    (gang,) = gather([member("a", 100)], [member("z", 1, gated=False)], lambda _: OwnerFacts())
    assert gang.priority == 100


def test_a_gang_of_pods_without_gpus_is_as_urgent_as_they_are() -> None:
    (gang,) = gather_all(member("a", 5, gpus=0))
    assert gang.priority == 5


HOSTILE = "x\n2026-01-01T00:00:00Z INFO webhook.sweeper placed gang=other\x1b[2J\r\u202e"


@pytest.mark.promise("S3")
def test_a_gang_s_name_cannot_begin_a_line_or_command_a_terminal() -> None:
    pod = decode(pod_json(metadata={"annotations": {keys.GANG_ANNOTATION: HOSTILE}}))
    key = key_of(pod)
    assert str(key).isprintable()
    assert key.id == HOSTILE, "two gangs are told apart by what was written"


@pytest.mark.promise("S3")
@pytest.mark.parametrize("form", logs.FORMATS)
def test_a_log_line_is_one_line_whatever_it_quotes(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    before = logging.getLogger().handlers[:]
    try:
        logs.configure("info", form)
        logging.getLogger("test").warning("unreadable pod=%s", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("test").exception("failed")
    finally:
        logging.getLogger().handlers[:] = before
    lines = stream.getvalue().splitlines()
    assert all(line.isprintable() for line in lines)
    forged = [line for line in lines if line.startswith("2026-01-01T00:00:00Z")]
    assert not forged
