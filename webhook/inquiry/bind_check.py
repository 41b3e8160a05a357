"""Whether the cluster supports `binding.mode`: bind each gang as one."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from labeler.contract import keys
from webhook.configuration.cluster import read_configuration
from webhook.inquiry.findings import Finding, State, found
from webhook.kube.client import Api
from webhook.text import counted
from webhook.workloads.native_gangs import GROUP, VERSIONS
from webhook.workloads.pod_group_names import PREFIX

_NO_EFFECT: Final = "each pod is bound by itself, and binding.mode: podgroup has no effect"
_REMEDY: Final = (
    "Switch Kubernetes' own gangs on, as docs/operators/bind.md says, or set binding.mode: pinned."
)
_POD: Final = {
    "metadata": {"generateName": "topogate-doctor-"},
    "spec": {
        "containers": [{"name": "c", "image": "x"}],
        "schedulingGroup": {"podGroupName": f"{PREFIX}doctor"},
    },
}


def examine(api: Api, now: datetime) -> Iterator[Finding]:
    """Check the mode, which fields the API server keeps, and kube-scheduler's conditions of PodGroups."""
    policy = read_configuration(api).policy
    if not policy.binds_by_pod_group:
        yield found(State.WELL, "each pod is bound by itself (binding.mode: pinned)")
        return
    served = {each["version"] for each in api.json("GET", f"/apis/{GROUP}")["versions"]}
    version = next((each for each in VERSIONS if each in served), None)
    if version is None:
        yield found(State.ODD, f"{_NO_EFFECT}: the API server serves no PodGroups", _REMEDY)
        return
    path = "/api/v1/namespaces/default/pods"
    pod = api.json("POST", path, query={"dryRun": "All"}, body=_POD)
    if "schedulingGroup" not in pod["spec"]:
        yield found(State.ODD, f"{_NO_EFFECT}: the API server drops spec.schedulingGroup of pods", _REMEDY)
        return
    selector = {"labelSelector": f"{keys.BIND_LABEL}={keys.BIND_POD_GROUP}"}
    yield _of_scheduler(api.json("GET", f"/apis/{GROUP}/{version}/podgroups", query=selector)["items"])


def _of_scheduler(groups: list[dict[str, Any]]) -> Finding:
    """kube-scheduler writes a condition of each PodGroup that it has tried to bind."""
    tried = sum(bool(each.get("status", {}).get("conditions")) for each in groups)
    if tried:
        return found(State.WELL, f"kube-scheduler binds {counted(tried, 'gang')} as one")
    if not groups:
        return found(
            State.WELL, "gangs are bound as one; no PodGroup exists yet that shows what kube-scheduler does"
        )
    return found(
        State.ODD,
        f"kube-scheduler has tried none of {counted(len(groups), 'PodGroup')}: unless their pods are still "
        "gated, its own gang scheduling is off, and it binds each pod by itself",
        _REMEDY,
    )
