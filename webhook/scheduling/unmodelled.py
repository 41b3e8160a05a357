"""What kube-scheduler heeds and topogate does not know: reported to the user, never guessed at.

A pod with such a rule is placed as if it had none. If kube-scheduler then does not bind it to its node, it
is recreated elsewhere, like any pod that is not bound in time.
"""

from collections.abc import Iterable

from labeler.contract import keys
from webhook.kube import objects
from webhook.kube.affinity import Affinity
from webhook.scheduling.antiaffinity import selected_names
from webhook.scheduling.podrules import required


def taken_widely(pods: Iterable[objects.Pod]) -> list[str]:
    """A sentence on namespaceSelectors where the labels of namespaces are not known; [] without any."""
    if not any(map(_selects_widely, pods)):
        return []
    return [
        "the namespaceSelector of required pod anti-affinity is taken to select every namespace, "
        f"since no labels of namespaces are known but {keys.NAMESPACE_NAME_LABEL}"
    ]


def volume_note(pod: objects.Pod) -> str:
    """A sentence on volumes of which claims and volumes cannot be read; "" for a pod without any."""
    if not pod.spec.volumes:
        return ""
    names = ", ".join(sorted(volume.name for volume in pod.spec.volumes))
    return (
        f"topogate does not know on which nodes its volumes can be used ({names}); "
        "if kube-scheduler refuses its node for them, it is placed again elsewhere"
    )


def claim_notes(pods: Iterable[objects.Pod]) -> list[str]:
    """A sentence on claims on devices where these cannot be read; none for pods without any."""
    names = sorted({claim.name for pod in pods for claim in pod.spec.resource_claims})
    if not names:
        return []
    return [f"which nodes have devices for the claims ({', '.join(names)}) is not known here, and is ignored"]


def broken_over(pod: objects.Pod, message: str) -> frozenset[str]:
    """The label keys over whose domain a rule of the pod was broken, by what kube-scheduler said of its node.

    All nodes with the same value there break it as well, until something else changes. For volumes that is
    the zone, which is where those end that not every node can use.
    """
    affinity = pod.spec.affinity or Affinity()
    found: set[str] = set()
    if "topology spread" in message:
        found.update(each.topology_key for each in pod.spec.topology_spread_constraints)
    if "pod affinity rules" in message:
        found.update(term.topology_key for term in required(affinity.pod_affinity))
    if "anti-affinity rules" in message:
        found.update(term.topology_key for term in required(affinity.pod_anti_affinity))
    if pod.spec.volumes and _is_about_volumes(message):
        found.add(keys.ZONE_LABEL)
    return frozenset(found - {keys.HOSTNAME_LABEL, ""})


def _is_about_volumes(message: str) -> bool:
    """Whether kube-scheduler refused a node for volumes."""
    return "volume" in message or "PersistentVolume" in message


def _selects_widely(pod: objects.Pod) -> bool:
    affinity = pod.spec.affinity or Affinity()
    return any(
        term.namespace_selector is not None
        and (term.namespace_selector.match_labels or term.namespace_selector.match_expressions)
        and selected_names(term.namespace_selector) is None
        for term in required(affinity.pod_anti_affinity)
    )
