"""What holds a pod back, and where it has been sent: its gates and its pin. Pure."""

from msgspec.structs import replace

from labeler.contract import keys
from webhook.kube.affinity import NodeSelectorTerm, SelectorRequirement
from webhook.kube.objects import Pod


def is_gated(pod: Pod, prefix: str = keys.GATE_PREFIX) -> bool:
    """Whether a pod waits for us (the condition SchedulingGated lags behind; only the spec counts)."""
    return any(gate.name.startswith(prefix) for gate in pod.spec.scheduling_gates)


def pinned_node(pod: Pod) -> str | None:
    """The only node that its required node affinity leaves by name, None if there is none or are several.

    The requirements of one term hold together, the terms are alternatives: what a term leaves is what all of
    its fields name, and what the pod may use is what any term leaves. A term whose fields contradict is no
    way out; so a pod whose author has named nodes in some terms is as pinned as we have pinned it.
    """
    left: set[str] = set()
    for term in required_terms(pod):
        if matches_something(term):
            names = _named_by(term)
            if names is None:
                return None
            left |= names
    return left.pop() if len(left) == 1 else None


def occupied_node(pod: Pod, gate_prefix: str = keys.GATE_PREFIX) -> str | None:
    """The node on which an unfinished pod counts: where it is bound, or where it has been pinned to.

    A pod that a gate with gate_prefix still holds is nowhere, whatever its author's affinity says. Nor is one
    that was deleted before it was bound: the API server binds it no more, however long a finalizer keeps it.
    """
    if pod.spec.node_name:
        return pod.spec.node_name
    if pod.metadata.deletion_timestamp or is_gated(pod, gate_prefix):
        return None
    return pinned_node(pod)


def scheduler_of(pod: Pod) -> str:
    """The scheduler that is to bind it."""
    return pod.spec.scheduler_name or "default-scheduler"


def required_terms(pod: Pod) -> list[NodeSelectorTerm]:
    """The terms of its required node affinity, of which one must hold."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return []
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return required.node_selector_terms if required else []


def matches_something(term: NodeSelectorTerm) -> bool:
    """Whether any node can meet the term: an empty one matches none."""
    return bool(term.match_expressions or term.match_fields)


def names_only(requirement: SelectorRequirement, node: str) -> bool:
    """Whether a field requirement is the pin to this node."""
    return (requirement.key, requirement.operator, requirement.values) == ("metadata.name", "In", [node])


def _named_by(term: NodeSelectorTerm) -> set[str] | None:
    """The nodes that all fields of the term name, None for a term that names none."""
    named = [set(f.values) for f in term.match_fields if f.key == "metadata.name" and f.operator == "In"]
    return set.intersection(*named) if named else None


def unpinned(pod: Pod, node: str) -> Pod:
    """The pod as its controller would make it again: without the pin that we gave it."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return pod
    node_affinity = affinity.node_affinity
    required = node_affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return pod
    terms = [_without_pin(term, node) for term in required.node_selector_terms]
    left = [term for term in terms if term.match_fields or term.match_expressions]
    selector = replace(required, node_selector_terms=left) if left else None
    node_affinity = replace(node_affinity, required_during_scheduling_ignored_during_execution=selector)
    return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, node_affinity=node_affinity)))


def _without_pin(term: NodeSelectorTerm, node: str) -> NodeSelectorTerm:
    """Without the last requirement that names just this node, which is the one that we appended."""
    fields = list(term.match_fields)
    for index in range(len(fields) - 1, -1, -1):
        if names_only(fields[index], node):
            del fields[index]
            break
    return replace(term, match_fields=fields)
