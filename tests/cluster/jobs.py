"""Jobs and tasks that tests of the cluster create, and what became of them."""

from typing import Any

from webhook.kube.client import Api
from webhook.tasks.task_objects import GROUP_VERSION, KIND
from webhook.tasks.task_objects import path as tasks_path


def create_job(api: Api, namespace: str, name: str, pods: int, limits: dict[str, Any], **spec: Any) -> None:
    template = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}],
    }
    api.request(
        "POST",
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        body={
            "metadata": {"name": name},
            "spec": {
                "completionMode": "Indexed",
                "completions": pods,
                "parallelism": pods,
                "template": {"spec": template | spec},
            },
        },
    )


def all_run(count: int) -> Any:
    return lambda pods: [pod["status"]["phase"] for pod in pods] == ["Running"] * count


def blocks_of(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["spec"]["nodeName"].split("-")[1] for pod in pods}


def create_task(api: Api, namespace: str, name: str) -> None:
    """A GPUTask that runs until it is ended."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"gpu-amount": "1", "template": template}
    body = {"apiVersion": GROUP_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    api.request("POST", tasks_path(namespace), body=body)


def gates(pods: list[dict[str, Any]]) -> list[str]:
    return [gate["name"] for pod in pods for gate in pod["spec"].get("schedulingGates", [])]
