"""Affinity of pods as narrow structs: node selectors, pod affinity and pod anti-affinity."""

from webhook.kube.struct import Labels, Struct


class SelectorRequirement(Struct, frozen=True):
    """One requirement of a node selector term."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(Struct, frozen=True):
    """Requirements that must all be met; a term without requirements matches nothing."""

    match_expressions: list[SelectorRequirement] = []
    match_fields: list[SelectorRequirement] = []


class NodeSelector(Struct, frozen=True):
    """Terms; at least one must match."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredNodes(Struct, frozen=True):
    """Nodes that a pod prefers, with a weight."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True):
    """The nodes that a pod requires, and those that it prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodes] = []


class LabelSelector(Struct, frozen=True):
    """Requirements on labels that must all be met; an empty selector matches everything."""

    match_labels: Labels = {}
    match_expressions: list[SelectorRequirement] = []


class PodAffinityTerm(Struct, frozen=True):
    """Selected pods (None: no pods) of some namespaces, and the label of the domains to share or avoid.

    The API server has already merged matchLabelKeys and mismatchLabelKeys into the selector.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None


class PreferredPods(Struct, frozen=True):
    """A preferred term of pod affinity or anti-affinity, with a weight."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Struct, frozen=True):
    """The required and preferred terms of pod affinity or anti-affinity."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[PreferredPods] = []


class Affinity(Struct, frozen=True):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None
