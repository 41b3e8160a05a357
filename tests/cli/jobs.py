"""Jobs as people write them."""

from typing import Any

TOPOGATE = "topogate.io/"


def pod_spec(gpus: Any = 8, **resources: Any) -> dict[str, Any]:
    amounts = resources or {"limits": {"nvidia.com/gpu": gpus}}
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": amounts}]}


def job(
    gpus: Any = 8, pods: int = 4, spec: dict[str, Any] | None = None, **annotations: str
) -> dict[str, Any]:
    own = {TOPOGATE + key.replace("_", "-"): value for key, value in annotations.items()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "template": {"metadata": {"annotations": own}, "spec": spec or pod_spec(gpus)},
        },
    }
