"""A cluster in memory, as far as a Snapshotter reads one, and the placing of gangs on it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.sweeper.clock import Clock
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.placement import Snapshot
from webhook.sweeper.decide.attempt import PassInput, PassState, Stopwatch
from webhook.sweeper.decide.core_questions import DividedGang, DivideGang, outside, undivided
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules, RuleKind, join
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.decide.placement_pass import PlacingMemory, place, remembered, reserve_again
from webhook.sweeper.decide.preemption import NONE_PROTECTED
from webhook.sweeper.decide.refusing_nodes import RefusingNodes
from webhook.sweeper.decide.reservations import (
    STARVATION,
    ReservationInput,
    ReservationLedger,
    ReservationSource,
    share_of,
)
from webhook.sweeper.decide.retries import RetryTable
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, PodGang, gather
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import Moment, View

GPU = "nvidia.com/gpu"


def gpu_pod(name: str, *, gpus: int = 1, node: str = "", phase: str = "", **spec: Any) -> Pod:
    """A pod that asks for GPUs: gated, or on a node."""
    amounts = {GPU: str(gpus)}
    container = {"name": "c", "resources": {"limits": amounts, "requests": amounts}}
    bound = {"nodeName": node, "schedulingGates": []} if node else {}
    body = pod_json(name, containers=[container], **{**bound, **spec})
    body["status"]["phase"] = phase or ("Running" if node else "Pending")
    return decode(body)


class NoOwners:
    """Stands for the owners of gangs where none are served."""

    def all_of(self, name: str) -> None:
        return None


class Nodes:
    """Nodes n0, n1, ... with some GPUs each, pods and Placements, all of which a test may change."""

    def __init__(self, count: int, *pods: Pod, gpus: int = 1) -> None:
        self.pods = list(pods)
        self.failed: list[Pod] = []
        self.placements: dict[str, Placement] = {}
        self.labels: Mapping[str, Mapping[str, str]] | None = None
        status = {"allocatable": {GPU: str(gpus), "pods": "110"}}
        self.nodes = {
            f"n{number}": msgspec.convert(
                {"metadata": {"name": f"n{number}", "uid": f"n{number}"}, "status": status}, Node
            )
            for number in range(count)
        }

    def pod_items(self) -> list[Pod]:
        return self.pods

    def take_failed(self) -> list[Pod]:
        taken, self.failed = self.failed, []
        return taken

    def node_items(self) -> dict[str, Node]:
        return dict(self.nodes)

    def current_placements(self) -> dict[str, Placement]:
        return self.placements

    def namespace_labels(self) -> Mapping[str, Mapping[str, str]] | None:
        return self.labels

    def label(self, node: str, labels: Mapping[str, str]) -> None:
        """Give a node these labels."""
        before = self.nodes[node]
        metadata = msgspec.structs.replace(before.metadata, labels=dict(labels))
        self.nodes[node] = msgspec.structs.replace(before, metadata=metadata)

    def storage(self, is_wanted: bool) -> None:
        return None

    @property
    def owners(self) -> "NoOwners":
        return NoOwners()

    def served(self) -> dict[str, str]:
        return {}


class Placing:
    """Passes that place gangs on a cluster; the clock is the test's."""

    def __init__(self, cluster: Nodes, settings: Settings) -> None:
        self.cluster = cluster
        self.clock = Clock()
        self.snapshotter = Snapshotter(cluster, settings)
        self.refusing, self.retries = RefusingNodes(), RetryTable()
        self.sources: Sequence[ReservationSource] = ()
        self.rules, self.keeps = NodeRules(), NONE_PROTECTED
        self.divide: DivideGang = undivided
        self.settings, self.memory = settings, PlacingMemory()
        self.state: PassState | None = None
        self.heartbeat: Callable[[], None] = lambda: None
        self.has_ended: Callable[[Pod], bool] = lambda _: False
        self.owner_facts: Callable[[GangKey], OwnerFacts] = lambda _: OwnerFacts()
        self.asked: list[str] = []
        self.version = 0
        self.freed_version: int | None = None

    def view(self) -> View:
        return self.snapshotter.view(Moment(self.clock(), datetime.now(UTC)))

    def avoid(self, gang: GangKey, *nodes: str) -> None:
        """These nodes have not taken a pod of the gang."""
        self.refusing = self.refusing.refused(gang, nodes, self.clock())

    def exclude(self, gangs: Iterable[PodGang]) -> NodeRules:
        """Nodes that these gangs do not use."""
        return self.rules

    def _rules(self, gangs: Iterable[PodGang]) -> NodeRules:
        return join([NodeRules(tuple(self.refusing.rules())), self.exclude(gangs)])

    def reserve(self, gang: GangKey, nodes: Iterable[str]) -> None:
        """Reserve nodes for a gang that waits, as far as the share allows."""
        most = share_of(self.view().usable_count, self.settings)
        ledger = replace(self.ledger, settings=self.settings, most=most).reserve(gang, nodes)
        self.memory = replace(self.memory, ledger=ledger)

    @property
    def ledger(self) -> ReservationLedger:
        """What is reserved by now."""
        return self.memory.ledger

    def given(
        self,
        view: View,
        snapshot: Snapshot,
        version: int,
        stuck: frozenset[str] = frozenset(),
        going: Set[GangKey] = frozenset(),
    ) -> PassInput:
        """The input of a pass on this view."""
        freed = version if self.freed_version is None else self.freed_version
        rules = NodeRules((NodeRule(stuck, kind=RuleKind.STUCK),) if stuck else ())
        return PassInput(
            view, snapshot, self.settings, rules, version, going, self.retries, self.keeps,
            divide=self.divide, freed_version=freed,
        )  # fmt: skip

    def remember(self, gangs: Sequence[PodGang], view: View, snapshot: Snapshot | None = None) -> None:
        """Take in what a pass sees."""
        given = ReservationInput(self.ledger, gangs, view, snapshot, self._rules(gangs), self.has_ended)
        self.memory = remembered(self.memory, given, self.settings, self.sources)

    def place(self, gangs: Sequence[PodGang], given: PassInput) -> Orders:
        """What a pass decides that has taken that in."""
        rules = join([given.rules, self._rules(gangs)]).on(given.snapshot)
        given = replace(given, rules=rules)
        watch = Stopwatch(self.clock, self.heartbeat)
        orders, self.memory, self.state = place(gangs, given, self.memory, watch)
        return orders

    def place_again(self, gang: PodGang) -> str:
        """Where all of the gang would be placed, and reserved for it, if its released part were deleted."""
        assert self.state is not None
        keys_and_nodes, ledger = reserve_again(gang, gang.released, self.state, self.ledger)
        self.memory = replace(self.memory, ledger=ledger)
        return keys_and_nodes

    @property
    def reserved(self) -> frozenset[str]:
        """Nodes that are reserved for gangs that have waited long."""
        return self.ledger.nodes(STARVATION)

    def gangs(self) -> list[PodGang]:
        """The gangs that have a gated pod."""
        view = self.view()
        return gather(view.gated, view.others, self.owner_facts)

    def one(
        self,
        stuck: frozenset[str] = frozenset(),
        without: Collection[str] = (),
        going: Set[GangKey] = frozenset(),
        is_usage_changed: bool = True,
    ) -> Orders:
        """One pass.

        without: gangs that are not asked about. going: those that are evicted. is_usage_changed: whether
        nodes, or what pods use of them, have changed since the one before.
        """
        view = self.view()
        gangs = gather(view.gated, view.others, self.owner_facts, lost_owner=view.lost_owners.of)
        self.version += is_usage_changed
        snapshot = self.snapshotter.snapshot(view)
        self.remember(gangs, view, snapshot)
        given = self.given(view, snapshot, self.version, stuck, going)
        return self.place([gang for gang in gangs if gang.key.name not in without], given)


def divided(*closed: Iterable[str]) -> DivideGang:
    """Each gang has a variant for each of these sets, whose nodes it may then not use."""
    return lambda given: DividedGang(given.gang, tuple(outside(frozenset(nodes)) for nodes in closed))


def places(orders: Orders) -> dict[str, str]:
    """Pod -> node of all new plans."""
    return {entry.name: entry.node for plan in orders.plans for entry in plan.entries}
