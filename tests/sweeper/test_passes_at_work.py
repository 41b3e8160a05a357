"""Passes on the real API server: what fails in between, and what is read and watched."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hack.local.cluster import Cluster
from tests.sweeper.at_work import Pods, create_job, run_all, template
from tests.sweeper.mortal import MortalApi, living
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError, Stream
from webhook.sweeper.observe.cache import NODES, PODS


class Failing(MortalApi):
    """Every fifth request that is not the start of a watch fails, one after the other in another way."""

    def request(self, method: str, path: str, **options: Any) -> bytes:
        self._seen["any"] += 1
        if self._seen["any"] % 5 == 1:
            status = (500, 503, 429, 0)[self._seen["any"] // 5 % 4]
            raise ApiError(status, "Test", "failed by the test", retry_after=0.01)
        return super().request(method, path, **options)


def test_requests_that_fail_end_nothing(misnamed_nodes: Cluster, namespace: str) -> None:
    create_job(misnamed_nodes.api(), namespace, "train", 2, template(8))
    api = Failing.connect(misnamed_nodes.kubeconfig, user_agent="test-sweeper")
    assert isinstance(api, Failing)
    api.prepare(None)
    with living(api, Settings()) as one_pass:

        def runs() -> bool:
            one_pass()
            return run_all(pods_of(misnamed_nodes.api(), namespace), "train", 2)

        misnamed_nodes.wait_for("the gang to run", runs)
    assert api._seen["any"] > 15, "not every way of failing has had its turn"


def pods_of(api: Api, namespace: str) -> Pods:
    pods: Pods = api.json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return pods


class Counting(MortalApi):
    """Notes what is read."""

    read: Counter[tuple[str, str]]
    """By path and field selector."""

    def request(self, method: str, path: str, **options: Any) -> bytes:
        if method == "GET":
            self.read[path, (options.get("query") or {}).get("fieldSelector", "")] += 1
        return super().request(method, path, **options)

    def stream(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> Stream:
        if "sendInitialEvents" in query:
            self.read[path, query.get("fieldSelector", "")] += 1
        return super().stream(path, query=query, timeout_seconds=timeout_seconds)


def test_the_cluster_is_read_once_and_watched_from_then_on(misnamed_nodes: Cluster, namespace: str) -> None:
    api = Counting.connect(misnamed_nodes.kubeconfig, user_agent="test-sweeper")
    assert isinstance(api, Counting)
    api.read = Counter()
    api.prepare(None)
    with living(api, Settings()) as one_pass:
        for name in ("one", "two"):
            create_job(misnamed_nodes.api(), namespace, name, 1, template(4))
            misnamed_nodes.wait_for(
                f"{name} to run", _passes_until(one_pass, misnamed_nodes.api(), namespace, name)
            )
    read = {(path, fields): count for (path, fields), count in api.read.items() if path in (PODS, NODES)}
    # Those that have failed are watched by themselves.
    unfinished, failed = "status.phase!=Succeeded,status.phase!=Failed", "status.phase=Failed"
    assert read == {(NODES, ""): 1, (PODS, unfinished): 1, (PODS, failed): 1}
    assert not [path for path in api.read if f"/namespaces/{namespace}/pods" in path]


def _passes_until(one_pass: Callable[[], float], api: Api, namespace: str, name: str) -> Callable[[], bool]:
    def runs() -> bool:
        one_pass()
        return run_all(pods_of(api, namespace), name, 1)

    return runs
