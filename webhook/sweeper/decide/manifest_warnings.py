"""What admission warns of, for a gang's owner: the author of a Job never sees its pods' warnings. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.policy import annotations
from webhook.policy.values import Policy
from webhook.sweeper.decide.orders import Warn
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.text import joined
from webhook.workloads import marks
from webhook.workloads.foreign_requests import foreign_requests

MOST_WARNINGS: Final = 32
"""Sentences that one gang is told: its author chooses what they quote, and how fast pods come and go."""


class GangWarnings(NamedTuple):
    """What a gang has been told. read: how many gated pods it had then."""

    read: int = 0
    sentences: frozenset[str] = frozenset()


WarningsOf = Mapping[GangKey, GangWarnings]
"""By gang; losing it warns once more."""


def warn_of_manifests(
    gangs: Iterable[PodGang], policy: Policy | None, before: WarningsOf
) -> tuple[tuple[Warn, ...], WarningsOf]:
    """One Event a gang, and another one for what pods say that come later.

    before: what gangs have been told; those whose pods are read already cost nothing.
    """
    if policy is None:
        return (), before
    found: list[Warn] = []
    known: dict[GangKey, GangWarnings] = {}
    for gang in gangs:
        own = before.get(gang.key, GangWarnings())
        if own.read != len(gang.gated):
            new = list(_new_warnings(gang, policy, own.sentences))
            found += (Warn(pod, EventReason.MANIFEST_WARNING, joined(*sentences)) for pod, sentences in new)
            own = GangWarnings(len(gang.gated), own.sentences.union(*(sentences for _, sentences in new)))
        known[gang.key] = own
    return tuple(found), known


def _new_warnings(
    gang: PodGang, policy: Policy, before: frozenset[str]
) -> Iterator[tuple[Pod, Sequence[str]]]:
    """Pods of a gang, each with what has not been said before of it or of another."""
    known = set(before)
    for pod in _distinct(gang.gated):
        found = (each for each in _sentences(pod, policy.topology_levels) if each not in known)
        if new := list(islice(found, MOST_WARNINGS - len(known))):
            known.update(new)
            yield pod, new


def _distinct(pods: Sequence[Pod]) -> Iterator[Pod]:
    """Of the pods that a controller made, one for each set of requests."""
    seen: set[frozenset[tuple[str, str]]] = set()
    for pod in pods:
        if pod.metadata.controller is None:
            continue  # its author was warned as it was created
        there = pod.metadata.annotations
        requests = frozenset(
            (key, there[key])
            for key in there
            if key.startswith(keys.TOPOGATE_PREFIX) or key in marks.TOPOLOGY_REQUESTS
        )
        if requests not in seen:
            seen.add(requests)
            yield pod


def _sentences(pod: Pod, levels: Sequence[str]) -> Iterator[str]:
    metadata = pod.metadata
    yield from annotations.faults(metadata.annotations, levels)
    yield from annotations.misplaced(metadata.labels)
    if marks.KUEUE_LABELS.isdisjoint(metadata.labels):
        yield from foreign_requests(metadata.annotations)
