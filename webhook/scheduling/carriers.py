"""The anti-affinity of pods that have a node: who may not enter which domains. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.kube import objects
from webhook.scheduling.antiaffinity import AntiAffinityTerm, Index, NamespaceLabels, terms_of
from webhook.scheduling.coarser import stand_ins
from webhook.scheduling.podrules import apart_keys

_LATE: Final = 32
"""Terms of pods that were added which are looked at one by one."""


@dataclass
class Carriers:
    """The anti-affinity over one label of pods that have a node: its terms, and the values of those nodes."""

    terms: dict[str, AntiAffinityTerm] = field(default_factory=dict)
    values: dict[str, set[str]] = field(default_factory=dict)
    late: list[AntiAffinityTerm] = field(default_factory=list)
    index: Index = field(default_factory=lambda: Index(()))

    def copy(self) -> "Carriers":
        """The same, to which others may be added."""
        return Carriers(dict(self.terms), dict(self.values), list(self.late), self.index)

    def add(self, term: AntiAffinityTerm, values: set[str]) -> None:
        """Pods in these domains carry the term as well."""
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
        """The values of domains that such a pod may not enter."""
        found = self.index.repelling(namespace, labels)
        found += [term for term in self.late if term.repels(namespace, labels)]
        return set().union(*(self.values[term.name] for term in found))


def carriers_of(
    assigned: Iterable[tuple[objects.Pod, str]],
    labels: Mapping[str, Mapping[str, str]],
    namespaces: NamespaceLabels | None,
    waiting: Iterable[objects.Pod],
) -> dict[str, Carriers]:
    """By the label that it is over, what pods carry which have a node.

    assigned: these pods with their nodes; labels: of the nodes; waiting: see coarser.stand_ins, by which the
    work of comparing pods with terms is bounded.
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
