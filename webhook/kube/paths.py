"""Where the API server has its objects. Pure."""

from webhook.kube.objects import Pod


def pod_path(pod: Pod) -> str:
    """The path of a pod; its subresources are below it."""
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
