"""Failures of gangs on nodes: what of a gang's failures is kept, and when one speaks against its node. Pure.

A failed pod proves little: most programs that fail would fail anywhere. So of each gang and node one
failure is kept, and goes through these states:

    open     a pod failed there. Of pods that were there together only the first to fail is kept: the
             others may have failed by its failure. Of several in the same second nobody knows the first.
    proven   a pod of the same gang that asks for the same has run on another node since, for longer than the
             failed one: what the program does is no reason to fail.
    cleared  a younger pod of the same namespace with as many GPUs has run well on the node since.

Who writes pods of one namespace can bring about any of these for pods of that namespace, and for no others.
What is kept is bounded: the oldest failures of the namespace with the most of them are dropped first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from webhook.extensions.node_health.pod_failures import NodeFailure

MOST: Final = 1000
MOST_OF_A_NAMESPACE: Final = 64


class FailureState(StrEnum):
    """How much a failure says of its node."""

    OPEN = "open"
    PROVEN = "proven"
    CLEARED = "cleared"


@dataclass(frozen=True)
class GangFailure:
    """The first failure of a gang's pods that were there together.

    created: since when the failed pod was there; at, ran: see NodeFailure. pods: uid and node of each that
    failed first, two where it is not known which of several did.
    """

    namespace: str
    gang: str
    created: int
    at: int
    ran: int
    cause: str
    gpus: int
    asks: str
    pods: tuple[tuple[str, str], ...]
    state: FailureState = FailureState.OPEN

    @classmethod
    def first(cls, failure: NodeFailure) -> "GangFailure":
        """One of which nothing is known yet."""
        return cls(
            failure.namespace, failure.gang, failure.created, failure.at, failure.ran, failure.cause,
            failure.gpus, failure.asks, ((failure.uid, failure.node),),
        )  # fmt: skip

    @property
    def node(self) -> str:
        """The only node that it may speak against, "" if there are several."""
        return self.pods[0][1] if len(self.pods) == 1 else ""


Failures = tuple[GangFailure, ...]


@dataclass(frozen=True)
class _Sorted:
    """Failures by gang; of each namespace how many, and when the oldest was."""

    failures: Failures
    by_gang: Mapping[tuple[str, str], Sequence[GangFailure]]
    counts: Mapping[str, int]
    oldest: Mapping[str, int]

    @classmethod
    def of(cls, failures: Failures) -> "_Sorted":
        by_gang: dict[tuple[str, str], list[GangFailure]] = {}
        oldest: dict[str, int] = {}
        for each in failures:
            by_gang.setdefault((each.namespace, each.gang), []).append(each)
            oldest[each.namespace] = min(each.at, oldest.get(each.namespace, each.at))
        return cls(failures, by_gang, Counter(each.namespace for each in failures), oldest)

    def would_stay(self, failure: NodeFailure) -> bool:
        """Whether it would not be the first to be dropped again; of two as old that is the new one."""
        namespace = failure.namespace
        if namespace not in self.oldest or failure.at > self.oldest[namespace]:
            return True
        counts = {**self.counts, namespace: self.counts[namespace] + 1}
        return _too_many(counts, namespace, len(self.failures) + 1) != namespace


def added(failures: Failures, *more: NodeFailure) -> Failures:
    """The failures with more of them; the same if these say nothing new. Given again, they never do.

    Those given again cost next to nothing: in a bad hour each pass is given thousands.
    """
    there = _Sorted.of(failures)
    for each in more:
        after = _with(there, each)
        if after is not there.failures:
            there = _Sorted.of(after)
    return there.failures


def _with(there: _Sorted, failure: NodeFailure) -> Failures:
    failures = there.failures
    own = there.by_gang.get((failure.namespace, failure.gang), ())
    if any(failure.uid in (uid for uid, _ in each.pods) for each in own):
        return failures
    if any(each.at < failure.at and failure.created <= each.at for each in own):
        return failures  # it was there already when the other failed
    for each in own:
        if each.at == failure.at and failure.created <= each.at:
            if len(each.pods) > 1 or failure.node == each.node:
                return failures
            both = replace(each, pods=(*each.pods, (failure.uid, failure.node)), state=FailureState.OPEN)
            return tuple(both if known is each else known for known in failures)
    later = [each for each in own if each.created <= failure.at < each.at]
    if not later and not there.would_stay(failure):
        return failures
    rest = tuple(each for each in failures if not any(each is one for one in later))
    return _bounded((*rest, GangFailure.first(failure)))


def unexpired(failures: Failures, now: float, keep_seconds: float) -> Failures:
    """Those that are not too old."""
    found = tuple(each for each in failures if now - each.at < keep_seconds)
    return found if len(found) < len(failures) else failures


@dataclass(frozen=True)
class Running:
    """A pod that has been seen to run on a node, for so many seconds, without trouble."""

    namespace: str
    gang: str
    asks: str
    gpus: int
    node: str
    created: int
    seconds: float


def judged(
    failures: Failures, running: Sequence[Running], outlive_seconds: float, soon_seconds: float
) -> Failures:
    """The failures in the states that pods that run bring them to.

    outlive_seconds: for so much longer than a failed pod its like must have run elsewhere. soon_seconds:
    for so long a pod must have run on the node to take a failure back.
    """
    if not running or not failures:
        return failures
    found = tuple(_judged(each, running, outlive_seconds, soon_seconds) for each in failures)
    return found if any(a is not b for a, b in zip(found, failures, strict=True)) else failures


def _judged(
    failure: GangFailure, running: Sequence[Running], outlive_seconds: float, soon_seconds: float
) -> GangFailure:
    node, state = failure.node, failure.state
    if not node or state is FailureState.CLEARED:
        return failure
    own = [each for each in running if each.namespace == failure.namespace]
    if any(
        each.node == node
        and each.created > failure.at
        and each.gpus >= failure.gpus
        and each.seconds >= soon_seconds
        for each in own
    ):
        return replace(failure, state=FailureState.CLEARED)
    if state is FailureState.OPEN and any(
        (each.gang, each.asks) == (failure.gang, failure.asks)
        and each.node != node
        and each.seconds >= failure.ran + outlive_seconds
        for each in own
    ):
        return replace(failure, state=FailureState.PROVEN)
    return failure


def of_interest(
    failures: Iterable[GangFailure],
) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]:
    """Whose running pods may say something: (namespace, gang) and (namespace, node)."""
    live = [each for each in failures if each.state is not FailureState.CLEARED and each.node]
    gangs = frozenset((each.namespace, each.gang) for each in live if each.state is FailureState.OPEN)
    return gangs, frozenset((each.namespace, each.node) for each in live)


def _bounded(failures: Failures) -> Failures:
    counts = Counter(each.namespace for each in failures)
    namespace = _too_many(counts, failures[-1].namespace, len(failures))
    return failures if namespace is None else _without_oldest(failures, namespace)


def _too_many(counts: Mapping[str, int], newest: str, total: int) -> str | None:
    """The namespace that has too many failures, None if there is none. newest: that of the one come last."""
    if counts[newest] > MOST_OF_A_NAMESPACE:
        return newest
    return max(counts, key=lambda name: (counts[name], name)) if total > MOST else None


def _without_oldest(failures: Failures, namespace: str) -> Failures:
    oldest = min((each for each in failures if each.namespace == namespace), key=lambda each: each.at)
    return tuple(each for each in failures if each is not oldest)
