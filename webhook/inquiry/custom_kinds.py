"""The pods of Ray's, Kubeflow Trainer's, Argo's and Grove's objects, as their controllers create them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.inquiry import defaults, members
from webhook.inquiry.members import Described

Spec = Mapping[str, Any]
_POD_FIELDS: Final = (
    "nodeSelector", "affinity", "tolerations", "volumes", "initContainers", "sidecars",
    "schedulerName", "priorityClassName",
)  # fmt: skip
"""The fields of an Argo template that apply to its pod and not to the container."""


def of_ray_cluster(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    """The head, and each group's replicas within its bounds, with all their hosts."""
    head = members.template(members.part(spec, "headGroupSpec", where), where)
    yield f"{name}-head", None, defaults.labelled(head, _ray_labels(name, "head", "headgroup"))
    for group in members.parts(spec, "workerGroupSpecs", where):
        group_name = str(group.get("groupName") or "workers")
        body = defaults.labelled(members.template(group, where), _ray_labels(name, "worker", group_name))
        count = (
            0
            if group.get("suspend") is True
            else _replicas(group) * members.number(group.get("numOfHosts"), 1)
        )
        for pod, _, each in members.copies(f"{name}-{group_name}", count, body):
            yield pod, None, each


def of_ray_job(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    """Its cluster; the pod that submits has no GPUs and is created once the cluster runs."""
    yield from of_ray_cluster(members.part(spec, "rayClusterSpec", where), document, name, where)


def of_train_job(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    """As many nodes as its trainer has, with the resources that it names; else those of its runtime."""
    trainer = members.part(spec, "trainer", where)
    if trainer.get("resourcesPerNode") is None:
        raise members.InputError(
            f"{where}: its runtime sets the pods' requests; set trainer.resourcesPerNode, or pass the JobSet"
        )
    container = {
        "name": "node",
        "image": str(trainer.get("image") or "image-of-the-runtime"),
        "resources": members.part(trainer, "resourcesPerNode", where),
    }
    labels = {**members.part(spec, "labels", where), "jobset.sigs.k8s.io/jobset-name": name}
    body = defaults.labelled(
        {"metadata": {}, "spec": {"containers": [container]}},
        labels,
        members.part(spec, "annotations", where),
    )
    yield from members.copies(f"{name}-node-0", members.number(trainer.get("numNodes"), 1), body)


def of_workflow(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    """One pod of each template that creates some: how often and when depends on its steps."""
    for each in members.parts(spec, "templates", where):
        container = each.get("container") or each.get("script")
        if not isinstance(container, dict):
            continue
        own = {key: each[key] for key in _POD_FIELDS if key in each}
        body = {
            "metadata": members.part(each, "metadata", where),
            "spec": {**own, "containers": [{"name": "main", **container}]},
        }
        yield f"{name}-{each.get('name', 'main')}", None, body


def of_pod_clique(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    """Its replicas; a PodCliqueSet creates one of these objects for each of its roles."""
    metadata = members.part(document, "metadata", where)
    own = {key: metadata[key] for key in ("labels", "annotations") if isinstance(metadata.get(key), dict)}
    body = {"metadata": own, "spec": members.part(spec, "podSpec", where)}
    yield from members.copies(name, members.number(spec.get("replicas"), 1), body)


def _ray_labels(name: str, node_type: str, group: str) -> dict[str, str]:
    return {"ray.io/cluster": name, "ray.io/node-type": node_type, "ray.io/group": group}


def _replicas(group: Spec) -> int:
    """A group's replicas within its bounds."""
    least = members.number(group.get("minReplicas"), 0)
    wanted = max(members.number(group.get("replicas"), 0), least)
    return (
        wanted if group.get("maxReplicas") is None else min(wanted, members.number(group["maxReplicas"], 0))
    )
