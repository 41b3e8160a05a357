"""Pods that refer to ResourceClaims are GPU pods where the policy says so, and nowhere else."""

from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from webhook.admission.decide import DENIED, LEFT_ALONE, MUTATED, decide
from webhook.admission.review import NewPod
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import parse
from webhook.kube.objects import PriorityClass
from webhook.policy import rendering
from webhook.policy.values import Policy

CLAIMS: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
HEAD = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"


def pod(labels: dict[str, str] | None = None, **spec: Any) -> NewPod:
    body = {"metadata": {"labels": labels or {}}, "spec": {"containers": [{"name": "c"}], **spec}}
    return msgspec.convert(body, NewPod)


@pytest.mark.promise("R125")
@pytest.mark.parametrize(
    ("classes", "outcome"),
    [("['*']", MUTATED), ("[]", LEFT_ALONE)],
    ids=["on", "off"],
)
def test_a_pod_with_claims_alone_is_gated_where_the_configuration_asks_for_it(
    classes: str, outcome: str
) -> None:
    policy = parse(f"{HEAD}gpus: {{deviceClasses: {classes}}}").policy
    decision = decide(pod(**CLAIMS), "demo", policy, {})
    assert decision.outcome == outcome
    gates = [each.value for each in decision.operations if each.path.startswith("/spec/schedulingGates")]
    assert gates == ([[{"name": keys.GATE}]] if outcome == MUTATED else [])


TIER_AND_MODEL = "tiers: [{name: x, priorityClassName: x}]\nmodels: [{name: x, labels: {a: b}}]\n"


@pytest.mark.promise("R125")
@pytest.mark.parametrize("model_request", sorted(keys.REQUEST_ANNOTATIONS))
def test_without_the_policy_a_pod_with_claims_is_gated_for_any_topology_request(model_request: str) -> None:
    wishing = msgspec.convert(
        {
            "metadata": {"annotations": {model_request: "x"}},
            "spec": {"containers": [{"name": "c"}], **CLAIMS},
        },
        NewPod,
    )
    operations = decide(wishing, "demo", parse(HEAD + TIER_AND_MODEL).policy, {}).operations
    assert [{"name": keys.GATE}] in [each.value for each in operations]


@pytest.mark.promise("R125")
@pytest.mark.parametrize(
    "resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com"]
)
@pytest.mark.parametrize(("named", "outcome"), [(True, MUTATED), (False, LEFT_ALONE)])
def test_a_pod_with_a_resource_that_a_class_stands_for_is_gated_where_the_policy_names_it(
    resource: str, named: bool, outcome: str
) -> None:
    asking = pod(containers=[{"name": "c", "resources": {"limits": {resource: "1"}}}])
    text = f"gpus: {{resources: ['{resource}']}}\n" if named else ""
    assert decide(asking, "demo", parse(HEAD + text).policy, {}).outcome == outcome


@pytest.mark.promise("R125", "S32")
@pytest.mark.parametrize(
    ("classes", "outcome"),
    [
        ("[]", LEFT_ALONE),
        ("[rdma.example.com]", LEFT_ALONE),
        ("[gpu.example.com]", DENIED),
        ("['gpu.*']", DENIED),
        ("['*']", DENIED),
    ],
)
def test_devices_that_a_pod_requests_without_a_claim_are_gpus_by_the_name_of_their_class(
    classes: str, outcome: str
) -> None:
    """Any pod may ask for the devices of any DeviceClass like this, so the maximum counts such a pod too."""
    text = (
        f"{HEAD}gpus: {{deviceClasses: {classes}}}\n"
        "tiers: [{name: low, priorityClassName: low}, {name: high, priorityClassName: high}]\n"
        "namespaces: {rules: {demo: {maximumTier: low}}}\n"
    )
    resources = {"limits": {f"{keys.DEVICE_CLASS}gpu.example.com": "8"}}
    asking = pod(containers=[{"name": "c", "resources": resources}], priorityClassName="high")
    known = {
        name: msgspec.convert({"metadata": {"name": name}, "value": value}, PriorityClass)
        for name, value in (("low", 1), ("high", 2))
    }
    assert decide(asking, "demo", parse(text).policy, known).outcome == outcome


def test_a_pod_of_a_gang_with_claims_is_no_cpu_only_pod() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "x"}
    assert decide(pod(labels, **CLAIMS), "demo", Policy(resource_claims=True), {}).reason == "wanted"
    assert decide(pod(labels), "demo", Policy(resource_claims=True), {}).reason == "cpu-only-member"


def test_pods_without_claims_are_none_of_it() -> None:
    assert decide(pod(), "demo", Policy(resource_claims=True), {}).outcome == LEFT_ALONE


@pytest.mark.promise("R125")
def test_the_webhook_configuration_follows_the_policy() -> None:
    without, with_claims = (str(rendering.objects(Policy(resource_claims=on), {})) for on in (False, True))
    assert "resourceClaims" not in without
    assert with_claims.count("object.spec.?resourceClaims.orValue([]).size() > 0") == 3


@pytest.mark.promise("R125")
@pytest.mark.parametrize("wrong", ["true", "[3]", "[GPU]", "[gpu.nvidia.com, gpu.nvidia.com/x]"])
def test_what_is_no_list_of_device_classes_is_a_fault(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"gpus\.deviceClasses"):
        parse(HEAD + f"gpus: {{deviceClasses: {wrong}}}\n")


@pytest.mark.promise("R125")
def test_the_device_classes_that_are_gpus_may_be_named() -> None:
    policy = parse(HEAD + "gpus: {deviceClasses: [gpu.nvidia.com, '*.gpu.example.com']}\n").policy
    assert decide(pod(**CLAIMS), "demo", policy, {}).outcome == MUTATED, "admission sees no class"
    found = {
        name
        for name in ("gpu.nvidia.com", "a.gpu.example.com", "rdma", "x.gpu.nvidia.com")
        if policy.is_gpu_class(name)
    }
    assert found == {"gpu.nvidia.com", "a.gpu.example.com"}
