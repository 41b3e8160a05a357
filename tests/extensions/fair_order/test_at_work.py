"""Fair order on a real control plane: turns by use, kept in a ConfigMap that outlives every process."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from hack.local.cluster import Cluster
from tests.extensions.made import none_failed
from tests.support import create_namespace
from tests.sweeper.at_work import create_pod, sweep, template
from tests.sweeper.clock import Clock
from webhook.configuration.settings import Settings
from webhook.extensions.fair_order.account_use import KEY, NAME, Use, decode, encode
from webhook.extensions.fair_order.fair_order import FairMemory
from webhook.extensions.known import SWITCHES
from webhook.kube.client import Api, ApiError
from webhook.kube.state_config_map import NAMESPACE, path_of
from webhook.policy.fair import FairOrder
from webhook.policy.values import Policy
from webhook.sweeper.context import Pass
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.view import Moment, View

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PATH = path_of(NAME)
FAIR = FairOrder()
POLICY = Policy(fair_order=FAIR)
SECONDS = 60.0


@pytest.fixture
def recording(cluster: Cluster) -> Cluster:
    """A cluster with the ConfigMap, as the manifests make it."""
    api = cluster.api()
    api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": NAMESPACE}})
    api.request("POST", CONFIG_MAPS, body={"metadata": {"name": "topogate-use"}})
    return cluster


def backlog(api: Api, namespace: str, count: int) -> None:
    for number in range(count):
        body = template(4, annotations={"local.topogate.io/run-for": "1s"})
        create_pod(api, namespace, f"p{number}", body)


@pytest.mark.promise("O60", "O77")
def test_two_namespaces_of_weights_1_and_3_get_1_and_3_of_4_places(two_nodes: Cluster) -> None:
    api = two_nodes.api()
    one, three = create_namespace(two_nodes), create_namespace(two_nodes)
    fair = FairOrder(half_life_seconds=8, weights={one: 1.0, three: 3.0})
    backlog(api, one, 40)  # the older ones, which would all come first
    backlog(api, three, 40)
    begun: dict[str, int] = {}

    def has_begun_in_both(pods: list[dict[str, Any]]) -> bool:
        others = api.json("GET", f"/api/v1/namespaces/{three}/pods")["items"]
        for name, some in ((one, pods), (three, others)):
            begun[name] = sum(pod["status"]["phase"] != "Pending" for pod in some)
        return sum(begun.values()) >= 44

    sweep(two_nodes, one, Settings(), has_begun_in_both, "44 pods to run", 60, Policy(fair_order=fair))
    assert 8 <= begun[one] <= 14, f"11 of 44 are its share; {begun}"

    waiting = api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{one}/placements")["items"]
    positions = {each["status"]["fairOrder"] for each in waiting if each["status"].get("fairOrder")}
    assert any(f"{one} has used" in position and "(weight 1)" in position for position in positions)
    assert not any(three in position for position in positions), "nobody is told who the others are"


class Leader:
    """The passes of a leader over a cluster without pods."""

    def __init__(self, cluster: Cluster, clock: Clock, leads: Callable[[], bool] = lambda: True) -> None:
        api = cluster.api()
        surroundings = Pass(
            api, ClusterCache(api), Settings(), may_act=leads, clock=clock, policy=lambda: POLICY,
            extensions=SWITCHES,
        )  # fmt: skip
        self.clock = clock
        self.hooks = ExtensionHooks(surroundings, lambda: 1e9 + clock())

    def one_pass(self, gpu_seconds: float | None = None) -> None:
        """gpu_seconds: what account "a" has used by then, None where that is known."""
        seconds = self.clock()
        view = View([], [], {}, {}, now=Moment(seconds, datetime.fromtimestamp(1e9 + seconds, UTC)))
        view = self.hooks.begin(view, self.hooks.memories)
        self.hooks.order([], view, {}, {})
        if gpu_seconds is not None:
            memory = self.hooks.memories["fair_order"]
            use = {"a": {"H100": gpu_seconds}}
            self.hooks.memories = {"fair_order": replace(memory, book=replace(memory.book, use=use))}
        self.hooks.after_pass(view, none_failed(self.hooks))

    @property
    def use(self) -> Use:
        memory = self.hooks.memories["fair_order"]
        assert isinstance(memory, FairMemory)
        return memory.book.use


def text_of(cluster: Cluster) -> str:
    return str((cluster.api().json("GET", PATH).get("data") or {}).get(KEY, ""))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.promise("S17", "O79")
def test_the_next_leader_reads_what_the_last_one_wrote(recording: Cluster, clock: Clock) -> None:
    first = Leader(recording, clock)
    first.one_pass(5.0)
    assert not text_of(recording), "at most once a minute"
    clock.now += SECONDS
    first.one_pass(7.0)
    record = decode(text_of(recording))
    assert (record.use, record.at) == ({"a": {"H100": 7.0}}, 1e9 + SECONDS)
    second = Leader(recording, clock)
    second.one_pass()
    assert second.use == {"a": {"H100": 7.0}}


@pytest.mark.promise("O79")
def test_what_an_operator_has_written_meanwhile_is_taken_over(recording: Cluster, clock: Clock) -> None:
    leader = Leader(recording, clock)
    leader.one_pass(7.0)
    reset = {"data": {KEY: encode({}, 1e9, FAIR)}}
    recording.api().request("PATCH", PATH, body=reset, content_type="application/merge-patch+json")
    clock.now += SECONDS
    leader.one_pass(7.0)
    assert json.loads(text_of(recording))["accounts"] == {}, "it is not overwritten"
    leader.one_pass()
    assert leader.use == {}
    clock.now += SECONDS
    leader.one_pass(3.0)
    assert decode(text_of(recording)).use == {"a": {"H100": 3.0}}


def test_what_cannot_be_read_is_logged_and_replaced(
    recording: Cluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    broken = {"data": {KEY: "{"}}
    recording.api().request("PATCH", PATH, body=broken, content_type="application/merge-patch+json")
    leader = Leader(recording, clock)
    leader.one_pass()
    assert leader.use == {}
    assert "will be replaced" in caplog.text
    clock.now += SECONDS
    leader.one_pass(7.0)
    assert decode(text_of(recording)).use == {"a": {"H100": 7.0}}


@pytest.mark.promise("O79")
def test_without_its_configmap_the_order_continues_and_that_is_logged_once(
    cluster: Cluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    leader = Leader(cluster, clock)
    for _ in range(3):
        leader.one_pass(7.0)
        clock.now += SECONDS
    assert leader.use == {"a": {"H100": 7.0}}
    assert caplog.text.count("record_not_saved") == 1
    with pytest.raises(ApiError):
        text_of(cluster)
