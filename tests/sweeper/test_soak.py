"""The short form of hack/soak; the invariants are those of hack/soaks/ledger.py.

The choices are the same in every run, so that a fault found here is met again; other seeds are for hack/soak.
"""

from pathlib import Path
from typing import Any

import pytest

from hack.local.cluster import Cluster
from hack.soaks.crowd import OURS
from hack.soaks.ledger import GPUS, Ledger
from hack.soaks.soak import Plan, Soak
from labeler.contract import keys

SECONDS = 60.0
SEED = 11


@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_invariants_hold_and_all_gangs_end_while_everything_goes_wrong(tmp_path: Path) -> None:
    print(f"seed {SEED}: as hack/soak --minutes {SECONDS / 60:g} --seed {SEED}")
    cluster = Cluster.up(tmp_path / "cluster", tied=True)
    soak = Soak(cluster, Plan(SECONDS, SEED))
    try:
        if cluster.programs.missing:
            pytest.skip(f"{cluster.programs.origin} has no {', '.join(cluster.programs.missing)}")
        assert soak.run() == [], f"seed {SEED}"
    finally:
        cluster.down()
    # It did what it is for.
    assert soak.ledger.released > 30
    assert soak.done["API server restarts"] >= 1
    assert soak.done["leaders killed"] >= 1


# --- the ledger can fail ------------------------------------------------------------------------


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


def plan(version: int, **nodes: str) -> dict[str, Any]:
    """A Placement: pod -> node."""
    pods = [{"name": name, "uid": name, "node": node} for name, node in nodes.items()]
    return {"metadata": {"resourceVersion": str(version)}, "spec": {"pods": pods}}


def card(stamp: int) -> dict[str, str]:
    return {keys.GAS_CARDS_ANNOTATION: "card0", keys.GAS_TIMESTAMP_ANNOTATION: str(stamp)}


HALF = {keys.I915: 1, keys.MILLICORES: 500}


@pytest.mark.parametrize(
    ("pods", "fault"),
    [
        pytest.param([pod("a", "n", 5, {GPUS: 8})], None, id="as planned"),
        pytest.param([pod("a", "n", 5, {GPUS: 4}), pod("b", "n", 6, {GPUS: 8})], "12 GPUs", id="a full node"),
        pytest.param([pod("a", "m", 5, {GPUS: 1})], "planned before that: ['n']", id="not where planned"),
        pytest.param([pod("a", "n", 1, {GPUS: 1})], "planned before that: []", id="released before planned"),
        pytest.param([pod("a", "n", 5, {GPUS: 1}, pin="m")], "pinned to m", id="bound past its pin"),
        pytest.param(
            [pod("a", "n", 5, HALF, **card(1)), pod("b", "n", 6, HALF, **card(2))], None, id="halves"
        ),
        pytest.param(
            [pod("a", "n", 5, HALF, **card(2)), pod("b", "n", 6, HALF, **card(1))],
            "gas-ts 1 after 2",
            id="cards in the wrong order",
        ),
        pytest.param(
            [pod(name, "n", 5 + index, HALF, **card(index)) for index, name in enumerate("abc", 1)],
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


@pytest.mark.parametrize(("in_order", "faults"), [(True, 1), (False, 0)], ids=["a watch", "a list"])
def test_the_ledger_blames_nobody_for_a_plan_of_which_it_saw_only_a_later_version(
    in_order: bool, faults: int
) -> None:
    ledger = Ledger(frozenset({OURS}))
    ledger.pod("ADDED", pod("a", "n", 5, {GPUS: 1}), in_order=False)
    ledger.plan("ADDED", plan(9, a="n"), in_order=in_order)
    ledger.settle()
    assert len(ledger.faults) == faults
