"""Each checker of hack/soak can fail: it names what is wrong in a small history, and nothing in a sound one.

What it must let pass besides is seen in every soak that ends green.
"""

import json
from typing import Any

import pytest
from prometheus_client import Metric

from hack.soaks.audit import SWEEPER
from hack.soaks.crowd import OURS
from hack.soaks.ledger import Ledger
from hack.soaks.losses import Losses
from hack.soaks.partial_gangs import PARTLY_SECONDS, PartlyReleased
from hack.soaks.passes import LONGEST_SECONDS, defects, over
from hack.soaks.sweepers import LogLine
from hack.soaks.takes import GPUS
from labeler.contract import keys
from webhook.workloads import marks

THEIRS = "theirs"


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


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_preempted_gang_of_which_a_pod_runs_on_by_itself_is_a_fault(is_replaced: bool) -> None:
    now = [0.0]
    partial = PartlyReleased(lambda: now[0])

    def see(name: str, *, is_preempted: bool = False) -> None:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        status = {"conditions": [condition]} if is_preempted else {}
        seen = pod(name, metadata={"labels": {marks.JOB_NAME_LABEL: "job"}}, status=status)
        partial.pod(seen, gone=is_preempted)

    see("a")
    see("b")
    see("a", is_preempted=True)
    if is_replaced:
        see("c")
    now[0] = PARTLY_SECONDS + 1
    partial.look()
    assert bool(partial.faults) is not is_replaced


@pytest.mark.parametrize(
    ("text", "is_fault"),
    [
        ("11:22:33 ERROR webhook.sweeper.sweep pass_failed phase=decide", True),
        ("11:22:33 WARNING webhook.sweeper.report status_failed placement=a/b", False),
    ],
)
def test_a_defect_that_a_sweeper_logs_is_a_fault(text: str, is_fault: bool) -> None:
    assert bool(defects([LogLine("11:22:33", "sweeper-1", text)])) is is_fault


@pytest.mark.parametrize(("within", "is_fault"), [(3, False), (2, True)])
def test_a_step_that_lasts_too_long_is_a_fault(within: int, is_fault: bool) -> None:
    durations = Metric("topogate_pass_seconds", "", "histogram")
    bucket = {"phase": "decide", "le": str(LONGEST_SECONDS)}
    durations.add_sample("topogate_pass_seconds_bucket", bucket, within)
    durations.add_sample("topogate_pass_seconds_count", {"phase": "decide"}, 3)
    assert bool(over(durations, "sweeper-1")) is is_fault
