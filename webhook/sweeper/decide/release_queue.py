"""The release queue of nodes with cards: which pods may be released now, and unconfirmed releases. Pure.

Where the allocator identifies the pods that it serves, they are released at once. Any other reader guesses:
it gives the cards of the pending pod with the lowest gas-ts to whichever pod the kubelet admits. On such a
node one pod is released at a time, in the order of gas-ts, and the next one when that one is bound.

A release without a clear answer is unconfirmed. It keeps its node busy until it can no longer arrive and its
pod was read. A release that was answered as done but does not show is read as well: a webhook may have undone
it. A new leader knows nothing of earlier releases, so it first reads the pods that are planned for a node.
docs/design/release-queue.md says what can still go wrong.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from labeler.contract import keys
from webhook.grouping import grouped
from webhook.kube.objects import Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.decide.orders import NO_HURRY, Done, FailedRelease, Pair, ReadBack
from webhook.sweeper.decide.retries import RetryTable, Write
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.observe.view import View

BELIEVED_SECONDS: Final = 300.0
"""How long a release that was answered as done and does not show is believed."""
SHOWN_SECONDS: Final = 10.0
"""A working watch shows a release sooner than this; after it the pod may be read."""
_SOON_SECONDS: Final = 1.0
_T = TypeVar("_T")
_ATTEMPTS: Final = 2
"""So often an unconfirmed release is tried though others wait: an API server that restarts answers soon."""
_TIME: Final = re.compile(r"[1-9][0-9]{18}")
"""All that a leader writes as gas-ts."""
_LAST: Final = "~"
"""It sorts after all digits."""
_CLOCK_SKEW_NS: Final = 24 * 3600 * 10**9
"""A time further ahead than a clock may be wrong was not written by us."""


class Timestamps:
    """gas-ts: 19 digits that only grow, also over restarts and when the clock is set back."""

    def __init__(self, last: int = 0) -> None:
        """last: the one that was given last."""
        self.last = last
        self._unseen: Iterable[Mapping[str, str]] = ()

    def observe(self, annotations: Iterable[Mapping[str, str]]) -> None:
        """Continue after the times in these pods' annotations, if they can be times of ours.

        The pods are read once a time is needed: in most passes none is, and large clusters have many pods.
        """
        self._unseen = annotations

    def next(self, now_ns: int) -> int:
        """The next one, not before now_ns (nanoseconds since 1970)."""
        unseen, self._unseen = self._unseen, ()
        for each in unseen:
            value = each.get(keys.GAS_TIMESTAMP_ANNOTATION, "")
            if _TIME.fullmatch(value) and int(value) <= now_ns + _CLOCK_SKEW_NS:
                self.last = max(self.last, int(value))
        self.last = max(self.last + 1, now_ns)
        return self.last


@dataclass(frozen=True)
class SentRelease:
    """A release that the view does not show.

    read_at: when its pod is to be read, if others wait for the node; until: the same by wall-clock time, None
    where it is read at once. attempts: how often it was sent since it is unconfirmed.
    """

    planned: PlannedPod
    read_at: float
    until: datetime | None = None
    attempts: int = 0


@dataclass(frozen=True)
class SentReleases:
    """What a leader remembers of releases; times are seconds of its clock.

    done: by uid, those that were answered as done. unconfirmed: by uid and node, those that may have arrived
    or may still do so; None before the first pass. failures: by uid, how many. behind: by namespace, the last
    position in the queue when a release there failed, so that its pods come after it. The retry table has
    when failed ones are retried.

    Without this value the pods are read again, and failures are forgotten.
    """

    done: Mapping[str, SentRelease] = field(default_factory=dict)
    unconfirmed: Mapping[tuple[str, str], SentRelease] | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    behind: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, uid: object) -> bool:
        """Whether a pod that still looks gated has been released."""
        return uid in self.done

    def seen(self, view: View, now: float) -> "SentReleases":
        """Without releases that are too old or that the view shows; at first with all planned ones."""
        unconfirmed = self.unconfirmed
        if unconfirmed is None:
            written = [each for each in view.written if each.annotations]
            unconfirmed = {(each.uid, each.node): SentRelease(each, now) for each in written}
        gated = {pod.metadata.uid for pod in view.gated}
        namespaces = {pod.metadata.namespace for pod in view.gated} if self.behind else set()
        oldest = now - BELIEVED_SECONDS + SHOWN_SECONDS
        return SentReleases(
            {uid: each for uid, each in _of(self.done, gated).items() if each.read_at > oldest},
            {key: each for key, each in unconfirmed.items() if key[0] in gated},
            _of(self.failures, gated),
            _of(self.behind, namespaces),
        )

    def after(self, done: Done, view: View, now: float, now_ns: int) -> "SentReleases":
        """With the results of releases; now_ns: wall-clock time, in nanoseconds since 1970."""
        sent, stamps = self, Timestamps()
        stamps.observe(planned.annotations for planned in view.planned.values())
        for failed in done.failed_releases:
            if failed.is_read:
                sent = sent._read(failed, now, now_ns)
            else:
                sent = sent._failed(failed, now, now_ns, behind=str(stamps.next(now_ns)))
        released = {each.uid: SentRelease(each, now + SHOWN_SECONDS) for each in done.released}
        return replace(sent, done={**sent.done, **released}) if released else sent

    def _failed(self, failed: FailedRelease, now: float, now_ns: int, behind: str) -> "SentReleases":
        """One that failed is unconfirmed if it may still arrive; once it is, no later answer confirms it."""
        (pod, planned), sent = failed.pair, dict(self.unconfirmed or {})
        before = sent.get((planned.uid, planned.node))
        if before is not None or failed.unconfirmed_seconds:
            known = before or SentRelease(planned, now)
            if now + failed.unconfirmed_seconds > known.read_at:
                known = _readable(known, failed.unconfirmed_seconds, now, now_ns)
            sent[planned.uid, planned.node] = replace(known, attempts=known.attempts + 1)
        return replace(
            self,
            done=_of(self.done, self.done.keys() - {planned.uid}),
            unconfirmed=sent,
            failures={**self.failures, planned.uid: self.failures.get(planned.uid, 0) + 1},
            behind={**self.behind, pod.metadata.namespace: behind},
        )

    def _read(self, failed: FailedRelease, now: float, now_ns: int) -> "SentReleases":
        """A pod that was found gated is not released; that of one that could not be read is still unknown."""
        key = failed.pair[1].uid, failed.pair[1].node
        sent = dict(self.unconfirmed or {})
        if (known := sent.pop(key, None)) is not None and failed.unconfirmed_seconds:
            sent[key] = _readable(known, failed.unconfirmed_seconds, now, now_ns)
        return replace(self, unconfirmed=sent)


def _of(known: Mapping[str, _T], names: Set[str]) -> dict[str, _T]:
    return {name: each for name, each in known.items() if name in names}


def _readable(sent: SentRelease, seconds: float, now: float, now_ns: int) -> SentRelease:
    until = datetime.fromtimestamp(math.ceil(now_ns / 1e9 + seconds), UTC)
    return replace(sent, read_at=now + seconds, until=until)


def position_of(planned: PlannedPod) -> str:
    """The position of a pod in the queue of its node, by its plan: digits to sort by.

    Any user may write a plan, so a value that no leader writes comes last.
    """
    stamp = planned.annotations.get(keys.GAS_TIMESTAMP_ANNOTATION, "")
    return stamp if _TIME.fullmatch(stamp) else _LAST


@dataclass(frozen=True)
class ReleaseWaiter:
    """A pod that waits for an unconfirmed release of another, which may arrive on their node until then."""

    pod: Pod
    node: str
    other: Pod
    until: datetime


class ReleaseQueue:
    """The queues of all nodes, in one pass.

    reads: pods to be read now, as others wait for their nodes. waiters: who waits for an unconfirmed release,
    by uid. due_seconds: when a pass is due for the queues, whatever happens.
    """

    def __init__(
        self,
        view: View,
        sent: SentReleases,
        retries: RetryTable,
        now: float,
        unrepairable: Set[str] = frozenset(),
    ) -> None:
        """sent: as seen in this view. unrepairable: uids of released pods that will never be bound."""
        self._view, self._sent, self._retries, self._now = view, sent, retries, now
        self._sent_to: defaultdict[str, dict[str, SentRelease]] = defaultdict(dict)
        """By node, the unconfirmed releases by uid."""
        for (uid, node), each in (sent.unconfirmed or {}).items():
            self._sent_to[node][uid] = each
        self._unseen = {each.planned.node: each for each in sent.done.values() if each.planned.annotations}
        self._busy = {*self._unseen, *self._nodes_under_way(unrepairable)}
        self.reads: list[ReadBack] = []
        self.waiters: dict[str, ReleaseWaiter] = {}
        self.due_seconds = NO_HURRY

    def _nodes_under_way(self, unrepairable: Set[str]) -> Iterable[str]:
        """Nodes to which a pod with cards is released that is not bound."""
        for pod, node in self._view.sent:
            if pod.spec.node_name or pod.spec.scheduling_gates or pod.metadata.uid in unrepairable:
                continue  # one that others gate may stay so for long
            if _has_cards(pod, node, self._view):
                yield node

    def take(self, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
        """Those that may be released now, in order; their nodes are busy from now on."""
        line = sorted(pairs, key=self._position)
        queued = {pair[1].uid: pair for pair in line if self._is_queued(pair[1])}
        waiting: defaultdict[str, set[str]] = defaultdict(set)
        for uid, (_, planned) in queued.items():
            waiting[planned.node].add(uid)
        stay = dict(queued)
        for uid, (_, planned) in queued.items():
            if planned.node not in self._busy and self._may_release(planned, waiting[planned.node]):
                self._busy.add(planned.node)
                del stay[uid]
        for node, uids in waiting.items():
            self._read_back(node, uids)
        for pod, planned in stay.values():
            self._note_waiter(pod, planned)
        return tuple(pair for pair in line if pair[1].uid not in stay)

    def _is_queued(self, planned: PlannedPod) -> bool:
        return bool(planned.annotations) and not self._view.identifies_pods(planned.node)

    def _position(self, pair: Pair) -> tuple[str, int, str]:
        """By plan, but after a failure of the namespace behind all that were planned then.

        So a failure costs others one turn, however many pods the namespace has.
        """
        pod, planned = pair
        position, behind = position_of(planned), self._sent.behind.get(pod.metadata.namespace, "")
        return max(position, behind), self._sent.failures.get(planned.uid, 0), position

    def _may_release(self, planned: PlannedPod, waiting: Set[str]) -> bool:
        """Whether nothing else may arrive on its node, and it is not deferred."""
        sent = self._sent_to.get(planned.node, {})
        if sent.keys() - {planned.uid}:
            return False
        own, others_wait = sent.get(planned.uid), waiting != {planned.uid}
        if own and others_wait and (own.attempts >= _ATTEMPTS or own.read_at <= self._now):
            return False  # it is read instead
        seconds = self._retries.seconds_left((Write.RELEASE, planned.uid), self._now)
        self._due(seconds or NO_HURRY)
        return not seconds

    def _read_back(self, node: str, waiting: Set[str]) -> None:
        """Have pods read that may have been released to the node, if others wait for it."""
        found = [] if node in self._busy else list(self._sent_to.get(node, {}).values())
        if unseen := self._unseen.get(node):
            found.append(unseen)
        for each in (each for each in found if waiting != {each.planned.uid}):
            if each.read_at > self._now:
                self._due(each.read_at - self._now)
            else:
                pod = self._view.by_uid[each.planned.uid]
                self.reads.append(ReadBack(pod, each.planned, is_done=each is unseen))
                self._due(_SOON_SECONDS)

    def _note_waiter(self, pod: Pod, planned: PlannedPod) -> None:
        """Record which unconfirmed release it waits for: of those there, the one that may arrive last."""
        sent = {} if planned.node in self._busy else self._sent_to.get(planned.node, {})
        others = [each for uid, each in sent.items() if uid != planned.uid]
        last = max(others, key=lambda each: each.read_at, default=None)
        if last is not None and last.until is not None:  # else it is read at once
            other = self._view.by_uid[last.planned.uid]
            self.waiters[planned.uid] = ReleaseWaiter(pod, planned.node, other, last.until)

    def _due(self, seconds: float) -> None:
        self.due_seconds = min(self.due_seconds, seconds)


def _has_cards(pod: Pod, node: str, view: View) -> bool:
    """Whether it was given cards there: by its annotations or, as a webhook may remove those, by its plan."""
    return keys.GAS_TIMESTAMP_ANNOTATION in pod.metadata.annotations or bool(view.cards_of(pod, node))


def sentences(
    waiters: Iterable[ReleaseWaiter], gang_of: Callable[[Pod], GangKey]
) -> Mapping[GangKey, tuple[Pod, str]]:
    """Of each gang the first of its pods that wait, with a sentence that counts the others."""
    found = grouped((gang_of(each.pod), each) for each in waiters)
    return {gang: (own[0].pod, _sentence(own)) for gang, own in found.items()}


def _sentence(waiters: list[ReleaseWaiter]) -> str:
    first, more = waiters[0], len(waiters) - 1
    mine, its = first.pod.metadata, first.other.metadata
    # Who may read this namespace may know nothing of another's pods.
    whose = f"pod {its.name}" if its.namespace == mine.namespace else "a pod of another namespace"
    return (
        f"pod {mine.name} waits for the cards of {first.node}: the release of {whose} there is unconfirmed "
        f"until {first.until:%H:%M:%S} UTC, when that pod is read"
        f"{f'; likewise {more} more of its pods' if more else ''}"
    )
