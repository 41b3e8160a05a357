"""GPU pods that admission missed: counted by namespace, and reported once in each."""

from dataclasses import replace
from typing import Any

import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.sweeper.at_work import create_pod, template
from tests.sweeper.pods import decode, pod_json
from webhook.kube.client import Api
from webhook.kube.objects import Pod
from webhook.policy.values import NamespaceRules, Policy
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.admission_followup import LASTS_SECONDS, UngatedPods, warn_of_ungated
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.settings import Settings
from webhook.sweeper.sweep import Sweeper

GPU = "nvidia.com/gpu"
POLICY = Policy(namespaces={"*": NamespaceRules()}, excluded_namespaces=frozenset({"excluded"}))
IN = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}
LABELS = {"in": IN, "also-in": IN, "out": {}, "excluded": IN, "kube-system": IN}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def pod(
    name: str = "p", namespace: str = "in", *, gated: bool = False, resource: str = GPU, **metadata: Any
) -> Pod:
    container = {"name": "c", "image": "x", "resources": {"requests": {resource: "1"}}}
    spec = metadata.pop("spec", {})
    uid = f"{namespace}/{name}"
    body = pod_json(
        name, metadata={"namespace": namespace, "uid": uid, **metadata}, containers=[container], **spec
    )
    if not gated:
        del body["spec"]["schedulingGates"]
    return decode(body)


def counts(ungated: UngatedPods) -> dict[str, int]:
    return {name: len(pods) for name, pods in ungated.by_namespace(POLICY, LABELS).items()}


def test_gpu_pods_that_were_created_without_a_gate_are_counted_by_namespace() -> None:
    ungated = UngatedPods()
    for name in ("a", "b"):
        ungated.on_pod(None, pod(name))
    ungated.on_pod(None, pod("c", "also-in"))
    assert counts(ungated) == {"in": 2, "also-in": 1}


OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}


@pytest.mark.parametrize(
    "other",
    [
        pod(gated=True),
        pod(namespace="out"),
        pod(namespace="unknown"),
        pod(namespace="excluded"),
        pod(namespace="kube-system"),
        pod(resource="cpu"),
        pod(annotations={keys.INJECT_ANNOTATION: keys.INJECT_NO}),
        pod(annotations={keys.MIRROR_POD_ANNOTATION: "hash"}),
        pod(ownerReferences=[OWNER]),
        pod(spec={"schedulerName": "another"}),
        pod(spec={"schedulingGroup": {"otherName": "g"}}),
    ],
    ids=[
        "gated", "namespace-not-in", "namespace-unknown", "namespace-excluded", "kube-system", "no-gpu",
        "opted-out", "mirror-pod", "daemonset", "other-scheduler", "scheduling-group",
    ],
)  # fmt: skip
def test_what_admission_leaves_alone_is_not_counted(other: Pod) -> None:
    ungated = UngatedPods()
    ungated.on_pod(None, other)
    assert counts(ungated) == {}


def test_pods_of_a_pod_group_are_counted_unless_the_policy_leaves_them() -> None:
    ungated = UngatedPods()
    ungated.on_pod(None, pod(spec={"schedulingGroup": {"podGroupName": "g"}}))
    assert counts(ungated) == {"in": 1}
    assert ungated.by_namespace(replace(POLICY, adopts_native_gangs=False), LABELS) == {}


def test_a_pod_whose_gate_was_taken_by_us_is_not_counted() -> None:
    ungated = UngatedPods()
    ungated.on_pod(None, pod(gated=True))
    ungated.on_pod(pod(gated=True), pod())
    assert counts(ungated) == {}


def test_a_pod_counts_until_it_is_gone_and_for_an_hour_at_most() -> None:
    clock = Clock()
    ungated = UngatedPods(clock)
    ungated.on_pod(None, pod("a"))
    ungated.on_pod(None, pod("b"))
    ungated.on_pod(pod("a"), None)
    clock.now += 3599
    assert counts(ungated) == {"in": 1}
    clock.now += 2
    assert counts(ungated) == {}


def test_each_namespace_gets_one_event_until_it_has_none_any_more() -> None:
    clock = Clock()
    ungated = UngatedPods(clock)
    named: list[frozenset[str]] = [frozenset()]

    def reported() -> list[str]:
        warnings, names = warn_of_ungated(ungated.by_namespace(POLICY, LABELS), named[-1])
        named.append(names)
        return [each.pod.metadata.namespace for each in warnings]

    ungated.on_pod(None, pod("a"))
    ungated.on_pod(None, pod("b", "also-in"))
    assert sorted(reported()) == ["also-in", "in"]
    ungated.on_pod(None, pod("c"))
    assert reported() == []
    clock.now += LASTS_SECONDS + 1
    assert reported() == []
    ungated.on_pod(None, pod("d"))
    assert reported() == ["in"]


class Announced:
    """Collects what is reported of pods."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        self.events.append((pod.metadata.name, reason))

    def announce_on_node(self, *_: Any, **__: Any) -> None:
        pass


def test_a_sweeper_counts_and_reports_the_pods_that_came_ungated_since_it_leads(
    definitions: Cluster, opted_in: str
) -> None:
    api, announced, metrics = definitions.api(), Announced(), Metrics()
    create_pod(api, opted_in, "before", template(1, gated=False))
    own = Api.connect(definitions.kubeconfig, user_agent="test")
    cache = ClusterCache(own)
    surroundings = Pass(own, cache, Settings(), metrics, announced, policy=lambda: POLICY)
    sweeper = Sweeper(surroundings)
    cache.start()
    try:
        definitions.wait_for("the copies", lambda: cache.synced and cache.namespaces.synced)
        for name in ("one", "two"):
            create_pod(api, opted_in, name, template(1, gated=False))

        def is_counted() -> bool:
            sweeper.sweep()
            return metrics.registry.get_sample_value("topogate_ungated_pods") == 2

        definitions.wait_for("both to be counted", is_counted)
    finally:
        sweeper.close()
        cache.stop()
        own.close()
    (reported,) = [name for name, reason in announced.events if reason == "PodsNotGated"]
    assert reported in ("one", "two")
