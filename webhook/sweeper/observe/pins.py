"""What holds a pod back, and where it has been sent: its gates and its pin. Pure."""

from labeler.contract import keys
from webhook.kube.affinity import NodeSelectorTerm
from webhook.kube.objects import Pod


def is_gated(pod: Pod, prefix: str = keys.GATE_PREFIX) -> bool:
    """Whether a pod waits for us (the condition SchedulingGated lags behind; only the spec counts)."""
    return any(gate.name.startswith(prefix) for gate in pod.spec.scheduling_gates)


def pinned_node(pod: Pod) -> str | None:
    """The node that a released pod is pinned to, or None if it is not pinned to exactly one."""
    names = {_pinned_by(term) for term in required_terms(pod) if matches_something(term)}
    return names.pop() if len(names) == 1 else None


def occupied_node(pod: Pod, gate_prefix: str = keys.GATE_PREFIX) -> str | None:
    """The node on which an unfinished pod counts: where it is bound, or where it has been pinned to.

    A pod that a gate with gate_prefix still holds is nowhere, whatever its author's affinity says.
    """
    if pod.spec.node_name:
        return pod.spec.node_name
    return None if is_gated(pod, gate_prefix) else pinned_node(pod)


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


def _pinned_by(term: NodeSelectorTerm) -> str | None:
    for field in term.match_fields:
        if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
            return field.values[0]
    return None
