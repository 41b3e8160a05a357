"""Which pods may share a node: the rules of Kubernetes read plainly from JSON, two pods at a time.

Nothing of the code under test is used here, except by the last three functions: how that code counts, and
`is_mixed`, which says where it promises less.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from webhook.kube.objects import Pod
from webhook.placement.eligibility import SYNTHETIC_CAPACITY
from webhook.scheduling import antiaffinity, conflicts
from webhook.scheduling.conflicts import Conflicts

Body = dict[str, Any]
Namespaces = Mapping[str, Mapping[str, str]]
"""Labels by namespace."""

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def may_share(one: Body, other: Body, namespaces: Namespaces) -> bool:
    """Whether two pods, as the API server has them, may be on one node."""
    repelled = any(repels(a, b, namespaces) for a, b in ((one, other), (other, one)))
    clash = any(clashes(a, b) for a in host_ports(one) for b in host_ports(other))
    return not repelled and not clash


def repels(carrier: Body, other: Body, namespaces: Namespaces) -> bool:
    """Whether required anti-affinity of the one keeps the other off its node."""
    namespace, labels = other["metadata"]["namespace"], other["metadata"].get("labels", {})
    named = {"kubernetes.io/metadata.name": namespace, **namespaces[namespace]}
    for term in carrier["spec"].get("affinity", {}).get("podAntiAffinity", {}).get(REQUIRED, []):
        listed = list(term.get("namespaces", []))
        if not listed and "namespaceSelector" not in term:
            listed = [carrier["metadata"]["namespace"]]
        inside = namespace in listed or selects(term.get("namespaceSelector"), named)
        if term["topologyKey"] == HOSTNAME and inside and selects(term.get("labelSelector"), labels):
            return True
    return False


def selects(selector: Body | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects; None selects nothing."""
    if selector is None:
        return False
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions", []):
        there, value = each["key"] in labels, labels.get(each["key"])
        holds = {
            "In": value in each.get("values", []),
            "NotIn": value not in each.get("values", []),
            "Exists": there,
            "DoesNotExist": not there,
        }
        if not holds[each["operator"]]:
            return False
    return True


def host_ports(pod: Body) -> list[tuple[str, int, str]]:
    """Protocol, port and address of each host port of its containers."""
    return [
        (port.get("protocol", "TCP"), port["hostPort"], port.get("hostIP") or "0.0.0.0")
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        if port.get("hostPort")
    ]


def clashes(one: tuple[str, int, str], other: tuple[str, int, str]) -> bool:
    """Whether two host ports are the same to a node."""
    return one[:2] == other[:2] and (one[2] == other[2] or "0.0.0.0" in (one[2], other[2]))


def between(waiting: Iterable[Pod], assigned: Iterable[Pod] = (), most: int | None = None) -> Conflicts:
    """The rules among pods that wait and pods that have a node; most: of synthetic resources."""
    carried = [(pod.metadata.namespace, antiaffinity.terms_of(pod)) for pod in assigned]
    return conflicts.between(list(waiting), carried, most)


def taken_together(rules: Conflicts, wanting: Iterable[Pod], there: Iterable[Pod] = ()) -> bool:
    """Whether a node with these pods takes those that want to it, as the placement core counts."""
    wanted = [rules.takes(pod) for pod in wanting]
    used = [rules.takes(pod) for pod in there]
    names = {name for takes in wanted for name in takes}
    return all(sum(takes.get(name, 0) for takes in wanted + used) <= SYNTHETIC_CAPACITY for name in names)


def is_heterogeneous(waiting: Iterable[Pod]) -> bool:
    """Whether of one term waiting pods are both: repelled, and carrying it without being repelled."""
    waiting = list(waiting)
    for term in [term for pod in waiting for term in antiaffinity.terms_of(pod)]:
        roles = set()
        for pod in waiting:
            carries = term.name in {each.name for each in antiaffinity.terms_of(pod)}
            roles.add((carries, term.repels(pod.metadata.namespace, pod.metadata.labels)))
        if (True, False) in roles and roles & {(False, True), (True, True)}:
            return True
    return False
