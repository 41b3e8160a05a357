"""Rules that kube-scheduler enforces and topogate does not model: they are reported, never guessed.

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
    """A sentence on namespaceSelectors if the labels of namespaces are unknown; [] without any."""
    if not any(map(_selects_widely, pods)):
        return []
    return [
        "the namespaceSelector of required pod anti-affinity is taken to select every namespace, "
        f"since no labels of namespaces are known but {keys.NAMESPACE_NAME_LABEL}"
    ]


def volume_note(pod: objects.Pod) -> str:
    """A sentence on volumes if topogate cannot read claims and volumes; "" for a pod without any."""
    if not pod.spec.volumes:
        return ""
    names = ", ".join(sorted(volume.name for volume in pod.spec.volumes))
    return (
        f"topogate does not know on which nodes its volumes can be used ({names}); "
        "if kube-scheduler refuses its node for them, it is placed again elsewhere"
    )


def claim_notes(pods: Iterable[objects.Pod]) -> list[str]:
    """A sentence on claims on devices if topogate cannot read them; [] for pods without any."""
    names = sorted({claim.name for pod in pods for claim in pod.spec.resource_claims})
    if not names:
        return []
    return [f"which nodes have devices for the claims ({', '.join(names)}) is not known here, and is ignored"]


def broken_over(pod: objects.Pod, message: str) -> frozenset[str]:
    """The topology keys of the rules that a pod's node breaks, from kube-scheduler's message on that node.

    All nodes with the same label value break the rule too, until something else changes. For volumes the key
    is the zone, since a volume that not every node can use is usually confined to a zone.
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
