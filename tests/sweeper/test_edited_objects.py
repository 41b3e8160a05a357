"""Any content of an object that a client may have edited is read with care."""

import base64
import gzip
import logging
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.edits import TEXT, Defects, NoneFailed, Stored, any_json, edited, paths_in
from tests.sweeper.empty_api import Empty
from webhook.configuration.settings import Settings
from webhook.kube import decoding, placements
from webhook.kube.collection import Listing
from webhook.kube.decoding import Reader
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.attempt import Stopwatch
from webhook.sweeper.decide.plan import plan_spec
from webhook.sweeper.decision import Memory, Observation, decide
from webhook.sweeper.sweep import Sweeper

SETTINGS = Settings(settle_seconds=0)


def packed(body: bytes) -> str:
    return base64.b64encode(gzip.compress(body)).decode()


COUNT: Final = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**63 - 1])
)
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
OWNER: Final = st.fixed_dictionaries({
    "apiVersion": TEXT, "kind": TEXT, "name": TEXT, "uid": TEXT, "controller": st.booleans(),
})  # fmt: skip
SPEC: Final = {
    "gang": TEXT, "gangId": TEXT, "size": COUNT, "attempt": COUNT, "usableNodes": COUNT, "minimum": COUNT,
    "proven": st.booleans(), "preempts": st.booleans(), "laterPodNodes": TEXTS,
    "domains": st.dictionaries(TEXT, TEXT), "kept": TEXTS,
    "victims": st.lists(
        st.fixed_dictionaries({
            "pods": TEXTS, "whole": st.booleans(), "nodes": TEXTS, "movedGang": TEXT, "moves": TEXTS,
            "owner": OWNER,
        }),
        max_size=3,
    ),
    "moves": TEXTS,
    "packed": st.one_of(TEXT, st.sampled_from(BOMBS)), "pods": PODS,
}  # fmt: skip
STATUS: Final = {
    "state": TEXT, "pods": COUNT, "released": COUNT, "bound": COUNT, "complete": st.booleans(),
    "attempt": COUNT, "reason": TEXT, "reservedNodes": TEXTS, "reservedUntil": TEXT, "fairOrder": TEXT,
    "held": TEXTS, "heldUntil": TEXT, "turn": TEXT,
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


WRONG: Final[dict[str, Any]] = {
    "spec": {"spec": [1]},
    "spec.size": {"spec": {"size": "5"}},
    "spec.pods.1": {"spec": {"pods": [{"name": "a", "uid": "u", "node": "n"}, None]}},
    "spec.pods": {"spec": {"pods": [5] * 100_000}},
    "spec.domains": {"spec": {"domains": {"a": {"b": 1}}}},
    "status.reservedNodes.0": {"status": {"reservedNodes": [{}]}},
}


@pytest.mark.parametrize("field", WRONG)
def test_a_placement_is_read_without_a_field_of_another_type_which_is_reported_once(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    decoding._report_left_out.cache_clear()
    body = {"metadata": {"name": "p", "namespace": "ns", "resourceVersion": "7"}, **WRONG[field]}
    raw = msgspec.Raw(msgspec.json.encode(body))
    with caplog.at_level(logging.WARNING):
        found = [Reader(placements.ALL, Placement).object(raw)[0] for _ in range(3)]
    assert all(each is not None and each.metadata.resource_version == "7" for each in found)
    (reported,) = (record.getMessage() for record in caplog.records)
    assert reported.endswith(field)
    assert len(found[0].spec.pods if found[0] else ()) == (field == "spec.pods.1")


def test_an_object_without_a_readable_name_is_no_placement() -> None:
    raw = msgspec.Raw(b'{"metadata": {"name": "p", "labels": 5}, "spec": {}}')
    with pytest.raises(msgspec.ValidationError):
        Reader(placements.ALL, Placement).object(raw)


# --- whole passes over an edited Placement ----------------------------------------------------------


GANG: Final[dict[str, Any]] = {"annotations": {keys.GANG_ANNOTATION: "train", keys.GANG_SIZE_ANNOTATION: "2"}}


class EditedPasses:
    """Passes of one sweeper over a gang of which one pod runs and one waits, and its edited Placement."""

    def __init__(self, waiting: Pod, nodes: dict[str, Node]) -> None:
        running = gpu_pod("run", node="n0", metadata=GANG)
        self.api, self.clock, self.cache = Stored(), Clock(), NoneFailed(Empty())
        pods = {f"ns/{each.metadata.name}": each for each in (running, waiting)}
        self.cache.pods._replace(Listing("1", pods))
        self.cache.nodes._replace(Listing("1", nodes))
        surroundings = Pass(self.api, self.cache, replace(SETTINGS, reserve_seconds=0), clock=self.clock)
        self.sweeper = Sweeper(surroundings)

    def store(self, document: dict[str, Any]) -> None:
        """What a watch shows of a Placement."""
        self.api.placement = document
        item, key, _ = Reader(placements.ALL, Placement).object(msgspec.Raw(msgspec.json.encode(document)))
        assert item is not None
        self.cache.placements._replace(Listing("1", {key: item}))

    def sweep(self, times: int = 8) -> None:
        for _ in range(times):
            self.sweeper.sweep()
            self.clock.now += 200
            if self.api.placement is not None:
                body = msgspec.json.encode(self.api.placement)
                item, key, _ = Reader(placements.ALL, Placement).object(msgspec.Raw(body))
                self.cache.placements._replace(
                    Listing(str(self.api.version), {key: item} if item is not None else {})
                )

    @property
    def is_released(self) -> bool:
        return any("/pods/wait" in each for each in self.api.writes)

    def close(self) -> None:
        self.sweeper.close()
        self.cache.stop()


MOVED_AT: Final = "2026-01-01T00:00:00Z"


def valid_document() -> dict[str, Any]:
    """The Placement that a sweeper has written when it ran and waits for a place."""
    (gang,) = Placing(Nodes(2, gpu_pod("run", metadata=GANG)), SETTINGS).gangs()
    entries = [
        {"name": name, "uid": f"uid-{name}", "node": node, "rank": rank, "annotations": {"gas-ts": "1" * 19}}
        for rank, (name, node) in enumerate({"run": "n0", "wait": "n1"}.items())
    ]
    spec = {
        "gang": "Gang/train", "gangId": gang.key.id, "size": 2, "attempt": 1, "minimum": 1, "usableNodes": 2,
        "proven": True, "preempts": False, "laterPodNodes": ["n1"], "domains": {"": "b0"},
        "avoided": {"n2": "x"},
        "victims": [
            {
                "pods": ["uid-x"], "whole": True, "nodes": ["n0"], "movedGang": "p", "moves": [MOVED_AT],
                "owner": {"apiVersion": "v1", "kind": "x", "name": "x", "uid": "x", "controller": True},
            },
        ],
        "moves": [MOVED_AT], "pods": entries, "packed": "",
    }  # fmt: skip
    status = {
        "state": "Waiting", "pods": 2, "released": 1, "bound": 1, "spread": "1 node", "complete": True,
        "attempt": 1, "reason": "x", "fairOrder": "1",
        "reservedNodes": ["n1"], "reservedUntil": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    metadata = {"name": gang.key.placement_name, "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": spec, "status": status}


PATHS: Final = sorted((("spec", *each) for each in paths_in(valid_document()["spec"])), key=str) + sorted(
    (("status", *each) for each in paths_in(valid_document()["status"])), key=str
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(PATHS), any_json(*BOMBS)), min_size=1, max_size=3))
def test_whatever_a_person_makes_of_a_placement_its_waiting_pod_is_released_without_a_defect(
    edits: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    document = valid_document()
    for path, value in edits:
        document = edited(document, path, value)
    passes = EditedPasses(gpu_pod("wait", metadata=GANG), Nodes(2).nodes)
    try:
        with Defects() as defects:
            passes.store(document)
            passes.sweep()
    finally:
        passes.close()
    assert not defects.found
    assert passes.is_released, defects.reported
    assert len(defects.reported) == len(set(defects.reported)), "each is reported once"
