"""Each checker of hack/soak can fail: it names what is wrong in a small history, and nothing in a sound one.

What it must let pass besides is seen in every soak that ends green.
"""

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from hack.soaks.audit import SWEEPER
from hack.soaks.broken import BrokenGpus
from hack.soaks.crowd import OURS
from hack.soaks.domains import OVER, Domains
from hack.soaks.evictions import Evictions
from hack.soaks.ledger import Ledger
from hack.soaks.losses import Losses
from hack.soaks.mounts import ATTACHED, DRIVER, FOR_ONE_POD
from hack.soaks.partial_gangs import JUDGED_SECONDS, PartialGangs, annotations_of
from hack.soaks.partly_released import PARTLY_SECONDS, PartlyReleased
from hack.soaks.reader import PODS, LedgerReader
from hack.soaks.reserved_nodes import Holdings
from hack.soaks.takeovers import SETTLED_SECONDS, Takeovers
from hack.soaks.takes import GPUS
from labeler.contract import keys
from webhook.kube.client import Api
from webhook.kube.objects import Metadata
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.workloads import marks

THEIRS = "theirs"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def pod(name: str, node: str = "n", *, pin: str = "n", namespace: str = OURS, **fields: Any) -> Any:
    """A running pod that is pinned to a node. fields: others of its metadata, spec and status."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pin]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "9"},
        "spec": {"nodeName": node, "affinity": {"nodeAffinity": required}, "containers": [{}]},
        "status": {"phase": "Running"},
    }
    for part in body:
        body[part] |= fields.get(part, {})
    return body


def asking(limits: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{"resources": {"limits": limits}}]}


def of_card(name: str, stamp: int) -> Any:
    """A pod that has half of card0."""
    annotations = {keys.GAS_CARDS_ANNOTATION: "card0", keys.GAS_TIMESTAMP_ANNOTATION: str(stamp)}
    share = asking({keys.I915: 1, keys.MILLICORES: 500})
    return pod(name, metadata={"annotations": annotations, "resourceVersion": f"{8 + stamp}"}, spec=share)


def plan(version: int, **nodes: str) -> dict[str, Any]:
    """A Placement: pod -> node."""
    pods = [{"name": name, "uid": name, "node": node} for name, node in nodes.items()]
    return {"metadata": {"resourceVersion": str(version)}, "spec": {"pods": pods}}


FULL = asking({GPUS: 8})


@pytest.mark.parametrize(
    ("pods", "fault"),
    [
        ([pod("a", spec=FULL)], ""),
        ([of_card("a", 1), of_card("b", 2)], ""),
        ([pod("a", spec=FULL), pod("b", spec=asking({GPUS: 4}))], "12 GPUs"),
        ([pod("a", "m", pin="m")], "planned before that: ['n']"),
        ([pod("a", metadata={"resourceVersion": "1"})], "planned before that: []"),
        ([pod("a", pin="m")], "pinned to m"),
        ([of_card("a", 2), of_card("b", 1)], "gas-ts 1 after 2"),
        ([of_card(name, number) for number, name in enumerate("abc", 1)], "card0 of n is given out"),
        ([pod("x", "", namespace=THEIRS, spec=FULL), pod("a", spec=FULL)], ""),
        ([pod("b", "", pin="m", namespace=THEIRS, spec=FULL), pod("a", spec=FULL)], "16 GPUs"),
    ],
    ids=[
        "sound", "halves of a card", "a full node", "not where planned", "before it was planned",
        "past its pin", "cards in the wrong order", "three halves", "a pin of a hostile pod", "its plan",
    ],
)  # fmt: skip
def test_the_ledger_names_a_release_that_is_wrong(pods: list[Any], fault: str) -> None:
    ledger = Ledger(frozenset({OURS, THEIRS}), hostile=frozenset({THEIRS}))
    ledger.plan("ADDED", plan(2, a="n", b="n", c="n"))
    for each in pods:
        ledger.pod("MODIFIED", each)
    ledger.settle()
    assert any(fault in found for found in ledger.faults) if fault else ledger.faults == []


@pytest.mark.parametrize(("phase", "is_lost"), [("Running", True), ("Succeeded", False)])
def test_the_ledger_misses_a_pod_of_a_quiet_tenant_that_has_not_ended(phase: str, is_lost: bool) -> None:
    ledger = Ledger(frozenset({OURS}), protected=frozenset({OURS}))
    ledger.plan("ADDED", plan(1, a="n"))
    ledger.pod("ADDED", pod("a"))
    ledger.pod("DELETED", pod("a", status={"phase": phase}))
    assert bool(ledger.faults) is is_lost


@pytest.mark.parametrize(
    ("count", "mode", "fault"),
    [
        (ATTACHED, "ReadWriteOnce", ""),
        (ATTACHED + 1, "ReadWriteOnce", f"n has {ATTACHED + 1} volumes of {DRIVER} in use, of {ATTACHED}"),
        (2, FOR_ONE_POD, "c0"),
    ],
)
def test_the_ledger_names_volumes_that_a_node_or_a_pod_cannot_have(count: int, mode: str, fault: str) -> None:
    ledger = Ledger(frozenset({OURS}))
    names = [f"p{number}" for number in range(count)]
    ledger.plan("ADDED", plan(1, **dict.fromkeys(names, "n")))
    for number, name in enumerate(names):
        claim = "c0" if mode == FOR_ONE_POD else f"c{number}"
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        ledger.volume("ADDED", {"metadata": {"name": f"v-{claim}"}, "spec": {"csi": {"driver": DRIVER}}})
        spec = {"volumeName": f"v-{claim}", "storageClassName": "", "accessModes": [mode]}
        ledger.volume_claim("ADDED", {"metadata": {"name": claim, "namespace": OURS}, "spec": spec})
        ledger.pod("MODIFIED", pod(name, spec={"volumes": volumes}))
    ledger.settle()
    found = ledger.faults + ledger.mounts.faults
    assert any(fault in each for each in found) if fault else found == []


class Unreadable:
    """An API server whose pods are nothing that can be read, and a cluster that has it."""

    def json(self, *_: Any) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]}

    def api(self) -> "Unreadable":
        return self


def test_a_reader_that_fails_is_a_fault() -> None:
    reader = LedgerReader(cast(Api, Unreadable()), PODS, Ledger(frozenset({OURS})))
    with pytest.raises(KeyError):
        reader.run()
    (fault,) = reader.faults
    assert fault.startswith(f"of {PODS} nothing more was judged: KeyError(")


@pytest.mark.parametrize(("second", "block", "faults"), [("a", 0, 0), ("b", 0, 1), ("a", 1, 1)])
def test_domains_that_exclusive_jobs_share_are_named(second: str, block: int, faults: int) -> None:
    domains = Domains()
    for name, job, number in (("p", "a", 0), ("q", second, block)):
        labels = {marks.JOB_NAME_LABEL: job}
        metadata = {"labels": labels, "annotations": {marks.JOBSET_EXCLUSIVE: OVER}}
        domains.pod(pod(name, metadata=metadata), f"node-b{number}-s0-h00")
    assert len(domains.faults) == faults


def audited(verb: str, name: str, who: str = SWEEPER, **reference: str) -> str:
    return json.dumps(
        {
            "verb": verb,
            "user": {"username": who},
            "requestReceivedTimestamp": "2026-01-01T11:22:33.000000Z",
            "objectRef": {"resource": "pods", "namespace": OURS, "name": name, **reference},
            "responseStatus": {"code": 201 if verb == "create" else 200},
        }
    )


@pytest.mark.parametrize(
    ("ready", "who", "is_fault"),
    [("True", SWEEPER, True), ("False", SWEEPER, False), ("True", "somebody", False)],
)
def test_a_pod_that_the_sweeper_takes_of_a_gang_that_runs_is_a_fault(
    ready: str, who: str, is_fault: bool
) -> None:
    losses = Losses(lambda _: True)
    for name, state in (("a", "True"), ("b", ready)):
        status = {"conditions": [{"type": "Ready", "status": state}]}
        losses.pod(
            "MODIFIED", pod(name, metadata={"annotations": {keys.GANG_ANNOTATION: "g"}}, status=status)
        )
    losses.pod("DELETED", pod("a", metadata={"annotations": {keys.GANG_ANNOTATION: "g"}}))
    assert bool(losses.faults([audited("delete", "a", who)])) is is_fault


@pytest.mark.parametrize(("priority", "victim", "faults"), [(9, "v", 0), (1, "v", 1), (9, "w", 1)])
def test_an_eviction_for_nobody_more_important_is_a_fault(priority: int, victim: str, faults: int) -> None:
    checker = Evictions()
    checker.plan({"spec": {"pods": [{"uid": "high"}], "victims": [{"pods": [victim]}]}})
    for name, value in (("v", 1), ("high", priority)):
        owner = [{"uid": name, "controller": True}]
        checker.pod("MODIFIED", pod(name, "", metadata={"ownerReferences": owner}, spec={"priority": value}))
    assert len(checker.faults([audited("create", "v", subresource="eviction")])) == faults


def reserving(
    uid: str, *nodes: str, stage_nodes: Sequence[str] = (), pods: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """A Placement for whose gang these nodes are reserved, as the sweeper writes it. pods: uid and node."""
    ends = datetime.fromtimestamp(1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = PlacementStatus(reserved_nodes=list(nodes), reserved_until=ends)
    placement = Placement(
        Metadata(name=uid, uid=uid), PlacementSpec(later_pod_nodes=list(stage_nodes)), status
    )
    body: dict[str, Any] = msgspec.to_builtins(placement)
    body["spec"]["pods"] = [{"name": name, "uid": name, "node": node} for name, node in pods]
    return body


@pytest.mark.parametrize(
    ("first", "second", "seconds", "fault"),
    [
        (reserving("a", "n1", "n2"), reserving("b"), 20, ""),
        (reserving("a", "n1", "n2"), reserving("b", "n3"), 6, "3 nodes are held"),
        (reserving("a", "n1"), reserving("b"), 26, "n1 is held for 26 s"),
        (reserving("a", "n1", stage_nodes=["n1", "n2"]), reserving("b"), 66, "held for 66 s, of 30"),
    ],
)
def test_waiting_gangs_for_which_too_much_is_reserved_or_too_long_are_a_fault(
    first: dict[str, Any], second: dict[str, Any], seconds: float, fault: str
) -> None:
    clock = Clock()
    reserved = Holdings(2, 10.0, grace=5.0, clock=clock)
    for each in (first, second):
        reserved.plan("ADDED", each)
    clock.now = seconds
    reserved.plan("MODIFIED", first)
    assert any(fault in each for each in reserved.faults) if fault else reserved.faults == []


@pytest.mark.parametrize(("priority", "faults"), [(0, 1), (1, 0)], ids=["taken", "by who is more urgent"])
def test_a_node_that_a_gang_keeps_between_its_stages_and_another_takes_is_named(
    priority: int, faults: int
) -> None:
    clock = Clock()
    checker = Takeovers(clock=clock)
    for uid, value in (("leader", 0), ("taker", priority)):
        checker.pod({"metadata": {"uid": uid}, "spec": {"priority": value}}, gone=False)
    staged = reserving("staged", "n1", "n2", stage_nodes=["n1", "n2"], pods=[("leader", "n0")])
    checker.plan("ADDED", staged, in_order=True)
    checker.plan("MODIFIED", reserving("other", pods=[("taker", "n1")]), in_order=True)
    checker.plan("MODIFIED", staged, in_order=True)
    checker.look()
    clock.now = SETTLED_SECONDS
    checker.look()
    assert checker.faults == ["/other took n1, which /staged keeps for later pods"] * faults


def member(number: int, node: str, *, reason: str = "") -> Any:
    """A pod of a Job. reason: why it is disrupted."""
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": reason}] if reason else []
    metadata = {"labels": {marks.JOB_NAME_LABEL: "a"}}
    return pod(f"a-{number}", node, metadata=metadata, status={"conditions": conditions})


@pytest.mark.parametrize(
    ("reason", "count"), [("PreemptionByScheduler", 1), ("EvictionByEvictionAPI", 1), ("DeletionByTaint", 0)]
)
def test_a_gang_that_stays_partially_running_after_it_was_preempted_is_a_fault(
    reason: str, count: int
) -> None:
    clock = Clock()
    partial = PartlyReleased(clock=clock)
    for number in range(2):
        partial.pod(member(number, f"n{number}"), gone=False)
    partial.pod(member(1, "n1", reason=reason), gone=True)
    partial.pod(member(2, ""), gone=False)
    clock.now = PARTLY_SECONDS + 1
    partial.look()
    assert len(partial.faults) == count


@pytest.mark.parametrize(("event", "faults"), [("", 1), ("MODIFIED", 0), ("DELETED", 0)])
def test_a_gang_that_runs_below_its_minimum_is_a_fault_unless_it_lost_pods_itself(
    event: str, faults: int
) -> None:
    clock = Clock()
    checker = PartialGangs(60.0, clock=clock)
    metadata = {"annotations": annotations_of("job-1", 2)}
    for name, node in (("a", ""), ("b", ""), ("a", "n1")):
        checker.pod("MODIFIED", pod(name, node, metadata=metadata, status={"phase": "Pending"}))
    if event:
        checker.pod(event, pod("b", "n2", metadata=metadata, status={"phase": "Pending"}))
    for _ in range(2):
        clock.now += JUDGED_SECONDS
        checker.look()
    assert len(checker.faults) == faults


class Avoided:
    """An API server that has the ConfigMap of avoided nodes."""

    nodes: tuple[str, ...] = ()

    def json(self, *_: str) -> dict[str, Any]:
        entry = {"by": "*", "model": "", "gangs": 2, "cause": "", "last": 0, "until": 1}
        return {"data": {"avoided": json.dumps([{"node": name, **entry} for name in self.nodes])}}


@pytest.mark.parametrize(("count", "fault"), [(20, "where no pod has failed"), (10, "2 nodes, more than 1")])
def test_an_avoided_node_where_nothing_failed_is_a_fault_and_too_many_are(count: int, fault: str) -> None:
    api, names = Avoided(), {f"n{number}" for number in range(10)}
    checker = BrokenGpus(cast(Api, api), sorted(names), count, random.Random(1))
    broken = {*checker.names}
    api.nodes = (min(broken), min(names - broken)) if count == 20 else tuple(broken)
    checker.look()
    (found,) = checker.faults
    assert fault in found
