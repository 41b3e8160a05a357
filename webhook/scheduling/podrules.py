"""The rules of a pod on other pods: topology spread, pod affinity, and anti-affinity over any label.

Source of the rules: kube-scheduler's plugins InterPodAffinity and PodTopologySpread. Anti-affinity over nodes
is in conflicts.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from labeler.contract import keys
from webhook.kube import objects
from webhook.kube.affinity import LabelSelector, PodAffinity, PodAffinityTerm
from webhook.placement.eligibility import Requirement, label_holds
from webhook.scheduling.antiaffinity import (
    AntiAffinityTerm,
    NamespaceLabels,
    chosen_by,
    requirements_of,
    selected_names,
    size_of,
    term_of,
    terms_of,
)

MOST_RULES: Final = 16
"""The most rules of one type per pod; users may write a megabyte of them."""

MOST_VALUES: Final = 128
"""The most values in one rule."""


@dataclass(frozen=True)
class Near:
    """Pods that must share a domain of a label with a pod, or must not."""

    key: str
    pods: AntiAffinityTerm


@dataclass(frozen=True)
class SpreadRule:
    """A topology spread constraint over the domains of a label. requirements: None selects no pods.

    honours_affinity, honours_taints: whether only nodes count that match the pod's selector and affinity, or
    whose taints it tolerates.
    """

    key: str
    max_skew: int
    min_domains: int
    namespace: str
    requirements: tuple[Requirement, ...] | None
    honours_affinity: bool
    honours_taints: bool

    def counts(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is counted."""
        if self.requirements is None or namespace != self.namespace:
            return False
        return all(label_holds(each, labels) for each in self.requirements)


@dataclass(frozen=True)
class PodRules:
    """The rules of a pod; equivalent pods have equal rules. fault: why it cannot be placed, or "".

    soft_spread, liked: preferences; the weights of liked are below 0 for anti-affinity.
    """

    affinity: tuple[Near, ...] = ()
    apart: tuple[Near, ...] = ()
    spread: tuple[SpreadRule, ...] = ()
    fault: str = ""
    soft_spread: tuple[SpreadRule, ...] = ()
    liked: tuple[tuple[int, Near], ...] = ()

    def __bool__(self) -> bool:
        """Whether any rule is required."""
        return bool(self.affinity or self.apart or self.spread or self.fault)

    @cached_property
    def over(self) -> frozenset[str]:
        """The topology keys of the rules."""
        near = (*self.affinity, *self.apart)
        return frozenset((*(each.key for each in near), *(each.key for each in self.spread)))

    @cached_property
    def label_keys(self) -> frozenset[str]:
        """The keys of pod labels that the rules read."""
        selecting = [each.pods.requirements for each in (*self.affinity, *self.apart)]
        selecting += [each.requirements or () for each in self.spread]
        return frozenset(requirement.key for each in selecting for requirement in each)


NONE: Final = PodRules()


def has_rules(spec: objects.PodSpec) -> bool:
    """Whether a pod may have any rules: a quick check."""
    affinity = spec.affinity
    return bool(spec.topology_spread_constraints) or (
        affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    )


def needs_release_order(spec: objects.PodSpec) -> bool:
    """Whether kube-scheduler may refuse a pod until another pod of its gang is bound."""
    affinity = spec.affinity
    return any(each.when_unsatisfiable == "DoNotSchedule" for each in spec.topology_spread_constraints) or (
        affinity is not None and bool(required(affinity.pod_affinity))
    )


def required(affinity: PodAffinity | None) -> list[PodAffinityTerm]:
    """The required terms."""
    return affinity.required_during_scheduling_ignored_during_execution if affinity is not None else []


def rules_of(pod: objects.Pod, namespaces: NamespaceLabels | None = None) -> PodRules:
    """The rules of a pod on other pods. namespaces: None if their labels are unknown."""
    if not has_rules(pod.spec):
        return NONE
    affinity = pod.spec.affinity
    near = required(affinity.pod_affinity) if affinity is not None else []
    hard = [
        each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule"
    ]
    try:
        return PodRules(
            tuple(_near(pod, near, namespaces)),
            _apart(pod, namespaces),
            tuple(_spread(pod, each) for each in hard),
            soft_spread=tuple(_soft_spread(pod)),
            liked=tuple(_liked(pod, namespaces)),
        )
    except _UnheededError as error:
        return PodRules(fault=str(error))


def _soft_spread(pod: objects.Pod) -> Iterator[SpreadRule]:
    """The soft spread constraints. A preference never blocks a pod: too large ones are ignored."""
    constraints = pod.spec.topology_spread_constraints[:MOST_RULES]
    for each in constraints:
        if each.when_unsatisfiable == "ScheduleAnyway":
            with contextlib.suppress(_UnheededError):
                yield _spread(pod, each)


def _liked(pod: objects.Pod, namespaces: NamespaceLabels | None) -> Iterator[tuple[int, Near]]:
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for sign, terms in ((1, affinity.pod_affinity), (-1, affinity.pod_anti_affinity)):
        preferred = terms.preferred_during_scheduling_ignored_during_execution if terms is not None else []
        for each in preferred[:MOST_RULES]:
            with contextlib.suppress(_UnheededError):
                for near in _near(pod, [each.pod_affinity_term], namespaces):
                    yield sign * each.weight, near


class _UnheededError(Exception):
    """A rule exceeds a limit; the message names it."""


def _near(
    pod: objects.Pod, terms: list[PodAffinityTerm], namespaces: NamespaceLabels | None
) -> Iterator[Near]:
    if len(terms) > MOST_RULES:
        raise _UnheededError(
            f"it has {len(terms)} terms of required pod affinity; at most {MOST_RULES} are used"
        )
    for each in terms:
        if namespaces is None and _asks_for_labels(each.namespace_selector):
            raise _UnheededError(
                "the namespaceSelector of its required pod affinity cannot be evaluated, since the labels of "
                "namespaces cannot be read"
            )
        if each.label_selector is None:  # this selects no pod
            no_pod = term_of(frozenset(), ())
            yield Near(each.topology_key, no_pod)
            continue
        chosen = chosen_by(pod, each, namespaces)
        if size_of(each.label_selector) > MOST_VALUES:
            raise _UnheededError(f"its required pod affinity names more than {MOST_VALUES} values")
        yield Near(each.topology_key, term_of(chosen, requirements_of(each.label_selector)))


def _asks_for_labels(selector: LabelSelector | None) -> bool:
    """Whether a namespaceSelector asks for more than names."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    return selected_names(selector) is None


def apart_keys(pod: objects.Pod) -> list[str]:
    """The topology keys, except the hostname, of a pod's required anti-affinity."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return []
    found = {each.topology_key for each in required(affinity.pod_anti_affinity)}
    return sorted(found - {keys.HOSTNAME_LABEL})


def _apart(pod: objects.Pod, namespaces: NamespaceLabels | None) -> tuple[Near, ...]:
    over = apart_keys(pod)
    if len(over) > MOST_RULES:
        raise _UnheededError(f"it has anti-affinity over {len(over)} labels; at most {MOST_RULES} are used")
    return tuple(Near(key, term) for key in over for term in terms_of(pod, key, namespaces))


def _spread(pod: objects.Pod, each: objects.TopologySpreadConstraint) -> SpreadRule:
    if len(pod.spec.topology_spread_constraints) > MOST_RULES:
        raise _UnheededError(f"it has more than {MOST_RULES} topologySpreadConstraints")
    selector = each.label_selector
    requirements: tuple[Requirement, ...] | None = None
    if selector is not None:
        if size_of(selector) > MOST_VALUES:
            raise _UnheededError(f"a topologySpreadConstraint of it names more than {MOST_VALUES} values")
        # API servers from 1.34 on merge matchLabelKeys into the selector; then this adds nothing.
        labels = pod.metadata.labels
        keyed = {Requirement(key, "In", (labels[key],)) for key in each.match_label_keys if key in labels}
        requirements = tuple(dict.fromkeys((*requirements_of(selector), *sorted(keyed, key=lambda r: r.key))))
    return SpreadRule(
        each.topology_key,
        max(1, each.max_skew),
        each.min_domains or 1,
        pod.metadata.namespace,
        requirements,
        each.node_affinity_policy != "Ignore",
        each.node_taints_policy == "Honor",
    )
