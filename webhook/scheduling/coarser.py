"""Bounds the work on anti-affinity: coarser terms replace a namespace's terms if too many of them are
similar.

To find pods that cannot share a node, each pod is compared with the terms that the index finds by its labels.
A term belongs to the namespaces whose pods carry it, and the terms of each namespace may cost a number of
comparisons. Beyond that, all terms found by one label become one term on that label alone. It repels more
pods than they do, but none that a single term of that author could not repel. Terms with labels of their own
stay exact.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement.eligibility import Requirement
from webhook.scheduling.antiaffinity import AntiAffinityTerm, Index, Place, Sign, places_of, term_of

MOST_EQUIVALENT: Final = 32
"""The most terms of one namespace that are found by the same label."""

MOST_TERMS: Final = 20_000
"""The most terms of one namespace that are compared one by one."""

MOST_COMPARISONS: Final = 100_000
"""The most comparisons with terms of one namespace: about a tenth of a second."""


def stand_ins(
    terms: Mapping[str, AntiAffinityTerm],
    carriers: Mapping[str, Set[str]],
    pods: Callable[[], Iterable[Pod]],
) -> dict[str, AntiAffinityTerm]:
    """The coarser term for each term that is not compared, by its name.

    terms: by name. carriers: by name the namespaces whose pods carry it. pods: all pods to compare.
    """
    how_many = Counter(carrier for each in carriers.values() for carrier in each)
    flooding = {carrier for carrier, number in how_many.items() if number > MOST_TERMS}
    flood = {
        name: _coarser(term, None) for name, term in terms.items() if flooding and flooding >= carriers[name]
    }
    some = {name: term for name, term in terms.items() if name not in flood} if flood else terms
    found = flood | _crowded_terms(some, carriers, pods)
    return {name: coarser for name, coarser in found.items() if coarser.name != name}


def _crowded_terms(
    terms: Mapping[str, AntiAffinityTerm],
    carriers: Mapping[str, Set[str]],
    pods: Callable[[], Iterable[Pod]],
) -> dict[str, AntiAffinityTerm]:
    index = Index(terms.values())
    places_of_term = {name: list(places_of(term, index.found_by[name])) for name, term in terms.items()}
    crowds = _crowds(places_of_term, carriers)
    crowded = _crowded_places(crowds)
    if not crowded:
        return {}
    hits = Counter(hit for pod in pods() for hit in index.hits(pod.metadata.namespace, pod.metadata.labels))
    limits = {carrier: _limit(crowded, hits) for carrier, crowded in crowded.items()}

    def is_lost(place: tuple[Place, Sign], carrier: str) -> bool:
        return carrier in limits and crowds[carrier][place] > limits[carrier]

    return {
        name: _coarser(term, index.found_by[name])
        for name, term in terms.items()
        if all(any(is_lost(place, carrier) for place in places_of_term[name]) for carrier in carriers[name])
    }


def _crowds(
    places_of_term: Mapping[str, Iterable[tuple[Place, Sign]]], carriers: Mapping[str, Set[str]]
) -> dict[str, Counter[tuple[Place, Sign]]]:
    """The number of terms at each index entry, by namespace."""
    crowds: dict[str, Counter[tuple[Place, Sign]]] = {}
    for name, places in places_of_term.items():
        for carrier in carriers[name]:
            crowds.setdefault(carrier, Counter()).update(places)
    return crowds


def _crowded_places(
    crowds: Mapping[str, Mapping[tuple[Place, Sign], int]],
) -> dict[str, dict[tuple[Place, Sign], int]]:
    """The index entries with several terms of a namespace, for namespaces with too many of these."""
    return {
        carrier: crowded
        for carrier, crowd in crowds.items()
        if (crowded := {place: size for place, size in crowd.items() if size > 1})
        and sum(crowded.values()) > MOST_EQUIVALENT
    }


def _limit(crowded: Mapping[tuple[Place, Sign], int], hits: Mapping[tuple[Place, Sign], int]) -> int:
    """The most terms per index entry that keep the comparisons within their bound."""
    limit = MOST_EQUIVALENT
    while limit > 1:
        if sum(hits[place] * size for place, size in crowded.items() if size <= limit) <= MOST_COMPARISONS:
            break
        limit //= 2
    return limit


def _coarser(term: AntiAffinityTerm, by: Requirement | None) -> AntiAffinityTerm:
    namespaces = term.namespaces if term.namespaces is not None and len(term.namespaces) == 1 else None
    if by is not None and len(by.values) > 1:
        by = Requirement(by.key, "Exists", ())
    return term_of(namespaces, () if by is None else (by,))
