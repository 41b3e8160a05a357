"""The anti-affinity of pods that have a node: the domains that it closes to other pods. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.kube import objects
from webhook.scheduling.antiaffinity import AntiAffinityTerm, Index, NamespaceLabels, terms_of
from webhook.scheduling.coarser import stand_ins
from webhook.scheduling.podrules import apart_keys

_LATE: Final = 32
"""The most terms of added pods that are checked one by one."""


@dataclass
class Carriers:
    """The anti-affinity terms over one label of pods that have a node, with the values of these nodes."""

    terms: dict[str, AntiAffinityTerm] = field(default_factory=dict)
    values: dict[str, set[str]] = field(default_factory=dict)
    late: list[AntiAffinityTerm] = field(default_factory=list)
    index: Index = field(default_factory=lambda: Index(()))

    def copy(self) -> "Carriers":
        """A copy, to which terms may be added."""
        return Carriers(dict(self.terms), dict(self.values), list(self.late), self.index)

    def add(self, term: AntiAffinityTerm, values: set[str]) -> None:
        """Add a term that pods in these domains carry."""
        if term.name not in self.terms:
            self.terms[term.name] = term
            self.late.append(term)
        self.values[term.name] = self.values.get(term.name, set()) | values
        if len(self.late) > _LATE:
            self.settle()

    def settle(self) -> None:
        """Index the terms."""
        self.index = Index(self.terms.values())
        self.late = []

    def excluded_for(self, namespace: str, labels: Mapping[str, str]) -> set[str]:
        """The label values of the domains that a pod with these labels cannot use."""
        found = self.index.repelling(namespace, labels)
        found += [term for term in self.late if term.repels(namespace, labels)]
        return set().union(*(self.values[term.name] for term in found))


def carriers_of(
    assigned: Iterable[tuple[objects.Pod, str]],
    labels: Mapping[str, Mapping[str, str]],
    namespaces: NamespaceLabels | None,
    waiting: Iterable[objects.Pod],
) -> dict[str, Carriers]:
    """The anti-affinity of pods that have a node, by topology key.

    assigned: these pods with their nodes. labels: of the nodes. waiting: bounds the comparisons of pods with
    terms, see coarser.stand_ins.
    """
    terms: dict[str, dict[str, AntiAffinityTerm]] = {}
    values: dict[str, dict[str, set[str]]] = {}
    authors: dict[str, dict[str, set[str]]] = {}
    for pod, node in assigned:
        if pod.spec.affinity is None or pod.spec.affinity.pod_anti_affinity is None:
            continue
        for key in apart_keys(pod):
            value = labels[node].get(key)
            for term in terms_of(pod, key, namespaces) if value is not None else ():
                terms.setdefault(key, {})[term.name] = term
                values.setdefault(key, {}).setdefault(term.name, set()).add(str(value))
                authors.setdefault(key, {}).setdefault(term.name, set()).add(pod.metadata.namespace)
    found: dict[str, Carriers] = {}
    for key, by_name in terms.items():
        coarser = stand_ins(by_name, authors[key], lambda: waiting)
        carriers = found[key] = Carriers()
        for name, term in by_name.items():
            shared = coarser.get(name, term)
            carriers.terms[shared.name] = shared
            carriers.values.setdefault(shared.name, set()).update(values[key][name])
        carriers.settle()
    return found
