"""What was proven about an expensive gang counts until a node that it may use gains capacity."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.preemptions import plan
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.placement import Snapshot
from webhook.placement import place as place_for_real
from webhook.sweeper.decide import core_questions, steps
from webhook.sweeper.decide.attempt import RETRY_SECONDS
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.decide.proofs import EXPENSIVE_STEPS

GPUS: Final = 8
SETTINGS: Final = Settings(reserve_seconds=1e9)


class Questions:
    """The gangs that the placement core is asked about; each question is expensive."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, gang: Any, snapshot: Snapshot, options: Any, budget: Any) -> Any:
        self.names.append(gang.name.rpartition("/")[2])
        budget.take(EXPENSIVE_STEPS)
        return place_for_real(gang, snapshot, options, budget)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> Questions:
    questions = Questions()
    monkeypatch.setattr(core_questions, "place", questions)
    return questions


def gang(name: str, count: int, *, gpus: int, level: str = "", **spec: Any) -> list[Pod]:
    own = {keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(count)}
    if level:
        own[keys.REQUIRED_TOPOLOGY_ANNOTATION] = level
    metadata = {"annotations": own, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return [gpu_pod(f"{name}-{n}", gpus=gpus, metadata=metadata, **spec) for n in range(count)]


class Waiting:
    """Two nodes, on each a pod with 4 of 8 GPUs; a gang of two pods with all GPUs of a node waits."""

    def __init__(self, **spec: Any) -> None:
        running = [gpu_pod(f"r{n}", gpus=4, node=f"n{n}", priority=5) for n in range(2)]
        self.cluster = Nodes(2, *running, *gang("g", 2, gpus=GPUS, **spec), gpus=GPUS)
        self.case = Placing(self.cluster, SETTINGS)
        self.case.one()

    def pass_after(self, seconds: float = 1.0) -> Orders:
        self.case.clock.now += seconds
        return self.case.one()


def ends(case: Waiting) -> None:
    del case.cluster.pods[0]


def starts(case: Waiting) -> None:
    case.cluster.pods.append(gpu_pod("other", gpus=2, node="n1", priority=5))


def ends_where_it_may_not_be(case: Waiting) -> None:
    """The pod on n0, which the gang's selector excludes."""
    ends(case)


def is_cordoned(case: Waiting) -> None:
    node = case.cluster.nodes["n0"]
    case.cluster.nodes["n0"] = msgspec.structs.replace(
        node, spec=msgspec.structs.replace(node.spec, unschedulable=True)
    )


def is_added(case: Waiting) -> None:
    node = case.cluster.nodes["n0"]
    metadata = msgspec.structs.replace(node.metadata, name="n9", uid="n9")
    case.cluster.nodes["n9"] = msgspec.structs.replace(node, metadata=metadata)


def nothing(case: Waiting) -> None:
    """Only time has passed."""


SELECTED: Final = {"nodeSelector": {"zone": "a"}}


@pytest.mark.parametrize(
    ("change", "spec", "is_asked"),
    [
        (nothing, {}, False),
        (ends, {}, True),
        (starts, {}, False),
        (is_cordoned, {}, False),
        (is_added, {}, True),
        (ends_where_it_may_not_be, SELECTED, False),
    ],
)
def test_an_expensive_gang_is_asked_about_again_only_when_a_node_that_it_may_use_gains_capacity(
    questions: Questions, change: Callable[[Waiting], None], spec: dict[str, Any], is_asked: bool
) -> None:
    """Also after the time after which a cheap gang is asked about again."""
    case = Waiting(**spec)
    before = len(questions.names)
    change(case)
    for _ in range(3):
        (outcome,) = case.pass_after(RETRY_SECONDS).outcomes
        assert "ns/Gang/g" in outcome.reason
    assert bool(questions.names[before:]) is is_asked


def test_a_victim_that_ends_by_itself_changes_nothing_for_a_gang_that_fits_not_even_in_its_place(
    questions: Questions,
) -> None:
    running = [gpu_pod(f"r{n}", gpus=4, node=f"n{n}", priority=5) for n in range(2)]
    cluster = Nodes(2, *running, *gang("g", 3, gpus=GPUS, priority=9), gpus=GPUS)
    case = Placing(cluster, SETTINGS)
    case.one()
    before = len(questions.names)
    del cluster.pods[0]
    case.one()
    assert questions.names[before:] == []


def test_a_cheap_gang_is_asked_about_again_after_a_while_so_that_its_reason_is_current() -> None:
    running = gpu_pod("r0", gpus=5, node="n0")
    cluster = Nodes(2, running, *gang("g", 3, gpus=4), gpus=GPUS)
    case = Placing(cluster, SETTINGS)
    (before,) = case.one().outcomes
    cluster.pods.append(gpu_pod("other", gpus=2, node="n1"))
    case.clock.now += RETRY_SECONDS
    (after,) = case.one(is_usage_changed=False).outcomes
    assert after.reason != before.reason


# --- the remembered answer equals a fresh one ---------------------------------------------------------


class Rehearsal:
    """Passes of two memories on one cluster: of one every proof is kept, of the other none."""

    def __init__(self, waiting: Sequence[Pod]) -> None:
        running = [gpu_pod(f"r{n}", gpus=4, node=f"n{n}", priority=n) for n in range(3)]
        self.cluster = Nodes(4, *running, *waiting, gpus=GPUS)
        for n in range(4):
            self.label(n, n // 2)
        self.case = Placing(self.cluster, SETTINGS)
        self.number = 0
        self.reused = 0

    def label(self, node: int, block: int) -> None:
        name = f"n{node}"
        if name in self.cluster.nodes:
            of_block = (f"b{block}", f"b{block}s", f"h{node}")
            self.cluster.label(name, dict(zip(keys.PRERELEASE_TOPOLOGY, of_block, strict=True)))

    def start(self, node: int, gpus: int, priority: int) -> None:
        self.number += 1
        name, used = f"n{node}", self._used(f"n{node}")
        if name in self.cluster.nodes and used + gpus <= GPUS:
            self.cluster.pods.append(gpu_pod(f"s{self.number}", gpus=gpus, node=name, priority=priority))

    def _used(self, name: str) -> int:
        there = [pod for pod in self.cluster.pods if pod.spec.node_name == name]
        return sum(int(pod.spec.containers[0].resources.requests["nvidia.com/gpu"]) for pod in there)

    def end(self, number: int) -> None:
        there = [pod for pod in self.cluster.pods if pod.spec.node_name]
        if there:
            self.cluster.pods.remove(there[number % len(there)])

    def cordon(self, node: int, is_cordoned: bool) -> None:
        if (known := self.cluster.nodes.get(f"n{node}")) is not None:
            spec = msgspec.structs.replace(known.spec, unschedulable=is_cordoned)
            self.cluster.nodes[f"n{node}"] = msgspec.structs.replace(known, spec=spec)

    def remove(self, node: int) -> None:
        if self.cluster.nodes.pop(f"n{node}", None) is not None:
            self.cluster.pods[:] = [pod for pod in self.cluster.pods if pod.spec.node_name != f"n{node}"]

    def add(self, node: int, block: int) -> None:
        status = {"allocatable": {"nvidia.com/gpu": str(GPUS), "pods": "110"}}
        body = {"metadata": {"name": f"n{node}", "uid": f"n{node}-{self.number}"}, "status": status}
        self.cluster.nodes.setdefault(f"n{node}", msgspec.convert(body, Node))
        self.label(node, block)

    def withdraw(self, name: str) -> None:
        """The waiting pods of a gang are deleted."""
        self.cluster.pods[:] = [pod for pod in self.cluster.pods if not self._waits(pod, name)]

    @staticmethod
    def _waits(pod: Pod, name: str) -> bool:
        return not pod.spec.node_name and pod.metadata.annotations.get(keys.GANG_ANNOTATION) == name

    def exclude(self, nodes: frozenset[int], is_hard: bool) -> None:
        names = frozenset(f"n{n}" for n in nodes)
        self.case.rules = NodeRules((NodeRule(names, "not there", is_hard=is_hard),))

    def compare(self, is_written: bool) -> None:
        """One pass, whose plans are then written or not."""
        memory = self.case.memory
        fresh = {key: replace(each, proven=None) for key, each in memory.gangs.items()}
        self.case.memory = replace(memory, gangs=fresh)
        expected = summary(self.case.one())
        self.case.memory = memory
        self.reused += any(each.proven for each in memory.gangs.values())
        orders = self.case.one()
        assert summary(orders) == expected
        if is_written:
            self._write(orders)

    def _write(self, orders: Orders) -> None:
        for made in orders.plans:
            victims = {uid for group in made.victims for uid in group.pods}
            nodes = {entry.uid: entry.node for entry in made.entries}
            self.cluster.pods[:] = [pod for pod in self.cluster.pods if pod.metadata.uid not in victims]
            for number, pod in enumerate(self.cluster.pods):
                if (node := nodes.get(pod.metadata.uid)) is not None:
                    spec = msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=[])
                    self.cluster.pods[number] = msgspec.structs.replace(pod, spec=spec)
            key, placement = plan(made.gang.key.name, nodes)
            self.cluster.placements[key] = placement


def summary(orders: Orders) -> tuple[Any, ...]:
    plans = [(str(each.gang.key), each.answer.nodes, each.victims) for each in orders.plans]
    return plans, [(str(each.gang.key), each.cause) for each in orders.outcomes]


NODE = st.integers(0, 4)
BLOCK = st.integers(0, 1)
CHANGES = st.one_of(
    st.tuples(st.just("start"), NODE, st.integers(1, 8), st.integers(0, 6)),
    st.tuples(st.just("end"), st.integers(0, 7)),
    st.tuples(st.just("end"), st.integers(0, 7)),
    st.tuples(st.just("cordon"), NODE, st.booleans()),
    st.tuples(st.just("remove"), NODE),
    st.tuples(st.just("add"), NODE, BLOCK),
    st.tuples(st.just("label"), NODE, BLOCK),
    st.tuples(st.just("withdraw"), st.sampled_from(["g0", "g1"])),
    st.tuples(st.just("exclude"), st.frozensets(NODE, max_size=2), st.booleans()),
)


@st.composite
def waiting_gangs(draw: st.DrawFn) -> list[Pod]:
    found: list[Pod] = []
    for number in range(draw(st.integers(1, 4))):
        level = draw(st.sampled_from(["", "block"]))
        priority = draw(st.integers(0, 6))
        count, gpus = draw(st.integers(1, 4)), draw(st.sampled_from([3, 4, 8]))
        policy = draw(st.sampled_from(["Never", "PreemptLowerPriority"]))
        spec: dict[str, Any] = {"priority": priority, "preemptionPolicy": policy}
        found += gang(f"g{number}", count, gpus=gpus, level=level, **spec)
    return found


NEVER: Final = {"preemptionPolicy": "Never"}


@example(  # what a plan took that was not written is free again
    [*gang("g0", 1, gpus=8, **NEVER), *gang("g1", 1, gpus=7, **NEVER)],
    [(("cordon", 3, False), False), (("withdraw", "g0"), False)],
)
@example(  # a node with the same capacity can be used again
    gang("g1", 1, gpus=8, **NEVER),
    [(("cordon", 3, True), False), (("cordon", 3, False), False)],
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(
    waiting=waiting_gangs(),
    changes=st.lists(st.tuples(CHANGES, st.booleans()), min_size=2, max_size=12),
)
def test_a_remembered_answer_equals_a_fresh_one(
    monkeypatch: pytest.MonkeyPatch,
    waiting: list[Pod],
    changes: list[tuple[tuple[Any, ...], bool]],
) -> None:
    """Whatever pods, nodes and rules do between passes, and whether plans are written or not."""
    monkeypatch.setattr(steps, "EXPENSIVE_STEPS", -1)
    case = Rehearsal(waiting)
    case.cordon(3, True)
    case.compare(is_written=False)
    for (name, *more), is_written in changes:
        getattr(case, name)(*more)
        case.compare(is_written)
