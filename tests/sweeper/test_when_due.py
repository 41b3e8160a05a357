"""How long the loop waits for its next pass after the API server had no time for something."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.cluster import gpu_pod
from tests.sweeper.releases import Never
from webhook.configuration.settings import Avoid, BadNodes, Settings
from webhook.configuration.store import ConfigurationStore
from webhook.kube.client import Api, ApiError, Stream
from webhook.kube.collection import Listing
from webhook.kube.objects import Metadata, Node
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import NO_HURRY
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import key_of
from webhook.sweeper.process import _Process
from webhook.sweeper.sweep import Sweeper

SETTINGS = Settings(interval_seconds=30, bad_nodes=BadNodes(Avoid.OFF))
POD = gpu_pod("p")


class Busy(Api):
    """An API server that has no time for pods, at first, and that takes all else."""

    def __init__(self) -> None:
        self.has_time = False
        self.asked = 0
        self.released: list[str] = []

    def request(self, method: str, path: str, **_: Any) -> bytes:
        if "/pods/" in path:
            self.asked += 1
            if not self.has_time:
                raise ApiError(429, "TooManyRequests", "too many requests, please try again later")
            self.released.append(path.rpartition("/")[2])
        return msgspec.json.encode({"metadata": {"name": "p", "namespace": "ns", "resourceVersion": "9"}})

    def stream(self, path: str, **_: Any) -> Stream:
        raise ApiError(404, "NotFound", f"{path}: there is none")


def cluster_of(api: Api) -> ClusterCache:
    """One pod that a plan has sent to one node, and that is gated still."""
    node = {"metadata": {"name": "n0"}, "status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}}}
    key = key_of(POD)
    placement = Placement(
        metadata=Metadata(namespace="ns", name=key.placement_name, resource_version="1"),
        spec=PlacementSpec(gang=f"{key.kind}/{key.name}", gang_id=key.id, size=1,
                           pods=[PlannedPod("p", POD.metadata.uid, "n0")]),
    )  # fmt: skip
    cache = ClusterCache(api)
    cache.nodes._replace(Listing("1", {"n0": msgspec.convert(node, Node)}))
    cache.pods._replace(Listing("1", {"ns/p": POD}))
    cache.placements._replace(Listing("1", {placement.key: placement}))
    return cache


class Loop:
    """The loop of a process that leads, and its passes, without the time in between."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api, self.clock, never = Busy(), Clock(), cast(threading.Event, Never())
        self.cache = cluster_of(self.api)
        self.sweeper = Sweeper(Pass(self.api, self.cache, SETTINGS, stopping=never, clock=self.clock))
        self._process = _Process(self.api, ConfigurationStore([]), never, None, cast(Any, None))
        self._waits: list[float] = []
        monkeypatch.setattr(_Process, "_wait", lambda _self, _changed, seconds: self._waits.append(seconds))

    def one_pass(self, *, observed_after: float = NO_HURRY) -> float:
        """For how long the loop would wait after it; then something has changed, or the wait is over."""
        self._process._sweep(self.sweeper, self.cache)
        self.clock.now += min(observed_after, self._waits[-1])
        return self._waits[-1]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    made = Loop(monkeypatch)
    yield made
    made.sweeper.close()
    made.cache.stop()


def test_the_loop_waits_for_longer_each_time_that_a_release_is_deferred_and_then_as_usual(loop: Loop) -> None:
    assert [loop.one_pass() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    loop.api.has_time = True
    assert loop.one_pass() == SETTINGS.interval_seconds
    assert loop.api.released == ["p"]


def test_a_pass_in_between_asks_for_nothing_and_the_loop_then_waits_for_what_is_left(loop: Loop) -> None:
    waits = [loop.one_pass(observed_after=0.25) for _ in range(4)]
    assert waits == [1, 0.75, 0.5, 0.25]
    tried = loop.api.asked
    assert loop.one_pass() == 2
    assert loop.api.asked == 2 * tried, "it was tried in the first pass alone, and is tried again now"
