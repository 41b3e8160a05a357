"""Any content of an object that a client may have edited is read with care."""

import base64
import gzip
import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.kube import placements
from webhook.kube.placements import Placement
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.decide.attempt import Stopwatch
from webhook.sweeper.decide.plan import plan_spec
from webhook.sweeper.decision import Memory, Observation, decide
from webhook.sweeper.settings import Settings

SETTINGS = Settings(settle_seconds=0)


def packed(body: bytes) -> str:
    return base64.b64encode(gzip.compress(body)).decode()


COUNT: Final = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**63 - 1])
)
TEXT: Final = st.one_of(st.text(max_size=20), st.sampled_from(["n0", "\0", "\x1b[2J", "a" * 100_000]))
BOMBS: Final = (packed(b" " * (200 << 20)), packed(b'{"name":[' + b"0," * 5_000_000), "====", packed(b"{}"))
CARDS: Final = st.one_of(TEXT, st.sampled_from(["gas-ts", "gas-container-cards"]))
PODS: Final = st.lists(
    st.fixed_dictionaries({
        "name": TEXT,
        "uid": st.one_of(TEXT, st.just("uid-a")),
        "node": st.sampled_from(["", "n0", "n1", "gone", "\0"]),
        "annotations": st.dictionaries(CARDS, TEXT),
    }),
    max_size=4,
)  # fmt: skip
TEXTS: Final = st.lists(TEXT, max_size=4)
SPEC: Final = {
    "gang": TEXT, "gangId": TEXT, "size": COUNT, "attempt": COUNT, "usableNodes": COUNT, "minimum": COUNT,
    "proven": st.booleans(), "preempts": st.booleans(), "kept": TEXTS, "domains": st.dictionaries(TEXT, TEXT),
    "victims": st.lists(st.fixed_dictionaries({"pods": TEXTS, "whole": st.booleans()}), max_size=3),
    "packed": st.one_of(TEXT, st.sampled_from(BOMBS)), "pods": PODS,
}  # fmt: skip
STATUS: Final = {
    "state": TEXT, "pods": COUNT, "released": COUNT, "bound": COUNT, "complete": st.booleans(),
    "attempt": COUNT, "reason": TEXT, "held": TEXTS, "heldUntil": TEXT, "turn": TEXT,
}  # fmt: skip
"""What the schema of Placements allows, field by field."""


def placement(spec: dict[str, Any], status: dict[str, Any] | None = None, name: str = "p") -> Placement:
    body = {"metadata": {"name": name, "namespace": "ns", "uid": "u"}, "spec": spec, "status": status or {}}
    return msgspec.json.decode(msgspec.json.encode(body), type=Placement)


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries({}, optional=SPEC), st.fixed_dictionaries({}, optional=STATUS))
def test_whatever_a_placement_contains_a_pass_has_no_defect_and_the_gang_is_placed(
    spec: dict[str, Any], status: dict[str, Any]
) -> None:
    cluster = Nodes(2, gpu_pod("a"), gpu_pod("b", node="n1"))
    placing = Placing(cluster, SETTINGS)
    (gang,) = placing.gangs()
    cluster.placements[gang.key.placement_key] = edited = placement(spec, status, gang.key.placement_name)
    view = placing.view()
    snapshot = placing.snapshotter.snapshot(view)
    jobs = cast(Any, SimpleNamespace())
    seen = Observation(view, snapshot, placing.gangs(), 1, Budgets(), jobs, Stopwatch(Clock()))
    decided = decide(seen, Memory(), SETTINGS, lambda _: nullcontext())
    assert not decided.failed
    assert "uid-a" in view.planned or [plan.gang.key for plan in decided.orders["place"].plans] == [gang.key]
    written = plan_spec(gang, edited, [])
    assert 0 <= written.attempt < 2**62, "the API server must be able to store it"


@pytest.mark.parametrize(
    "spec", [{"attempt": 2**63 - 1}, {"size": -1}, *({"packed": each} for each in BOMBS)]
)
def test_what_topogate_would_not_have_written_is_reported_once(
    spec: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    placements._report.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            made = placement(spec)
    assert (made.spec.pods, made.spec.attempt, made.spec.packed) == ([], 0, "")
    assert [record.getMessage() for record in caplog.records] == [
        f"placement_repaired placement=ns/p unreadable={next(iter(spec))}"
    ]
