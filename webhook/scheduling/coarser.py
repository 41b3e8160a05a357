"""Bounds the work on anti-affinity: where a namespace's terms are too much alike, coarser ones stand in.

To find who may not share a node, each pod is compared with the terms that are found by its labels. A term is
of the namespaces whose pods carry it, and those of each may cost so many comparisons. Beyond, all that are
found by one label become one term about that label alone. It repels more pods than they do, and none that a
single term of that author could not repel. Ordinary terms are found by labels of their own, and stay exact.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement.eligibility import Requirement
from webhook.scheduling.antiaffinity import AntiAffinityTerm, Index, Place, Sign, places_of, term_of

MOST_EQUIVALENT: Final = 32
"""Terms of one namespace that are found by the same label."""

MOST_TERMS: Final = 20_000
"""Terms of one namespace that are looked at one by one."""

MOST_COMPARISONS: Final = 100_000
"""With terms of one namespace, about a tenth of a second."""


def stand_ins(
    terms: Mapping[str, AntiAffinityTerm],
    carriers: Mapping[str, Set[str]],
    pods: Callable[[], Iterable[Pod]],
) -> dict[str, AntiAffinityTerm]:
    """For names of terms that are not compared: the coarser term instead.

    terms: by name. carriers: by name the namespaces whose pods carry it. pods: all that will be compared.
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
    """How many terms of each namespace are found at each place."""
    crowds: dict[str, Counter[tuple[Place, Sign]]] = {}
    for name, places in places_of_term.items():
        for carrier in carriers[name]:
            crowds.setdefault(carrier, Counter()).update(places)
    return crowds


def _crowded_places(
    crowds: Mapping[str, Mapping[tuple[Place, Sign], int]],
) -> dict[str, dict[tuple[Place, Sign], int]]:
    """Where a namespace's terms are alike, and how many, for those namespaces with too many such terms."""
    return {
        carrier: crowded
        for carrier, crowd in crowds.items()
        if (crowded := {place: size for place, size in crowd.items() if size > 1})
        and sum(crowded.values()) > MOST_EQUIVALENT
    }


def _limit(crowded: Mapping[tuple[Place, Sign], int], hits: Mapping[tuple[Place, Sign], int]) -> int:
    """How many terms may be alike so that the comparisons stay within their bound."""
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
