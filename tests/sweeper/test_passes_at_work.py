"""Passes on the real API server: odd labels, failing requests, ignored namespaces, intervals, watches."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import create_namespace, delete_namespace, wait_for_pods
from tests.sweeper.at_work import Pods, create_job, is_gated, named, run_all, sweep, template
from tests.sweeper.mortal import MortalApi, living
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError, Stream
from webhook.sweeper.observe.cache import NODES, PODS


@pytest.mark.promise("R8")
def test_a_gang_runs_on_nodes_whose_hostname_label_is_not_their_name(
    misnamed_nodes: Cluster, namespace: str
) -> None:
    create_job(misnamed_nodes.api(), namespace, "train", 2, template(8))
    pods = sweep(
        misnamed_nodes, namespace, Settings(), lambda pods: run_all(pods, "train", 2), "the gang to run"
    )
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2


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


def test_a_gated_pod_of_an_ignored_namespace_stays_as_it_is(misnamed_nodes: Cluster, namespace: str) -> None:
    theirs = create_namespace(misnamed_nodes)
    try:
        create_job(misnamed_nodes.api(), theirs, "theirs", 1, template(8))
        wait_for_pods(misnamed_nodes, theirs, lambda pods: len(pods) == 1, "the pod to ignore")
        create_job(misnamed_nodes.api(), namespace, "ours", 1, template(8))
        settings = Settings(ignored_namespaces=frozenset({theirs}))
        sweep(misnamed_nodes, namespace, settings, lambda pods: run_all(pods, "ours", 1), "the other to run")
        (left,) = pods_of(misnamed_nodes.api(), theirs)
        assert is_gated(left)
        path = f"/apis/topogate.io/v1alpha1/namespaces/{theirs}/placements"
        assert misnamed_nodes.api().json("GET", path)["items"] == []
    finally:
        delete_namespace(misnamed_nodes, theirs)


@pytest.mark.parametrize("seconds", [7.0, 0.5])
def test_a_pass_is_due_again_after_the_interval(misnamed_nodes: Cluster, seconds: float) -> None:
    api = MortalApi.connect(misnamed_nodes.kubeconfig, user_agent="test-sweeper")
    assert isinstance(api, MortalApi)
    api.prepare(None)
    with living(api, Settings(interval_seconds=seconds)) as one_pass:
        assert one_pass() == seconds


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


def test_a_gang_does_not_wait_for_a_pod_that_is_being_deleted_nor_count_it(
    misnamed_nodes: Cluster, namespace: str
) -> None:
    """Two pods are expected; of two that are gated one is on its way out, and a third comes later."""
    annotations = {keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: "2"}
    body = template(4, annotations=annotations)

    def create(name: str, *finalizers: str) -> None:
        metadata = {**body["metadata"], "name": name, "finalizers": list(finalizers)}
        path = f"/api/v1/namespaces/{namespace}/pods"
        misnamed_nodes.api().request("POST", path, body={**body, "metadata": metadata})

    create("leaving", "test.topogate.io/stay")
    create("first")
    leaving = f"/api/v1/namespaces/{namespace}/pods/leaving"
    misnamed_nodes.api().request("DELETE", leaving, query={"gracePeriodSeconds": "0"})
    passes: list[bool] = []

    def some_passes(pods: Pods) -> bool:
        passes.append(all(map(is_gated, pods)))
        return len(passes) > 10

    sweep(misnamed_nodes, namespace, Settings(), some_passes, "some passes")
    assert all(passes), "a gang of one pod was taken for complete"
    create("second")

    def both_run(pods: Pods) -> bool:
        return run_all(pods, "first", 1) and run_all(pods, "second", 1)

    try:
        pods = sweep(misnamed_nodes, namespace, Settings(), both_run, "the gang to run")
        assert is_gated(named(pods, "leaving")[0])
    finally:
        patch = [{"op": "remove", "path": "/metadata/finalizers"}]
        misnamed_nodes.api().request("PATCH", leaving, body=patch, content_type="application/json-patch+json")
