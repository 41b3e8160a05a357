"""Paths of objects on the API server. Pure."""

from webhook.kube.objects import Pod


def pod_path(pod: Pod) -> str:
    """The path of a pod, without a subresource."""
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
