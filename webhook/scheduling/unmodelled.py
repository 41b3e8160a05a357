"""What kube-scheduler heeds and topogate does not: told to the user, never guessed at.

A pod with such a rule is placed as if it had none. If kube-scheduler then does not bind it to its node, it
is made again elsewhere, like any pod that is not bound in time.
"""

from collections.abc import Callable, Iterable, Iterator, Set

from labeler.contract import keys
from webhook.kube import objects
from webhook.kube.affinity import Affinity, PodAffinity, PodAffinityTerm
from webhook.scheduling.antiaffinity import selected_names


def notes(
    pods: Iterable[objects.Pod], planned_over: Callable[[objects.Pod], Set[str]] = lambda _: frozenset()
) -> list[str]:
    """Sentences on what the pods of a gang ask for and topogate cannot heed.

    planned_over: the labels whose domains a pod's rules on other pods are about and are planned.
    """
    left: set[str] = set()
    wide: set[str] = set()
    for pod in pods:
        spec = pod.spec
        if spec.affinity is not None or spec.topology_spread_constraints or spec.resource_claims:
            left.update(_left_to_the_scheduler(spec, planned_over(pod)))
            wide.update(_taken_widely(spec))
    found = []
    if left:
        found.append(
            f"topogate does not model {', '.join(sorted(left))}: if kube-scheduler does not bind a pod to "
            "its node within bind_seconds, it is placed anew elsewhere"
        )
    if wide:
        found.append(
            f"the namespaceSelector of {', '.join(sorted(wide))} is taken to select every namespace, "
            f"since topogate knows no labels of namespaces but {keys.NAMESPACE_NAME_LABEL}"
        )
    return found


def volume_note(pod: objects.Pod) -> str:
    """A sentence on volumes of which claims and volumes cannot be read; "" for a pod without any."""
    if not pod.spec.volumes:
        return ""
    names = ", ".join(sorted(volume.name for volume in pod.spec.volumes))
    return (
        f"topogate does not know on which nodes its volumes can be used ({names}); "
        "if kube-scheduler refuses its node for them, it is placed anew elsewhere"
    )


def broken_over(pod: objects.Pod, said: str) -> frozenset[str]:
    """The label keys over whose domain a rule of the pod was broken, by what kube-scheduler said of its node.

    All nodes with the same value there break it as well, until something else changes. For volumes that is
    the zone, which is where those end that not every node can use.
    """
    affinity = pod.spec.affinity or Affinity()
    found: set[str] = set()
    if "topology spread" in said:
        found.update(each.topology_key for each in pod.spec.topology_spread_constraints)
    if "pod affinity rules" in said:
        found.update(term.topology_key for term in _required(affinity.pod_affinity))
    if "anti-affinity rules" in said:
        found.update(term.topology_key for term in _required(affinity.pod_anti_affinity))
    if pod.spec.volumes and ("volume" in said or "PersistentVolume" in said):
        found.add(keys.ZONE_LABEL)
    return frozenset(found - {keys.HOSTNAME_LABEL, ""})


def _left_to_the_scheduler(spec: objects.PodSpec, planned: Set[str]) -> Iterator[str]:
    affinity = spec.affinity or Affinity()
    for term in _required(affinity.pod_affinity):
        if term.topology_key not in planned:
            yield f"required pod affinity over {term.topology_key}"
    for term in _required(affinity.pod_anti_affinity):
        if term.topology_key not in planned | {keys.HOSTNAME_LABEL}:
            yield f"required pod anti-affinity over {term.topology_key}"
    for constraint in spec.topology_spread_constraints:
        if constraint.when_unsatisfiable == "DoNotSchedule":
            yield f"topology spread over {constraint.topology_key}"
    if spec.resource_claims:
        yield "resource claims"


def _taken_widely(spec: objects.PodSpec) -> Iterator[str]:
    affinity = spec.affinity or Affinity()
    for term in _required(affinity.pod_anti_affinity):
        selector = term.namespace_selector
        if (
            selector is not None
            and term.topology_key == keys.HOSTNAME_LABEL
            and (selector.match_labels or selector.match_expressions)
            and selected_names(selector) is None
        ):
            yield "required pod anti-affinity"


def _required(affinity: PodAffinity | None) -> list[PodAffinityTerm]:
    return affinity.required_during_scheduling_ignored_during_execution if affinity else []
