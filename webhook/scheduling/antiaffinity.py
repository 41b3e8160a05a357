"""Required pod anti-affinity over nodes: the pods that a pod excludes from its node.

Source of the rules: kube-scheduler's plugin InterPodAffinity. Two things differ, and both allow less rather
than more. If the labels of namespaces are unknown, a namespaceSelector selects every namespace, unless it
asks for names alone. And each node counts as having a hostname of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from webhook.kube import objects
from webhook.kube.affinity import LabelSelector, PodAffinityTerm
from webhook.placement.eligibility import Requirement, label_holds

MOST_PARTS: Final = 128
"""The most values in the terms of one pod, times namespaces; users may write a megabyte of them."""
_MOST_NAMESPACES: Final = 8

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels by namespace."""

Place = str | None
"""A namespace, None for all of them."""

Sign = tuple[str, str | None]
"""A label of pods that a term may repel: key and value, None for any value; or _ALL_PODS."""

_ALL_PODS: Final[Sign] = ("", None)


@dataclass(frozen=True, slots=True)
class AntiAffinityTerm:
    """The pods that a carrier of this term excludes from its node. namespaces: None for all.

    name: the whole term in words, so that equal names mean equal terms.
    """

    name: str
    namespaces: frozenset[str] | None
    requirements: tuple[Requirement, ...]

    def repels(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the term excludes a pod with these labels."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return all(label_holds(requirement, labels) for requirement in self.requirements)


def terms_of(
    pod: objects.Pod, over: str = keys.HOSTNAME_LABEL, namespaces: NamespaceLabels | None = None
) -> tuple[AntiAffinityTerm, ...]:
    """The required anti-affinity terms of a pod over nodes, or over the domains of another label.

    namespaces: None if their labels are unknown.

    Terms beyond MOST_PARTS become one term that repels all pods of their namespaces. That is more than the
    author wrote, but no more than a single term may express.
    """
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    parts = 0
    found: dict[str, AntiAffinityTerm] = {}
    beyond: list[frozenset[str] | None] = []
    for each in affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution:
        # A term without a selector selects no pod.
        if each.topology_key != over or each.label_selector is None:
            continue
        chosen = chosen_by(pod, each, namespaces)
        size = size_of(each.label_selector) * max(1, len(chosen or ()))
        if parts + size > MOST_PARTS:
            beyond.append(chosen)
            continue
        parts += size
        term = term_of(chosen, requirements_of(each.label_selector))
        found[term.name] = term
    if beyond:
        term = _term_on_all_pods(beyond)
        found[term.name] = term
    return tuple(found.values())


def _term_on_all_pods(namespaces: Sequence[frozenset[str] | None]) -> AntiAffinityTerm:
    """The term that repels all pods of these namespaces; of all namespaces if one is None or they are too
    many.
    """
    named = [each for each in namespaces if each is not None]
    union = frozenset[str]().union(*named)
    few = len(named) == len(namespaces) and len(union) <= _MOST_NAMESPACES
    return term_of(union if few else None, ())


def term_of(namespaces: frozenset[str] | None, requirements: tuple[Requirement, ...]) -> AntiAffinityTerm:
    """The term that repels pods of these namespaces with these labels."""
    text = ", ".join(map(text_of, requirements)) or "of any kind"
    if namespaces is None:
        where = "any namespace"
    else:
        where = f"namespace {' or '.join(sorted(namespaces)) or 'none'}"
    return AntiAffinityTerm(f"anti-affinity with pods {text} of {where}", namespaces, requirements)


def size_of(selector: LabelSelector) -> int:
    """The number of values in a selector, at least one."""
    of_expressions = sum(max(1, len(each.values)) for each in selector.match_expressions)
    return max(1, len(selector.match_labels) + of_expressions)


def chosen_by(
    pod: objects.Pod, term: PodAffinityTerm, known: NamespaceLabels | None = None
) -> frozenset[str] | None:
    """The namespaces that a term of this pod covers, as kube-scheduler reads it; None for all.

    known: the labels of all namespaces.
    """
    if not pod.spec.node_name and _holds_of_no_labels(term.namespace_selector):
        return None
    return namespaces_of(term, pod.metadata.namespace, known)


def namespaces_of(
    term: PodAffinityTerm, own: str, known: NamespaceLabels | None = None
) -> frozenset[str] | None:
    """The namespaces that a term covers, None for all or if their labels are unknown.

    own: the namespace of the pod that carries it. known: the labels of all namespaces.
    """
    selector = term.namespace_selector
    if selector is None:
        return frozenset(term.namespaces or [own])
    named = selected_names(selector)
    if named is None and known is not None and (selector.match_labels or selector.match_expressions):
        wanted = requirements_of(selector)
        named = frozenset(
            name for name, labels in known.items() if all(label_holds(each, labels) for each in wanted)
        )
    return None if named is None else named.union(term.namespaces)


def _holds_of_no_labels(selector: LabelSelector | None) -> bool:
    """Whether a namespaceSelector has requirements that a namespace without labels meets.

    For a pod that is not bound yet, kube-scheduler 1.36 reads such a selector as one of all namespaces. It
    compares with running pods, and with the pod itself, as if their namespaces had no labels, because
    mergeAffinityTermNamespacesIfNotEmpty in pkg/scheduler/framework/plugins/interpodaffinity gets a copy of
    the term. A fixed version refuses a pod that was placed near pods of other namespaces, and it is placed
    again.
    """
    if selector is None:
        return False
    wanted = requirements_of(selector)
    return bool(wanted) and all(label_holds(each, {}) for each in wanted)


def selected_names(selector: LabelSelector) -> frozenset[str] | None:
    """The namespaces that a selector names; None if it may select others.

    Every namespace has its name as an immutable label.
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
    """The requirements of a selector in a canonical order."""
    found = {Requirement(key, "In", (value,)) for key, value in selector.match_labels.items()}
    found |= {
        Requirement(each.key, each.operator, tuple(sorted(set(each.values))))
        for each in selector.match_expressions
    }
    return tuple(sorted(found, key=lambda each: (each.key, each.operator, each.values)))


def text_of(requirement: Requirement) -> str:
    """A requirement on labels as kubectl writes it."""
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


def found_by(term: AntiAffinityTerm, how_many: Mapping[tuple[Place, Sign], int]) -> Requirement | None:
    """The requirement by which the index finds a term: the one that the fewest terms share; None if none
    serves.
    """

    def crowd(requirement: Requirement) -> int:
        return max((how_many.get(each, 0) for each in places_of(term, requirement)), default=0)

    for operator in ("In", "Exists"):
        usable = [each for each in term.requirements if each.operator == operator]
        if usable:
            return min(usable, key=crowd)
    return None


def places_of(term: AntiAffinityTerm, requirement: Requirement | None) -> Iterator[tuple[Place, Sign]]:
    """The index entries of a term with this requirement."""
    if requirement is None:
        signs: list[Sign] = [_ALL_PODS]
    elif requirement.operator == "In":
        signs = [(requirement.key, value) for value in requirement.values]
    elif requirement.operator == "Exists":
        signs = [(requirement.key, None)]
    else:
        return
    for place in [None] if term.namespaces is None else term.namespaces:
        for sign in signs:
            yield place, sign


class Index:
    """An index that finds the terms that repel a pod without a check of each term."""

    def __init__(self, terms: Iterable[AntiAffinityTerm]) -> None:
        """terms: with distinct names."""
        terms = list(terms)
        how_many = Counter(
            each for term in terms for wanted in term.requirements for each in places_of(term, wanted)
        )
        self._terms: dict[Place, dict[Sign, list[AntiAffinityTerm]]] = {}
        self.found_by = {term.name: found_by(term, how_many) for term in terms}
        """The requirement by which each term is found."""
        for term in terms:
            for place, sign in places_of(term, self.found_by[term.name]):
                self._terms.setdefault(place, {}).setdefault(sign, []).append(term)

    def may_repel(self, namespace: str) -> bool:
        """Whether any term covers a namespace."""
        return namespace in self._terms or None in self._terms

    def repelling(self, namespace: str, labels: Mapping[str, str]) -> list[AntiAffinityTerm]:
        """The terms that repel a pod with these labels."""
        return [
            term
            for place, sign in self.hits(namespace, labels)
            for term in self._terms[place][sign]
            if term.repels(namespace, labels)
        ]

    def hits(self, namespace: str, labels: Mapping[str, str]) -> Iterator[tuple[Place, Sign]]:
        """The index entries of terms that may repel a pod with these labels."""
        for place in (namespace, None):
            signs = self._terms.get(place)
            if signs is None:
                continue
            if _ALL_PODS in signs:
                yield place, _ALL_PODS
            for pair in labels.items():
                if pair in signs:
                    yield place, pair
                if (pair[0], None) in signs:
                    yield place, (pair[0], None)
