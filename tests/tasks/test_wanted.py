"""From a GPUTask to its Job."""

import re
from typing import Any

import pytest

from labeler.contract import keys
from tests.admission.shapes import required
from tests.tasks.builders import POLICY_TEXT, rules, task
from webhook.configuration.file import parse
from webhook.kube.objects import Metadata, PriorityClass
from webhook.tasks.desired_job import RefusedError, TaskRules, job_wanted
from webhook.tasks.task_objects import Task

SEED = {"memory": "16gi", "cpu": "8", "gpu": "rtx4090", "gpu-amount": "1", "priority": "gpu-low-priority"}
PRODUCT = "nvidia.com/gpu.product"


def pod_of(made: Task) -> dict[str, Any]:
    return dict(job_wanted(made, rules())["spec"]["template"]["spec"])


@pytest.mark.promise("R149", "O153")
def test_the_five_fields_become_class_selector_gate_and_amounts() -> None:
    job = job_wanted(task(SEED), rules())
    pod = job["spec"]["template"]
    assert pod["spec"]["priorityClassName"] == "gpu-low-priority"
    assert pod["spec"]["nodeSelector"] == {PRODUCT: "NVIDIA-GeForce-RTX-4090"}
    assert pod["spec"]["schedulingGates"] == [{"name": keys.GATE}]
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "16Gi", "nvidia.com/gpu": "1"},
    }
    assert (container["image"], container["command"]) == ("busybox:stable", ["sleep", "infinity"])
    assert pod["metadata"]["annotations"] == {
        keys.GPU_MODEL_ANNOTATION: "RTX 4090",
        keys.PRIORITY_ANNOTATION: "low",
    }


@pytest.mark.promise("O152", "O153")
def test_the_job_is_owned_by_the_task_and_has_its_name() -> None:
    metadata = job_wanted(task(SEED), rules())["metadata"]
    (owner,) = metadata["ownerReferences"]
    assert metadata["name"] == "train"
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("GPUTask", "uid-1", True)


@pytest.mark.promise("R161")
def test_workers_become_an_indexed_job_of_that_many_at_once() -> None:
    spec = job_wanted(task({"workers": 4, "image": "i"}), rules())["spec"]
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (4, 4, "Indexed")
    (container,) = spec["template"]["spec"]["containers"]
    assert {"name": "TOPOGATE_WORKERS", "value": "4"} in container["env"]


@pytest.mark.promise("R161")
@pytest.mark.parametrize(
    ("written", "subdomain", "leader"),
    [
        ({}, "train", "train-0.train"),
        ({"subdomain": "ring"}, "ring", "train-0.ring"),
        ({"hostname": "all-alike"}, None, None),
    ],
    ids=["plain", "own-subdomain", "own-hostname"],
)
def test_several_workers_have_a_subdomain_and_know_their_leaders_address(
    written: dict[str, Any], subdomain: str | None, leader: str | None
) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], **written}}
    pod = pod_of(task({"workers": 2, "template": template}))
    assert pod.get("subdomain") == subdomain
    environment = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    assert environment.get("TOPOGATE_LEADER") == leader


def test_a_worker_alone_has_no_subdomain_and_no_leader() -> None:
    pod = pod_of(task({"image": "i"}))
    assert "subdomain" not in pod
    assert [each["name"] for each in pod["containers"][0]["env"]] == ["TOPOGATE_WORKERS"]


def test_what_the_author_sets_on_the_leader_stays() -> None:
    own = [{"name": "TOPOGATE_LEADER", "value": "elsewhere"}]
    (container,) = pod_of(task({"workers": 2, "image": "i", "env": own}))["containers"]
    assert [each for each in container["env"] if each["name"] == "TOPOGATE_LEADER"] == own


def test_preemption_does_not_count_as_a_failure() -> None:
    rule = job_wanted(task({}), rules())["spec"]["podFailurePolicy"]["rules"][0]
    assert (rule["action"], rule["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert "podFailurePolicy" not in job_wanted(task({"restartPolicy": "OnFailure"}), rules())["spec"]


def test_image_command_arguments_and_environment_are_taken_over() -> None:
    spec = {"image": "i", "command": ["python"], "args": ["train.py"], "env": [{"name": "A", "value": "1"}]}
    (container,) = pod_of(task(spec))["containers"]
    assert (container["image"], container["command"], container["args"]) == ("i", ["python"], ["train.py"])
    assert {"name": "A", "value": "1"} in container["env"]


@pytest.mark.promise("R149")
def test_without_an_image_the_operators_default_one_runs_its_default_command() -> None:
    given = rules(default_image="reg/shell", default_command=("wait", "here"))
    (container,) = job_wanted(task({}), given)["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == ("reg/shell", ["wait", "here"])


@pytest.mark.promise("R149")
def test_an_image_alone_runs_its_own_entry_point() -> None:
    (container,) = pod_of(task({"image": "i"}))["containers"]
    assert "command" not in container


def test_topology_requests_become_annotations() -> None:
    topology = {"required": "block", "preferred": "subblock,host", "slice": "host", "sliceSize": 2}
    metadata = job_wanted(task({"workers": 4, "topology": topology}), rules())["spec"]["template"]["metadata"]
    assert metadata["annotations"] == {
        keys.REQUIRED_TOPOLOGY_ANNOTATION: "block",
        keys.PREFERRED_TOPOLOGY_ANNOTATION: "subblock,host",
        keys.SLICE_TOPOLOGY_ANNOTATION: "host",
        keys.SLICE_SIZE_ANNOTATION: "2",
    }


@pytest.mark.promise("R149")
def test_a_template_keeps_what_it_has_and_gets_the_rest() -> None:
    template = {
        "metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}},
        "spec": {
            "restartPolicy": "OnFailure",
            "nodeSelector": {"disk": "fast"},
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "4"}}}, {"name": "d"}],
        },
    }
    written = task({**SEED, "template": template})
    made = job_wanted(written, rules())["spec"]["template"]
    assert made["metadata"]["labels"]["app"] == "x"
    assert made["metadata"]["labels"][keys.TASK_UID_LABEL] == "uid-1"
    assert made["spec"]["nodeSelector"] == {"disk": "fast", PRODUCT: "NVIDIA-GeForce-RTX-4090"}
    assert made["spec"]["restartPolicy"] == "OnFailure"
    first, second = made["spec"]["containers"]
    assert first["resources"]["limits"] == {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    assert second == {"name": "d"}
    assert written.spec.template == template


@pytest.mark.promise("R149")
@pytest.mark.parametrize(("model", "resource"), [("mi300x", "amd.com/gpu"), ("H-100", "nvidia.com/gpu")])
def test_the_model_decides_which_resource_is_asked_for(model: str, resource: str) -> None:
    (container,) = pod_of(task({"gpu": model}))["containers"]
    assert container["resources"]["limits"] == {resource: "1"}


def test_a_namespaces_default_model_yields_to_a_template_that_names_another() -> None:
    modelled = pod_of(task({}, namespace="steered"))
    assert modelled["nodeSelector"] == {"amd.com/gpu.product-name": "MI300X"}
    template = {
        "spec": {"containers": [{"name": "c"}], "nodeSelector": {"amd.com/gpu.product-name": "MI250"}}
    }
    own = pod_of(task({"template": template}, namespace="steered"))
    assert own["nodeSelector"] == {"amd.com/gpu.product-name": "MI250"}


@pytest.mark.parametrize(
    ("requirement", "selector"),
    [
        ({"key": "amd.com/gpu.product-name", "operator": "In", "values": ["MI250"]}, {}),
        ({"key": "zone", "operator": "In", "values": ["a"]}, {"amd.com/gpu.product-name": "MI300X"}),
    ],
)
def test_a_namespaces_default_model_yields_to_required_affinity_that_excludes_it(
    requirement: dict[str, Any], selector: dict[str, str]
) -> None:
    template = {"spec": {"containers": [{"name": "c"}], "affinity": required(requirement)}}
    found = pod_of(task({"template": template}, namespace="steered"))
    assert found.get("nodeSelector", {}) == selector
    assert found["affinity"] == required(requirement)


REQUESTED = {keys.GPU_MODEL_ANNOTATION: "mi-300x", keys.PRIORITY_ANNOTATION: "high"}


@pytest.mark.promise("R149")
@pytest.mark.parametrize("where", ["team", "defaults"])
@pytest.mark.parametrize("spec", [{}, {"gpu": "mi300x", "priority": "gpu-high-priority"}])
def test_annotations_of_the_template_count_as_in_a_job_and_override_a_namespaces_defaults(
    spec: dict[str, Any], where: str
) -> None:
    containers = [{"name": "c", "image": "i"}]
    template = {"metadata": {"annotations": REQUESTED}, "spec": {"containers": containers}}
    text = POLICY_TEXT + "    defaults: {defaultModel: H100, defaultTier: low}\n"
    given = rules(policy=parse(text).policy)
    made = job_wanted(task({**spec, "template": template}, namespace=where), given)
    pod = made["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"amd.com/gpu.product-name": "MI300X"}
    assert pod["priorityClassName"] == "gpu-high-priority"
    assert pod["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "1"}
    assert made["metadata"]["labels"][keys.TASK_CLASS_LABEL] == "gpu-high-priority"


@pytest.mark.promise("R149")
@pytest.mark.parametrize(("excluded", "inject"), [("defaults", "true"), ("other", "false")])
def test_pods_that_admission_leaves_alone_get_no_defaults_of_their_namespace(
    excluded: str, inject: str
) -> None:
    text = POLICY_TEXT + "    defaults: {defaultModel: MI300X, defaultTier: low}\n"
    annotations = {keys.INJECT_ANNOTATION: inject}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    given = rules(policy=parse(f"{text}  excluded: [{excluded}]\n").policy)
    made = job_wanted(task({"template": template}, namespace="defaults"), given)["spec"]["template"]
    assert made["spec"].keys().isdisjoint({"nodeSelector", "priorityClassName", "schedulingGates"})
    assert made["metadata"]["annotations"] == annotations
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "1"}


@pytest.mark.promise("R149")
@pytest.mark.parametrize("selector", [{}, {PRODUCT: "A100"}])
@pytest.mark.parametrize(
    ("spec", "where"),
    [({"gpu": "A100"}, "team"), ({}, "steered")],
    ids=["the task's model", "the namespace's"],
)
def test_a_task_on_time_sliced_gpus_selects_the_product_of_its_model(
    spec: dict[str, Any], where: str, selector: dict[str, str]
) -> None:
    text = """
apiVersion: topogate.io/v1beta1
kind: Configuration
gpus: {resources: [nvidia.com/gpu.shared]}
models:
  - {name: A100, labels: {nvidia.com/gpu.product: A100}}
namespaces: {rules: {steered: {defaultModel: A100}}}
"""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": selector}}
    made = task({**spec, "template": template}, namespace=where)
    pod = job_wanted(made, rules(policy=parse(text).policy))["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {PRODUCT: "A100"}
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu.shared": "1"}


@pytest.mark.promise("O154")
@pytest.mark.parametrize(
    ("spec", "namespace", "reason", "words"),
    [
        ({"gpu": "rtx4080"}, "team", "UnknownModel", "did you mean RTX 4090?"),
        ({"priority": "urgent"}, "team", "UnknownPriority", "allowed here: low, medium and high"),
        ({"priority": "system-node-critical"}, "team", "UnknownPriority", "allowed here"),
        ({"priority": "high"}, "capped", "PriorityAboveMaximum", "allowed here: low and medium"),
        ({"priority": "gpu-high-priority"}, "capped", "PriorityAboveMaximum", "maximum of namespace capped"),
        ({"memory": "16"}, "team", "Invalid", "16Gi"),
        (
            {"gpu": "h100", "template": {"spec": {"containers": [{}], "nodeSelector": {PRODUCT: "T4"}}}},
            "team", "ModelContradicted", f"needs nodeSelector {PRODUCT}=",
        ),
        (
            {"template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}}]}}},
            "team", "TemplateRefused", "gpu-amount is the number",
        ),
        ({"template": {"spec": {"hostNetwork": True}}}, "team", "TemplateRefused", "hostNetwork"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_sentence(
    spec: dict[str, Any], namespace: str, reason: str, words: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        job_wanted(task(spec, namespace=namespace), rules())
    assert refused.value.reason == reason
    assert words in str(refused.value)


def test_a_class_that_the_cluster_lacks_is_named() -> None:
    with pytest.raises(RefusedError, match="needs the PriorityClass gpu-high-priority, which does not exist"):
        job_wanted(task({"priority": "high"}), rules(classes={}))


def test_a_namespaces_default_tier_counts_for_a_task_without_priority() -> None:
    assert pod_of(task({}, namespace="capped"))["priorityClassName"] == "gpu-low-priority"


@pytest.mark.parametrize("namespace", ["kube-system", "topogate-system"])
def test_where_the_sweeper_serves_nobody_no_gate_holds_a_pod_for_ever(namespace: str) -> None:
    assert "schedulingGates" not in pod_of(task({}, namespace=namespace))


def test_a_template_that_opts_out_gets_no_gate() -> None:
    template = {
        "metadata": {"annotations": {keys.INJECT_ANNOTATION: keys.INJECT_NO}},
        "spec": {"containers": [{"name": "c"}]},
    }
    assert "schedulingGates" not in pod_of(task({"template": template}))


# --- what the API server takes -----------------------------------------------------------------------


def security_of(spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    (container,) = job_wanted(task(spec), rules(**more))["spec"]["template"]["spec"]["containers"]
    return dict(container["securityContext"])


@pytest.mark.promise("O170")
def test_a_pod_without_a_template_has_no_capabilities_and_the_runtimes_profile() -> None:
    assert security_of({"image": "i"}) == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.promise("O170")
@pytest.mark.parametrize("spec", [{}, {"image": "i"}], ids=["default image", "an image"])
def test_a_pod_without_a_template_has_no_token(spec: dict[str, Any]) -> None:
    assert pod_of(task(spec))["automountServiceAccountToken"] is False


@pytest.mark.promise("O170")
def test_where_no_pod_may_run_as_root_it_declares_that_it_does_not() -> None:
    assert security_of({"image": "i"}, restricted={"team"})["runAsNonRoot"] is True
    assert "runAsUser" not in security_of({"image": "i"}, restricted={"team"})
    assert security_of({}, restricted={"team"})["runAsUser"] == 65532
    assert "runAsNonRoot" not in security_of({}, restricted={"other"})


def test_a_template_is_its_authors_also_there() -> None:
    own = {"runAsUser": 0}
    containers = [{"name": "c", "image": "i", "securityContext": own}]
    assert security_of({"template": {"spec": {"containers": containers}}}, restricted={"team"}) == own


@pytest.mark.promise("O153")
@pytest.mark.parametrize("letters", [58, 59, 60, 200])
def test_the_label_of_a_class_is_a_label_and_unique_however_long_its_name(letters: int) -> None:
    labels = []
    for end in "ab":
        name = f"gpu.{'a-' * (letters // 2)}{'x' * (letters % 2)}{end}"
        classes = {name: PriorityClass(metadata=Metadata(name=name))}
        long = parse(POLICY_TEXT.replace("gpu-low-priority", name)).policy
        made = job_wanted(task({"priority": "low"}), TaskRules(long, classes))
        assert made["spec"]["template"]["spec"]["priorityClassName"] == name
        labels.append(made["metadata"]["labels"][keys.TASK_CLASS_LABEL])
        assert re.fullmatch(r"[a-z0-9][-_.a-z0-9]{0,61}[a-z0-9]", labels[-1])
    assert len(set(labels)) == 2


def annotated(**values: str) -> dict[str, Any]:
    """A template whose pods have annotations under our own name."""
    own = {keys.TOPOGATE_PREFIX + key.replace("_", "-"): value for key, value in values.items()}
    return {"metadata": {"annotations": own}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.promise("O364")
@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"topology": {"required": "rack"}},
            f'{keys.REQUIRED_TOPOLOGY_ANNOTATION}: no level "rack"; known: block, subblock, host and node',
        ),
        (
            {"topology": {"preferred": "host,block"}},
            f'{keys.PREFERRED_TOPOLOGY_ANNOTATION} "host,block": write the coarsest level first',
        ),
        (
            {"template": annotated(gangsize="4")},
            '"topogate.io/gangsize" has no effect; did you mean topogate.io/gang-size?',
        ),
        (
            {"template": annotated(gang_size="4"), "workers": 2},
            f"{keys.GANG_SIZE_ANNOTATION} 4, but 2 pods are made",
        ),
        (
            {"template": annotated(slice_topology="host", slice_size="3"), "workers": 4},
            f"{keys.SLICE_SIZE_ANNOTATION} 3: 4 pods do not divide into slices of 3",
        ),
        ({"template": annotated(gpu_model="h1000")}, f'{keys.GPU_MODEL_ANNOTATION}: no GPU model "h1000"'),
        ({"template": annotated(priority="urgent")}, f'{keys.PRIORITY_ANNOTATION}: no tier "urgent"'),
        ({"gpu": "h1000"}, 'gpu: no GPU model "h1000"'),
        ({"priority": "urgent"}, 'priority: no tier "urgent"; allowed here: '),
    ],
)
def test_what_cannot_be_meant_is_refused_in_the_words_of_admission(
    spec: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        job_wanted(task(spec), rules())
    assert str(refused.value).startswith(sentence)


SLICES: dict[str, Any] = {"topology": {"slice": "host", "sliceSize": 2}}


@pytest.mark.promise("O364")
@pytest.mark.parametrize(
    ("spec", "written", "sentence"),
    [
        ({"gpu": "h100"}, {"gpu_model": "MI300X"}, 'gpu is "h100"'),
        ({"priority": "gpu-low-priority"}, {"priority": "high"}, 'priority is "low"'),
        ({"topology": {"required": "host"}}, {"required_topology": "block"}, 'topology.required is "host"'),
        (
            {"topology": {"preferred": "host"}},
            {"preferred_topology": "block"},
            'topology.preferred is "host"',
        ),
        (SLICES, {"slice_topology": "block"}, 'topology.slice is "host"'),
        (SLICES, {"slice_size": "4"}, 'topology.sliceSize is "2"'),
    ],
)
def test_an_annotation_that_contradicts_the_task_is_refused(
    spec: dict[str, Any], written: dict[str, str], sentence: str
) -> None:
    made = task({**spec, "workers": 8, "template": annotated(**written)})
    with pytest.raises(RefusedError) as refused:
        job_wanted(made, rules())
    (name,) = written
    there = f'{keys.TOPOGATE_PREFIX}{name.replace("_", "-")}: "{written[name]}"'
    assert str(refused.value) == f"{sentence}, but the template has {there}; remove one of the two"
    assert refused.value.reason == "InvalidRequest"


def test_a_task_of_a_named_gang_has_the_size_of_the_gang() -> None:
    made = task({"template": annotated(gang="ring", gang_size="4"), "workers": 2})
    assert job_wanted(made, rules())["spec"]["parallelism"] == 2
