"""AdmissionReviews: a usual one, and hypothesis strategies for valid, damaged and random bodies."""

import json
from typing import Any, Final

import jsonpatch
import msgspec
from hypothesis import strategies as st

from labeler.contract import keys
from tests.admission import shapes
from tests.admission.harness import gpu_pod
from webhook.admission import patch
from webhook.admission.decide import Decision, decide
from webhook.admission.review import NewPod
from webhook.configuration.file import parse
from webhook.kube.objects import Metadata, PriorityClass
from webhook.policy.values import Policy
from webhook.workloads import marks

REQUEST_KEYS: Final = (
    keys.GPU_MODEL_ANNOTATION,
    keys.PRIORITY_ANNOTATION,
    keys.GANG_ANNOTATION,
    keys.GANG_SIZE_ANNOTATION,
    keys.REQUIRED_TOPOLOGY_ANNOTATION,
    keys.INJECT_ANNOTATION,
    keys.MIRROR_POD_ANNOTATION,
    "gas-allow",
    "gas-same-gpu",
    "gas-allocate-xelink",
    "other/~key",
)


def usual_review() -> bytes:
    """A review of about 6 KB: a worker of a Job, with the managed fields that the API server sends."""
    pod = gpu_pod(annotations={keys.PRIORITY_ANNOTATION: "high", keys.GPU_MODEL_ANNOTATION: "rtx-4090"})
    pod["metadata"] |= {
        "generateName": "train-workers-0-0-",
        "labels": {f"batch.kubernetes.io/label-{number}": "value-of-a-label" for number in range(8)},
        "creationTimestamp": None,
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}],
        "managedFields": [
            {
                "manager": "kube-controller-manager",
                "operation": "Update",
                "fieldsType": "FieldsV1",
                "fieldsV1": {f"f:field-{number}": {".": {}, "f:value": {}} for number in range(40)},
            }
        ],
    }
    environment = [{"name": f"VARIABLE_{number}", "value": "x" * 24} for number in range(30)]
    side = {"name": "side", "image": "registry.example.com/side:1", "env": environment[:8]}
    pod["spec"]["containers"][0] |= {"env": environment, "command": ["torchrun", "train.py"]}
    pod["spec"]["containers"].append(side)
    pod["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    uid = "705ab4f5-6393-11e8-b7cc-42010a800002"
    review_request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:job-controller"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review_request}
    return json.dumps(review).encode()


def review(pod: Any, **request: Any) -> dict[str, Any]:
    """A review as the API server sends it for the creation of a pod."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "",
            "namespace": "team",
            "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters"]},
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
            **request,
        },
    }


_text = st.text(max_size=12)
_names = st.sampled_from(["a", "b", "main", ""]) | _text
_resources = st.sampled_from(
    [
        "nvidia.com/gpu",
        "nvidia.com/mig-1g",
        "amd.com/gpu",
        keys.I915,
        keys.XE,
        keys.MILLICORES,
        keys.TILES,
        "cpu",
    ]
)
_quantities = (
    st.sampled_from(["0", "1", "2", "500m", "1k", "-1", "x", ""]) | st.integers(-1, 9) | st.floats(0, 3)
)
_amounts = st.none() | st.dictionaries(_resources, _quantities, max_size=4)
_values = st.sampled_from(
    ["low", "high", "medium", "RTX 4090", "max-1550", "false", "4", "0", "block", "a,b", "card0", "~0/1"]
)
LABELS: Final = (*marks.CPU_POD_LABELS, marks.JOB_NAME_LABEL, "app")
_annotations = st.none() | st.dictionaries(st.sampled_from(REQUEST_KEYS), _values | _text, max_size=4)
_containers = st.lists(
    st.fixed_dictionaries(
        {"name": _names},
        optional={
            "resources": st.fixed_dictionaries({}, optional={"limits": _amounts, "requests": _amounts})
        },
    ),
    max_size=3,
)
_gates = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from([keys.GATE, keys.GATE_PREFIX + "x", "example.com/wait-topogate", "y.io/z"])}
    ),
    max_size=2,
)
_selectors = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu.product", "gpu.intel.com/product", "zone"]),
    st.sampled_from(["NVIDIA-GeForce-RTX-4090", "Max_1550", "a"]),
    max_size=2,
)
_owners = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["DaemonSet", "Job"]), "name": _names},
        optional={"controller": st.booleans()},
    ),
    max_size=2,
)

_managers = st.lists(
    st.fixed_dictionaries({"operation": st.sampled_from(["Update", "Update", "Apply"]), "manager": _names}),
    max_size=2,
)

pods: Final = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"creationTimestamp": st.none()},
            optional={
                "annotations": _annotations,
                "labels": st.none() | st.dictionaries(st.sampled_from(LABELS), _names, max_size=2),
                "ownerReferences": st.none() | _owners,
                "generateName": _names,
                "managedFields": st.none() | _managers,
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": _containers},
            optional={
                "initContainers": st.none() | _containers,
                "nodeSelector": st.none() | _selectors,
                "schedulingGates": st.none() | _gates,
                "nodeName": st.sampled_from(["", "node"]),
                "schedulingGroup": st.none() | st.just({"podGroupName": "g"}),
                "priorityClassName": st.sampled_from(
                    ["", "gpu-low-priority", "house-class", "house-default"]
                ),
                "priority": st.integers(0, 10),
                "preemptionPolicy": st.just("PreemptLowerPriority"),
            },
        ),
    }
)
"""Pods that the API server could send."""

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid review in which one place holds something else, or whose text is cut or flipped."""
    body = review(draw(pods))
    corruption = draw(st.sampled_from(["value", "remove", "cut", "flip", "envelope"]))
    if corruption in ("value", "remove"):
        place: Any = body
        while True:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place)))))
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 3)) == 0:
                break
            place = inner
        if corruption == "value":
            place[key] = draw(_json)
        else:
            del place[key]
    if corruption == "envelope":
        body[draw(st.sampled_from(["apiVersion", "kind", "request"]))] = draw(_json)
    text = bytearray(json.dumps(body).encode())
    if corruption == "cut":
        del text[draw(st.integers(0, len(text))) :]
    if corruption == "flip":
        for _ in range(draw(st.integers(1, 5))):
            text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    return bytes(text)


bodies: Final = st.one_of(
    pods.map(lambda pod: json.dumps(review(pod)).encode()),
    damaged(),
    st.binary(max_size=200),
    _json.map(lambda value: json.dumps(value).encode()),
)
"""Anything that a client may post."""


POLICY: Final = parse(shapes.POLICY.format(capped="capped", steered="steered", intel="intel")).policy


CLASSES: Final = {
    name: PriorityClass(metadata=Metadata(name=name), value=value, global_default=name == "house-default")
    for name, value in (
        ("gpu-low-priority", 1),
        ("gpu-medium-priority", 10),
        ("gpu-high-priority", 100),
        ("house-class", 77),
        ("house-default", 5),
    )
}


def decided(
    pod: dict[str, Any], namespace: str = "open", classes: Any = CLASSES, policy: Policy = POLICY
) -> Decision:
    return decide(msgspec.json.decode(json.dumps(pod), type=NewPod), namespace, policy, classes)


def applied(pod: dict[str, Any], decision: Decision) -> Any:
    """The pod as the API server makes it of a decision's patch."""
    return jsonpatch.apply_patch(pod, patch.encode(decision.operations).decode())
