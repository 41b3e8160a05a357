"""GPU pods that admission missed: counted by namespace, and reported once in each."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from hack.local.cluster import Cluster
from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.admission.harness import WEBHOOKS
from tests.admission.neighbour import neighbour
from tests.support import delete
from tests.sweeper.at_work import create_pod, template
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.kube.client import Api
from webhook.kube.objects import Condition, Pod
from webhook.policy.values import NamespaceRules, Policy
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.ungated_pods import (
    LASTS_SECONDS,
    MOST_READS,
    Reported,
    UngatedCause,
    UngatedPods,
    warn_of_ungated,
)
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.creator_fields import CreatorFields, NotReadNowError, creator_fields
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


WITH_GPU = CreatorFields(frozenset({GPU, "cpu"}), names_node=False)
"""What the creator of a pod wrote that admission has missed."""


def counts(
    ungated: UngatedPods,
    written: CreatorFields | None = WITH_GPU,
    cause: UngatedCause = UngatedCause.MISSED,
    policy: Policy = POLICY,
    labels: Mapping[str, Mapping[str, str]] = LABELS,
) -> dict[str, int]:
    found = ungated.by_cause(policy, labels, lambda pod: written)
    return {name: len(pods) for name, pods in found.get(cause, {}).items()}


def test_gpu_pods_that_were_created_without_a_gate_are_counted_by_namespace() -> None:
    ungated = UngatedPods()
    for name in ("a", "b"):
        ungated.on_pod(None, pod(name))
    ungated.on_pod(None, pod("c", "also-in"))
    assert counts(ungated) == {"in": 2, "also-in": 1}


OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}


@pytest.mark.promise("O325")
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
        pod(spec={"nodeName": "n"}),
    ],
    ids=[
        "gated", "namespace-not-in", "namespace-unknown", "namespace-excluded", "kube-system", "no-gpu",
        "opted-out", "mirror-pod", "daemonset", "other-scheduler", "scheduling-group",
        "created-for-a-node",
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
    assert counts(ungated, policy=replace(POLICY, adopts_native_gangs=False)) == {}


def test_a_pod_whose_gate_was_taken_by_us_is_not_counted() -> None:
    ungated = UngatedPods()
    ungated.on_pod(None, pod(gated=True))
    ungated.on_pod(pod(gated=True), pod())
    assert counts(ungated) == {}


def test_a_pod_that_was_created_and_released_while_there_was_no_watch_is_not_counted() -> None:
    """As another replica did, which leads; after a break the watch shows the pod without its gate."""
    ungated = UngatedPods()
    for name in ("released", "missed"):
        ungated.on_pod(None, pod(name))
    found = ungated.by_cause(
        POLICY, LABELS, lambda _: WITH_GPU, lambda each: each.metadata.name == "released"
    )
    assert [each.metadata.name for each in found[UngatedCause.MISSED]["in"]] == ["missed"]


@pytest.mark.promise("O325")
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


@pytest.mark.promise("O325")
def test_each_namespace_gets_one_event_until_it_has_none_any_more() -> None:
    clock = Clock()
    ungated = UngatedPods(clock)
    named: list[Reported] = [frozenset()]

    def reported() -> list[str]:
        found = ungated.by_cause(POLICY, LABELS, lambda pod: WITH_GPU)
        warnings, names = warn_of_ungated(found, named[-1])
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


# --- the true cause --------------------------------------------------------------------------------------


@pytest.mark.promise("O325")
@pytest.mark.parametrize(
    ("written", "cause"),
    [
        (WITH_GPU, UngatedCause.MISSED),
        (None, UngatedCause.MISSED),
        (CreatorFields(frozenset({"cpu"}), names_node=False), UngatedCause.GPUS_ADDED),
        (CreatorFields(frozenset(), names_node=False), UngatedCause.GPUS_ADDED),
        (CreatorFields(frozenset({GPU}), names_node=True), None),
        (CreatorFields(frozenset(), names_node=True), None),
    ],
    ids=["webhook away", "not known", "GPU added", "all added", "for a node", "for a node, GPU added"],
)
def test_a_pod_without_a_gate_is_reported_with_its_true_cause_or_not_at_all(
    written: CreatorFields | None, cause: UngatedCause | None
) -> None:
    ungated = UngatedPods()
    ungated.on_pod(None, pod())
    found = ungated.by_cause(POLICY, LABELS, lambda pod: written)
    assert list(found) == ([cause] if cause else [])


def test_the_event_on_gpus_that_another_webhook_adds_names_the_remedy() -> None:
    ungated = UngatedPods()
    ungated.on_pod(None, pod())
    added = CreatorFields(frozenset(), names_node=False)
    (warning,), _ = warn_of_ungated(ungated.by_cause(POLICY, LABELS, lambda pod: added), frozenset())
    assert "another webhook adds the GPUs" in warning.note
    assert "sorts before topogate" in warning.note
    assert "no answer" not in warning.note


def test_a_bound_pod_that_is_first_seen_after_a_new_list_counts_by_what_its_creator_wrote() -> None:
    """A binding sets the condition PodScheduled, as the kubelet does later for a pod created for a node."""
    bound = pod(spec={"nodeName": "n"})
    status = structs.replace(bound.status, conditions=[Condition(type="PodScheduled", status="True")])
    ungated = UngatedPods()
    ungated.on_pod(None, structs.replace(bound, status=status))
    assert counts(ungated) == {"in": 1}
    ungated = UngatedPods()
    ungated.on_pod(None, structs.replace(bound, status=status))
    assert counts(ungated, WITH_GPU._replace(names_node=True)) == {}


@pytest.mark.promise("O325")
def test_a_pod_that_was_created_before_its_namespace_opted_in_is_not_counted() -> None:
    clock = Clock()
    ungated = UngatedPods(clock)
    before = {"later": {}, "in": IN}
    assert counts(ungated, labels=before) == {}
    for name, namespace in (("early", "later"), ("a", "in")):
        ungated.on_pod(None, pod(name, namespace))
    clock.now += 1
    after = {"later": IN, "in": IN, "new": IN}
    ungated.on_pod(None, pod("n", "new"))
    assert counts(ungated, labels=after) == {"in": 1, "new": 1}
    clock.now += 1
    ungated.on_pod(None, pod("late", "later"))
    assert counts(ungated, labels=after) == {"in": 1, "new": 1, "later": 1}


def test_one_pod_of_each_controller_is_read_once_and_a_pass_reads_few() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    ungated, read = UngatedPods(), list[str]()
    for number in range(3 * MOST_READS):
        ungated.on_pod(None, pod(f"job-{number}", ownerReferences=[job]))
        ungated.on_pod(None, pod(f"bare-{number}"))

    def note(found: Pod) -> CreatorFields:
        read.append(found.metadata.name)
        return WITH_GPU

    seen = []
    for _ in range(5):
        missed = ungated.by_cause(POLICY, LABELS, note)[UngatedCause.MISSED]["in"]
        seen.append((len(missed), len(read)))
    assert [reads for _, reads in seen] == [16, 32, 48, 49, 49]
    assert [pods for pods, _ in seen] == [63, 79, 95, 96, 96]
    assert len(set(read)) == len(read)


@pytest.mark.parametrize(("seconds", "reads"), [(0.99, 3), (1.0, 1)])
def test_a_pass_reads_no_further_pod_after_a_slow_answer(seconds: float, reads: int) -> None:
    clock, read = Clock(), list[str]()
    ungated = UngatedPods(clock)
    for number in range(3):
        ungated.on_pod(None, pod(f"bare-{number}"))

    def answer(found: Pod) -> CreatorFields:
        read.append(found.metadata.name)
        clock.now += seconds
        return WITH_GPU

    ungated.by_cause(POLICY, LABELS, answer)
    assert len(read) == reads


def test_a_pod_that_cannot_be_read_now_is_read_in_a_later_pass() -> None:
    ungated = UngatedPods()
    ungated.on_pod(None, pod())

    def fail(found: Pod) -> CreatorFields:
        raise NotReadNowError

    assert ungated.by_cause(POLICY, LABELS, fail) == {}
    assert counts(ungated) == {"in": 1}


def entry(spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"operation": "Update", "fieldsV1": {"f:spec": spec}, **more}


LIMITS: dict[str, Any] = {"f:limits": {f"f:{GPU}": {}}}
ASKS = {"f:containers": {'k:{"name":"c"}': {"f:resources": LIMITS}}}
DEEP: dict[str, Any] = {}
for _ in range(5000):
    DEEP = {"f:x": DEEP}


@pytest.mark.parametrize(
    ("managers", "expected"),
    [
        ([], None),
        ([entry({"f:nodeName": {}}, subresource="status")], None),
        ([entry(ASKS)], {GPU}),
        ([entry({"f:nodeName": {}}), entry(ASKS)], {GPU}),
        ([entry({"f:containers": {'k:{"name":"c"}': {"f:image": {}}}})], set()),
        ([{"operation": "Update"}], set()),
        ([entry(DEEP)], set()),
    ],
    ids=["emptied", "of the status alone", "limits", "two managers", "no GPU", "no fields", "deep"],
)
def test_what_a_creator_wrote_is_read_from_the_managed_fields(
    managers: list[dict[str, Any]], expected: set[str] | None
) -> None:
    found = creator_fields({"metadata": {"managedFields": managers}})
    assert (None if found is None else found.resources) == expected
    names_node = any("f:nodeName" in each.get("fieldsV1", {}).get("f:spec", {}) for each in managers)
    assert found is None or found.names_node == names_node


class Announced:
    """Collects what is reported of pods: name, reason and sentence."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        self.events.append((pod.metadata.name, reason, note))

    def announce_on_node(self, *_: Any, **__: Any) -> None:
        pass


@pytest.fixture
def gpu_adder(definitions: Cluster, opted_in: str) -> Iterator[None]:
    """A webhook that gives a GPU to pods that ask for nothing."""
    api = definitions.api()
    resources = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    patch = [{"op": "add", "path": "/spec/containers/0/resources", "value": resources}]
    with neighbour() as made:
        made.behave = lambda pod: [] if pod["spec"]["containers"][0]["resources"] else patch
        made.install(api, "zz-gpu-adder")
        path, query = f"/api/v1/namespaces/{opted_in}/pods", {"dryRun": "All"}
        probe = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}

        def is_called() -> bool:
            api.request("POST", path, body=probe, query=query)
            return made.calls > 0

        definitions.wait_for("the webhook to be called", is_called)
        yield
        delete(api, f"{WEBHOOKS}/zz-gpu-adder")


@pytest.mark.promise("O325")
@pytest.mark.usefixtures("gpu_adder")
def test_a_sweeper_counts_the_pods_that_came_ungated_since_it_leads_and_reports_the_others_by_their_cause(
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
        definitions.wait_for("the copies", lambda: cache.synced and cache.namespace_labels() is not None)
        create_pod(api, opted_in, "for-a-node", template(1, gated=False, nodeName="n"))
        without = template(1, gated=False)
        del without["spec"]["containers"][0]["resources"]
        create_pod(api, opted_in, "gpu-added", without)
        for name in ("one", "two"):
            create_pod(api, opted_in, name, template(1, gated=False))

        def is_reported() -> bool:
            sweeper.sweep()
            counted = metrics.registry.get_sample_value("topogate_ungated_pods")
            return counted == 2 and len(announced.events) >= 2

        definitions.wait_for("both to be counted, and the other to be reported", is_reported)
    finally:
        sweeper.close()
        cache.stop()
        own.close()
    (missed,) = [name for name, _, note in announced.events if "got no answer in time" in note]
    assert missed in ("one", "two")
    (added,) = [name for name, _, note in announced.events if "another webhook adds the GPUs" in note]
    assert added == "gpu-added"
    assert {reason for _, reason, _ in announced.events} == {EventReason.PODS_NOT_GATED}
