"""Tell a gang's owner what admission warns of: the author of a Job never sees the warnings of its pods."""

from collections.abc import Iterator, Sequence, Set
from itertools import islice
from typing import Final

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.policy import annotations
from webhook.sweeper.context import Pass
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.text import joined, printable
from webhook.workloads import marks
from webhook.workloads.foreign_requests import foreign_requests

MOST_TOLD: Final = 32
"""Sentences that one gang is told: its author chooses what they quote, and how fast pods come and go."""


class ManifestWarnings:
    """One Event a gang, and another one for what pods say that come later."""

    def __init__(self, surroundings: Pass) -> None:
        self._announcer = surroundings.announcer
        self._policy = surroundings.policy
        self._told: dict[GangKey, set[str]] = {}
        self._read: dict[GangKey, int] = {}

    def keep_only(self, living: Set[GangKey]) -> None:
        """Forget gangs that are gone."""
        for memory in (self._told, self._read):
            for key in memory.keys() - living:
                memory.pop(key)

    def tell(self, gang: PodGang) -> None:
        """Say what has not been said of the gang; those whose pods are read already cost nothing."""
        policy = self._policy()
        if policy is None or self._read.get(gang.key) == len(gang.gated):
            return
        self._read[gang.key] = len(gang.gated)
        told = self._told.setdefault(gang.key, set())
        for pod in _unlike(gang.gated):
            found = (each for each in _sentences(pod, policy.topology_levels) if each not in told)
            new = list(islice(found, MOST_TOLD - len(told)))
            told.update(new)
            if new:
                self._announcer.say(pod, EventReason.MANIFEST_WARNING, printable(joined(*new)))


def _unlike(pods: Sequence[Pod]) -> Iterator[Pod]:
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
