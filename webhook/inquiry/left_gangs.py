"""Whether topogate places gangs of Kubernetes' own PodGroups, and which topology requests are void."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from webhook.configuration.cluster import read_configuration
from webhook.extensions.native_gangs.pod_group_gangs import by_gang
from webhook.inquiry.cluster_state import read_all
from webhook.inquiry.findings import Finding, State, found, some
from webhook.kube.client import Api
from webhook.kube.objects import Namespace, Pod
from webhook.policy.values import Policy
from webhook.sweeper.observe.cache import NAMESPACES, PODS, UNFINISHED
from webhook.sweeper.observe.membership import GangKey, key_of
from webhook.sweeper.observe.plans import is_gated, pinned_node
from webhook.text import counted
from webhook.workloads.native_gangs import GROUP, VERSIONS


def examine(api: Api, now: datetime) -> Iterator[Finding]:
    """Check the configuration; where it leaves such gangs alone, count pods with topology annotations."""
    served = {each["version"] for each in api.json("GET", f"/apis/{GROUP}")["versions"]}
    version = next((each for each in VERSIONS if each in served), None)
    if version is None:
        yield found(State.WELL, "the API server serves no PodGroups of its own")
        return
    policy = read_configuration(api).policy
    if policy.adopts_native_gangs:
        yield found(State.WELL, f"pods of PodGroups ({version}) are placed by topogate")
        return
    left = _left(api, policy)
    if not left:
        yield found(State.WELL, f"pods of PodGroups ({version}) are left to kube-scheduler")
        return
    pods = sum(map(len, left.values()))
    yield found(
        State.ODD,
        f"{counted(pods, 'pod of a PodGroup names', 'pods of PodGroups name')} a topology that "
        "has no effect, as the configuration leaves such pods to "
        f"kube-scheduler (gangs.native: leave): {some([str(key) for key in sorted(left)])}",
        "Set gangs.native: adopt in the configuration, or remove the annotations.",
    )


def _left(api: Api, policy: Policy) -> Mapping[GangKey, list[Pod]]:
    """The pods that topogate has never gated, by gang. Raises ApiError."""
    labels = {each.metadata.name: each.metadata.labels for each in read_all(api, NAMESPACES, Namespace)}
    pods = read_all(api, PODS, Pod, fieldSelector=UNFINISHED)
    strange = (pod for pod in pods if not is_gated(pod, policy.gate_prefix) and pinned_node(pod) is None)
    return by_gang(strange, policy, labels, key_of)
