"""What judges a soak names what is wrong, and nothing else: it can fail."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from hack.soaks.audit import SWEEPER
from hack.soaks.crowd import OURS
from hack.soaks.domains import OVER, Domains
from hack.soaks.ledger import Ledger
from hack.soaks.losses import Losses
from hack.soaks.partly_released import PARTLY_SECONDS, PartlyReleased
from hack.soaks.reserved_nodes import Holdings
from hack.soaks.takeovers import SETTLED_SECONDS, Takeovers
from hack.soaks.takes import GPUS
from labeler.contract import keys
from webhook.kube.objects import Metadata
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.workloads import marks


@pytest.mark.parametrize(
    ("pods", "faults"),
    [
        ([("a", "a", 0), ("a2", "a", 0), ("b", "b", 1)], 0),
        ([("a", "a", 0), ("b", "b", 0)], 1),
        ([("a", "a", 0), ("a2", "a", 1)], 1),
        ([("a", "a", 0), ("a", "a", None), ("b", "b", 0)], 0),
    ],
    ids=["one each", "shared", "apart", "one after the other"],
)
def test_domains_that_exclusive_jobs_share_are_named(
    pods: list[tuple[str, str, int | None]], faults: int
) -> None:
    domains = Domains()
    for name, job, block in pods:
        domains.pod(exclusive(name, job), "" if block is None else f"node-b{block}-s0-h00")
    assert len(domains.faults) == faults


def exclusive(name: str, job: str, **fields: Any) -> dict[str, Any]:
    """A pod of an exclusive Job."""
    metadata = {
        "name": name,
        "namespace": OURS,
        "uid": name,
        "resourceVersion": "9",
        "annotations": {marks.JOBSET_EXCLUSIVE: OVER},
        "labels": {marks.JOB_NAME_LABEL: job},
    }
    return {"metadata": metadata, "spec": {"containers": []}, **fields}


def pod(name: str, node: str, version: int, limits: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A released and bound pod, pinned to its node."""
    term = {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": [metadata.pop("pin", node)]}]
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {
        "metadata": {
            "name": name,
            "namespace": OURS,
            "uid": name,
            "resourceVersion": str(version),
            "annotations": metadata,
        },
        "spec": {
            "nodeName": node,
            "affinity": {"nodeAffinity": required},
            "containers": [{"resources": {"limits": limits}}],
        },
        "status": {"phase": "Running"},
    }


def nominated(name: str, to: str, node: str, gpus: int = 1) -> dict[str, Any]:
    """A pod that was released by nomination to a node, and that kube-scheduler has bound to one."""
    made = pod(name, node, 5, {GPUS: gpus}, pin=to)
    required = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    required["nodeSelectorTerms"].append({"matchExpressions": [{"key": "block", "operator": "Exists"}]})
    return made


def plan(version: int, **nodes: str) -> dict[str, Any]:
    """A Placement: pod -> node."""
    pods = [{"name": name, "uid": name, "node": node} for name, node in nodes.items()]
    return {"metadata": {"resourceVersion": str(version)}, "spec": {"pods": pods}}


def card(stamp: int) -> dict[str, str]:
    return {keys.GAS_CARDS_ANNOTATION: "card0", keys.GAS_TIMESTAMP_ANNOTATION: str(stamp)}


SHARED_CARD = {keys.I915: 1, keys.MILLICORES: 500}


@pytest.mark.parametrize(
    ("pods", "fault"),
    [
        pytest.param([pod("a", "n", 5, {GPUS: 8})], None, id="as planned"),
        pytest.param([pod("a", "n", 5, {GPUS: 4}), pod("b", "n", 6, {GPUS: 8})], "12 GPUs", id="a full node"),
        pytest.param([pod("a", "m", 5, {GPUS: 1})], "planned before that: ['n']", id="not where planned"),
        pytest.param([pod("a", "n", 1, {GPUS: 1})], "planned before that: []", id="released before planned"),
        pytest.param([pod("a", "n", 5, {GPUS: 1}, pin="m")], "pinned to m", id="bound past its pin"),
        pytest.param([nominated("a", "m", "n")], None, id="bound elsewhere than nominated"),
        pytest.param(
            [pod("b", "n", 5, {GPUS: 8}), nominated("a", "m", "n")], "9 GPUs bound", id="bound to a full node"
        ),
        pytest.param(
            [pod("a", "n", 5, SHARED_CARD, **card(1)), pod("b", "n", 6, SHARED_CARD, **card(2))],
            None,
            id="halves",
        ),
        pytest.param(
            [pod("a", "n", 5, SHARED_CARD, **card(2)), pod("b", "n", 6, SHARED_CARD, **card(1))],
            "gas-ts 1 after 2",
            id="cards in the wrong order",
        ),
        pytest.param(
            [pod(name, "n", 5 + index, SHARED_CARD, **card(index)) for index, name in enumerate("abc", 1)],
            "card0 of n is given out more than once",
            id="a card for three halves",
        ),
    ],
)
def test_the_ledger_names_what_is_wrong(pods: list[dict[str, Any]], fault: str | None) -> None:
    ledger = Ledger(frozenset({OURS}))
    ledger.plan("ADDED", plan(2, a="n", b="n", c="n"))
    for each in pods:
        ledger.pod("MODIFIED", each)
    ledger.settle()
    if fault is None:
        assert ledger.faults == []
    else:
        assert any(fault in found for found in ledger.faults)


THEIRS: Final = "theirs"


def hostile(name: str, node: str, gpus: int, *, pins: str = "", **spec: Any) -> dict[str, Any]:
    """A pod of the hostile tenant, with a pin that says nothing."""
    body = pod(name, node, 9, {GPUS: gpus}, pin=pins or node)
    body["metadata"]["namespace"] = THEIRS
    return body | {"spec": {key: value for key, value in {**body["spec"], **spec}.items() if value}}


FULL = pod("b", "n", 9, {GPUS: 8})
GONE = {"name": "a", "uid": "a", "namespace": THEIRS, "deletionTimestamp": "x", "resourceVersion": "9"}


@pytest.mark.parametrize(
    ("pods", "is_fault"),
    [
        ([hostile("a", "n", 8)], False),
        ([hostile("x", "n", 8, nodeName=""), FULL], False),
        ([hostile("a", "n", 8, pins="m", nodeName=""), FULL], True),
        ([hostile("a", "n", 8, nodeName="") | {"metadata": GONE}, FULL], False),
    ],
    ids=["bound", "a pin alone", "a plan", "deleted before it was bound"],
)
def test_pods_of_a_hostile_tenant_count_where_they_are_bound_or_planned_and_not_where_they_claim(
    pods: list[dict[str, Any]], is_fault: bool
) -> None:
    ledger = Ledger(frozenset({OURS, THEIRS}), hostile=frozenset({THEIRS}))
    ledger.plan("ADDED", plan(2, a="n", b="n"))
    for each in pods:
        ledger.pod("MODIFIED", each)
    ledger.settle()
    assert bool(ledger.faults) is is_fault, ledger.faults


@pytest.mark.parametrize(
    ("phase", "kind", "is_lost"),
    [("Running", "DELETED", True), ("Pending", "DELETED", True), ("Succeeded", "DELETED", False)],
)
def test_the_ledger_misses_each_pod_of_a_quiet_tenant_that_has_not_ended(
    phase: str, kind: str, is_lost: bool
) -> None:
    ledger = Ledger(frozenset({OURS}), protected=frozenset({OURS}))
    body = pod("a", "n", 3, {GPUS: 1})
    ledger.plan("ADDED", plan(1, a="n"))
    ledger.pod("ADDED", body)
    assert ledger.faults == []
    ledger.pod(kind, body | {"status": {"phase": phase}})
    assert bool(ledger.faults) is is_lost


def running(name: str, *, ready: str = "True", gang: str = "g") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}]
    body = pod(name, "n", 3, {GPUS: 1}, **{keys.GANG_ANNOTATION: gang})
    return body | {"status": {"phase": "Running", "conditions": conditions}}


@pytest.mark.parametrize(
    ("mate", "who", "is_sound", "is_fault"),
    [
        (running("b"), SWEEPER, True, True),
        (running("b", ready="False"), SWEEPER, True, False),
        (running("b", ready="False", gang="other"), SWEEPER, True, True),
        (running("b"), "somebody", True, False),
        (running("b"), SWEEPER, False, False),
    ],
    ids=["a gang that ran", "a half", "the half of another", "by another", "on a node in trouble"],
)
def test_a_pod_that_the_sweeper_takes_of_a_gang_that_runs_is_a_fault(
    mate: dict[str, Any], who: str, is_sound: bool, is_fault: bool
) -> None:
    losses = Losses(lambda _: is_sound)
    for each in (running("a"), mate):
        losses.pod("MODIFIED", each)
    losses.pod("DELETED", running("a"))
    entry = {
        "verb": "delete",
        "user": {"username": who},
        "objectRef": {"resource": "pods", "namespace": OURS, "name": "a"},
        "responseStatus": {"code": 200},
    }
    assert bool(losses.faults([json.dumps(entry)])) is is_fault


def holding(uid: str, *nodes: str, until: float = 1e9, stage_nodes: Sequence[str] = ()) -> dict[str, Any]:
    """A Placement for whose gang these nodes are reserved, as the sweeper writes it."""
    ends = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = PlacementStatus(held=list(nodes), held_until=ends)
    placement = Placement(Metadata(name=uid, uid=uid), PlacementSpec(kept=list(stage_nodes)), status)
    body: dict[str, Any] = msgspec.to_builtins(placement)
    return body


def observed(*moments: tuple[float, str, dict[str, Any]]) -> list[str]:
    """The faults in Placements seen at these moments, if two nodes may be reserved for 10 s each time."""
    reserved = Holdings(2, 10.0, grace=5.0, clock=lambda: now)
    for now, kind, placement in moments:  # noqa: B007
        reserved.plan(kind, placement)
    return reserved.faults


A, B = holding("a", "n1", "n2"), holding("b", "n3")
ONE, SAME = holding("a", "n1"), holding("b", "n1")
NONE = holding("a")
STAGED = holding("a", "n1", stage_nodes=["n1", "n2"])
ADDED, LATER, DELETED = "ADDED", "MODIFIED", "DELETED"


@pytest.mark.parametrize(
    ("moments", "fault"),
    [
        pytest.param([(0, ADDED, A), (20, LATER, A)], "", id="as much as may be"),
        pytest.param([(0, ADDED, A), (0, ADDED, B), (6, LATER, B)], "3 nodes are held", id="too many"),
        pytest.param([(0, ADDED, A), (0, ADDED, B), (5, LATER, B)], "", id="for a moment"),
        pytest.param([(0, ADDED, A), (1, ADDED, B), (2, DELETED, A), (9, LATER, B)], "", id="gone"),
        pytest.param([(0, ADDED, A), (0, ADDED, holding("b", "n3", until=3)), (9, LATER, A)], "", id="over"),
        pytest.param([(0, ADDED, ONE), (26, LATER, ONE)], "n1 is held for 26 s", id="for too long"),
        pytest.param([(0, ADDED, STAGED), (65, LATER, STAGED)], "", id="kept for stages"),
        pytest.param([(0, ADDED, STAGED), (66, LATER, STAGED)], "held for 66 s, of 30", id="kept too long"),
        pytest.param(
            [(0, ADDED, ONE), (12, ADDED, SAME), (13, DELETED, ONE), (26, LATER, NONE)],
            "n1 is held for 26 s",
            id="by two in turn",
        ),
        pytest.param(
            [(0, ADDED, ONE), (12, ADDED, SAME), (13, DELETED, ONE), (24, LATER, B), (30, LATER, B)],
            "",
            id="let go in the end",
        ),
    ],
)
def test_waiting_gangs_that_hold_too_much_or_too_long_are_a_fault(
    moments: list[tuple[float, str, dict[str, Any]]], fault: str
) -> None:
    found = observed(*moments)
    assert len(found) == bool(fault)
    assert all(fault in each for each in found)


def keeping(*stage_nodes: str, reserved: Sequence[str] | None = None) -> dict[str, Any]:
    """The Placement of a gang whose leader runs, and whose other pods are to come."""
    body = holding("staged", *(stage_nodes if reserved is None else reserved), stage_nodes=stage_nodes)
    body["spec"]["pods"] = [{"name": "leader", "uid": "leader", "node": "n0"}]
    return body


def taking(*uids: str, node: str = "n1", stage_nodes: Sequence[str] = ()) -> dict[str, Any]:
    """The Placement of another gang, whose pods go to a node."""
    body = holding("other", stage_nodes=stage_nodes)
    body["spec"]["pods"] = [{"name": uid, "uid": uid, "node": node} for uid in uids]
    return body


def seen_pod(uid: str, priority: int = 0, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "spec": {"priority": priority, **spec}}


@pytest.mark.parametrize(
    ("priority", "spec", "before", "after", "faults"),
    [
        pytest.param(0, {}, None, keeping("n1", "n2"), 1, id="taken"),
        pytest.param(1, {}, None, keeping("n1", "n2"), 0, id="by who is more urgent"),
        pytest.param(0, {"activeDeadlineSeconds": 1}, None, keeping("n1", "n2"), 0, id="by who ends in time"),
        pytest.param(0, {}, taking("lost"), keeping("n1", "n2"), 0, id="by who replaces a lost pod"),
        pytest.param(0, {}, taking("first", node="n9", stage_nodes=["n8"]), keeping("n1"), 1, id="stage"),
        pytest.param(0, {}, None, keeping("n1", "n2", reserved=["n2"]), 0, id="when it was kept no more"),
    ],
)  # fmt: skip
def test_a_node_that_a_gang_keeps_between_its_stages_and_another_takes_is_named(
    priority: int, spec: dict[str, Any], before: dict[str, Any] | None, after: dict[str, Any], faults: int
) -> None:
    now = 0.0
    checker = Takeovers(clock=lambda: now)
    for pod in (seen_pod("leader"), seen_pod("taker", priority, **spec)):
        checker.pod(pod, gone=False)
    checker.plan("ADDED", keeping("n1", "n2"), in_order=True)
    if before is not None:
        checker.plan("ADDED", before, in_order=False)
    checker.plan("MODIFIED", taking("taker"), in_order=True)
    checker.plan("MODIFIED", after, in_order=True)
    checker.look()
    assert checker.faults == []
    now = SETTLED_SECONDS
    checker.look()
    assert checker.faults == ["/other took n1, which /staged keeps for later pods"] * faults


def of_job(
    name: str, index: int, *, node: str = "", reason: str = "", elastic: bool = False
) -> dict[str, Any]:
    """A pod of a Job: on a node or waiting; reason: why it is disrupted."""
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": reason}] if reason else []
    return {
        "metadata": {
            "namespace": OURS,
            "name": f"{name}-{index}",
            "uid": f"{name}-{index}",
            "labels": {marks.JOB_NAME_LABEL: name},
            "annotations": {keys.GANG_MIN_SIZE_ANNOTATION: "1"} if elastic else {},
        },
        "spec": {"nodeName": node},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize(
    ("reason", "elastic", "count"),
    [
        ("PreemptionByScheduler", False, 1),
        ("EvictionByEvictionAPI", False, 1),
        ("DeletionByTaintManager", False, 0),
        ("PreemptionByScheduler", True, 0),
    ],
)
def test_a_gang_that_stays_partially_running_after_it_was_preempted_is_a_fault(
    reason: str, elastic: bool, count: int
) -> None:
    now = [0.0]
    partial = PartlyReleased(clock=lambda: now[0])
    partial.pod(of_job("a", 0, node="n0", elastic=elastic), gone=False)
    partial.pod(of_job("a", 1, node="n1", elastic=elastic), gone=False)
    partial.pod(of_job("a", 1, node="n1", reason=reason, elastic=elastic), gone=True)
    partial.pod(of_job("a", 2, elastic=elastic), gone=False)
    now[0] = PARTLY_SECONDS + 1
    partial.look()
    assert len(partial.faults) == count
