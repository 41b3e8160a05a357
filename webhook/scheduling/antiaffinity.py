"""Required pod anti-affinity over nodes: which pods a pod keeps off its node.

Source of the rules: kube-scheduler's plugin InterPodAffinity. Two things differ, both so that too little is
allowed rather than too much: a namespaceSelector is taken to select every namespace (their labels are not
watched) unless it asks for names alone, and each node is taken to have a hostname of its own.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from labeler.contract import keys
from webhook.kube import objects
from webhook.kube.affinity import LabelSelector, PodAffinityTerm
from webhook.placement.eligibility import Requirement, label_holds


@dataclass(frozen=True, slots=True)
class AntiAffinityTerm:
    """Pods that a carrier of this term keeps off its node. namespaces: None for every one.

    name: says all of it, so that equal names are equal terms; it is what people read.
    """

    name: str
    namespaces: frozenset[str] | None
    requirements: tuple[Requirement, ...]

    def repels(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is such a pod."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return all(label_holds(requirement, labels) for requirement in self.requirements)


def terms_of(pod: objects.Pod) -> tuple[AntiAffinityTerm, ...]:
    """The required anti-affinity of a pod, as far as it is over nodes."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    found = (
        _term(term, pod.metadata.namespace)
        for term in affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
        if term.topology_key == keys.HOSTNAME_LABEL
    )
    return tuple({term.name: term for term in found if term is not None}.values())


def _term(term: PodAffinityTerm, own_namespace: str) -> AntiAffinityTerm | None:
    """None for a term without a selector, which selects no pod."""
    if term.label_selector is None:
        return None
    namespaces = _namespaces(term, own_namespace)
    requirements = requirements_of(term.label_selector)
    text = ", ".join(map(_text, requirements)) or "of any kind"
    if namespaces is None:
        where = "any namespace"
    else:
        where = f"namespace {' or '.join(sorted(namespaces)) or 'none'}"
    return AntiAffinityTerm(f"anti-affinity with pods {text} of {where}", namespaces, requirements)


def _namespaces(term: PodAffinityTerm, own: str) -> frozenset[str] | None:
    selector = term.namespace_selector
    if selector is None:
        return frozenset(term.namespaces or [own])
    named = selected_names(selector)
    return None if named is None else named.union(term.namespaces)


def selected_names(selector: LabelSelector) -> frozenset[str] | None:
    """The namespaces that a selector asks for by name; None if it may select others.

    Every namespace bears its name as a label that cannot be changed.
    """
    found: frozenset[str] | None = None
    for requirement in requirements_of(selector):
        if requirement.key == keys.NAMESPACE_NAME_LABEL and requirement.operator == "In":
            values = frozenset(requirement.values)
            found = values if found is None else found & values
        else:
            return None
    return found


def requirements_of(selector: LabelSelector) -> tuple[Requirement, ...]:
    """What a selector asks of labels, in one order, whichever way it was written."""
    found = {Requirement(key, "In", (value,)) for key, value in selector.match_labels.items()}
    found |= {
        Requirement(each.key, each.operator, tuple(sorted(set(each.values))))
        for each in selector.match_expressions
    }
    return tuple(sorted(found, key=lambda each: (each.key, each.operator, each.values)))


def _text(requirement: Requirement) -> str:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return f"{key} {requirement.operator} ({','.join(values)})"


class Index:
    """Finds the terms that repel a pod without asking each of them."""

    def __init__(self, terms: Iterable[AntiAffinityTerm]) -> None:
        """Terms of different names."""
        self._by_label: dict[tuple[str | None, str, str], list[AntiAffinityTerm]] = {}
        self._others: dict[str | None, list[AntiAffinityTerm]] = {}
        self._places: set[str | None] = set()
        for term in terms:
            self._places |= {None} if term.namespaces is None else term.namespaces
            wanted = next((each for each in term.requirements if each.operator == "In"), None)
            for namespace in [None] if term.namespaces is None else term.namespaces:
                if wanted is None:
                    self._others.setdefault(namespace, []).append(term)
                else:
                    for value in wanted.values:
                        self._by_label.setdefault((namespace, wanted.key, value), []).append(term)

    def may_repel(self, namespace: str) -> bool:
        """Whether any of them is about pods of a namespace."""
        return namespace in self._places or None in self._places

    def repelling(self, namespace: str, labels: Mapping[str, str]) -> list[AntiAffinityTerm]:
        """Those that repel a pod with these labels."""
        if not self.may_repel(namespace):
            return []
        return [term for term in self._candidates(namespace, labels) if term.repels(namespace, labels)]

    def _candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[AntiAffinityTerm]:
        for place in (namespace, None):
            yield from self._others.get(place, ())
            if self._by_label:
                for key, value in labels.items():
                    yield from self._by_label.get((place, key, value), ())
