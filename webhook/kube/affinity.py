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


class NodeAffinity(Struct, frozen=True):
    """Which nodes a pod must (and would like to) run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


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


class PodAffinity(Struct, frozen=True):
    """Which pods a pod must be near to; as anti-affinity, which it must not be near to."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []


class Affinity(Struct, frozen=True):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None
