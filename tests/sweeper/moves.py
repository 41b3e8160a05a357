"""Blocks with scattered gangs, some of which may be moved."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from labeler.contract import keys
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing
from tests.sweeper.preemptions import budget_of_jobs, member, plan
from webhook.configuration.settings import MoveLimits, Settings
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.placement import Topology
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.decide.attempt import Attempt, GangWaits, PassState
from webhook.sweeper.decide.orders import NewPlan, Orders
from webhook.sweeper.decide.placement_pass import PlacingMemory, answer_for
from webhook.sweeper.decide.plan import plan_metadata, plan_spec, with_valid_plans
from webhook.sweeper.decide.refusing_nodes import RefusingNodes
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.decide.waiting_plans import Preempting, VictimsSince, look_for_victims
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.observe.view import Moment, View

MOVES: Final = Settings(moves=MoveLimits(is_on=True))
MOVABLE: Final = {keys.MOVABLE_ANNOTATION: "true"}
REQUIRED: Final = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}


def blocks(*sizes: int, gpus: int = 1) -> Nodes:
    """Blocks of so many nodes: n0, n1, ... in their order."""
    cluster = Nodes(sum(sizes), gpus=gpus)
    number = 0
    for block, size in enumerate(sizes):
        for _ in range(size):
            place = (f"b{block}", f"b{block}-s", f"n{number}")
            labels = dict(zip(keys.GCE_TOPOLOGY, place, strict=True))
            cluster.label(f"n{number}", labels)
            number += 1
    return cluster


class ValidPlans(Placing):
    """Its passes go on with the plans that are still valid, as those of the sweeper do."""

    def view(self) -> View:
        return with_valid_plans(super().view(), Topology(), RefusingNodes(), SentReleases())


class Scattered:
    """Gangs on nodes of blocks, and those that wait."""

    def __init__(self, *sizes: int, settings: Settings = MOVES) -> None:
        self.cluster = blocks(*sizes)
        self.placing = ValidPlans(self.cluster, settings)
        self.sizes: dict[str, int] = {}
        self.placing.owner_facts = lambda key: OwnerFacts(size=self.sizes.get(key.name))

    def runs(self, name: str, *nodes: str, annotations: dict[str, str] = MOVABLE, **spec: Any) -> list[Pod]:
        """A Job that runs on these nodes, and its Placement."""
        pods = [
            member(name, index, node, metadata={"annotations": annotations}, **spec)
            for index, node in enumerate(nodes)
        ]
        return self.adopt(pods)

    def adopt(self, pods: list[Pod]) -> list[Pod]:
        """Have these pods of a gang, and its Placement."""
        self.cluster.pods += pods
        gang = self.placing.view().gang_of(pods[0])
        nodes = {pod.metadata.uid: pod.spec.node_name for pod in pods}
        _, made = plan(gang.placement_name, nodes, gang.namespace)
        status = msgspec.structs.replace(made.status, complete=True)
        self.record(msgspec.structs.replace(made, status=status))
        return pods

    def waits(
        self, name: str, count: int, again: int = 0, annotations: dict[str, str] = REQUIRED, **spec: Any
    ) -> list[Pod]:
        """A Job that asks for one block, or for something else. again: how often its pods were recreated."""
        metadata = [
            {"annotations": annotations, "uid": f"ns-{name}-{n + again * count}"} for n in range(count)
        ]
        pods = [member(name, index, metadata=each, **spec) for index, each in enumerate(metadata)]
        self.cluster.pods += pods
        self.sizes[name] = count
        return pods

    def record(self, placement: Placement) -> None:
        """Have this Placement in the cluster."""
        self.cluster.placements[placement.key] = placement

    def written(self, order: NewPlan) -> Placement:
        """The Placement of a plan, as the sweeper writes it, in the cluster."""
        before = self.cluster.placements.get(order.gang.key.placement_key)
        spec = plan_spec(
            order.gang, before, list(order.entries), preempts=order.preempts, victims=order.victims,
            moves=order.moves,
        )  # fmt: skip
        metadata = {**plan_metadata(order.gang), "uid": order.gang.key.placement_name}
        made = msgspec.convert({"metadata": metadata}, Placement)
        made = msgspec.structs.replace(made, spec=spec)
        self.record(made)
        return made

    def one(self) -> Orders:
        """One pass of placing."""
        return self.placing.one()

    def waiting_attempt(self) -> Attempt:
        """The last attempt for the only gang that waits, in the state after the last pass."""
        (gang,) = self.placing.gangs()
        outcome = answer_for(gang, self.state)
        assert isinstance(outcome, GangWaits)
        assert outcome.attempt is not None
        return outcome.attempt

    @property
    def state(self) -> PassState:
        """The state after the last pass, without answers for other gangs."""
        assert self.placing.state is not None
        return replace(self.placing.state, answers={})

    def reason(self, orders: Orders, name: str) -> str:
        """Why a gang waits."""
        return next(each.reason for each in orders.outcomes if each.gang.key.name == name)


def with_limits(**limits: Any) -> Settings:
    """The settings with other limits."""
    return replace(MOVES, moves=replace(MOVES.moves, **limits))


def moved(orders: Orders) -> list[tuple[list[str], list[str]]]:
    """The pods that are moved, and the nodes of their new place."""
    return [
        (sorted(group.pods), group.nodes) for plan in orders.plans for group in plan.victims if group.is_moved
    ]


def scene(settings: Settings | None = None, **of_small: object) -> Scattered:
    """Two blocks of two nodes, a small gang in each, and a gang that asks for a whole block."""
    made = Scattered(2, 2) if settings is None else Scattered(2, 2, settings=settings)
    made.runs("small", "n0", **of_small)  # type: ignore[arg-type]
    made.runs("fixed", "n2", annotations={}, priority=3000)
    made.waits("large", 2)
    return made


def two_gangs_to_move() -> Scattered:
    """A block with two small gangs, another one with two free nodes, and a gang that asks for the first."""
    made = Scattered(3, 2)
    made.runs("one", "n0")
    made.runs("two", "n1")
    made.waits("large", 3)
    return made


class Moving:
    """A plan for which gangs are moved: two, unless a scene is given in which large waits."""

    def __init__(self, given: Scattered | None = None) -> None:
        made = self.scattered = given or two_gangs_to_move()
        (order,) = made.one().plans
        self.plan = made.written(order)
        self.budgets, self.clock = Budgets(), Clock()
        self.not_released: frozenset[str] = frozenset()
        self.since: VictimsSince = {}

    def look(self, settings: Settings = MOVES) -> Preempting:
        """What a pass does for the plan."""
        placing = self.scattered.placing
        view = replace(
            placing.view(), now=Moment(self.clock(), datetime.now(UTC)), not_released=self.not_released
        )
        snapshot = placing.snapshotter.snapshot(view)
        found, self.since = look_for_victims(view, snapshot, self.budgets, self.since, settings)
        return found

    def protect(self, job: str) -> None:
        """A budget allows no eviction of its pods."""
        self.budgets = budget_of_jobs(0, job)

    def change(self, name: str, pod: Pod | None) -> None:
        """Have this pod in place of that of the name, or none."""
        pods = [each for each in self.scattered.cluster.pods if each.metadata.name != name]
        self.scattered.cluster.pods = pods if pod is None else [*pods, pod]


def change_leader(made: Scattered) -> None:
    """A new leader has not seen what was before."""
    made.placing.memory = PlacingMemory()


def evicted(found: Preempting) -> list[str]:
    """The names of the pods that are evicted."""
    return sorted(order.pod.metadata.name for order in found.evictions.values())


WAITING = frozenset(f"ns-large-{number}" for number in range(3))
