"""Whichever write the sweeper dies at while it moves a gang, nobody is left half, and nobody loses its place.

Four nodes in two blocks: small is on one of the first block, fixed on one of the second. large asks for a
whole block, so small is moved to the free node of the second. An undisturbed run enumerates the writes.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pytest

from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from labeler.contract import keys
from tests.support import create_namespace, delete_namespace
from tests.sweeper.crash_cases import CASE_SECONDS, GPUS, PARALLEL, Case
from tests.sweeper.mortal import Death, MortalApi, deaths_at, sweep_until
from webhook.configuration.settings import MoveLimits
from webhook.kube.client import MERGE_PATCH, ApiError

MOVABLE: Final = {keys.MOVABLE_ANNOTATION: "true"}
BLOCK: Final = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
SIZES: Final = {"small": 2, "fixed": 1, "large": 2}
DURABLE: Final = "POST placement", "PUT placement", "PATCH placement", "POST pod", "PATCH pod"
"""Writes that a later leader reads: plans, evictions and releases."""


@dataclass(frozen=True)
class MovingCase(Case):
    """One run, in a namespace and on nodes of its own.

    of_large: the nodes that large gets. of_small: the possible nodes of small. moves: how often fixed, large
    and small may be moved.
    """

    of_large: ClassVar = ["0", "1"]
    of_small: ClassVar = ["3"]
    moves: ClassVar = [[0, 0, 1]]

    @property
    def moving(self) -> Any:
        return replace(self.settings, moves=MoveLimits(is_on=True, after_seconds=0.0))

    def node(self, index: int) -> str:
        return f"{self.namespace}-n{index}"

    def add_node(self, index: int) -> None:
        block = f"b{index // 2}-{self.namespace}"
        node = SimulatedNode(self.node(index), (block, f"{block}-s", f"h{index}"), False, 8)
        labels = {**node.topology_labels, "case": self.namespace, "number": str(index)}
        self.api.request("POST", "/api/v1/nodes", body=node.manifest(labels))

    def create(self, name: str, gpus: int, annotations: dict[str, str], **selector: str) -> None:
        labels = {"app": name}
        pod = {
            "terminationGracePeriodSeconds": 0,
            "schedulingGates": [{"name": keys.GATE}],
            "nodeSelector": {"case": self.namespace, **selector},
            "containers": [{"name": "c", "image": "x", "resources": {"limits": {GPUS: gpus}}}],
        }
        body = {
            "metadata": {"name": name},
            "spec": {
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "replicas": SIZES[name],
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {
                        "labels": labels,
                        "annotations": {keys.GANG_SIZE_ANNOTATION: str(SIZES[name]), **annotations},
                    },
                    "spec": pod,
                },
            },
        }
        self.api.request("POST", f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets", body=body)

    def run_bound_pods(self) -> None:
        """As their kubelet would."""
        for pod in self.pods():
            if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
                self.api.request(
                    "PATCH", path, body={"status": {"phase": "Running"}}, content_type=MERGE_PATCH
                )

    def has(self, *names: str) -> bool:
        """Whether these gangs are placed, whole, and run."""
        self.run_bound_pods()
        pods = self.pods()
        running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        states = [placement.get("status", {}).get("state") for placement in self.placements()]
        return (
            states == ["Bound"] * len(names)
            and len(running) == len(pods) == sum(SIZES[name] for name in names)
            and not any(pod["metadata"].get("deletionTimestamp") for pod in pods)
        )

    def set_up(self) -> None:
        later = [1, 2, 3]

        def is_set_up() -> bool:
            if later and self.has("small"):
                while later:
                    self.add_node(later.pop())
                self.create("fixed", 8, {}, number="2")
            return not later and self.has("small", "fixed")

        self.add_node(0)
        self.create("small", 4, MOVABLE)
        assert sweep_until(self.mortal("before"), self.settings, is_set_up, CASE_SECONDS)
        self.create("large", 8, BLOCK)

    def is_at_its_end(self) -> bool:
        return self.has("small", "fixed", "large")

    def nodes(self) -> dict[str, str]:
        """Pod -> number of its node."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"].removeprefix(f"{self.namespace}-n")
            for pod in self.pods()
        }

    def uids(self, name: str) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods() if pod["metadata"]["name"].startswith(name)}

    def tear_down(self) -> None:
        delete_namespace(self.cluster, self.namespace)
        for index in range(6):
            status_of(functools.partial(self.api.request, "DELETE", f"/api/v1/nodes/{self.node(index)}"))


@dataclass(frozen=True)
class LosingCase(MovingCase):
    """At the first eviction a node of large is deleted, while there is another block: large is planned again.

    small stays where no pod of it was evicted before. One that was returns to the other, if that was not.
    """

    of_large: ClassVar = ["4", "5"]
    of_small: ClassVar = ["0", "3"]
    moves: ClassVar = [[0, 0, 0], [0, 0, 1]]

    def mortal(self, life: str, death: Death | None = None) -> MortalApi:
        api = LosingApi.connect(self.cluster.kubeconfig, user_agent=self.agent(life))
        assert isinstance(api, LosingApi)
        api.prepare(death)
        api.case = self
        return api

    def lose(self) -> None:
        """Have the other block in place of the node, once."""
        path = f"/api/v1/nodes/{self.node(1)}"
        if status_of(lambda: self.api.request("DELETE", path)) != 404:
            for index in (4, 5):
                self.add_node(index)


def status_of(call: Callable[[], object]) -> int:
    """The status of HTTP of a request that may fail."""
    try:
        call()
    except ApiError as error:
        return error.status
    return 200


class LosingApi(MortalApi):
    """See LosingCase."""

    case: LosingCase

    def request(self, method: str, path: str, **given: Any) -> bytes:
        """As MortalApi.request."""
        if path.endswith("/eviction") and not self.dead.is_set():
            self.case.lose()
        return super().request(method, path, **given)


class RefusingApi(MortalApi):
    """Refuses the second and the third eviction that it is asked for."""

    status: int = 0
    asked: int = 0

    def request(self, method: str, path: str, **given: Any) -> bytes:
        """As MortalApi.request. Raises ApiError for an eviction that is refused."""
        if path.endswith("/eviction"):
            self.asked += 1
            if self.asked in (2, 3):
                raise ApiError(self.status, "Refused", "try again")
        return super().request(method, path, **given)


def refused_with(cluster: Cluster, status: int) -> list[str]:
    """A move of which evictions are refused with this status of HTTP, 0 for none: what is wrong then."""
    case = MovingCase(cluster, create_namespace(cluster))
    case.set_up()
    api = RefusingApi.connect(cluster.kubeconfig, user_agent=case.agent("refused"))
    assert isinstance(api, RefusingApi)
    api.prepare(None)
    api.status = status
    assert sweep_until(api, case.moving, case.is_at_its_end, CASE_SECONDS)
    nodes = [node for name, node in sorted(case.nodes().items()) if name.startswith("small")]
    wrong = [] if nodes == ["3", "3"] else [f"pods are on {nodes}"]
    if api.asked != 4:
        wrong.append(f"{api.asked} evictions of two pods, of which two were refused")
    case.tear_down()
    return wrong


def run_case(case: MovingCase, death: Death | None) -> tuple[list[str], MortalApi]:
    """One run of a sweeper that dies, and of the next: what is wrong then."""
    case.set_up()
    fixed = case.uids("fixed")
    first = case.mortal("first", death)
    if not sweep_until(first, case.moving, case.is_at_its_end, CASE_SECONDS):
        assert sweep_until(case.mortal("next"), case.moving, case.is_at_its_end, CASE_SECONDS)
    wrong, placed = [], case.nodes()
    if sorted(placed.pop(f"large-{number}") for number in range(2)) != case.of_large:
        wrong.append(f"large is on {case.nodes()}")
    if placed not in [{"small-0": node, "small-1": node, "fixed-0": "2"} for node in case.of_small]:
        wrong.append(f"pods are on {placed}")
    if case.uids("fixed") != fixed:
        wrong.append("a pod that may not be moved was")
    moves = {each["spec"]["gang"]: each["spec"].get("moves", []) for each in case.placements()}
    if [len(each) for gang, each in sorted(moves.items())] not in case.moves:
        wrong.append(f"the moves are {moves}")
    case.tear_down()
    return wrong, first


@pytest.mark.promise("O420")
@pytest.mark.parametrize("kind", [MovingCase, LosingCase])
def test_whichever_write_it_dies_at_while_a_gang_is_moved_the_next_one_reaches_the_same_end(
    definitions: Cluster, kind: type[MovingCase]
) -> None:
    """Also if large is planned again midway."""

    def run(death: Death | None) -> tuple[list[str], MortalApi]:
        return run_case(kind(definitions, create_namespace(definitions)), death)

    wrong, life = run(None)
    assert wrong == []
    writes = list(dict.fromkeys(life.writes))
    durable = [each for each in writes if each.startswith(DURABLE)]
    assert len([each for each in durable if each.startswith("POST pod")]) == 2, "the evictions"
    if kind is LosingCase:  # nothing is lost before the first eviction
        durable = durable[next(n for n, each in enumerate(durable) if each.startswith("POST pod")) :]
    deaths = deaths_at(durable)
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = list(pool.map(run, deaths))
    faults = {str(death): found for death, (found, _) in zip(deaths, results, strict=True) if found}
    assert faults == {}


@pytest.mark.promise("O420")
def test_a_gang_of_which_an_eviction_is_refused_midway_is_moved_as_a_whole(definitions: Cluster) -> None:
    """By a budget that came later, by a webhook, or without an answer."""
    statuses = 429, 403, 0
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = pool.map(functools.partial(refused_with, definitions), statuses)
    assert dict(zip(statuses, results, strict=True)) == {status: [] for status in statuses}


@pytest.mark.promise("O418")
def test_a_gang_that_a_budget_protects_is_moved_once_the_budget_is_deleted(definitions: Cluster) -> None:
    case = MovingCase(definitions, create_namespace(definitions))
    case.set_up()
    budgets = f"/apis/policy/v1/namespaces/{case.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "small"}}}
    case.api.request("POST", budgets, body={"metadata": {"name": "keep"}, "spec": spec})
    before = case.uids("small")

    def is_protected() -> bool:
        reasons = [each.get("status", {}).get("reason", "") for each in case.placements()]
        return any("it is protected by a PodDisruptionBudget" in reason for reason in reasons)

    assert sweep_until(case.mortal("protected"), case.moving, is_protected, CASE_SECONDS)
    assert case.uids("small") == before
    case.api.request("DELETE", f"{budgets}/keep")
    assert sweep_until(case.mortal("then"), case.moving, case.is_at_its_end, CASE_SECONDS)
    case.tear_down()


@pytest.mark.promise("O420")
def test_a_moved_gang_gets_its_place_if_the_one_that_waits_is_deleted_and_the_leader_changes(
    definitions: Cluster,
) -> None:
    case = MovingCase(definitions, create_namespace(definitions))
    case.set_up()
    before = case.uids("small")
    moved = case.mortal("moved")
    assert sweep_until(moved, case.moving, lambda: before.isdisjoint(case.uids("small")), CASE_SECONDS)
    case.api.request("DELETE", f"/apis/apps/v1/namespaces/{case.namespace}/statefulsets/large")
    assert sweep_until(case.mortal("next"), case.moving, lambda: case.has("small", "fixed"), CASE_SECONDS)
    assert case.nodes() == {"small-0": "3", "small-1": "3", "fixed-0": "2"}
    case.tear_down()
