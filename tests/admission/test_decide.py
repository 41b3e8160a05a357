"""The decision as a function: its patches apply, and deciding again adds nothing."""

import json
import re
from dataclasses import replace
from typing import Any, Final

import jsonpatch
import msgspec
import pytest
from hypothesis import given, settings

from labeler.contract import keys
from tests.admission import shapes
from tests.admission.harness import ROOT, gpu_pod
from tests.admission.reviews import CLASSES, POLICY, applied, decided, pods
from webhook.admission import patch
from webhook.admission.decide import decide
from webhook.admission.review import NewPod
from webhook.configuration.file import parse
from webhook.kube.objects import Metadata, PriorityClass
from webhook.policy.values import GpuModel, NamespaceRules, Policy
from webhook.workloads import marks

OWN_PREFIX: Final = "example.com/wait-"
OWN_GATE: Final = parse(
    shapes.POLICY.format(capped="capped", steered="steered", intel="intel") + f"gatePrefix: {OWN_PREFIX}\n"
).policy

BINDING: Final = replace(POLICY, binds_by_pod_group=True, adopts_native_gangs=False)
"""Gangs get a PodGroup of ours, and those of others are left alone: an own one must not be taken for such."""


@pytest.mark.promise("I8")
@settings(max_examples=400, deadline=None, derandomize=True)
@given(pod=pods)
@pytest.mark.parametrize(
    "policy", [POLICY, OWN_GATE, BINDING], ids=["shipped prefix", "own prefix", "bound as one"]
)
def test_every_patch_applies_and_a_second_decision_adds_nothing(policy: Policy, pod: dict[str, Any]) -> None:
    for namespace in ("open", "capped", "steered", "intel"):
        first = decided(pod, namespace, policy=policy)
        again = decided(applied(pod, first), namespace, policy=policy)
        assert again.operations == ()
        assert (again.denial is None) == (first.denial is None)


def gates_of_others(pod: dict[str, Any]) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates") or [] if each["name"] != keys.GATE]


@pytest.mark.promise("I8")
@settings(max_examples=300, deadline=None, derandomize=True)
@given(pods)
def test_a_patch_never_touches_what_others_own(pod: dict[str, Any]) -> None:
    owned = ("schedulingGates", "nodeSelector", "priority", "priorityClassName", "preemptionPolicy")
    changed = applied(pod, decided(pod))
    metadata = [
        {k: v for k, v in each["metadata"].items() if k not in ("managedFields", "uid")}
        for each in (pod, changed)
    ]
    assert metadata[0] == metadata[1]
    without = [{k: v for k, v in each["spec"].items() if k not in owned} for each in (pod, changed)]
    assert without[0] == without[1]
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        assert changed["spec"]["nodeSelector"][key] == value
    assert gates_of_others(changed) == gates_of_others(pod)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(pods)
def test_priority_changes_whole_or_not_at_all(pod: dict[str, Any]) -> None:
    paths = {operation.path for operation in decided(pod, "capped").operations}
    three = {"/spec/priorityClassName", "/spec/priority", "/spec/preemptionPolicy"}
    assert paths & three in (set(), three)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(pods)
def test_warnings_are_short_single_lines_of_ascii(pod: dict[str, Any]) -> None:
    for warning in decided(pod).warnings:
        assert len(warning) <= 120
        assert warning.isascii()
        assert warning.isprintable()


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, [("/spec/schedulingGates", [{"name": keys.GATE}])]),
        ({"schedulingGates": None}, [("/spec/schedulingGates", [{"name": keys.GATE}])]),
        ({"schedulingGates": []}, [("/spec/schedulingGates/-", {"name": keys.GATE})]),
        ({"schedulingGates": [{"name": "a.io/b"}]}, [("/spec/schedulingGates/-", {"name": keys.GATE})]),
    ],
    ids=["absent", "null", "empty", "another gate"],
)
def test_the_gates_list_is_made_where_it_is_missing(spec: dict[str, Any], want: list[Any]) -> None:
    pod = gpu_pod()
    pod["spec"] |= spec
    assert [(op.path, op.value) for op in decided(pod).operations] == want


@pytest.mark.promise("O225")
def test_an_author_who_gates_a_pod_with_the_policys_own_prefix_keeps_that_gate() -> None:
    pod = gpu_pod()
    pod["spec"]["schedulingGates"] = [{"name": OWN_PREFIX + "mine"}]
    assert decided(pod, policy=OWN_GATE).operations == ()
    without_gpu = {"metadata": {}, "spec": {"schedulingGates": pod["spec"]["schedulingGates"]}}
    assert decided(without_gpu, policy=OWN_GATE).outcome == "unchanged"


def test_a_gate_that_only_another_prefix_covers_is_foreign() -> None:
    pod = gpu_pod()
    pod["spec"]["schedulingGates"] = [{"name": keys.GATE}]
    (operation,) = decided(pod, policy=OWN_GATE).operations
    assert operation.value == {"name": OWN_PREFIX + "topogate"}


def test_every_annotation_of_the_readmes_table_makes_a_pod_ours() -> None:
    rows = [
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `topogate.io/")
    ]
    documented = {key for row in rows for key in re.findall(r"`(topogate\.io/[a-z-]+)", row.split("|")[1])}
    assert len(documented) >= 8
    assert documented - {keys.INJECT_ANNOTATION} == keys.REQUEST_ANNOTATIONS
    for model_request in keys.REQUEST_ANNOTATIONS:
        assert (
            decided({"metadata": {"annotations": {model_request: "x"}}, "spec": {}}).outcome != "left-alone"
        )


def test_both_values_of_a_selector_that_contradicts_are_named_whole() -> None:
    values = ["a" * 62 + last for last in "12"]
    head = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"
    policy = parse(f"{head}models: [{{name: x, labels: {{a.io/b: {values[0]}}}}}]\n").policy
    pod = gpu_pod(annotations={keys.GPU_MODEL_ANNOTATION: "x"})
    pod["spec"]["nodeSelector"] = {"a.io/b": values[1]}
    denial = decided(pod, policy=policy).denial or ""
    assert all(f'"{value}"' in denial for value in values)


def test_slashes_and_tildes_in_keys_are_escaped() -> None:
    there = {"x": "y"}
    (operation,) = patch.put_members(("spec", "nodeSelector"), there, {"a~b/c": "v"})
    assert operation.path == "/spec/nodeSelector/a~0b~1c"
    changed = jsonpatch.apply_patch({"spec": {"nodeSelector": there}}, patch.encode([operation]).decode())
    assert changed == {"spec": {"nodeSelector": {"x": "y", "a~b/c": "v"}}}


def test_of_several_default_classes_the_lowest_is_the_one_that_nobody_chose() -> None:
    defaults = {
        name: PriorityClass(metadata=Metadata(name=name), value=value, global_default=True)
        for name, value in (("a-high", 9), ("b-low", 2))
    }
    classes = {**CLASSES, **defaults}
    del classes["house-default"]
    pod = gpu_pod(annotations={keys.PRIORITY_ANNOTATION: "high"})
    pod["spec"]["priorityClassName"] = "b-low"
    assert "/spec/priority" in {op.path for op in decided(pod, classes=classes).operations}
    pod["spec"]["priorityClassName"] = "a-high"
    assert "/spec/priority" not in {op.path for op in decided(pod, classes=classes).operations}


def test_the_list_of_known_models_begins_with_the_nearest_and_counts_what_it_leaves_out() -> None:
    entries = "".join(f"  - {{name: A {n:03d}, labels: {{a.io/b: v{n}}}}}\n" for n in range(99))
    head = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"
    policy = parse(f"{head}models:\n{entries}  - {{name: Zeta 7, labels: {{a: b}}}}\n").policy
    denial = decided(gpu_pod(annotations={keys.GPU_MODEL_ANNOTATION: "Zeta 8"}), policy=policy).denial or ""
    assert "known: Zeta 7, A 000, A 001" in denial
    assert denial.endswith("and 70 more")


CAPPED_DEFAULT: Final = {
    **{name: item for name, item in CLASSES.items() if name != "house-default"},
    "gpu-high-priority": PriorityClass(
        metadata=Metadata(name="gpu-high-priority"), value=100, global_default=True
    ),
}


def test_a_default_class_above_the_namespaces_maximum_is_lowered_to_it_with_a_warning() -> None:
    text = shapes.POLICY.format(capped="other", steered="steered", intel="intel")
    policy = parse(text + "    capped: {maximumTier: medium}\n").policy
    pod = gpu_pod()
    pod["spec"] |= {"priorityClassName": "gpu-high-priority", "priority": 100}
    decision = decided(pod, "capped", CAPPED_DEFAULT, policy)
    changed = applied(pod, decision)["spec"]
    assert (changed["priorityClassName"], changed["priority"]) == ("gpu-medium-priority", 10)
    assert decision.warnings == (
        "tier high, the cluster's default, is above this namespace's: its pods get medium",
    )
    assert decided(applied(pod, decision), "capped", CAPPED_DEFAULT, policy).operations == ()
    unchanged = decided(pod, "open", CAPPED_DEFAULT, policy)
    assert "/spec/priority" not in {op.path for op in unchanged.operations}
    assert unchanged.warnings == ()


def test_a_default_class_of_no_tier_above_the_namespaces_maximum_is_lowered_too() -> None:
    text = shapes.POLICY.format(capped="other", steered="steered", intel="intel")
    policy = parse(text + "    capped: {maximumTier: medium}\n").policy
    high = PriorityClass(metadata=Metadata(name="house-default"), value=1000, global_default=True)
    pod = gpu_pod()
    pod["spec"] |= {"priorityClassName": "house-default", "priority": 1000}
    decision = decided(pod, "capped", {**CLASSES, "house-default": high}, policy)
    assert applied(pod, decision)["spec"]["priorityClassName"] == "gpu-medium-priority"
    (warning,) = decision.warnings
    assert warning.startswith("class house-default, the cluster's default, is above")


def test_a_class_above_the_namespaces_maximum_that_the_author_chose_is_denied() -> None:
    pod = gpu_pod()
    pod["spec"]["priorityClassName"] = "gpu-high-priority"
    assert decided(pod, "capped").reason == "tier-above-maximum"


@pytest.mark.promise("O214")
def test_no_class_is_injected_while_those_of_the_cluster_are_not_known() -> None:
    pod = gpu_pod(annotations={keys.PRIORITY_ANNOTATION: "high"})
    pod["spec"]["priorityClassName"] = "house-default"
    read = msgspec.json.decode(json.dumps(pod), type=NewPod)
    decision = decide(read, "open", POLICY, CLASSES, classes_known=False)
    assert [op.path for op in decision.operations] == ["/spec/schedulingGates"]
    assert decision.warnings == ("tier high has no effect: PriorityClasses cannot be read now",)


def test_no_class_is_injected_while_none_is_known() -> None:
    decision = decided(gpu_pod(annotations={keys.PRIORITY_ANNOTATION: "high"}), classes={})
    assert [op.path for op in decision.operations] == ["/spec/schedulingGates"]
    assert decision.warnings == ("tier high has no effect: no PriorityClass gpu-high-priority here",)


@pytest.mark.promise("R209")
@pytest.mark.parametrize("label", sorted(marks.CPU_POD_LABELS))
def test_a_pod_without_gpus_of_a_set_group_or_training_job_is_gated_and_nothing_else(label: str) -> None:
    made = {"metadata": {"labels": {label: "x"}}, "spec": {"containers": [{"name": "c"}]}}
    (operation,) = decided(made).operations
    assert (operation.path, operation.value) == ("/spec/schedulingGates", [{"name": keys.GATE}])


def test_a_cpu_only_pod_is_not_gated_where_it_might_be_refused_for_that() -> None:
    """The maximum of a namespace holds for gated pods; of classes that are not known none can be compared."""
    pod = {"metadata": {"labels": {marks.JOBSET_NAME_LABEL: "x"}}, "spec": {"containers": []}}
    assert [op.path for op in decided(pod, "capped").operations] == ["/spec/schedulingGates"]
    read = msgspec.json.decode(json.dumps(pod), type=NewPod)
    assert not decide(read, "capped", POLICY, CLASSES, classes_known=False).operations
    assert decide(read, "open", POLICY, CLASSES, classes_known=False).operations


LEAVING: Final = replace(POLICY, adopts_native_gangs=False)

REASONS: Final = {
    "no-gpu": {"spec": {"containers": []}},
    "opted-out": gpu_pod(annotations={keys.INJECT_ANNOTATION: "false"}),
    "node-name-set": {"metadata": {}, "spec": {**gpu_pod()["spec"], "nodeName": "n"}},
    "mirror-pod": gpu_pod(annotations={keys.MIRROR_POD_ANNOTATION: ""}),
    "other-scheduler": {"metadata": {}, "spec": {**gpu_pod()["spec"], "schedulerName": "nobody"}},
    "scheduling-group": {"metadata": {}, "spec": {**gpu_pod()["spec"], "schedulingGroup": {}}},
    "daemonset": {
        "metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]},
        "spec": gpu_pod()["spec"],
    },
}


@pytest.mark.parametrize("reason", REASONS)
def test_why_a_pod_is_left_alone_is_a_word_for_metrics(reason: str) -> None:
    decision = decided({"metadata": {}, **REASONS[reason]})
    assert (decision.outcome, decision.reason, decision.operations) == ("left-alone", reason, ())


@pytest.mark.promise("O108")
@pytest.mark.parametrize(
    ("pod", "warnings"),
    [
        (
            gpu_pod(),
            ("topogate leaves pods with a schedulingGroup (gangs.native: leave) to kube-scheduler",),
        ),
        ({"metadata": {}, "spec": {"containers": []}}, ()),
    ],
    ids=["with GPUs", "without"],
)
def test_who_asks_for_kube_schedulers_own_gangs_is_warned_who_places_them(
    pod: dict[str, Any], warnings: tuple[str, ...]
) -> None:
    grouped = {**pod, "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": "g"}}}
    assert decided(grouped, policy=LEAVING).warnings == warnings


@pytest.mark.promise("O108")
def test_a_pod_of_a_pod_group_is_gated_as_any_other_unless_the_policy_leaves_it() -> None:
    grouped = {**gpu_pod(), "spec": {**gpu_pod()["spec"], "schedulingGroup": {"podGroupName": "g"}}}
    assert decided(grouped) == decided(gpu_pod())
    assert [each.path for each in decided(grouped).operations] == ["/spec/schedulingGates"]
    left = decided(grouped, policy=LEAVING)
    assert (left.outcome, left.reason, left.operations) == ("left-alone", "scheduling-group", ())


def group_given(pod: dict[str, Any], policy: Policy = BINDING) -> Any:
    return applied(pod, decided(pod, policy=policy))["spec"].get("schedulingGroup")


JOB_LABELS: Final = {"batch.kubernetes.io/job-name": "Train.me", "batch.kubernetes.io/controller-uid": "u1"}
GANGS: Final = {
    "Job": gpu_pod(labels=JOB_LABELS),
    "JobSet": gpu_pod(labels={"jobset.sigs.k8s.io/jobset-name": "train", **JOB_LABELS}),
    "by annotation": gpu_pod(annotations={keys.GANG_ANNOTATION: "train"}),
}


@pytest.mark.parametrize("gang", GANGS)
def test_where_the_policy_binds_gangs_as_one_each_pod_names_the_pod_group_of_its_gang(gang: str) -> None:
    pod = GANGS[gang]
    (name,) = group_given(pod).values()
    assert re.fullmatch(r"topogate-(job|jobset|gang)-train(-me)?-[0-9a-f]{16}", name)
    assert group_given(pod, POLICY) is None
    names = {group_given(each)["podGroupName"] for each in GANGS.values()}
    assert len(names) == len(GANGS)
    again = {**pod, "metadata": {**pod["metadata"], "generateName": "other-"}}
    assert group_given(again) == {"podGroupName": name}


def test_a_later_job_of_the_same_name_has_another_pod_group() -> None:
    later = gpu_pod(labels={**JOB_LABELS, "batch.kubernetes.io/controller-uid": "u2"})
    assert group_given(later) != group_given(GANGS["Job"])


@pytest.mark.parametrize(
    "pod",
    [
        gpu_pod(),
        gpu_pod(annotations={keys.GANG_ANNOTATION: "g" * 257}),
        gpu_pod(labels=JOB_LABELS, annotations={keys.INJECT_ANNOTATION: "false"}),
        {"metadata": {"labels": {marks.JOBSET_NAME_LABEL: "train"}}, "spec": {"containers": []}},
    ],
    ids=["of no gang", "longer than the sweeper reads", "opted out", "without GPUs"],
)
def test_other_pods_are_bound_by_themselves(pod: dict[str, Any]) -> None:
    assert group_given({"metadata": {}, **pod}) is None


@pytest.mark.parametrize("group", [{"podGroupName": "g"}, {"otherName": "g"}])
def test_a_pod_keeps_the_group_that_its_author_has_named(group: dict[str, str]) -> None:
    pod = {**GANGS["Job"], "spec": {**GANGS["Job"]["spec"], "schedulingGroup": group}}
    assert group_given(pod, replace(BINDING, adopts_native_gangs=True)) == group


def test_a_gang_does_not_join_the_pod_group_of_another() -> None:
    job = GANGS["Job"]
    joining = {**job, "spec": {**job["spec"], "schedulingGroup": group_given(GANGS["JobSet"])}}
    assert group_given(joining) == group_given(job)


def test_pods_of_several_priority_classes_are_of_several_pod_groups() -> None:
    """kube-scheduler 1.37 binds no group whose pods differ in priority."""
    gang = {keys.GANG_ANNOTATION: "train"}
    low = group_given(gpu_pod(annotations={**gang, keys.PRIORITY_ANNOTATION: "low"}))
    high = group_given(gpu_pod(annotations={**gang, keys.PRIORITY_ANNOTATION: "high"}))
    assert low != high
    named = gpu_pod(annotations=gang)
    named["spec"]["priorityClassName"] = "gpu-low-priority"
    assert group_given(named) == low


def test_a_group_that_is_no_pod_group_is_left_to_kube_scheduler() -> None:
    """Of a kind that a later Kubernetes may have."""
    grouped = {**gpu_pod(), "spec": {**gpu_pod()["spec"], "schedulingGroup": {"otherName": "g"}}}
    (warning,) = decided(grouped).warnings
    assert warning == "topogate leaves pods with a schedulingGroup that names no PodGroup to kube-scheduler"


@pytest.mark.promise("O58")
def test_who_names_a_scheduler_that_the_policy_does_not_is_warned_who_places_the_pod() -> None:
    pod = {"metadata": {}, "spec": {**gpu_pod()["spec"], "schedulerName": "volcano"}}
    (warning,) = decided(pod).warnings
    assert warning == 'topogate neither gates nor places pods with schedulerName "volcano"'
    served = replace(POLICY, scheduler_names=("volcano",))
    assert [each.path for each in decided(pod, policy=served).operations] == ["/spec/schedulingGates"]


@pytest.mark.parametrize("namespace", ["kube-system", "topogate-system", "topogate-labeler"])
def test_pods_of_an_excluded_namespace_are_left_alone_even_if_we_are_asked(namespace: str) -> None:
    assert decided(gpu_pod(), namespace).reason == "excluded-namespace"


def test_a_pod_that_asks_for_time_sliced_gpus_is_gated_by_default() -> None:
    decision = decided(gpu_pod(resource="nvidia.com/gpu.shared"), policy=Policy())
    assert [each.path for each in decision.operations] == ["/spec/schedulingGates"]


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_the_nodes_of_a_model_are_those_with_its_labels_for_time_sliced_gpus_too(resource: str) -> None:
    """Feature discovery appends -SHARED to the product only where the resource keeps its name."""
    h100 = GpuModel("H100", {"nvidia.com/gpu.product": "NVIDIA-H100"}, resources=("nvidia.com/gpu",))
    pod = gpu_pod(resource=resource, annotations={keys.GPU_MODEL_ANNOTATION: "h100"})
    decision = decided(pod, policy=Policy(gpu_models=(h100,)))
    assert {"nvidia.com/gpu.product": "NVIDIA-H100"} in [each.value for each in decision.operations]


@pytest.mark.parametrize(
    ("offered", "resource", "is_served"),
    [
        ("nvidia.com/gpu.shared", "nvidia.com/gpu.shared", True),
        ("nvidia.com/gpu.shared", "nvidia.com/gpu", False),
        ("nvidia.com/mig-*.shared", "nvidia.com/mig-1g.5gb.shared", True),
        ("nvidia.com/mig-*.shared", "nvidia.com/mig-1g.5gb", False),
        ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.shared", True),
        ("amd.com/gpu", "nvidia.com/gpu.shared", False),
    ],
)
def test_a_model_may_offer_its_gpus_only_shared(offered: str, resource: str, is_served: bool) -> None:
    a100 = GpuModel("A100", {"nvidia.com/gpu.product": "NVIDIA-A100"}, resources=(offered,))
    pod = gpu_pod(resource=resource, annotations={keys.GPU_MODEL_ANNOTATION: "a100"})
    decision = decided(pod, policy=Policy(gpu_models=(a100,)))
    assert (decision.reason != "model-resource") is is_served


def test_the_default_model_of_a_namespace_yields_to_a_pod_that_selects_another_with_a_warning() -> None:
    h100 = GpuModel("H100", {"nvidia.com/gpu.product": "NVIDIA-H100"})
    policy = Policy(gpu_models=(h100,), namespaces={"team": NamespaceRules(default_gpu_model="H100")})
    usual, other = gpu_pod(), gpu_pod()
    other["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-A100"}
    chosen = {"nvidia.com/gpu.product": "NVIDIA-H100"}
    assert chosen in [each.value for each in decided(usual, "team", policy=policy).operations]
    decision = decided(other, "team", policy=policy)
    assert chosen not in [each.value for each in decision.operations]
    assert decision.warnings == ("namespace default GPU model H100 is not for pods that ask for another",)


@pytest.mark.parametrize("suffix", ["", "-SHARED", "-MIG-1g.10gb", "-MIG-1g.10gb-SHARED"])
def test_a_node_that_hands_out_parts_of_its_gpus_is_of_their_model(suffix: str) -> None:
    h100 = GpuModel("H100", {"nvidia.com/gpu.product": "NVIDIA-H100"})
    labels = {"nvidia.com/gpu.product": f"NVIDIA-H100{suffix}", "other": "x"}
    assert Policy(gpu_models=(h100,)).model_of_node(labels) == "H100"
    assert Policy(gpu_models=(h100,)).model_of_node({"nvidia.com/gpu.product": "NVIDIA-H100-NVL"}) == ""


KUEUE_PLANS = {"name": marks.KUEUE_TOPOLOGY_GATE}
KUEUE_ADMITS = {"name": marks.KUEUE_ADMISSION_GATE}


def with_gates(*gates: dict[str, str]) -> dict[str, Any]:
    pod = gpu_pod(annotations={"kueue.x-k8s.io/podset-required-topology": "x"})
    return {**pod, "spec": {**pod["spec"], "schedulingGates": list(gates)}}


@pytest.mark.promise("R242")
def test_where_kueue_has_chosen_the_nodes_the_pod_is_left_to_it_and_its_author_is_warned() -> None:
    decision = decided(with_gates(KUEUE_PLANS))
    assert (decision.outcome, decision.reason, decision.operations) == ("left-alone", "kueue-topology", ())
    assert decision.warnings == (
        "topogate leaves pods that Kueue has admitted with the gate kueue.x-k8s.io/topology to Kueue",
    )


@pytest.mark.promise("R242")
def test_where_kueue_may_yet_choose_nodes_it_is_first_and_the_author_is_warned() -> None:
    """Its webhook for plain pods adds both gates, whether it will choose nodes or not."""
    decision = decided(with_gates(KUEUE_ADMITS, KUEUE_PLANS))
    assert [each.path for each in decision.operations] == ["/spec/schedulingGates/-"]
    assert decision.warnings == (
        f"topogate places pods that Kueue has still to admit (gate {marks.KUEUE_TOPOLOGY_GATE}) "
        "on nodes that Kueue allows",
    )


def test_a_pod_that_waits_for_kueues_quota_alone_is_placed_by_topogate() -> None:
    decision = decided(with_gates(KUEUE_ADMITS))
    assert [each.path for each in decision.operations] == ["/spec/schedulingGates/-"]


def test_a_pod_whose_author_asks_for_our_gate_is_ours_though_kueue_chooses_its_nodes() -> None:
    decision = decided(with_gates(KUEUE_PLANS, {"name": f"{keys.GATE_PREFIX}mine"}))
    assert decision.outcome == "unchanged"
    assert "topogate places pods" in decision.warnings[0]


FOREIGN_REQUESTS: Final = {
    "kueue.x-k8s.io/podset-required-topology": keys.REQUIRED_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-preferred-topology": keys.PREFERRED_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-slice-required-topology": keys.SLICE_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-slice-required-topology-constraints": keys.SLICE_TOPOLOGY_ANNOTATION,
    "kueue.x-k8s.io/podset-slice-size": keys.SLICE_SIZE_ANNOTATION,
    "kai.scheduler/topology-required-placement": keys.REQUIRED_TOPOLOGY_ANNOTATION,
    "kai.scheduler/topology-preferred-placement": keys.PREFERRED_TOPOLOGY_ANNOTATION,
    "volcano.sh/network-topology-highest-tier": keys.REQUIRED_TOPOLOGY_ANNOTATION,
    "volcano.sh/network-topology-mode": keys.REQUIRED_TOPOLOGY_ANNOTATION,
}
"""Topology requests of other schedulers, and ours that says the same."""


@pytest.mark.promise("R241")
@pytest.mark.parametrize(("foreign", "ours"), FOREIGN_REQUESTS.items())
def test_a_topology_request_of_another_system_is_reported_with_our_annotation(
    foreign: str, ours: str
) -> None:
    assert decided(gpu_pod(annotations={foreign: "x"})).warnings == (f"{foreign} is not read: write {ours}",)


def test_each_topology_request_of_others_that_we_know_is_tried_here() -> None:
    assert FOREIGN_REQUESTS.keys() == marks.TOPOLOGY_REQUESTS.keys()


def test_volcanos_soft_topology_is_reported_as_a_preference() -> None:
    pod = gpu_pod(annotations={"volcano.sh/network-topology-mode": "soft"})
    assert decided(pod).warnings == (
        f"volcano.sh/network-topology-mode is not read: write {keys.PREFERRED_TOPOLOGY_ANNOTATION}",
    )
