"""The answer for an expensive gang is remembered while a new search would give the same."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, divided, gpu_pod
from tests.sweeper.preemptions import plan
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.placement import NoFit, Snapshot
from webhook.placement import place as place_for_real
from webhook.sweeper.decide import core_questions, pod_rules, remembered_answers
from webhook.sweeper.decide.attempt import RETRY_SECONDS
from webhook.sweeper.decide.core_questions import DividedGang, DivisionInput
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules
from webhook.sweeper.decide.orders import Cause, GangOutcome, NewPlan, Orders
from webhook.sweeper.decide.remembered_answers import EXPENSIVE_STEPS

GPUS: Final = 8
SETTINGS: Final = Settings(reserve_seconds=1e9)


class Questions:
    """The gangs that the placement core is asked about; each question is expensive.

    undecided: the gangs whose searches end at their work budget.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.undecided = frozenset[str]()

    def __call__(self, gang: Any, snapshot: Snapshot, options: Any, budget: Any) -> Any:
        self.names.append(gang.name.rpartition("/")[2])
        budget.take(EXPENSIVE_STEPS)
        if self.names[-1] in self.undecided:
            return NoFit("The search ended.", len(gang.members), 0, 0, {}, proven=False)
        return place_for_real(gang, snapshot, options, budget)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> Questions:
    questions = Questions()
    for module in (core_questions, pod_rules):
        monkeypatch.setattr(module, "place", questions)
    return questions


def gang(name: str, count: int, *, gpus: int, level: str = "", **spec: Any) -> list[Pod]:
    own = {keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(count)}
    if level:
        own[keys.REQUIRED_TOPOLOGY_ANNOTATION] = level
    metadata = {"annotations": own, "labels": {"app": "g"}, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return [gpu_pod(f"{name}-{n}", gpus=gpus, metadata=metadata, **spec) for n in range(count)]


def nodes_in_use(*waiting: Pod) -> Nodes:
    """Two nodes, on each a pod with 4 of 8 GPUs, and pods that wait."""
    running = [gpu_pod(f"r{n}", gpus=4, node=f"n{n}", priority=5) for n in range(2)]
    return Nodes(2, *running, *waiting, gpus=GPUS)


class Waiting:
    """A gang of pods with all GPUs of a node waits beside the pods of nodes_in_use."""

    def __init__(self, count: int = 2, **spec: Any) -> None:
        self.cluster = nodes_in_use(*gang("g", count, gpus=GPUS, **spec))
        self.case = Placing(self.cluster, SETTINGS)
        self.case.one()

    def pass_after(self, seconds: float = 1.0) -> Orders:
        self.case.clock.now += seconds
        return self.case.one()

    def later_outcomes(self) -> Iterator[GangOutcome]:
        """What the gang gets in three passes, each after the time for which a cheap answer stays."""
        for _ in range(3):
            (outcome,) = self.pass_after(RETRY_SECONDS).outcomes
            yield outcome


def ends(case: Waiting) -> None:
    del case.cluster.pods[0]


def starts(case: Waiting) -> None:
    case.cluster.pods.append(gpu_pod("other", gpus=2, node="n1", priority=5))


def starts_without_gpus(case: Waiting) -> None:
    case.cluster.pods.append(gpu_pod("other", gpus=0, node="n1"))


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
    for outcome in case.later_outcomes():
        assert "ns/Gang/g" in outcome.reason
    assert bool(questions.names[before:]) is is_asked


@pytest.mark.parametrize(
    ("change", "spec", "is_asked"),
    [
        (nothing, {}, False),
        (ends, {}, True),
        (starts, {}, True),
        (is_cordoned, {}, True),
        (starts_without_gpus, SELECTED, False),
        (starts_without_gpus, {}, True),
    ],
)
def test_a_search_that_ended_at_its_work_budget_is_repeated_only_when_it_may_read_something_else(
    questions: Questions, change: Callable[[Waiting], None], spec: dict[str, Any], is_asked: bool
) -> None:
    questions.undecided = frozenset("g")
    case = Waiting(**spec)
    before = len(questions.names)
    change(case)
    for outcome in case.later_outcomes():
        assert outcome.cause is Cause.WORK_BUDGET
    assert bool(questions.names[before:]) is is_asked


def test_a_search_is_repeated_beside_a_gang_that_is_placed_before_it_in_the_same_pass(
    questions: Questions,
) -> None:
    questions.undecided = frozenset("g")
    cluster = nodes_in_use(*gang("g", 2, gpus=GPUS), *gang("a", 1, gpus=2, priority=9))
    case = Placing(cluster, SETTINGS)
    key = next(each.key for each in case.gangs() if each.key.name == "a")
    nowhere = NodeRule(frozenset(cluster.nodes), "not there", is_hard=True, applies_to=key)
    case.rules = NodeRules((nowhere,))
    case.one()
    case.clock.now += 1
    case.rules = NodeRules()
    questions.names.clear()
    assert len(case.one().plans) == 1
    assert questions.names == ["a", "g"]


def test_a_search_is_repeated_when_a_later_gang_of_its_pass_has_got_a_place(questions: Questions) -> None:
    questions.undecided = frozenset("g")
    cluster = nodes_in_use(*gang("g", 2, gpus=GPUS), *gang("z", 1, gpus=2, priority=-1))
    case = Placing(cluster, SETTINGS)
    (made,) = case.one().plans
    assert questions.names == ["g", "z"]
    write(cluster, made)
    case.clock.now += RETRY_SECONDS
    case.one()
    assert questions.names == ["g", "z", "g"]


def test_a_search_is_repeated_when_a_possible_victim_begins_to_end(questions: Questions) -> None:
    questions.undecided = frozenset("g")
    case = Waiting(count=3, priority=9)
    before = len(questions.names)
    case.pass_after(RETRY_SECONDS)
    assert questions.names[before:] == []
    pod = case.cluster.pods[0]
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    case.cluster.pods[0] = msgspec.structs.replace(pod, metadata=metadata)
    case.pass_after()
    assert questions.names[before:] == ["g"]


FULL: Final = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
APART: Final = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "g"}}}
        ]
    }
}


def of_pod_sets(case: Waiting) -> None:
    pods = case.cluster.pods
    pods[-1] = with_annotations(pods[-1], FULL)


def spread(case: Waiting) -> None:
    pods = case.cluster.pods
    asked = {keys.SPREAD_TOPOLOGY_ANNOTATION: "block:1"}
    pods[-2:] = [with_annotations(pod, asked) for pod in pods[-2:]]


def in_two_variants(case: Waiting) -> None:
    case.case.divide = divided({"n0"}, {"n1"})


def refused(case: Waiting) -> None:
    (waiting,) = case.case.gangs()
    case.case.avoid(waiting.key, "n1")


def with_annotations(pod: Pod, annotations: dict[str, str]) -> Pod:
    own = {**pod.metadata.annotations, **annotations}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=own))


@pytest.mark.parametrize(
    ("kind", "ending"),
    [(of_pod_sets, 0), (spread, 0), (in_two_variants, 0), (in_two_variants, 1), (refused, 0)],
)
def test_a_proof_also_holds_for_pod_sets_spread_variants_and_refused_nodes(
    questions: Questions, kind: Callable[[Waiting], None], ending: int
) -> None:
    """Until a pod ends on a node that some variant may use. ending: the number of that node."""
    case = Waiting()
    for node in ("n0", "n1"):
        case.cluster.label(node, dict(zip(keys.PRERELEASE_TOPOLOGY, ("b", "s", node), strict=True)))
    kind(case)
    for _ in range(2):  # in the first one its pods have just changed
        case.pass_after(RETRY_SECONDS)
    before = len(questions.names)
    starts(case)
    case.pass_after(RETRY_SECONDS)
    assert questions.names[before:] == []
    del case.cluster.pods[ending]
    case.pass_after()
    assert questions.names[before:] != []


def test_a_proof_also_holds_for_pods_with_rules_on_one_another(questions: Questions) -> None:
    case = Waiting(affinity=APART, preemptionPolicy="Never")
    before = len(questions.names)
    starts(case)
    case.pass_after(RETRY_SECONDS)
    assert questions.names[before:] == []
    ends(case)
    case.pass_after()
    assert questions.names[before:] != []


@pytest.mark.parametrize(("undecided", "priority"), [("g", 0), ("", 9)], ids=["undecided", "may preempt"])
def test_without_a_proof_pods_with_rules_on_one_another_are_asked_about_again(
    questions: Questions, undecided: str, priority: int
) -> None:
    questions.undecided = frozenset(undecided)
    case = Waiting(count=3, affinity=APART, priority=priority)
    before = len(questions.names)
    case.pass_after(RETRY_SECONDS)
    assert questions.names[before:] != []


def test_a_gang_is_asked_about_again_once_the_node_of_its_placed_pod_is_gone(questions: Questions) -> None:
    first, *others = gang("g", 3, gpus=GPUS)
    spec = msgspec.structs.replace(first.spec, node_name="n2", scheduling_gates=[])
    running = [gpu_pod(f"r{n}", gpus=4, node=f"n{n}", priority=5) for n in range(2)]
    cluster = Nodes(3, *running, msgspec.structs.replace(first, spec=spec), *others, gpus=GPUS)
    case = Placing(cluster, SETTINGS)
    case.one()
    before = len(questions.names)
    del cluster.nodes["n2"]
    case.clock.now += RETRY_SECONDS
    (outcome,) = case.one().outcomes
    assert outcome.gang.key.name == "g"
    assert questions.names[before:] != []


def alone() -> Placing:
    """A pod waits that only fits on n0."""
    running = gpu_pod("r1", gpus=4, node="n1", priority=5)
    return Placing(Nodes(2, running, *gang("g", 1, gpus=GPUS), gpus=GPUS), SETTINGS)


def test_a_gang_that_all_nodes_with_capacity_have_refused_is_left_to_kube_scheduler_in_each_pass(
    questions: Questions,
) -> None:
    case = alone()
    (waiting,) = case.gangs()
    case.avoid(waiting.key, "n0")
    for _ in range(2):
        (made,) = case.one().plans
        assert [entry.node for entry in made.entries] == [""]
        case.clock.now += 1


def test_a_refused_node_is_not_one_that_the_gang_may_not_use(questions: Questions) -> None:
    case = alone()
    case.rules = NodeRules((NodeRule(frozenset({"n0"}), "not there", is_hard=True),))
    assert case.one().plans == ()
    case.rules = NodeRules()
    (waiting,) = case.gangs()
    case.avoid(waiting.key, "n0")
    case.clock.now += 1
    assert len(case.one().plans) == 1


def test_a_further_variant_is_asked_about_though_the_first_is_the_same(questions: Questions) -> None:
    case = Waiting()
    case.case.divide = divided({"n0", "n1"})
    case.pass_after()
    before = len(questions.names)
    case.case.divide = divided({"n0", "n1"}, {"n0"})
    case.pass_after()
    assert len(questions.names[before:]) == 2


def test_a_victim_that_ends_by_itself_changes_nothing_for_a_gang_that_fits_not_even_in_its_place(
    questions: Questions,
) -> None:
    case = Waiting(count=3, priority=9)
    before = len(questions.names)
    ends(case)
    case.pass_after(0)
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


def write(cluster: Nodes, made: NewPlan) -> None:
    """The plan is written, and its pods are bound."""
    nodes = {entry.uid: entry.node for entry in made.entries}
    for number, pod in enumerate(cluster.pods):
        if (node := nodes.get(pod.metadata.uid)) is not None:
            spec = msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=[])
            cluster.pods[number] = msgspec.structs.replace(pod, spec=spec)
    key, placement = plan(made.gang.key.name, nodes)
    cluster.placements[key] = placement


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
        self.case.divide = self.divide
        self.closed = [frozenset[str]()]

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

    def divide(self, given: DivisionInput) -> DividedGang:
        return divided(*self.closed)(given)

    def close(self, *nodes: frozenset[int]) -> None:
        """Each variant of a gang may not use some nodes."""
        self.closed = [frozenset(f"n{n}" for n in some) for some in nodes]

    def refuse(self, number: int, node: int) -> None:
        """kube-scheduler has not bound a gang's pod to a node."""
        if waiting := self.case.gangs():
            self.case.avoid(waiting[number % len(waiting)].key, f"n{node}")

    def compare(self, is_written: bool) -> None:
        """One pass, whose plans are then written or not."""
        memory = self.case.memory
        fresh = {key: replace(each, answer=None) for key, each in memory.gangs.items()}
        self.case.memory = replace(memory, gangs=fresh)
        expected = summary(self.case.one())
        self.case.memory = memory
        orders = self.case.one()
        assert summary(orders) in (expected, with_proofs_of(orders, expected))
        if is_written:
            self._write(orders)

    def _write(self, orders: Orders) -> None:
        for made in orders.plans:
            victims = {uid for group in made.victims for uid in group.pods}
            self.cluster.pods[:] = [pod for pod in self.cluster.pods if pod.metadata.uid not in victims]
            write(self.cluster, made)


def summary(orders: Orders) -> tuple[Any, ...]:
    plans = [(str(each.gang.key), each.answer.nodes, each.victims) for each in orders.plans]
    return plans, [(str(each.gang.key), each.cause) for each in orders.outcomes]


def with_proofs_of(orders: Orders, expected: tuple[Any, ...]) -> tuple[Any, ...]:
    """The expected answers, where an earlier proof counts more than a search that ends at its budget."""
    plans, causes = expected
    proven = {str(each.gang.key) for each in orders.outcomes if each.cause is Cause.INSUFFICIENT_CAPACITY}
    undecided = Cause.WORK_BUDGET
    return plans, [
        (key, Cause.INSUFFICIENT_CAPACITY if cause is undecided and key in proven else cause)
        for key, cause in causes
    ]


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
    st.tuples(st.just("close"), st.frozensets(NODE), st.frozensets(NODE)),
    st.tuples(st.just("close"), st.frozensets(NODE, max_size=1)),
    st.tuples(st.just("refuse"), st.integers(0, 3), NODE),
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
        if draw(st.booleans()):
            spec["affinity"] = APART
        pods = gang(f"g{number}", count, gpus=gpus, level=level, **spec)
        more = draw(st.sampled_from([{}, FULL, {keys.SPREAD_TOPOLOGY_ANNOTATION: "block:1"}]))
        found += [*(with_annotations(pod, more) for pod in pods[:1]), *pods[1:]]
    return found


def place_or_give_up(gang: Any, snapshot: Snapshot, options: Any, budget: Any) -> Any:
    """The answer of a search that ends at its budget, for some states of the nodes that the gang may use."""
    budget.take(1)
    usable = [state for name, state in snapshot.nodes.items() if name not in gang.excluded_nodes]
    free = [state.free.get("nvidia.com/gpu", 0) for state in usable if not state.node.unschedulable]
    if (sum(number * amount for number, amount in enumerate(free, 1)) + len(gang.members)) % 2:
        return NoFit("The search ended.", len(gang.members), 0, 0, {}, proven=False)
    return place_for_real(gang, snapshot, options, budget)


NEVER: Final = {"preemptionPolicy": "Never"}


@example(  # what a plan took that was not written is free again
    [*gang("g0", 1, gpus=8, **NEVER), *gang("g1", 1, gpus=7, **NEVER)],
    [(("cordon", 3, False), False), (("withdraw", "g0"), False)],
)
@example(  # a node with the same capacity can be used again
    gang("g1", 1, gpus=8, **NEVER),
    [(("cordon", 3, True), False), (("cordon", 3, False), False)],
)
@example(  # victims are looked for in the last of two variants, and the first fits once one has ended
    gang("g0", 4, gpus=3, level="block", priority=3),
    [(("end", 0), False), (("close", frozenset(), frozenset({0})), False), (("end", 0), False)],
)
@pytest.mark.parametrize("asks", [place_for_real, place_or_give_up], ids=["decided", "given up"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(
    waiting=waiting_gangs(),
    changes=st.lists(st.tuples(CHANGES, st.booleans()), min_size=2, max_size=12),
)
def test_a_remembered_answer_equals_a_fresh_one(
    monkeypatch: pytest.MonkeyPatch,
    asks: Callable[..., Any],
    waiting: list[Pod],
    changes: list[tuple[tuple[Any, ...], bool]],
) -> None:
    """Whatever pods, nodes and rules do between passes, and whether plans are written or not."""
    monkeypatch.setattr(remembered_answers, "EXPENSIVE_STEPS", -1)
    for module in (core_questions, pod_rules):
        monkeypatch.setattr(module, "place", asks)
    case = Rehearsal(waiting)
    case.cordon(3, True)
    case.compare(is_written=False)
    for (name, *more), is_written in changes:
        getattr(case, name)(*more)
        case.compare(is_written)
