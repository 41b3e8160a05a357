"""A gang without capacity gets nodes, and nothing of the asking stays: real API server, played autoscaler."""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.extensions.scale_up.autoscaler import BEST_EFFORT, StandIn
from tests.sweeper.at_work import create_job, run_all, sweep, template
from tests.sweeper.mortal import AFTER, Death, MortalApi, living, sweep_until
from webhook.configuration.settings import ScaleUp, Settings
from webhook.extensions.scale_up.provisioning_requests import REQUESTS, TEMPLATES
from webhook.workloads import marks

CHOICES = ScaleUp(BEST_EFFORT, after_seconds=0.0, retry_seconds=1.0, label_seconds=30.0)
SETTINGS = Settings(settle_seconds=0.2, interval_seconds=0.5, scale_up=CHOICES)
GRID = nodes.grid(nodes.Shape(nodes=16, blocks=2, subblocks=2))


def left_of(cluster: Cluster, namespace: str) -> list[str]:
    """Names of requests and PodTemplates of a namespace."""
    items = [each for kind in (REQUESTS, TEMPLATES) for each in cluster.api().json("GET", kind.path)["items"]]
    return [each["metadata"]["name"] for each in items if each["metadata"]["namespace"] == namespace]


def requests_of(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    items = cluster.api().json("GET", REQUESTS.path)["items"]
    return [each for each in items if each["metadata"]["namespace"] == namespace]


def reason_of(cluster: Cluster, namespace: str) -> str:
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
    return "; ".join(
        each.get("status", {}).get("reason", "") for each in cluster.api().json("GET", path)["items"]
    )


@pytest.fixture
def one_pass(empty: Cluster) -> Iterator[Any]:
    """A pass of a sweeper that lives as long as the test."""
    api = MortalApi.connect(empty.kubeconfig, user_agent="test-sweeper")
    assert isinstance(api, MortalApi)
    api.prepare(None)
    with living(api, SETTINGS) as each:
        yield each


def until(cluster: Cluster, one_pass: Any, what: str, holds: Any, seconds: float = 120) -> None:
    def done() -> bool:
        one_pass()
        return bool(holds())

    cluster.wait_for(what, done, seconds)


@pytest.mark.promise("O114", "O124")
def test_from_no_node_to_sixteen_the_gang_runs_at_the_optimum_and_nothing_is_left(
    empty: Cluster, namespace: str
) -> None:
    create_job(empty.api(), namespace, "train", 16, template(8))
    with StandIn(empty.api(), GRID, label_seconds=0.5):
        pods = sweep(
            empty,
            namespace,
            SETTINGS,
            lambda pods: run_all(pods, "train", 16) and not left_of(empty, namespace),
            "the gang to run, and its request to be gone",
        )
    labels = {
        each["metadata"]["name"]: each["metadata"]["labels"]
        for each in empty.api().json("GET", "/api/v1/nodes")["items"]
    }
    ranked = sorted(pods, key=lambda pod: int(pod["metadata"]["labels"][marks.JOB_INDEX_KEY]))
    places = [labels[pod["spec"]["nodeName"]] for pod in ranked]
    subblocks = [tuple(each[key] for key in keys.PRERELEASE_TOPOLOGY[:2]) for each in places]
    assert subblocks == sorted(subblocks), "nodes were used before they told where they stand"
    for pod in pods:
        annotations = pod["metadata"]["annotations"]
        assert annotations[marks.PROVISIONING_CLASS] == BEST_EFFORT
        assert annotations[marks.CONSUMED_REQUEST].startswith("job-train-")


@pytest.mark.promise("O115")
def test_a_request_has_the_gang_s_shape_and_nothing_that_only_its_author_should_read(
    empty: Cluster, namespace: str, one_pass: Any
) -> None:
    secret = [{"name": "TOKEN", "value": "secret"}]
    body = template(8, nodeSelector={"pool": "a"}, tolerations=[{"key": "x", "operator": "Exists"}])
    body["spec"]["containers"][0] |= {"env": secret, "command": ["secret"]}
    create_job(empty.api(), namespace, "train", 3, body)
    until(empty, one_pass, "the request", lambda: requests_of(empty, namespace))
    (request,) = requests_of(empty, namespace)
    ((pod_set),) = request["spec"]["podSets"]
    assert pod_set["count"] == 3
    path = f"/api/v1/namespaces/{namespace}/podtemplates/{pod_set['podTemplateRef']['name']}"
    made = empty.api().json("GET", path)
    spec = made["template"]["spec"]
    assert "secret" not in str(made)
    assert "schedulingGates" not in spec
    assert spec["nodeSelector"] == {"pool": "a"}
    assert {"key": "x", "operator": "Exists"} in spec["tolerations"]
    assert spec["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "8"}
    owners = {each["metadata"]["ownerReferences"][0]["kind"] for each in (request, made)}
    assert owners == {"Placement"}


@pytest.mark.promise("O124")
def test_the_request_of_a_deleted_gang_is_deleted(empty: Cluster, namespace: str, one_pass: Any) -> None:
    create_job(empty.api(), namespace, "train", 3, template(8))
    until(empty, one_pass, "the request", lambda: requests_of(empty, namespace))
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/train"
    empty.api().request("DELETE", path, query={"propagationPolicy": "Background"})
    until(empty, one_pass, "nothing to be left", lambda: not left_of(empty, namespace))


@pytest.mark.promise("O114", "O121")
def test_a_refused_request_is_reported_and_retried_until_there_are_nodes(
    empty: Cluster, namespace: str, one_pass: Any
) -> None:
    create_job(empty.api(), namespace, "train", 2, template(8))
    with StandIn(empty.api(), GRID) as standin:
        standin.refuses = "no stock in this zone"
        until(
            empty,
            one_pass,
            "the refusal to be told",
            lambda: "the autoscaler refuses nodes" in reason_of(empty, namespace),
        )
        assert "no stock in this zone" in reason_of(empty, namespace)
        until(
            empty,
            one_pass,
            "another attempt",
            lambda: any(
                each["metadata"]["labels"][keys.SCALE_UP_ATTEMPT_LABEL] == "2"
                for each in requests_of(empty, namespace)
            ),
        )
        standin.refuses = ""

        def runs() -> bool:
            pods = empty.api().json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
            return run_all(pods, "train", 2) and not left_of(empty, namespace)

        until(empty, one_pass, "the gang to run", runs)


@pytest.mark.promise("I1")
@pytest.mark.parametrize("kind", ["podtemplates", "provisioningrequests"])
def test_whichever_write_a_sweeper_dies_at_the_next_one_asks_once(
    empty: Cluster, namespace: str, kind: str
) -> None:
    """Before the second write there is what there is after the first."""
    create_job(empty.api(), namespace, "train", 2, template(8))
    group = "/api/v1" if kind == "podtemplates" else "/apis/autoscaling.x-k8s.io/v1"
    death = Death(AFTER, f"POST {group}/namespaces/{namespace}/{kind} #1")

    def life(death: Death | None, is_done: Any) -> bool:
        api = MortalApi.connect(empty.kubeconfig, user_agent="test-sweeper")
        assert isinstance(api, MortalApi)
        api.prepare(death)
        return sweep_until(api, SETTINGS, is_done, 20)

    assert not life(death, lambda: False)
    assert life(None, lambda: len(left_of(empty, namespace)) == 2)
    (request,) = requests_of(empty, namespace)
    assert request["spec"]["podSets"][0]["podTemplateRef"]["name"] in left_of(empty, namespace)
