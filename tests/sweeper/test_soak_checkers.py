"""Each check of hack/soak can fail: it names what is wrong in a small history, and nothing in a sound one.

What it must let pass besides is seen in every soak that ends green.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from hack.local.pods import GPUS, SIZE
from hack.soaks import ending
from hack.soaks.checks import Checks
from hack.soaks.load import OURS
from hack.soaks.sweepers import defect_lines
from labeler.contract import keys
from webhook.workloads import marks

THEIRS = "theirs"


def pod(name: str, node: str = "n", *, pin: str = "n", namespace: str = OURS, **fields: Any) -> Any:
    """A running pod that is pinned to a node. fields: others of its metadata, spec and status."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pin]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": namespace, "uid": name},
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
    return pod(name, metadata={"annotations": annotations}, spec=share)


def plan(*, preempts: bool = False, **nodes: str) -> dict[str, Any]:
    """A Placement: pod -> node."""
    pods = [{"name": name, "uid": name, "node": node} for name, node in nodes.items()]
    return {"spec": {"pods": pods, "preempts": preempts}}


def faults(*looks: list[Any], placements: list[Any], seconds: float = 1.0) -> list[str]:
    """What is found in these pods, of which each list is seen twice, with so much time between two looks."""
    checks = Checks(frozenset({OURS}), frozenset({THEIRS}))
    for number, pods in enumerate(each for each in looks for _ in range(2)):
        checks.look(pods, placements, now=number * seconds, patience=60.0)
    return checks.faults


FULL = asking({GPUS: 8})
UNBOUND = FULL | {"nodeName": ""}
NO_PIN: dict[str, Any] = {"affinity": {}}


@pytest.mark.parametrize(
    ("pods", "fault"),
    [
        ([pod("a", spec=FULL)], ""),
        ([of_card("a", 1), of_card("b", 2)], ""),
        ([pod("a", spec=FULL), pod("b", spec=asking({GPUS: 4}))], "12 GPUs"),
        ([pod("a", spec=UNBOUND), pod("b", spec=UNBOUND)], "16 GPUs"),
        ([pod("a", "m", pin="m")], "planned were ['n']"),
        ([pod("z")], "planned were []"),
        ([pod("a", spec=NO_PIN)], "pinned to no node"),
        ([pod("a", "m")], "is pinned to n, and on m"),
        ([of_card(name, number) for number, name in enumerate("abc", 1)], "card0 of n is given out"),
        ([pod("x", "", namespace=THEIRS, spec=FULL), pod("a", spec=FULL)], ""),
        ([pod("b", "", pin="m", namespace=THEIRS, spec=FULL), pod("a", spec=FULL)], "16 GPUs"),
    ],
    ids=[
        "sound", "halves of a card", "a full node", "not bound yet", "not where planned", "not planned",
        "no pin", "past its pin", "three halves", "a pin of a hostile pod", "its plan",
    ],
)  # fmt: skip
def test_a_release_that_is_wrong_is_a_fault(pods: list[Any], fault: str) -> None:
    found = faults(pods, placements=[plan(a="n", b="n", c="n")])
    assert any(fault in each for each in found) if fault else found == []


def test_the_victims_of_a_pod_that_preempts_may_be_there_until_it_is_bound() -> None:
    urgent = {"priority": 1}
    placements = [plan(a="n"), plan(b="n", preempts=True)]
    assert not faults([pod("a", spec=FULL), pod("b", spec=UNBOUND | urgent)], placements=placements)
    assert faults([pod("a", spec=FULL), pod("b", spec=FULL | urgent)], placements=placements)


@pytest.mark.parametrize(("first", "second", "is_fault"), [(1, 2, False), (2, 1, True), (2, 2, True)])
def test_cards_are_bound_in_the_order_of_their_times(first: int, second: int, *, is_fault: bool) -> None:
    one, two = of_card("a", first), of_card("b", second)
    found = faults([one], [one, two], placements=[plan(a="n", b="n")])
    assert bool(found) is is_fault


@pytest.mark.parametrize(
    ("waiting", "seconds", "is_fault"),
    [
        ({"status": {"phase": "Pending"}}, 100.0, True),
        ({"status": {"phase": "Pending"}}, 10.0, False),
        ({"status": {"phase": "Failed"}}, 100.0, False),
    ],
    ids=["for long", "for a moment", "its controller has not created the other again"],
)
def test_a_gang_that_runs_partially_is_a_fault(
    waiting: dict[str, Any], seconds: float, *, is_fault: bool
) -> None:
    of_job = {"labels": {marks.JOB_NAME_LABEL: "job", SIZE: "2"}}
    gated = {"nodeName": "", "schedulingGates": [{"name": keys.GATE}]}
    pods = [pod("a", metadata=of_job), pod("b", metadata=of_job, spec=gated, **waiting)]
    assert bool(faults(pods, placements=[plan(a="n")], seconds=seconds)) is is_fault


@pytest.mark.parametrize(
    ("created", "of_job", "late"),
    [(0.0, "job", True), (200.0, "job", False), (0.0, "lacking", False), (400.0, "job", True)],
    ids=["in time", "younger", "its Job lacks pods", "created again and again"],
)
def test_a_pod_that_does_not_end_is_a_fault(created: float, of_job: str, *, late: bool) -> None:
    began, seconds = 1000.0, 2 * ending.END_SECONDS + 1 if created == 400.0 else ending.END_SECONDS + 1
    since = datetime.fromtimestamp(began + created, UTC).isoformat()
    gated = pod("a", metadata={"creationTimestamp": since, "ownerReferences": [{"uid": of_job}]})
    assert bool(ending.overdue([gated], {"lacking"}, began, began + seconds)) is late


@pytest.mark.parametrize(
    ("text", "is_fault"),
    [
        ("11:22:33 ERROR webhook.sweeper.sweep pass_failed phase=decide", True),
        ("11:22:33 WARNING webhook.sweeper.report status_failed placement=a/b", False),
    ],
)
def test_a_defect_that_a_sweeper_logs_is_a_fault(text: str, *, is_fault: bool) -> None:
    assert bool(defect_lines(f"a line\n{text}\n")) is is_fault
