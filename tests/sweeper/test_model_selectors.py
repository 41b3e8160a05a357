"""Pods that were gated without the webhook: their model is added, their missing class is reported."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from labeler.contract import keys
from tests.admission.shapes import required
from tests.sweeper.at_work import GPU
from tests.sweeper.pods import decode, gather_all, no_size, pod_json
from webhook.kube.objects import Pod
from webhook.policy.values import GpuModel, NamespaceRules, Policy, Tier
from webhook.sweeper.apply.patches import model_labels_patch
from webhook.sweeper.decide.admission_followup import UnmetError, missing_labels, model_label_step
from webhook.sweeper.observe.gangs import gather
from webhook.sweeper.observe.view import View

MODEL_LABEL = "nvidia.com/gpu.product"
MAX_LABELS = {"gpu.intel.com/product": "Max_1550"}
POLICY = Policy(
    gpu_models=(
        GpuModel("H100", {MODEL_LABEL: "H100", "family": "hopper"}, resources=(GPU,)),
        GpuModel("Max 1550", MAX_LABELS, resources=(keys.XE,)),
    ),
    tiers=(Tier("low", "low"), Tier("high", "high")),
    namespaces={
        "steered": NamespaceRules(default_gpu_model="H100", default_tier="low"),
        "*": NamespaceRules(),
    },
)
LABELS = {MODEL_LABEL: "H100", "family": "hopper"}


def pod(
    name: str = "p",
    annotations: dict[str, str] | None = None,
    *,
    namespace: str = "ns",
    resource: str = GPU,
    gated: bool = True,
    **spec: Any,
) -> Pod:
    container = {"name": "c", "image": "x", "resources": {"requests": {resource: "1"}}}
    metadata = {"namespace": namespace, "annotations": {keys.GANG_ANNOTATION: "g", **(annotations or {})}}
    body = pod_json(name, metadata=metadata, containers=[container], **spec)
    if not gated:
        del body["spec"]["schedulingGates"]
    return decode(body)


def model_request(model: str) -> dict[str, str]:
    return {keys.GPU_MODEL_ANNOTATION: model}


def view(*others: Pod) -> View:
    return View([], others, {}, {})


@pytest.mark.promise("O215")
@pytest.mark.parametrize(
    ("found", "labels"),
    [
        (pod(annotations=model_request("h-100")), LABELS),
        (pod(annotations=model_request("H100"), nodeSelector={"zone": "a"}), LABELS),
        (pod(annotations=model_request("H100"), nodeSelector={MODEL_LABEL: "H100"}), {"family": "hopper"}),
        (pod(annotations=model_request("H100"), nodeSelector=LABELS), {}),
        (pod(), {}),
        (pod(namespace="steered"), LABELS),
        (
            pod(namespace="steered", annotations=model_request("Max 1550"), resource=keys.XE),
            {"gpu.intel.com/product": "Max_1550"},
        ),
        (pod(namespace="steered", resource="amd.com/gpu"), {}),
        (pod(namespace="steered", resource="cpu"), {}),
        (pod(namespace="steered", nodeSelector={MODEL_LABEL: "A100"}), {}),
        (
            pod(
                namespace="steered",
                affinity=required({"key": MODEL_LABEL, "operator": "In", "values": ["A100"]}),
            ),
            {},
        ),
        (
            pod(
                namespace="steered",
                affinity=required({"key": MODEL_LABEL, "operator": "In", "values": ["A100", "H100"]}),
            ),
            LABELS,
        ),
        (pod(annotations=model_request("H100") | {keys.INJECT_ANNOTATION: keys.INJECT_NO}), {}),
    ],
    ids=[
        "a wish",
        "beside another label",
        "half of it there",
        "all of it there",
        "no wish",
        "the namespace's default",
        "a wish against the default",
        "a default for another resource",
        "a default for no GPU",
        "a default against the selector",
        "a default against required affinity",
        "a default within required affinity",
        "opted out",
    ],
)
def test_a_pod_lacks_of_its_model_what_admission_would_have_added(found: Pod, labels: dict[str, str]) -> None:
    assert missing_labels(found, POLICY) == labels


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            pod(annotations=model_request("B200\x1b")),
            r'no GPU model "B200\\x1b"; did you mean H100\? known: H100 and Max 1550',
        ),
        (pod(annotations=model_request("Max 1550")), "GPU model Max 1550 offers .* asks for nvidia.com/gpu"),
        (
            pod(annotations=model_request("H100"), nodeSelector={MODEL_LABEL: "A100"}),
            "H100 needs nodeSelector .* remove one of the two",
        ),
    ],
    ids=["unknown", "of another maker", "against the selector"],
)
def test_a_request_that_admission_would_have_refused_holds_the_gang_and_is_reported(
    found: Pod, words: str
) -> None:
    with pytest.raises(UnmetError, match=words):
        missing_labels(found, POLICY)
    gangs = gather_all(found)
    orders = model_label_step(gangs, view(), POLICY)
    assert [outcome.gang for outcome in orders.outcomes] == gangs


def test_a_defect_with_one_gang_keeps_no_other_from_its_labels_and_holds_it_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the pods of all that came past the webhook would be placed on any model."""

    def failing(pod: Pod, *given: Any) -> Mapping[str, str]:
        if pod.metadata.name == "bad":
            raise RuntimeError("a defect")
        return missing_labels(pod, *given)

    monkeypatch.setattr("webhook.sweeper.decide.admission_followup.missing_labels", failing)
    gangs = gather_all(
        pod("bad", model_request("H100") | {keys.GANG_ANNOTATION: "b"}), pod("good", model_request("H100"))
    )
    orders = model_label_step(gangs, view(), POLICY)
    assert [each.pod.metadata.name for each in orders.model_label_orders] == ["good"]
    assert {each.gang.key.name for each in orders.outcomes} == {"b", "g"}


def test_a_pod_that_asks_for_an_exbibyte_beside_its_gpu_gets_the_selector_as_any_other() -> None:
    huge = {"name": "h", "image": "x", "resources": {"requests": {"memory": "1Ei"}}}
    assert missing_labels(pod("p", model_request("H100"), initContainers=[huge]), POLICY) == LABELS


@pytest.mark.promise("O215")
def test_a_gang_is_placed_only_after_its_members_have_their_labels() -> None:
    (gang,) = gather_all(*(pod(f"p{number}", model_request("H100")) for number in range(3)))
    orders = model_label_step([gang], view(), POLICY)
    assert [each.labels for each in orders.model_label_orders] == [LABELS] * 3
    assert [each.gang for each in orders.outcomes] == [gang]
    (selected,) = gather_all(
        *(pod(f"p{number}", model_request("H100"), nodeSelector=LABELS) for number in range(3))
    )
    assert model_label_step([selected], view(), POLICY).outcomes == ()


@pytest.mark.promise("O214")
@pytest.mark.parametrize(
    ("found", "is_missed"),
    [
        (pod(annotations={keys.PRIORITY_ANNOTATION: "high"}), True),
        (pod(annotations={keys.PRIORITY_ANNOTATION: "high"}, priorityClassName="high"), False),
        (pod(annotations={keys.PRIORITY_ANNOTATION: "high"}, priorityClassName="house"), True),
        (pod(annotations={keys.PRIORITY_ANNOTATION: "other"}), False),
        (pod(namespace="steered", nodeSelector=LABELS), True),
        (pod(namespace="steered", nodeSelector=LABELS, priorityClassName="house"), False),
        (pod(), False),
        (pod(annotations={keys.PRIORITY_ANNOTATION: "high", keys.INJECT_ANNOTATION: keys.INJECT_NO}), False),
    ],
    ids=[
        "wished",
        "there",
        "another, perhaps the cluster's default",
        "no tier",
        "by default",
        "another than the default",
        "no wish",
        "opted out",
    ],
)
def test_a_class_that_is_missing_is_reported_once_a_gang(found: Pod, is_missed: bool) -> None:
    warnings = model_label_step(gather_all(found), view(), POLICY).warnings
    assert [each.reason for each in warnings] == ["PriorityNotSet"] * is_missed


FOR_ALL = replace(
    POLICY,
    namespaces={
        "own": NamespaceRules(),
        "*": NamespaceRules(default_gpu_model="H100", default_tier="high"),
    },
)
OPTED_IN = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}


@pytest.mark.promise("O217")
@pytest.mark.parametrize(
    ("found", "namespaces", "follows"),
    [
        (pod(), {"ns": OPTED_IN}, True),
        (pod(), {"ns": {keys.INJECTION_LABEL: "disabled"}}, False),
        (pod(), {"other": OPTED_IN}, False),
        (pod(), None, False),
        (pod(namespace="own"), {"own": OPTED_IN}, False),
        (pod(namespace="kube-system"), {"kube-system": OPTED_IN}, False),
        (pod(annotations={keys.INJECT_ANNOTATION: keys.INJECT_NO}), {"ns": OPTED_IN}, False),
    ],
    ids=[
        "opted in",
        "opted out",
        "another has",
        "nobody knows",
        "rules of its own",
        "excluded",
        "its pod not",
    ],
)
def test_defaults_of_all_namespaces_hold_where_one_has_opted_in(
    found: Pod, namespaces: dict[str, dict[str, str]] | None, follows: bool
) -> None:
    """Also a pod with a foreign gate: its author may have added it, in a namespace that has not opted in."""
    orders = model_label_step(gather_all(found), replace(view(), namespaces=namespaces), FOR_ALL)
    assert [each.labels for each in orders.model_label_orders] == [LABELS] * follows
    assert [each.reason for each in orders.warnings] == ["PriorityNotSet"] * follows


@pytest.mark.parametrize(
    "there",
    [{}, {"zone": "a"}, {"family": "other"}, LABELS | {"zone/of": "a~b"}],
    ids=["none", "another label", "the same label, otherwise", "all of it"],
)
def test_the_patch_of_a_pod_adds_to_the_selector_that_its_author_wrote_and_replaces_none(
    there: dict[str, str],
) -> None:
    before = pod_json("p", nodeSelector=there) if there else pod_json("p")
    lacking = {key: value for key, value in LABELS.items() if key not in there}
    after = jsonpatch.apply_patch(before, model_labels_patch(decode(before), lacking))
    assert after["spec"]["nodeSelector"] == LABELS | there
    assert after | {"spec": after["spec"] | {"nodeSelector": there}} == before | {
        "spec": before["spec"] | {"nodeSelector": there}
    }


def test_a_later_pod_of_the_same_name_gets_no_selector() -> None:
    operations = model_labels_patch(decode(pod_json("p")), LABELS)
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(pod_json("p", metadata={"uid": "later"}), operations)


@pytest.mark.promise("O325")
def test_members_that_nobody_gated_are_reported_and_counted() -> None:
    past = pod("past", gated=False)
    opted_out = pod("out", {keys.INJECT_ANNOTATION: keys.INJECT_NO}, gated=False)
    launcher = pod("launcher", gated=False, resource="cpu")
    ours = pod("ours", gated=False)
    (gang,) = gather([pod("held")], [past, opted_out, launcher, ours], no_size)
    seen = View([], [past, ours], {}, {}, named={("ns", ours.metadata.uid)})
    (warning,) = model_label_step([gang], seen, POLICY).warnings
    assert warning.reason == "GangPodsNotGated"
    assert warning.pod.metadata.name == "held"
    assert warning.note.startswith("1 of 5 pods of its gang were created without a gate, past among them")
