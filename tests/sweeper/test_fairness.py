"""What waiting gangs cost the others: a bounded time of each pass, and a bounded part of the cluster."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.placement import Budget, NoFit, Snapshot
from webhook.placement import place as place_for_real
from webhook.sweeper.decide import core_questions
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.decide.reservations import STARVATION, Reservation, reserved_sentence
from webhook.sweeper.decide.retries import RetryTable, Wait, Write
from webhook.sweeper.observe.gangs import OwnerFacts

OLD = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}


class Asked:
    """Notes who is asked about, and takes a second for each answer."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.advance: Any = lambda: None

    def __call__(self, gang: Any, snapshot: Snapshot, options: Any, budget: Any) -> Any:
        self.names.append(gang.name.rpartition("/")[2])
        self.advance()
        return place_for_real(gang, snapshot, options, budget)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(core_questions, "place", asked)
    return asked


def test_of_many_that_ask_the_same_and_fit_nowhere_one_is_asked_about_in_a_pass(asked: Asked) -> None:
    pods = [gpu_pod(f"p{number:02}", gpus=9) for number in range(50)]
    orders = Placing(Nodes(2, *pods, gpus=8), Settings()).one()
    assert asked.names == ["p00"]
    named = [outcome.reason.split(" ")[1] for outcome in orders.outcomes]
    assert named == [f"ns/Pod/{pod.metadata.name}" for pod in pods], "each is told of itself"


class Annotated:
    """A gang of two pods that fits nowhere, whose author then changes annotations pod by pod."""

    def __init__(self) -> None:
        self.at: list[dict[str, str]] = [{}, {}]
        self.case = Placing(Nodes(2, *self._pods(), gpus=8), Settings())
        self.case.one()

    def _pods(self) -> list[Pod]:
        own = {keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: "2"}
        return [
            gpu_pod(f"p{number}", gpus=9, metadata={"annotations": {**own, **each}})
            for number, each in enumerate(self.at)
        ]

    def write(self, pod: int, **annotations: str) -> None:
        """Another annotation of one pod, and a pass a second later."""
        self.at[pod] = {f"topogate.io/{key}": value for key, value in annotations.items()}
        self.case.cluster.pods[:] = self._pods()
        self.wait(1)

    def wait(self, seconds: float) -> None:
        self.case.clock.now += seconds
        self.case.one(is_usage_changed=False)


def test_a_gang_without_place_is_asked_about_soon_after_its_author_has_changed_its_request(
    asked: Asked,
) -> None:
    """As `kubectl annotate` does after the advice of the reason; else it is asked about each minute."""
    gang = Annotated()
    gang.write(0, **{"preferred-topology": "block"})
    gang.write(1, **{"preferred-topology": "block"})
    gang.wait(4)
    assert asked.names == ["g"], "half of a change is not what its author asks for"
    gang.wait(1)
    assert asked.names == ["g", "g"]


def test_a_gang_without_place_is_placed_once_its_owner_needs_fewer_pods() -> None:
    own = {"annotations": {keys.GANG_ANNOTATION: "g"}}
    pods = [gpu_pod(f"p{number}", gpus=8, metadata=own) for number in range(3)]
    case = Placing(Nodes(2, *pods, gpus=8), Settings())
    case.owner_facts = lambda _: OwnerFacts(3, minimum=3)
    assert places(case.one()) == {}
    case.owner_facts = lambda _: OwnerFacts(3, minimum=2)
    assert len(places(case.one(is_usage_changed=False))) == 2


def test_an_annotation_that_requests_nothing_leads_to_no_question(asked: Asked) -> None:
    gang = Annotated()
    gang.write(0, note="x")
    gang.wait(5)
    assert asked.names == ["g"]


NEAR: Final = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": keys.HOSTNAME_LABEL}
]}}  # fmt: skip


@pytest.mark.parametrize(("affinity", "is_asked"), [({}, False), (NEAR, True)])
def test_what_only_takes_capacity_leads_to_no_question_about_a_gang_that_found_none(
    affinity: dict[str, Any], is_asked: bool
) -> None:
    """But for a gang that wants to be near others."""
    case = Placing(Nodes(2, gpu_pod("p", gpus=9, affinity=affinity), gpus=8), Settings(reserve_seconds=0))

    def asked_at(freed_version: int) -> float:
        case.freed_version = freed_version
        case.clock.now += 1
        case.one()
        (memory,) = (each for key, each in case.memory.gangs.items() if key.name == "p")
        return memory.asked_at

    assert asked_at(1) == 1
    case.cluster.pods.append(gpu_pod("other", node="n0"))
    assert asked_at(1) == (2 if is_asked else 1)
    assert asked_at(2) == 3, "something has become free"


def test_those_that_ask_for_something_else_are_asked_about(asked: Asked) -> None:
    pods = [gpu_pod("a", gpus=9), gpu_pod("b", gpus=10), gpu_pod("c", gpus=8)]
    assert places(Placing(Nodes(2, *pods, gpus=8), Settings()).one()) == {"c": "n0"}
    assert asked.names == ["a", "b", "c"]


@pytest.mark.promise("S49")
def test_a_pass_ends_in_time_and_those_that_it_did_not_reach_come_next(asked: Asked) -> None:
    pods = [gpu_pod(f"p{number}", gpus=20 + number, priority=9 - number) for number in range(9)]
    case = Placing(Nodes(1, *pods), Settings(pass_seconds=4))

    def a_second() -> None:
        case.clock.now += 1

    asked.advance = a_second
    seen = []
    for _ in range(4):
        asked.names.clear()
        orders = case.one()
        seen.append(list(asked.names))
        assert orders.due_seconds == 0
    # The two most urgent each time, and two of the others in turn.
    assert seen == [
        ["p0", "p1", "p2", "p3"],
        ["p0", "p1", "p4", "p5"],
        ["p0", "p1", "p6", "p7"],
        ["p0", "p1", "p8", "p2"],
    ]
    assert {key.name for key in orders.unasked} == {"p3", "p4", "p5", "p6", "p7"}


@pytest.mark.parametrize("tenants", [1, 10])
def test_expensive_gangs_of_other_namespaces_do_not_delay_a_cheap_one(asked: Asked, tenants: int) -> None:
    """Each question about a hostile gang takes more than a namespace's share of a pass."""
    hostile = [
        gpu_pod(f"h{number}", gpus=20 + number, priority=9, metadata={"namespace": f"evil{number % tenants}"})
        for number in range(150)
    ]
    case = Placing(Nodes(1, *hostile), Settings(pass_seconds=10))

    def advance() -> None:
        case.clock.now += 1 if asked.names[-1].startswith("h") else 0

    asked.advance = advance
    case.one()
    case.cluster.pods.append(gpu_pod("innocent", metadata={"namespace": "good"}))
    began = case.clock.now
    assert places(case.one()) == {"innocent": "n0"}
    assert case.clock.now - began < 11, "the rest of the pass goes on to the others"
    assert any(name.startswith("h") for name in asked.names)


class CountedWork:
    """A clock of the work that is done: a second is a million steps of any budget."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self) -> float:
        return self.steps / 1_000_000


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> CountedWork:
    counted = CountedWork()

    def spend(gang: Any, snapshot: Snapshot, options: Any, budget: Budget) -> Any:
        """Hostile gangs take all steps that they may have, others what they need."""
        before = budget.spent
        if "/h" not in gang.name:
            answer = place_for_real(gang, snapshot, options, budget)
        else:
            budget.take(min(budget.left, options.bound) + 1)
            answer = NoFit(f"Gang {gang.name} is not placed", 0, 0, 0, {}, proven=False)
        counted.steps += budget.spent - before
        return answer

    monkeypatch.setattr(core_questions, "place", spend)
    return counted


def hostile(number: int, namespace: str, age: int = 0) -> Pod:
    """A gang of the highest priority with a question of its own."""
    metadata = {"namespace": namespace, "uid": f"{age}-h{number}"}
    return gpu_pod(f"h{number}-{age}", gpus=20 + number, priority=9, metadata=metadata)


def innocent(number: int) -> Pod:
    """One of 64 identical pods of a gang that fits."""
    annotations = {keys.GANG_ANNOTATION: "innocent", keys.GANG_SIZE_ANNOTATION: "64"}
    return gpu_pod(f"innocent-{number}", metadata={"namespace": "good", "annotations": annotations})


class BesideHostile:
    """Passes beside gangs whose questions take all the work that they may, of so many namespaces."""

    def __init__(self, work: CountedWork, tenants: int, is_recreated: bool, pass_seconds: float = 10) -> None:
        settings = Settings(settle_seconds=0, reserve_seconds=0, pass_seconds=pass_seconds)
        self.case = Placing(Nodes(80, gpus=1), settings)
        self.case.clock = work  # type: ignore[assignment]
        self.tenants, self.is_recreated, self.age = tenants, is_recreated, 0

    def one(self, *more: Pod) -> set[str]:
        """The pods of others that a pass places."""
        self.age += self.is_recreated
        gangs = range(max(150, self.tenants))
        pods = (hostile(each, f"evil{each % self.tenants}", self.age) for each in gangs)
        self.case.cluster.pods = [*pods, *more]
        return places(self.case.one()).keys() & {pod.metadata.name for pod in more}


INNOCENT: Final = tuple(map(innocent, range(64)))


@pytest.mark.parametrize(
    ("tenants", "is_recreated"),
    [(1, False), (10, False), (150, False), (600, False), (1, True), (10, True), (150, True)],
)
def test_hostile_gangs_of_the_highest_priority_delay_an_innocent_one_by_no_pass(
    work: CountedWork, tenants: int, is_recreated: bool
) -> None:
    passes = BesideHostile(work, tenants, is_recreated)
    for _ in range(2):
        passes.one()
    began = work()
    assert len(passes.one(*INNOCENT)) == 64
    assert work() - began < 15, "a pass takes its ten seconds, and the last question"


def test_gangs_of_any_number_of_namespaces_that_are_always_recreated_delay_an_innocent_one_by_one_pass(
    work: CountedWork,
) -> None:
    """They use up half of a pass before it comes; in the other half who has waited longest comes first."""
    passes = BesideHostile(work, 100, is_recreated=True, pass_seconds=2)
    assert [len(passes.one(*INNOCENT)) for _ in range(2)] == [0, 64]


def test_a_gang_that_found_no_place_is_asked_about_again_beside_recreated_gangs(work: CountedWork) -> None:
    passes = BesideHostile(work, 100, is_recreated=True, pass_seconds=2)
    busy = [gpu_pod(f"busy-{number}", node=f"n{number}") for number in range(20)]
    assert [len(passes.one(*INNOCENT, *busy)) for _ in range(3)] == [0, 0, 0]
    until = work() + 90
    while not passes.one(*INNOCENT):
        assert work() < until


def test_gangs_that_take_more_than_a_share_are_asked_about_round_robin_by_namespace(
    work: CountedWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one tenant's many would each come before the only one of another."""
    pods = [*(hostile(number, "evil") for number in range(30)), hostile(99, "good")]
    case = Placing(Nodes(2, *pods), Settings(settle_seconds=0, reserve_seconds=0))
    case.clock = work  # type: ignore[assignment]
    reached = [any(outcome.gang.key.namespace == "good" for outcome in case.one().outcomes) for _ in range(6)]
    assert sum(reached) >= 5


def test_an_answer_that_a_share_has_cut_is_asked_for_again_with_the_whole_budget(work: CountedWork) -> None:
    others = [gpu_pod(f"o{number}", gpus=9, metadata={"namespace": f"n{number}"}) for number in range(9)]
    costs = []
    for pods in ([hostile(0, "evil")], [hostile(0, "evil"), *others]):
        case = Placing(Nodes(4, *pods), Settings(settle_seconds=0))
        (outcome,) = (each for each in case.one().outcomes if each.gang.key.namespace == "evil")
        assert outcome.cause is Cause.WORK_BUDGET
        costs.append(case.memory.gangs[outcome.gang.key].cost_seconds)
    assert costs[0] == costs[1] > 0.5, "a tenth of the half of a pass"


def test_a_gang_that_is_paused_is_reported_as_one_of_which_nothing_new_is_known() -> None:
    case = Placing(Nodes(1, gpu_pod("p", gpus=9), gpu_pod("q", gpus=9)), Settings())
    (paused,) = [gang.key for gang in case.gangs() if gang.key.name == "p"]
    case.retries = RetryTable({(Write.GANG, paused): Wait(2, case.clock() + 2)})
    assert case.one().unasked == {paused}


def waiting_gang(name: str, count: int, **more: Any) -> list[Any]:
    """A gang that has waited long."""
    annotations = {"topogate.io/gang": name, "topogate.io/gang-size": str(count)}
    metadata = {**OLD["metadata"], "annotations": annotations}
    return [gpu_pod(f"{name}-{number}", metadata=metadata, **more) for number in range(count)]


def small(name: str, **spec: Any) -> Any:
    """A young pod that would fit on any node that is free."""
    return gpu_pod(name, metadata={"creationTimestamp": "2026-01-02T00:00:00Z"}, **spec)


BUSY = gpu_pod("busy", node="n7")


@pytest.mark.promise("S47", "O74")
@pytest.mark.parametrize(("share", "free"), [(0.25, 5), (0.5, 3), (0.0, 7)])
def test_gangs_that_wait_hold_no_more_than_a_share_of_the_nodes(share: float, free: int) -> None:
    pods = [*waiting_gang("big", 8), *waiting_gang("huge", 8), BUSY]
    pods += [small(f"s{number}") for number in range(7)]
    case = Placing(Nodes(8, *pods), Settings(reserve_share=share))
    assert len(places(case.one())) == free


@pytest.mark.promise("S47")
def test_an_unused_reservation_is_not_repeated_for_as_long() -> None:
    pods = [*waiting_gang("big", 8), *waiting_gang("huge", 8), BUSY, small("s")]
    case = Placing(Nodes(8, *pods), Settings(reserve_share=1.0, reserve_hold_seconds=100))
    reserved = []
    for case.clock.now in (0.0, 99.0, 100.0, 199.0, 200.0):
        reserved.append(not places(case.one()))
    assert reserved == [True, True, False, False, True]


@pytest.mark.promise("S36")
def test_who_is_excluded_gets_a_reason_with_by_whom_and_until_when() -> None:
    pods = [*waiting_gang("big", 8), BUSY, small("s")]
    case = Placing(Nodes(8, *pods), Settings(reserve_share=1.0))
    (reasons,) = [each.reason for each in case.one().outcomes if each.gang.key.name == "s"]
    assert "Of 8 nodes, excluded: reserved for others or avoided: 8; nodes are reserved for gangs" in reasons
    assert "reserved for gangs that have waited longer: 8 for ns/Gang/big until " in reasons


def of(namespace: str, name: str, **more: Any) -> Any:
    """A young pod of some namespace."""
    return gpu_pod(
        name, metadata={"creationTimestamp": "2026-01-02T00:00:00Z", "namespace": namespace}, **more
    )


@pytest.mark.promise("S36")
def test_who_is_excluded_by_another_namespace_gets_a_reason_without_names() -> None:
    pods = [*waiting_gang("big", 8), BUSY, of("theirs", "s"), small("t")]
    case = Placing(Nodes(8, *pods), Settings(reserve_share=1.0))
    reasons = {each.gang.key.name: each.reason for each in case.one().outcomes}
    assert "waited longer: 8 for a gang of another namespace until " in reasons["s"]
    assert "big" not in reasons["s"]
    assert "waited longer: 8 for ns/Gang/big until " in reasons["t"], "though it asks the same"


@pytest.mark.promise("S36")
def test_what_is_reserved_for_a_gang_of_another_namespace_is_reported_without_its_name() -> None:
    until = datetime(2026, 1, 1, tzinfo=UTC)
    reserved = [
        Reservation(STARVATION, f"ns/job-{name}", frozenset(name), 0, 1, until, f"ns/Job/{name}")
        for name in "abcd"
    ]
    assert reserved_sentence(reserved, "n") == (
        "nodes are reserved for gangs that have waited longer: "
        + ", ".join(["1 for a gang of another namespace until 00:00 UTC"] * 3)
        + " and 1 more gang"
    )


@pytest.mark.promise("S36")
def test_no_sentence_names_pods_of_others_that_asked_the_same() -> None:
    pods = []
    for namespace, name in (("ns", "first"), ("theirs", "second")):
        annotations = {"topogate.io/gang": name, "topogate.io/gang-size": "2"}
        pods += [
            gpu_pod(
                f"{name}-{gpus}", gpus=gpus, metadata={"namespace": namespace, "annotations": annotations}
            )
            for gpus in (9, 10)
        ]
    reasons = {
        each.gang.key.namespace: each.reason
        for each in Placing(Nodes(2, *pods, gpus=8), Settings()).one().outcomes
    }
    assert "first-9" in reasons["ns"]
    assert "second-9" in reasons["theirs"]
    assert "first" not in reasons["theirs"]


@pytest.mark.promise("O100")
@pytest.mark.parametrize(
    ("seconds", "grace", "fits"),
    [
        (99, 0, True), (101, 0, False), (None, 0, False), (60, 39, True), (60, 41, False),
        (69, None, True), (71, None, False),
    ],
)  # fmt: skip
def test_a_pod_that_must_end_before_may_use_what_is_reserved(
    seconds: int | None, grace: int | None, fits: bool
) -> None:
    limit = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    limit |= {} if grace is None else {"terminationGracePeriodSeconds": grace}
    pods = [*waiting_gang("big", 8), BUSY, small("s", **limit)]
    case = Placing(Nodes(8, *pods), Settings(reserve_share=1.0, reserve_hold_seconds=100))
    assert bool(places(case.one())) is fits


@pytest.mark.promise("O58")
def test_a_pod_of_a_scheduler_that_is_not_served_gets_no_place_and_a_reason() -> None:
    case = Placing(Nodes(1, gpu_pod("a", schedulerName="nobody"), gpu_pod("b")), Settings())
    orders = case.one()
    assert places(orders) == {"b": "n0"}
    (outcome,) = orders.outcomes
    assert outcome.reason.startswith("its scheduler 'nobody' is not one that topogate serves")


@pytest.mark.parametrize(
    ("stopped", "reserved"),
    [
        ({}, True),
        ({"schedulingGates": [{"name": "gke.io/topology-aware-auto-x"}, {"name": "mine"}]}, False),
        ({"schedulerName": "nobody"}, False),
        ({"metadata": {"annotations": {"topogate.io/required-topology": "galaxy"}}}, False),
    ],
    ids=["as it was", "another gate", "another scheduler", "a wish that nobody can keep"],
)
def test_a_gang_that_cannot_be_placed_as_it_is_now_holds_nothing(
    stopped: dict[str, Any], reserved: bool
) -> None:
    case = Placing(Nodes(8, *waiting_gang("big", 8), BUSY), Settings(reserve_share=1.0))
    case.one()
    metadata = {**OLD["metadata"], **stopped.get("metadata", {})}
    metadata["annotations"] = {"topogate.io/gang": "big", "topogate.io/gang-size": "8"} | metadata.get(
        "annotations", {}
    )
    changed = gpu_pod("big-0", **{**stopped, "metadata": metadata})
    case.cluster.pods[0] = changed
    case.one()
    case.clock.now += case.settings.settle_seconds
    case.one()
    assert bool(case.reserved) is reserved


def test_a_gang_that_is_not_asked_about_reserves_nothing_and_blocks_nobody() -> None:
    """As one whose author changes its model while it waits: that is reported, and the gang left out."""
    case = Placing(Nodes(8, *waiting_gang("big", 8), BUSY, small("s")), Settings(reserve_share=1.0))
    assert not places(case.one())
    assert case.reserved
    assert places(case.one(without=("big",))) == {"s": "n0"}
    assert not case.reserved


def test_a_process_is_known_to_be_alive_after_each_gang_that_it_has_asked_about(asked: Asked) -> None:
    case = Placing(Nodes(1, *[gpu_pod(f"p{number}", gpus=9 + number) for number in range(5)]), Settings())
    beats: list[int] = []
    case.heartbeat = lambda: beats.append(1)
    case.one()
    assert len(asked.names) == len(beats) == 5


ONE_CARD = {keys.I915: "1"}


@pytest.mark.parametrize(("blocked", "node"), [([], "n0"), (["n0"], "n1"), (["n0", "n1"], "n0")])
def test_pods_with_cards_are_placed_where_the_release_queue_is_empty_if_they_fit(
    blocked: list[str], node: str
) -> None:
    cluster = with_cards(2, pod_with_card())
    assert places(Placing(cluster, Settings()).one(frozenset(blocked))) == {"a": node}


def pod_with_card(**annotations: str) -> Pod:
    containers = [{"name": "c", "resources": {"limits": ONE_CARD, "requests": ONE_CARD}}]
    return decode(pod_json("a", containers=containers, metadata={"annotations": annotations}))


def with_cards(count: int, *pods: Pod) -> Nodes:
    """Nodes with one card each."""
    cluster = Nodes(count, *pods)
    for name in cluster.nodes:
        labels = {"gpu.intel.com/cards": "card0", "gpu.intel.com/gpu-numbers": "0"}
        made = {"metadata": {"name": name, "uid": name, "labels": labels}}
        made["status"] = {"allocatable": {**ONE_CARD, "pods": "110"}}
        cluster.nodes[name] = msgspec.convert(made, Node)
    return cluster


@pytest.mark.parametrize(("key", "value"), [("gas-deny", "card0"), ("gas-allow", "card7")])
def test_a_pod_without_place_is_asked_about_once_its_author_has_changed_its_cards(
    key: str, value: str
) -> None:
    case = Placing(with_cards(1, pod_with_card(**{key: value})), Settings())
    assert places(case.one()) == {}
    case.cluster.pods[:] = [pod_with_card()]
    case.clock.now += 1
    case.one(is_usage_changed=False)
    case.clock.now += case.settings.settle_seconds
    assert places(case.one(is_usage_changed=False)) == {"a": "n0"}


SLOW = {"terminationGracePeriodSeconds": 601}
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}


@pytest.mark.promise("O184")
@pytest.mark.parametrize(
    ("first", "second", "victim"),
    [
        ({}, {}, "n0"),
        (SLOW, {}, "n1"),
        ({"terminationGracePeriodSeconds": 600}, {}, "n0"),
        (SLOW, {"priority": 2}, "n0"),
        (SLOW, SLOW, "n0"),
        ({"metadata": DELETED}, {}, "n0"),
        ({"metadata": DELETED | {"deletionGracePeriodSeconds": 99999}}, {"priority": 2}, "n1"),
        ({"metadata": DELETED | {"deletionGracePeriodSeconds": 99999}}, {"priority": 9}, ""),
    ],
    ids=[
        "alike",
        "one that may take long to end",
        "as long as is waited for it",
        "the other is more important",
        "both take long",
        "one that ends already",
        "one that ends, but not for a day",
        "nobody else",
    ],
)
def test_who_takes_long_to_end_is_preempted_after_its_equals_and_chosen_once(
    first: dict[str, Any], second: dict[str, Any], victim: str
) -> None:
    there = [
        gpu_pod(f"low{number}", node=f"n{number}", **({"priority": 1} | spec))
        for number, spec in enumerate((first, second))
    ]
    found = places(Placing(Nodes(2, *there, gpu_pod("high", priority=9)), Settings()).one())
    assert found == ({"high": victim} if victim else {})


def test_a_gang_whose_position_moves_from_pass_to_pass_is_not_skipped_by_that(asked: Asked) -> None:
    pods = [gpu_pod(f"p{number}", gpus=20 + number) for number in range(9)]
    case = Placing(Nodes(1, *pods), Settings(pass_seconds=4))

    def a_second() -> None:
        case.clock.now += 1

    asked.advance = a_second
    view = case.view()
    for number in range(8):
        case.version += 1
        gangs = case.gangs()
        order = gangs[number:] + gangs[:number] if number % 2 else gangs[::-1]
        case.remember(order, view)
        case.place(order, case.given(view, case.snapshotter.snapshot(view), case.version))
    assert set(asked.names) == {f"p{number}" for number in range(9)}


@pytest.mark.parametrize(
    ("annotations", "cause"),
    [
        ({}, Cause.RESERVED),
        ({"nodeSelector": {"pool": "another"}}, Cause.INSUFFICIENT_CAPACITY),
    ],
    ids=["would run there", "may not run there"],
)
def test_only_nodes_that_would_take_a_pod_are_why_it_waits_for_those_who_hold_them(
    annotations: dict[str, Any], cause: Cause
) -> None:
    """A gang that waits for capacity may ask an autoscaler for nodes; one that waits for others may not."""
    of_large = {keys.GANG_ANNOTATION: "large", keys.GANG_SIZE_ANNOTATION: "3"}
    large = [
        gpu_pod(f"large-{number}", metadata={**OLD["metadata"], "annotations": of_large, "uid": f"l{number}"})
        for number in range(3)
    ]
    runs = gpu_pod("runs", nodeName="n0", schedulingGates=[])
    later = gpu_pod("p", metadata={"creationTimestamp": "2026-01-01T00:00:09Z"}, **annotations)
    case = Placing(Nodes(3, *large, runs, later), Settings(reserve_seconds=0, reserve_share=1.0))
    case.one()
    orders = case.one()
    assert case.ledger.by_gang(), "the large one holds nodes"
    (outcome_of_p,) = [each for each in orders.outcomes if each.gang.key.name == "p"]
    assert outcome_of_p.cause is cause
