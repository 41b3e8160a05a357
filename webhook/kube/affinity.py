"""Where a pod may run, as its author writes it: selectors of nodes, and of pods to be with or without."""

from webhook.kube.struct import Labels, Struct


class SelectorRequirement(Struct, frozen=True):
    """One requirement of a node selector term."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(Struct, frozen=True):
    """Requirements that must all hold; a term without any matches nothing."""

    match_expressions: list[SelectorRequirement] = []
    match_fields: list[SelectorRequirement] = []


class NodeSelector(Struct, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredNodes(Struct, frozen=True):
    """Nodes that a pod would like to run on; a heavier wish counts more."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True):
    """Which nodes a pod must (and would like to) run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodes] = []


class LabelSelector(Struct, frozen=True):
    """Requirements on labels that must all hold; one without any matches everything."""

    match_labels: Labels = {}
    match_expressions: list[SelectorRequirement] = []


class PodAffinityTerm(Struct, frozen=True):
    """Pods (None: none) of some namespaces, and the domains in which to be with or without them.

    The API server has merged matchLabelKeys and mismatchLabelKeys into the selector already.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None


class PreferredPods(Struct, frozen=True):
    """Pods that a pod would like to be near to, or not; a heavier wish counts more."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Struct, frozen=True):
    """Which pods a pod must be near to, or would like to; as anti-affinity, which not."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[PreferredPods] = []


class Affinity(Struct, frozen=True):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None
