"""Kubernetes' own gang scheduling: what switches it on, by release.

https://kubernetes.io/docs/concepts/scheduling-eviction/gang-scheduling/ says what it is. All of it is off by
default in the releases below.
"""

from collections.abc import Mapping
from typing import Any, Final

from hack.local.build import kubernetes_version
from webhook.kube.client import Api

MODES: Final = ("", "pods", "jobs")
"""Off; kube-scheduler binds the pods of a PodGroup as one; the Job controller makes PodGroups as well."""

FIRST_MINOR: Final = 36
"""1.35 has an API of another shape, which no later release serves."""

API_GROUP: Final = "scheduling.k8s.io"
_PROGRAMS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_GATES: Final[Mapping[int, tuple[str, ...]]] = {
    36: ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption"),
    37: ("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup"),
}
_JOBS: Final = "WorkloadWithJob"
_API_VERSIONS: Final[Mapping[int, tuple[str, ...]]] = {36: ("v1alpha2",), 37: ("v1alpha3", "v1beta1")}


def can_be_on() -> bool:
    """Whether the release of Kubernetes that is built has native gangs."""
    return int(kubernetes_version().split(".")[1]) in _GATES


def flags(program: str, mode: str) -> list[str]:
    """What one program gets beside its other flags.

    Raises ValueError for a release that has no such API, or whose feature gates are not known here.
    """
    if not mode or program not in _PROGRAMS:
        return []
    minor = int(kubernetes_version().split(".")[1])
    if minor not in _GATES:
        raise ValueError(
            f"Kubernetes {kubernetes_version()}: the feature gates of its native gangs are not known here. "
            f"Known are those of {', '.join(f'1.{each}' for each in _GATES)}."
        )
    gates = [*_GATES[minor], *([_JOBS] if mode == "jobs" else [])]
    found = ["--feature-gates=" + ",".join(f"{gate}=true" for gate in gates)]
    if program == "kube-apiserver":
        served = ",".join(f"{API_GROUP}/{version}=true" for version in _API_VERSIONS[minor])
        found.append(f"--runtime-config={served}")
    return found


def api_version(api: Api) -> str:
    """The version of PodGroups that a cluster serves. Raises ApiError, LookupError if it serves none."""
    group = api.json("GET", f"/apis/{API_GROUP}")
    served = {each["version"] for each in group["versions"]}
    for version in sorted({each for versions in _API_VERSIONS.values() for each in versions}, reverse=True):
        if version in served:
            return version
    raise LookupError("the API server serves no PodGroups: start it with hack/cluster up --native-gangs")


def path(api: Api, namespace: str) -> str:
    """The address of a namespace's PodGroups."""
    return f"/apis/{API_GROUP}/{api_version(api)}/namespaces/{namespace}/podgroups"


def pod_group(api: Api, name: str, minimum: int) -> dict[str, Any]:
    """A PodGroup of which `minimum` pods are bound together or none."""
    return {
        "apiVersion": f"{API_GROUP}/{api_version(api)}",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }
