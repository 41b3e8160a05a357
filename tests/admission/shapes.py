"""Pods of every shape that clusters see, and what the webhook must make of each.

The expected result is given as the difference to the same pod created in a namespace that has not opted in;
every other field must be equal.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from labeler.contract import keys
from webhook.workloads import marks

OPEN, CAPPED, MODELLED, INTEL = "open", "capped", "steered", "intel"
"""Namespaces of the policy: no rules; default medium and at most medium; default model; Intel's."""

POLICY: Final = """
apiVersion: topogate.io/v1beta1
kind: Configuration
gpus:
  resources: [nvidia.com/gpu, nvidia.com/mig-*, amd.com/gpu, gpu.intel.com/i915, gpu.intel.com/xe]
  deviceClasses: [gpu.example.com, mig-*.example.com]
tiers:
  - {{name: low, priorityClassName: gpu-low-priority}}
  - {{name: medium, priorityClassName: gpu-medium-priority}}
  - {{name: high, priorityClassName: gpu-high-priority}}
  - {{name: idle, priorityClassName: gpu-never-priority}}
  - {{name: ghost, priorityClassName: gpu-ghost-priority}}
models:
  - name: RTX 4090
    aliases: [GeForce RTX 4090]
    labels: {{nvidia.com/gpu.product: NVIDIA-GeForce-RTX-4090}}
    resources: [nvidia.com/gpu]
  - name: H100
    labels: {{nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3, nvidia.com/gpu.family: hopper}}
    resources: [nvidia.com/gpu, nvidia.com/mig-*]
  - name: Max 1550
    labels: {{gpu.intel.com/product: Max_1550}}
    resources: [gpu.intel.com/i915, gpu.intel.com/xe]
  - name: Unrestricted
    labels: {{falldio.com/gpu: any}}
namespaces:
  rules:
    {capped}: {{defaultTier: medium, maximumTier: medium}}
    {steered}: {{defaultModel: rtx 4090}}
    {intel}: {{defaultModel: Max 1550, defaultTier: low}}
"""

PRODUCT: Final = "nvidia.com/gpu.product"
RTX: Final = {PRODUCT: "NVIDIA-GeForce-RTX-4090"}
H100: Final = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.family": "hopper"}
FOREIGN: Final = marks.KUEUE_ADMISSION_GATE


@dataclass(frozen=True)
class Shape:
    """One pod. denied: the words that the refusal must hold; then nothing else is expected."""

    name: str
    pod: dict[str, Any]
    namespace: str = OPEN
    gated: bool = True
    tier: str = ""
    selector: dict[str, str] = field(default_factory=dict)
    denied: tuple[str, ...] = ()


def pod(
    resources: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod with one container that requests these resources; by default of a GPU."""
    asked = {"nvidia.com/gpu": "1"} if resources is None else resources
    meta: dict[str, Any] = {"generateName": "shape-", **(metadata or {})}
    if annotations is not None:
        meta["annotations"] = annotations
    container: dict[str, Any] = {"name": "main", "image": "x", "resources": {"limits": asked}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def owned(kind: str, api_version: str, *, controller: bool = True, **metadata: Any) -> dict[str, Any]:
    """Metadata of a pod that a controller has made; the owner need not be there at creation."""
    owner = {
        "apiVersion": api_version,
        "kind": kind,
        "name": "owner",
        "uid": "11111111-2222-4333-8444-555555555555",
    }
    return {"ownerReferences": [{**owner, "controller": controller}], **metadata}


def model_request(value: str, key: str = keys.GPU_MODEL_ANNOTATION) -> dict[str, str]:
    return {key: value}


def tier(value: str) -> dict[str, str]:
    return {keys.PRIORITY_ANNOTATION: value}


def required(*requirements: dict[str, Any]) -> dict[str, Any]:
    """An affinity for nodes that meet one of these requirements."""
    terms = [{"matchExpressions": [each]} for each in requirements]
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {kind: {"nodeSelectorTerms": terms}}}


def container(name: str, resources: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "x", "resources": {"limits": resources or {}}, **more}


NONE: Final[dict[str, Any]] = {}
GPU: Final = {"nvidia.com/gpu": "1"}

_BIG: Final[dict[str, Any]] = {
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 7,
    "hostNetwork": True,
    "dnsPolicy": "ClusterFirstWithHostNet",
    "subdomain": "workers",
    "hostname": "worker-0",
    "priorityClassName": "",
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 2000},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
    ],
    "volumes": [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {
            "name": "info",
            "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.labels"}}]},
        },
    ],
    "containers": [
        {
            "name": "main",
            "image": "registry.example.com/train@sha256:" + "a" * 64,
            "command": ["python", "-c", "print('~/x', \"a/b\")"],
            "env": [{"name": "A", "value": '~0~1/\\"\u00e9\u4e16'}, {"name": "N"}],
            "envFrom": [{"configMapRef": {"name": "c", "optional": True}}],
            "ports": [{"containerPort": 29500}],
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            "livenessProbe": {"exec": {"command": ["true"]}},
            "resources": {
                "limits": {"nvidia.com/gpu": 8, "cpu": "64", "memory": "512Gi"},
                "requests": {"cpu": "500m", "memory": "1.5Gi"},
            },
        }
    ],
}

_AFFINITY: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
            ]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}
        ],
    },
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
        ]
    },
}

RESOURCES: Final = [
    Shape("nvidia gpu in limits", pod()),
    Shape("nvidia gpu as a json number", pod({"nvidia.com/gpu": 8})),
    Shape(
        "nvidia gpu in limits and requests",
        pod(containers=[{"name": "main", "image": "x", "resources": {"limits": GPU, "requests": GPU}}]),
    ),
    Shape("a thousand gpus written 1k", pod({"nvidia.com/gpu": "1k"})),
    Shape("amd gpu", pod({"amd.com/gpu": "4"})),
    Shape("intel i915", pod({keys.I915: "2"})),
    Shape("intel xe", pod({keys.XE: "2"})),
    Shape("intel shares of a gpu", pod({keys.I915: "1", keys.MILLICORES: "500"})),
    Shape("mig profile", pod({"nvidia.com/mig-1g.10gb": "1"})),
    Shape("another mig profile", pod({"nvidia.com/mig-3g.40gb": "2"})),
    Shape("zero gpus", pod({"nvidia.com/gpu": "0"}), gated=False),
    Shape("no gpu", pod(NONE), gated=False),
    Shape("cpu and memory only", pod({"cpu": "1", "memory": "1Gi"}), gated=False),
    Shape("a device that is no gpu", pod({"rdma/hca": "1"}), gated=False),
    Shape(
        "devices of a class that is no gpu", pod({keys.DEVICE_CLASS + "rdma.example.com": "1"}), gated=False
    ),
    Shape("gpu in the second container", pod(containers=[container("a"), container("b", GPU)])),
    Shape("gpu in an init container", pod(NONE, initContainers=[container("warm-up", GPU)])),
    Shape("gpu in a sidecar", pod(NONE, initContainers=[container("side", GPU, restartPolicy="Always")])),
    Shape(
        "sidecar without gpu beside a gpu container",
        pod(initContainers=[container("side", restartPolicy="Always")]),
    ),
]

FORMS: Final = [
    Shape("a name instead of generateName", pod(metadata={"name": "named", "generateName": ""})),
    Shape("a name of 253 characters", pod(metadata={"name": ("n" * 50 + ".") * 4 + "n" * 49})),
    Shape(
        "empty maps and lists",
        pod(
            annotations={},
            metadata={"labels": {}},
            nodeSelector={},
            tolerations=[],
            schedulingGates=[],
            initContainers=[],
            affinity={},
        ),
    ),
    Shape("empty maps and a model", pod(annotations=model_request("h100"), nodeSelector={}), selector=H100),
    Shape("everything set", pod(annotations={"a": "b"}, **_BIG)),
    Shape("affinity stays", pod(annotations=model_request("h100"), affinity=_AFFINITY), selector=H100),
    Shape(
        "hostile annotations",
        pod(
            annotations={
                "example.com/tilde": "~0~1~",
                "example.com/slash": "a/b//c",
                "quote": '"\\\n\t\u2028',
                "empty": "",
            }
        ),
    ),
    Shape("an annotation of 200 kB", pod(annotations={"big": "x" * 200_000})),
    Shape("annotations beyond ascii", pod(annotations={"words": "caf\u00e9 \u4e16\u754c \U0001f680"})),
    Shape(
        "labels and a service account", pod(metadata={"labels": {"app": "x"}}, serviceAccountName="default")
    ),
    Shape("the usual scheduler's name", pod(schedulerName="default-scheduler")),
]

GATES: Final = [
    Shape("another controller's gate is kept", pod(schedulingGates=[{"name": FOREIGN}])),
    Shape("two other gates are kept in order", pod(schedulingGates=[{"name": "z.io/a"}, {"name": "a.io/z"}])),
    Shape("our gate is there", pod(schedulingGates=[{"name": keys.GATE}]), gated=False),
    Shape("a gate with our prefix", pod(schedulingGates=[{"name": keys.GATE_PREFIX + "mine"}]), gated=False),
    Shape(
        "a gate with our prefix without a gpu",
        pod(NONE, schedulingGates=[{"name": keys.GATE_PREFIX + "mine"}]),
        gated=False,
    ),
    Shape(
        "our prefix beside another gate",
        pod(schedulingGates=[{"name": FOREIGN}, {"name": keys.GATE_PREFIX + "x"}]),
        gated=False,
    ),
]

ALONE: Final = [
    Shape("another scheduler's name", pod(schedulerName="other"), gated=False),
    Shape(
        "another scheduler's name and wishes",
        pod(annotations={**tier("high"), **model_request("nonsense")}, schedulerName="other"),
        gated=False,
    ),
    Shape("opted out", pod(annotations={keys.INJECT_ANNOTATION: "false"}), gated=False),
    Shape(
        "opted out with wishes",
        pod(annotations={keys.INJECT_ANNOTATION: "false", **model_request("nonsense")}),
        gated=False,
    ),
    Shape("False does not opt out", pod(annotations={keys.INJECT_ANNOTATION: "False"})),
    Shape("true does not opt out", pod(annotations={keys.INJECT_ANNOTATION: "true"})),
    Shape("bound by its author", pod(nodeName="node-b0-s0-h00"), gated=False),
    Shape(
        "mirror pod",
        pod(
            annotations={keys.MIRROR_POD_ANNOTATION: "x"},
            nodeName="node-b0-s0-h00",
            serviceAccountName="",
            automountServiceAccountToken=False,
        ),
        gated=False,
    ),
    Shape("made by a daemonset", pod(metadata=owned("DaemonSet", "apps/v1")), gated=False),
    Shape(
        "made by an advanced daemonset",
        pod(metadata=owned("DaemonSet", "apps.kruise.io/v1alpha1")),
        gated=False,
    ),
    Shape(
        "only garbage collected by a daemonset", pod(metadata=owned("DaemonSet", "apps/v1", controller=False))
    ),
    Shape(
        "in a scheduling group of kube-scheduler",
        pod(annotations=tier("high"), schedulingGroup={"podGroupName": "g"}),
        tier="gpu-high-priority",
    ),
]

MODEL_REQUESTS: Final = [
    Shape("gang without gpu", pod(NONE, {keys.GANG_ANNOTATION: "a"})),
    Shape("gang size without gpu", pod(NONE, {keys.GANG_SIZE_ANNOTATION: "4"})),
    Shape("gang size that is none", pod(annotations={keys.GANG_SIZE_ANNOTATION: "four"})),
    Shape("required topology without gpu", pod(NONE, {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})),
    Shape("preferred topology", pod(annotations={keys.PREFERRED_TOPOLOGY_ANNOTATION: "subblock"})),
    Shape("unknown topology level", pod(annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "galaxy"})),
]

MODELS: Final = [
    Shape("model as in the catalogue", pod(annotations=model_request("RTX 4090")), selector=RTX),
    Shape("model in another spelling", pod(annotations=model_request("rtx-4090")), selector=RTX),
    Shape("model by an alias", pod(annotations=model_request("geforce_rtx_4090")), selector=RTX),
    Shape("model with two labels", pod(annotations=model_request("H100")), selector=H100),
    Shape(
        "model beside another selector",
        pod(annotations=model_request("H100"), nodeSelector={"zone": "a"}),
        selector=H100,
    ),
    Shape("model that is selected already", pod(annotations=model_request("RTX 4090"), nodeSelector=RTX)),
    Shape(
        "model half selected",
        pod(annotations=model_request("H100"), nodeSelector={"nvidia.com/gpu.family": "hopper"}),
        selector={"nvidia.com/gpu.product": H100["nvidia.com/gpu.product"]},
    ),
    Shape("model without gpu", pod(NONE, model_request("H100")), selector=H100),
    Shape(
        "mig on a model that has it",
        pod({"nvidia.com/mig-1g.10gb": "1"}, model_request("H100")),
        selector=H100,
    ),
    Shape(
        "intel model",
        pod({keys.XE: "1"}, model_request("max 1550")),
        selector={"gpu.intel.com/product": "Max_1550"},
    ),
    Shape(
        "model that serves any gpu",
        pod({"amd.com/gpu": "1"}, model_request("unrestricted")),
        selector={"falldio.com/gpu": "any"},
    ),
    Shape(
        "unknown model",
        pod(annotations=model_request("RTX 4O90")),
        denied=('no GPU model "RTX 4O90"', "did you mean RTX 4090?", "known: RTX 4090, H100, Max 1550"),
    ),
    Shape(
        "model of hostile name",
        pod(annotations=model_request('~0~1/\n"\u4e16')),
        denied=("no GPU model", "\\x0a"),
    ),
    Shape("empty model", pod(annotations=model_request("")), denied=('no GPU model ""',)),
    Shape(
        "model against the selector",
        pod(annotations=model_request("H100"), nodeSelector=RTX),
        denied=("NVIDIA-H100-80GB-HBM3", "NVIDIA-GeForce-RTX-4090", "remove one of the two"),
    ),
    Shape(
        "nvidia gpu on an intel model",
        pod(annotations=model_request("Max 1550")),
        denied=(
            "GPU model Max 1550 offers gpu.intel.com/i915 and gpu.intel.com/xe",
            "asks for nvidia.com/gpu",
        ),
    ),
    Shape("namespace default model", pod(), MODELLED, selector=RTX),
    Shape(
        "namespace default model yields to the wish",
        pod(annotations=model_request("H100")),
        MODELLED,
        selector=H100,
    ),
    Shape(
        "namespace default model yields to the selector",
        pod(nodeSelector={"nvidia.com/gpu.product": "NVIDIA-A100"}),
        MODELLED,
    ),
    Shape(
        "namespace default model yields to required affinity",
        pod(affinity=required({"key": PRODUCT, "operator": "In", "values": ["NVIDIA-A100"]})),
        MODELLED,
    ),
    Shape(
        "namespace default model yields where no term admits it",
        pod(
            affinity=required(
                {"key": PRODUCT, "operator": "DoesNotExist"},
                {"key": PRODUCT, "operator": "NotIn", "values": list(RTX.values())},
            )
        ),
        MODELLED,
    ),
    Shape(
        "namespace default model beside a term that admits it",
        pod(
            affinity=required(
                {"key": PRODUCT, "operator": "In", "values": ["NVIDIA-A100"]},
                {"key": "zone", "operator": "Exists"},
            )
        ),
        MODELLED,
        selector=RTX,
    ),
    Shape("namespace default model does not fit the resource", pod({"amd.com/gpu": "1"}), MODELLED),
    Shape(
        "namespace default model not for a pod without gpu", pod(NONE, {keys.GANG_ANNOTATION: "a"}), MODELLED
    ),
]

TIERS: Final = [
    Shape("tier low", pod(annotations=tier("low")), tier="gpu-low-priority"),
    Shape("tier medium", pod(annotations=tier("medium")), tier="gpu-medium-priority"),
    Shape("tier high", pod(annotations=tier("high")), tier="gpu-high-priority"),
    Shape("tier whose class never preempts", pod(annotations=tier("idle")), tier="gpu-never-priority"),
    Shape("tier without gpu", pod(NONE, tier("high")), tier="gpu-high-priority"),
    Shape(
        "tier and model",
        pod(annotations={**tier("high"), **model_request("H100")}),
        tier="gpu-high-priority",
        selector=H100,
    ),
    Shape("tier whose class is missing", pod(annotations=tier("ghost"))),
    Shape(
        "unknown tier",
        pod(annotations=tier("urgent")),
        denied=('no tier "urgent"', "low, medium, high, idle and ghost"),
    ),
    Shape("tier in capitals", pod(annotations=tier("High")), denied=('no tier "High"',)),
    Shape("namespace default tier", pod(), CAPPED, tier="gpu-medium-priority"),
    Shape("tier below the maximum", pod(annotations=tier("low")), CAPPED, tier="gpu-low-priority"),
    Shape(
        "tier above the maximum",
        pod(annotations=tier("high")),
        CAPPED,
        denied=("tier high is above the maximum", "allowed here: low and medium"),
    ),
    Shape(
        "unknown tier under a maximum",
        pod(annotations=tier("x")),
        CAPPED,
        denied=("allowed here: low and medium",),
    ),
    Shape(
        "class above the maximum",
        pod(priorityClassName="gpu-high-priority"),
        CAPPED,
        denied=("priorityClassName gpu-high-priority", "allowed here: low and medium"),
    ),
    Shape("class within the maximum", pod(priorityClassName="gpu-low-priority"), CAPPED),
    Shape("class that the author chose", pod(annotations=tier("high"), priorityClassName="gpu-low-priority")),
    Shape("class of the author's own", pod(annotations=tier("high"), priorityClassName="house-class")),
    Shape(
        "class of the author's own above the maximum",
        pod(priorityClassName="house-class"),
        CAPPED,
        denied=("house-class (priority 77, at most 10)", "allowed here: low and medium"),
    ),
    Shape("system class", pod(annotations=tier("high"), priorityClassName="system-cluster-critical")),
    Shape(
        "system class above the maximum",
        pod(priorityClassName="system-cluster-critical"),
        CAPPED,
        denied=("system-cluster-critical (priority 2000000000, at most 10)",),
    ),
    Shape("class and tier agree", pod(annotations=tier("high"), priorityClassName="gpu-high-priority")),
    Shape(
        "intel namespace default",
        pod({keys.I915: "1"}),
        INTEL,
        tier="gpu-low-priority",
        selector={"gpu.intel.com/product": "Max_1550"},
    ),
]

_JOBSET: Final = {
    "jobset.sigs.k8s.io/jobset-name": "train",
    "jobset.sigs.k8s.io/job-index": "0",
    marks.JOB_NAME_LABEL: "train-workers-0",
}
_LWS: Final = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0"}

CONTROLLERS: Final = [
    Shape(
        "jobset worker",
        pod(
            metadata=owned("Job", "batch/v1", labels=_JOBSET),
            annotations={marks.JOB_INDEX_KEY: "3", "jobset.sigs.k8s.io/jobset-name": "train"},
            restartPolicy="Never",
        ),
    ),
    Shape(
        "leaderworkerset leader",
        pod(
            metadata=owned("StatefulSet", "apps/v1", labels=_LWS, name="serve-0"),
            annotations={"leaderworkerset.sigs.k8s.io/size": "4"},
        ),
    ),
    Shape(
        "leaderworkerset leader without gpu",
        pod(NONE, metadata=owned("StatefulSet", "apps/v1", labels=_LWS)),
    ),
    Shape(
        "leaderworkerset leader without gpu, where gpu pods have a default tier",
        pod(NONE, metadata=owned("StatefulSet", "apps/v1", labels=_LWS)),
        CAPPED,
    ),
    Shape(
        "leaderworkerset leader without gpu, above the maximum of gpu pods",
        pod(NONE, metadata={"labels": _LWS}, priorityClassName="gpu-high-priority"),
        CAPPED,
        gated=False,
    ),
    Shape(
        "jobset driver without gpu, opted out",
        pod(NONE, {keys.INJECT_ANNOTATION: "false"}, metadata={"labels": _JOBSET}),
        gated=False,
    ),
    Shape(
        "mpijob worker",
        pod(
            metadata=owned(
                "MPIJob",
                "kubeflow.org/v2beta1",
                labels={"training.kubeflow.org/job-name": "m", "training.kubeflow.org/job-role": "worker"},
            )
        ),
    ),
    Shape(
        "mpijob launcher without gpu",
        pod(
            NONE,
            metadata=owned(
                "Job",
                "batch/v1",
                labels={"training.kubeflow.org/job-name": "m", "training.kubeflow.org/job-role": "launcher"},
            ),
            restartPolicy="Never",
        ),
    ),
    Shape(
        "job without gpu",
        pod(
            NONE, metadata=owned("Job", "batch/v1", labels={marks.JOB_NAME_LABEL: "j"}), restartPolicy="Never"
        ),
        gated=False,
    ),
    Shape("ray head without gpu", pod(NONE, metadata={"labels": {"ray.io/cluster": "r"}}), gated=False),
    Shape(
        "pytorchjob worker",
        pod(
            metadata=owned(
                "PyTorchJob", "kubeflow.org/v1", labels={"training.kubeflow.org/replica-index": "1"}
            )
        ),
    ),
    Shape("ray worker", pod(metadata=owned("RayCluster", "ray.io/v1", labels={"ray.io/cluster": "r"}))),
    Shape(
        "kueue pod group",
        pod(
            metadata={"labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
            schedulingGates=[{"name": FOREIGN}, {"name": marks.KUEUE_TOPOLOGY_GATE}],
        ),
    ),
    Shape(
        "job of which kueue chooses the nodes",
        pod(
            annotations=tier("high"),
            metadata=owned("Job", "batch/v1"),
            schedulingGates=[{"name": marks.KUEUE_TOPOLOGY_GATE}],
        ),
        gated=False,
    ),
]

SHAPES: Final = [*RESOURCES, *FORMS, *GATES, *ALONE, *MODEL_REQUESTS, *MODELS, *TIERS, *CONTROLLERS]
