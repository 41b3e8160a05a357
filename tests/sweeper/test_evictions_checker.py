"""What a soak says of evictions, and how it prints its faults: see hack/soaks/evictions.py and report.py."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from hack.local.kubelet import Program
from hack.soaks.audit import SWEEPER
from hack.soaks.crowd import OURS
from hack.soaks.evictions import Evictions
from hack.soaks.report import Faults, detailed
from hack.soaks.tried import exercised


def pod(
    name: str, priority: int, *, owner: str = "job", lost: bool = False, node: str = "", uid: str = ""
) -> dict[str, Any]:
    reason = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    return {
        "metadata": {
            "name": name,
            "namespace": OURS,
            "uid": uid or name,
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "spec": {"priority": priority, "nodeName": node},
        "status": {"conditions": [reason] if lost else []},
    }


def eviction(name: str, who: str = SWEEPER, code: int = 201) -> str:
    return json.dumps(
        {
            "verb": "create",
            "user": {"username": who},
            "requestReceivedTimestamp": "2026-01-01T11:22:33.000000Z",
            "objectRef": {"resource": "pods", "subresource": "eviction", "namespace": OURS, "name": name},
            "responseStatus": {"code": code},
        }
    )


@pytest.mark.parametrize(
    ("pods", "victims", "counts"),
    [
        ([pod("v", 1), pod("high", 9, owner="other")], ["v"], (1, 0, 0)),
        ([pod("v", 9), pod("high", 9, owner="other")], ["v"], (0, 0, 1)),
        ([pod("v", 1), pod("high", 9, owner="other")], ["w"], (0, 0, 1)),
        ([pod("v", 1), pod("mate", 1, lost=True)], [], (0, 1, 0)),
        ([pod("v", 1), pod("mate", 1, owner="other", lost=True)], [], (0, 0, 1)),
        ([pod("v", 1, lost=True)], [], (0, 0, 1)),
    ],
    ids=["for a higher one", "for an equal", "another", "of a half", "of another's half", "itself"],
)
def test_an_eviction_for_nobody_more_important_is_a_fault(
    pods: list[dict[str, Any]], victims: list[str], counts: tuple[int, int, int]
) -> None:
    checker = Evictions()
    checker.plan({"spec": {"pods": [{"uid": "high"}], "victims": [{"pods": victims}]}})
    for each in pods:
        checker.pod("MODIFIED", each)
    faults = checker.faults([eviction("v")])
    assert (checker.for_others, checker.of_partial_gangs, len(faults)) == counts


@pytest.mark.parametrize(
    ("highest", "is_fault"), [(9, False), (1, True)], ids=["more important", "as important"]
)
def test_what_is_left_where_a_more_important_pod_took_a_place_may_be_deleted(
    highest: int, is_fault: bool
) -> None:
    checker = Evictions()
    checker.pod("ADDED", pod("v", 1))
    for kind in ("MODIFIED", "DELETED"):
        checker.pod(kind, pod("mate", 1, node="n"))
    checker.pod("MODIFIED", pod("other", highest, owner="other", node="n"))
    assert bool(checker.faults([eviction("v")])) is is_fault


def test_a_more_important_pod_that_was_gone_before_took_no_place() -> None:
    checker = Evictions()
    checker.pod("ADDED", pod("v", 1))
    for kind in ("MODIFIED", "DELETED"):
        checker.pod(kind, pod("other", 9, owner="other", node="n"))
    for kind in ("MODIFIED", "DELETED"):
        checker.pod(kind, pod("mate", 1, node="n"))
    assert checker.faults([eviction("v")])


def test_a_more_important_pod_whose_end_was_seen_by_nobody_took_no_place() -> None:
    checker = Evictions()
    checker.pod("ADDED", pod("v", 1))
    checker.pod("MODIFIED", pod("other", 9, owner="other", node="n"))
    checker.keep_only({"v", "mate"})
    for kind in ("MODIFIED", "DELETED"):
        checker.pod(kind, pod("mate", 1, node="n"))
    assert checker.faults([eviction("v")])


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_more_important_pod_that_had_ended_before_took_no_place(phase: str) -> None:
    checker = Evictions()
    checker.pod("ADDED", pod("v", 1))
    other = pod("other", 9, owner="other", node="n")
    checker.pod("MODIFIED", other)
    checker.pod("MODIFIED", {**other, "status": {"phase": phase}})
    for kind in ("MODIFIED", "DELETED"):
        checker.pod(kind, pod("mate", 1, node="n"))
    assert checker.faults([eviction("v")])


def test_of_pods_of_one_name_the_one_that_was_evicted_may_be_any() -> None:
    checker = Evictions()
    checker.plan({"spec": {"pods": [{"uid": "high"}], "victims": [{"pods": ["old"]}]}})
    for each in (pod("v", 1, uid="old"), pod("v", 1, uid="new"), pod("high", 9, owner="other")):
        checker.pod("ADDED", each)
    assert checker.faults([eviction("v")]) == []


@pytest.mark.parametrize(("who", "code"), [("somebody", 201), (SWEEPER, 429)])
def test_what_another_evicts_and_what_is_refused_is_nobody_s_fault(who: str, code: int) -> None:
    checker = Evictions()
    checker.pod("ADDED", pod("v", 1))
    assert checker.faults([eviction("v", who, code)]) == []
    assert len(checker.faults([eviction("v")])) == 1


def program(folder: Path, name: str, *lines: str) -> Program:
    """What is read of a program: its log."""

    class _Program:
        log = folder / f"{name}.log"

    _Program.log.write_text("\n".join(lines))
    return cast(Program, _Program)


def test_a_fault_is_reported_with_who_led_and_the_logs_of_its_pods(tmp_path: Path) -> None:
    began = "INFO webhook.kube.lease leader_began name=topogate-sweeper identity=vm_7"
    one = program(
        tmp_path,
        "sweeper-1",
        f"2026-01-01T11:00:00Z {began}",
        "2026-01-01T11:01:00Z INFO webhook.sweeper placed gang=soak/Job/job-12",
        "2026-01-01T11:01:00Z INFO webhook.sweeper placed gang=soak/Job/job-13",
        "2026-01-01T11:09:00Z INFO webhook.sweeper bound gang=soak/Job/job-12",
    )
    two = program(tmp_path, "sweeper-2", f"2026-01-01T11:05:00Z {began}")
    faults = [("11:04:00", "soak/job-12-0-x7k2p is on node-b0-s0-h01"), ("11:06:00", "11:05:30: card0")]
    first, second = detailed(faults, [one, two])
    assert "11:04:00 or before: soak/job-12-0-x7k2p" in first
    assert "sweeper-1 led since 11:00:00 (identity=vm_7)" in first
    assert "placed gang=soak/Job/job-12" in first
    assert "job-13" not in first
    assert "bound" not in first
    assert second.startswith("11:05:30: card0")
    assert "sweeper-2 led since 11:05:00" in second


def test_faults_are_recorded_once_each_with_when_they_were_found() -> None:
    reported = ["one"]
    faults = Faults({"judge": lambda: reported})
    assert faults.look() == ["one"]
    reported.append("two")
    assert faults.look() == ["two"]
    assert [fault for _, fault in faults.found] == ["one", "two"]


def test_what_was_never_tried_is_reported_first() -> None:
    assert exercised({"a": 2, "b": 0, "c": 1}) == ["NOT TRIED: b.", "a 2, c 1"]
    assert exercised({"a": 2}) == ["a 2"]
