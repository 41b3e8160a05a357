"""The effect of pods that have a node on waiting pods, by inter-pod rules of either. Pure.

Results are computed on first use and cached for equal questions: those of the pods of a gang, and of gangs of
one template. After pods are planned in a pass, with_added makes a new value.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

from webhook.kube import objects
from webhook.placement.eligibility import Rules, Taint, reason_against
from webhook.placement.model import PodClass, PodCounts, Preferences
from webhook.scheduling.antiaffinity import AntiAffinityTerm, NamespaceLabels, terms_of
from webhook.scheduling.assigned_pods import AssignedPod, AssignedPods
from webhook.scheduling.carriers import Carriers, carriers_of
from webhook.scheduling.convert import node_rules
from webhook.scheduling.domain_counts import DomainCounts
from webhook.scheduling.label_domains import LabelDomains
from webhook.scheduling.podrules import NONE, Near, PodRules, SpreadRule, apart_keys, rules_of

ExcludedNodes = tuple[tuple[str, frozenset[str]], ...]
"""Excluded nodes, by the rule that excludes them."""


@dataclass(eq=False, slots=True)
class EquivalentPods:
    """Pods of one namespace and template with equal values of the labels that matter.

    pod: one of them. label_keys: the labels that are compared. excluded_nodes: see Neighbourhood.pod_class;
    None until computed. classes: a cache of its results by the id of the class, which it keeps alive.
    """

    pod: objects.Pod
    rules: PodRules
    label_keys: frozenset[str]
    excluded_nodes: ExcludedNodes | None = None
    classes: dict[int, tuple[PodClass, PodClass]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Template:
    """The facts that pods of one namespace and template share. label_keys: labels that distinguish them."""

    pod: objects.Pod
    keyed: tuple[str, ...]
    """Labels whose values are part of the rules."""
    label_keys: tuple[str, ...] | None = None
    equivalents: dict[tuple[str | None, ...], EquivalentPods] = field(default_factory=dict)


class Neighbourhood:
    """Pods that have a node, and the labels of nodes. namespaces: None if their labels are unknown."""

    def __init__(
        self,
        nodes: Mapping[str, objects.Node],
        assigned: Iterable[AssignedPod],
        namespaces: NamespaceLabels | None = None,
        waiting: Iterable[objects.Pod] = (),
        domains: LabelDomains | None = None,
    ) -> None:
        """waiting: the pods to ask about, for bounding the work on anti-affinity.

        domains: those of these nodes, if known.
        """
        self.domains = domains or LabelDomains(nodes)
        self._nodes = nodes
        self._namespaces = namespaces
        self._assigned = AssignedPods(each for each in assigned if each[1] in nodes)
        self.counts = DomainCounts(self._assigned, self.domains)
        self._waiting = list(waiting)
        self._templates: dict[object, _Template] = {}
        self._equivalents: dict[int, tuple[objects.Pod, EquivalentPods]] = {}
        self._rules: dict[object, PodRules] = {}
        self._pinned_parts: list[objects.Pod] = []
        self._crowds: dict[int, tuple[tuple[PodCounts, ...], tuple[PodCounts, ...]]] = {}
        self._eligible: dict[object, frozenset[str]] = {}

    def without(self, uids: frozenset[str]) -> "Neighbourhood":
        """The same without these pods."""
        left = [each for each in self._assigned.all if each[0].metadata.uid not in uids]
        return Neighbourhood(self._nodes, left, self._namespaces, self._waiting, self.domains)

    def with_added(self, placed: Iterable[AssignedPod]) -> "Neighbourhood":
        """The same with these newly placed pods."""
        placed = [each for each in placed if each[1] in self._nodes]
        if not placed:
            return self
        made = copy(self)
        made._assigned = self._assigned.with_added(placed)
        made.counts = self.counts.with_pods(made._assigned)
        made._crowds, made._equivalents = {}, {}
        made._templates = {key: _Template(each.pod, each.keyed) for key, each in self._templates.items()}
        if "_carriers" in self.__dict__:
            made._carriers = self._carriers_with(placed)
        return made

    def _carriers_with(self, placed: Iterable[AssignedPod]) -> dict[str, Carriers]:
        found: dict[str, dict[AntiAffinityTerm, set[str]]] = {}
        for pod, node in placed:
            for key in apart_keys(pod):
                value = self.domains.value(node, key)
                for term in terms_of(pod, key, self._namespaces) if value is not None else ():
                    found.setdefault(key, {}).setdefault(term, set()).add(str(value))
        carriers = dict(self._carriers)
        for key, terms in found.items():
            carriers[key] = carriers[key].copy() if key in carriers else Carriers()
            for term, values in terms.items():
                carriers[key].add(term, values)
        return carriers

    # --- facts about one pod ----------------------------------------------------------------------

    def equivalents(self, pod: objects.Pod) -> EquivalentPods:
        """The equivalence class of a pod, valid until pods are added; all its pods get the same object."""
        known = self._equivalents.get(id(pod))
        if known is not None:
            return known[1]
        spec, metadata = pod.spec, pod.metadata
        made = (
            metadata.namespace,
            id(spec.affinity),
            id(spec.topology_spread_constraints),
            id(spec.node_selector),
            id(spec.tolerations),
        )
        template = self._templates.get(made)
        if template is None:  # the pod stays referenced, so that the ids of its parts are not reused
            keyed = {name for each in spec.topology_spread_constraints for name in each.match_label_keys}
            template = self._templates[made] = _Template(pod, tuple(sorted(keyed)))
        labels = metadata.labels
        if template.label_keys is None:
            rules = self._rules_of(pod, template)
            keys = rules.label_keys.union(template.keyed, self._carried_keys)
            template.label_keys, template.equivalents = tuple(sorted(keys)), {}
        values = tuple([labels.get(key) for key in template.label_keys])
        found = template.equivalents.get(values)
        if found is None:
            found = EquivalentPods(pod, self._rules_of(pod, template), frozenset(template.label_keys))
            template.equivalents[values] = found
        self._equivalents[id(pod)] = pod, found
        return found

    def _rules_of(self, pod: objects.Pod, template: _Template) -> PodRules:
        spec, labels = pod.spec, pod.metadata.labels
        if spec.affinity is None and not spec.topology_spread_constraints:
            return NONE
        values = tuple([labels.get(name) for name in template.keyed])
        key = pod.metadata.namespace, id(spec.affinity), id(spec.topology_spread_constraints), values
        if key not in self._rules:
            self._rules[key] = rules_of(pod, self._namespaces)
        return self._rules[key]

    def rules_of(self, pod: objects.Pod) -> PodRules:
        """The pod's rules; pods of one template get the same object."""
        return self.equivalents(pod).rules

    def pod_class(self, pod: objects.Pod, pod_class: PodClass) -> PodClass:
        """The pod's class without the nodes that stay excluded wherever the other pods of its gang are
        placed.
        """
        equivalents = self.equivalents(pod)
        known = equivalents.classes.get(id(pod_class))
        if known is None:
            known = equivalents.classes[id(pod_class)] = pod_class, self._class_of(equivalents, pod_class)
        return known[1]

    def _class_of(self, equivalents: EquivalentPods, pod_class: PodClass) -> PodClass:
        rules = equivalents.rules
        if not pod_class.problem and (rules.soft_spread or rules.liked):
            pod_class = replace(pod_class, preferred=self._preferred(rules, pod_class.preferred))
        if pod_class.problem or (not rules and not self._carriers):
            return pod_class
        if rules.fault:
            return PodClass((), pod_class.rules, problem=rules.fault)
        excluded = self._excluded_nodes(equivalents)
        if not excluded:
            return pod_class
        return replace(pod_class, rules=replace(pod_class.rules, exclusions=excluded))

    def _excluded_nodes(self, equivalents: EquivalentPods) -> ExcludedNodes:
        """The nodes that stay excluded wherever other pods of the gang are placed, by rule; computed once."""
        if equivalents.excluded_nodes is None:
            found = {
                name: frozenset(nodes) for name, nodes in self._excluded_for(equivalents).items() if nodes
            }
            equivalents.excluded_nodes = tuple(sorted(found.items()))
        return equivalents.excluded_nodes

    def _preferred(self, rules: PodRules, preferences: Preferences) -> Preferences:
        """The preferences together with those about pods that have a node."""
        known = self._crowds.get(id(rules))  # rules stay referenced, see rules_of
        if known is None:
            spread = tuple(
                PodCounts(each.key, _sorted(self.counts.everywhere(each)), each.max_skew)
                for each in rules.soft_spread
            )
            near = tuple(
                PodCounts(near.key, _sorted(self.counts.near(near.key, (near.pods,)), weight))
                for weight, near in rules.liked
            )
            known = self._crowds[id(rules)] = spread, near
        return replace(preferences, spread=known[0], near=known[1])

    def _excluded_for(self, equivalents: EquivalentPods) -> dict[str, set[str]]:
        """Nodes that such pods cannot use wherever the rest of their gang is placed, by rule."""
        found: dict[str, set[str]] = {}
        pod, rules, domains = equivalents.pod, equivalents.rules, self.domains
        for key, carriers in self._carriers.items():
            values = carriers.excluded_for(pod.metadata.namespace, pod.metadata.labels)
            found.setdefault(f"pod anti-affinity over {key}", set()).update(domains.nodes_with(key, values))
        for near in rules.apart:
            values = set(self.counts.near(near.key, (near.pods,)))
            found.setdefault(f"pod anti-affinity over {near.key}", set()).update(
                domains.nodes_with(near.key, values)
            )
        for what, key in (
            *(("pod affinity", near.key) for near in rules.affinity),
            *(("topology spread", rule.key) for rule in rules.spread),
        ):
            having = domains.with_labels(frozenset((key,)))
            if len(having) < len(self._nodes):
                found.setdefault(f"{what} over {key}", set()).update(self._nodes.keys() - having)
        return found

    # --- counted nodes ----------------------------------------------------------------------------

    def eligible(self, pod: objects.Pod, rules: PodRules, rule: SpreadRule) -> frozenset[str]:
        """The nodes that count for a pod's rule: they have all topology keys and meet its policies."""
        over = frozenset(each.key for each in rules.spread)
        affinity = id(pod.spec.affinity), id(pod.spec.node_selector)
        key = (
            over,
            affinity if rule.honours_affinity else None,
            id(pod.spec.tolerations) if rule.honours_taints else None,
        )
        if key not in self._eligible:
            wanted = node_rules(pod.spec)
            if not rule.honours_affinity:
                wanted = Rules(tolerations=wanted.tolerations)
            found = self.domains.with_labels(over)
            if wanted.has_preferences or rule.honours_taints:
                found = frozenset(name for name in found if self._counts_for(wanted, rule, name))
            self._pinned_parts.append(pod)  # see equivalents
            self._eligible[key] = found
        return self._eligible[key]

    def _counts_for(self, wanted: Rules, rule: SpreadRule, name: str) -> bool:
        """Whether a node counts, by the policies of a rule. wanted: the node rules of the pod."""
        taints: tuple[Taint, ...] = ()
        if rule.honours_taints:
            own = self._nodes[name].spec.taints
            taints = tuple(Taint(each.key, each.value, each.effect) for each in own)
        if not taints and not wanted.has_preferences:
            return True
        labels = self.domains.labels[name]
        return not reason_against(wanted, name, labels, taints, unschedulable=False, ready=True)

    @cached_property
    def _carriers(self) -> dict[str, Carriers]:
        """The anti-affinity of pods that have a node, by topology key."""
        return carriers_of(self._assigned.all, self.domains.labels, self._namespaces, self._waiting)

    @property
    def _carried_keys(self) -> frozenset[str]:
        """The keys of pod labels that the anti-affinity of pods with a node reads."""
        return frozenset(
            each.key
            for carriers in self._carriers.values()
            for term in carriers.terms.values()
            for each in term.requirements
        )


def _sorted(counts: Mapping[str, int], weight: int = 1) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((value, weight * count) for value, count in counts.items()))


def near_terms(rules: Iterable[Near]) -> tuple[AntiAffinityTerm, ...]:
    """The terms of several rules."""
    return tuple(each.pods for each in rules)
