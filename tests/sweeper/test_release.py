"""What a release changes of a pod, and what becomes of pods that changed meanwhile or are refused."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jsonpatch
import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import gpu_pod
from tests.sweeper.pods import decode, gather_all, job_pod, no_size, pod_json
from tests.sweeper.releases import Answers, Never
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Node, Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Assignment, place
from webhook.sweeper.apply import patches
from webhook.sweeper.apply.release import PARALLEL, Outcome, Releaser
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.observe.plans import is_gated
from webhook.sweeper.observe.snapshotter import Snapshotter

GPU = "nvidia.com/gpu"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, **labels: str) -> Node:
    raw = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {GPU: "8", "pods": "110"}}}
    return msgspec.convert(raw, Node)


def released(pod: dict[str, Any], node_name: str = "n1") -> dict[str, Any]:
    """The pod after its release."""
    after: dict[str, Any] = jsonpatch.apply_patch(
        copy.deepcopy(pod), patches.release_patch(decode(pod), node_name, {})
    )
    return after


def test_a_pod_is_pinned_to_its_nodes_name_whatever_the_hostname_label_is() -> None:
    pod = job_pod(0)
    snapshotter = Snapshotter(
        ClusterReading((pod,), {"n1": node("n1", **{keys.HOSTNAME_LABEL: "other"})}, {}, no_size), Settings()
    )
    (gang,) = gather_all(pod)
    found = place(question(gang, [pod], {}).gang, snapshotter.snapshot(snapshotter.view()))
    assert isinstance(found, Assignment)
    after = released(pod_json(), found.nodes[pod.metadata.uid])
    (term,) = after["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


def outcomes(api: Api, *pods: dict[str, Any]) -> dict[str, Outcome]:
    """What becomes of pods that are planned on n1."""
    pairs = [
        (decode(pod), PlannedPod(name=pod["metadata"]["name"], uid=pod["metadata"]["uid"], node="n1"))
        for pod in pods
    ]
    releaser = Releaser(api, Never(), lambda: True)  # type: ignore[arg-type]
    try:
        return {each.planned.name: each.outcome for each in releaser.release(pairs)}
    finally:
        releaser.close()


def of_namespaces(*namespaces: str, count: int) -> list[tuple[Pod, PlannedPod]]:
    """Pods of each namespace, the first one's before those of the next, each on a node of its own."""
    names = [(namespace, f"{namespace}-{number}") for namespace in namespaces for number in range(count)]
    return [
        (gpu_pod(name, metadata={"namespace": namespace, "uid": name}), PlannedPod(name, name, f"n-{name}"))
        for namespace, name in names
    ]


def test_pods_of_a_namespace_whose_releases_fail_delay_none_of_others() -> None:
    """As with a webhook of that namespace that is away, or a priority level that answers 429."""

    def fail(name: str) -> None:
        if name.startswith("sick"):
            raise ApiError(429, "TooManyRequests", "too many requests")

    api = Answers(fail, {})
    releaser = Releaser(api, Never(), lambda: True)  # type: ignore[arg-type]
    done = releaser.release(of_namespaces("sick", "well", count=40))
    releaser.close()
    before = api.patched[: max(at for at, name in enumerate(api.patched) if name.startswith("well"))]
    assert len({name for name in before if name.startswith("sick")}) <= PARALLEL
    found = {each.planned.name: each.outcome for each in done}
    assert len(found) == 80
    assert all((found[name] is Outcome.RELEASED) is name.startswith("well") for name in found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"annotations": {"written": "meanwhile"}}),
        (
            {"resourceVersion": "1", "annotations": {"theirs": "then"}},
            {"resourceVersion": "2", "annotations": {"theirs": "now"}},
        ),
    ],
    ids=["a field is added", "a field that the cache drops is changed"],
)
def test_a_pod_that_another_client_wrote_meanwhile_is_read_again_and_released(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    attempts: list[str] = []

    def conflict_once(name: str) -> None:
        attempts.append(name)
        if len(attempts) == 1:
            raise ApiError(409, "Conflict", "the object has been modified")

    seen, newer = (pod_json("a", metadata=each) for each in (before, after))
    assert outcomes(Answers(conflict_once, {"a": newer}), seen) == {"a": Outcome.RELEASED}
    assert len(attempts) == 2


def refuse(*names: str) -> Callable[[str], None]:
    def patch(name: str) -> None:
        if name in names:
            raise ApiError(422, "Invalid", "the server rejected our request")

    return patch


def test_a_pod_that_has_no_gates_any_more_is_no_error_and_stops_nobody() -> None:
    free = pod_json("a")
    del free["spec"]["schedulingGates"]
    assert not is_gated(decode(free))
    api = Answers(refuse("a"), {"a": free})
    assert outcomes(api, pod_json("a"), pod_json("b")) == {"a": Outcome.GONE, "b": Outcome.RELEASED}


def test_a_gated_pod_that_has_taken_the_name_of_a_planned_one_is_left_alone() -> None:
    api = Answers(refuse("a"), {"a": pod_json("a", metadata={"uid": "another"})})
    assert outcomes(api, pod_json("a")) == {"a": Outcome.GONE}
    assert api.patched == ["a"]


@pytest.mark.parametrize(
    ("seconds", "tried", "detail"),
    [(-1.0, [], "no time left in this pass"), (1.0, ["a"], "away")],
    ids=["at all", "again"],
)
def test_a_pod_for_which_a_pass_has_no_time_left_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, seconds: float, tried: list[str], detail: str
) -> None:
    clock = Clock()

    def fail(_: str) -> None:
        clock.now += 2.0
        raise ApiError(503, "ServiceUnavailable", "away")

    monkeypatch.setattr("webhook.sweeper.apply.release.time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr("webhook.sweeper.apply.release._TOGETHER_SECONDS", seconds)
    api = Answers(fail, {})
    releaser = Releaser(api, Never(), lambda: True)  # type: ignore[arg-type]
    (found,) = releaser.release([(decode(pod_json("a")), PlannedPod(name="a", uid="uid-a", node="n1"))])
    releaser.close()
    assert found.outcome is Outcome.FAILED
    assert detail in found.detail
    assert (found.is_tried, api.patched) == (bool(tried), tried)


def test_a_pod_in_the_middle_that_is_refused_leaves_none_of_the_others_unreleased() -> None:
    pods = [pod_json(name) for name in "abc"]
    api = Answers(refuse("b"), {"b": pods[1]})
    assert outcomes(api, *pods) == {"a": Outcome.RELEASED, "b": Outcome.REFUSED, "c": Outcome.RELEASED}
