"""What a soak says of evictions, and how it prints its faults: see hack/soaks/evictions.py and report.py."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from hack.local.kubelet import Program
from hack.soaks.audit import SWEEPER
from hack.soaks.crowd import OURS
from hack.soaks.evictions import Evictions


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


def program(folder: Path, name: str, *lines: str) -> Program:
    """What is read of a program: its log."""

    class _Program:
        log = folder / f"{name}.log"

    _Program.log.write_text("\n".join(lines))
    return cast(Program, _Program)
