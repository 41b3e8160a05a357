"""The failures of gangs that are kept, and the nodes that count as failing because of them. Pure.

A gang counts against a node if all its kept failures were on that node, and one of them is proven and not
cleared (see FailureState). A program that fails on two nodes counts against neither. The rules:

1. A gang avoids the nodes where it has failed, from its first failure on, if they are at most two. Its next
   attempt then uses other nodes, and shows whether the node or the program is the cause.
2. Pods of a namespace avoid a node if enough gangs of the namespace count against it (the threshold).
3. All pods avoid a node if enough gangs count against it (the threshold minus one), whichever one namespace
   is left out. So one namespace contributes at most one gang, and cannot exclude a node for others alone.

A node is avoided for a time after the last failure that counts. The time doubles for each gang above the
threshold, and is never longer than failures are kept. Failures do not count if they are older than the time
that an operator has written on the Node. Failures of an earlier Node with the same name do not count either.

By rules 2 and 3, at most a share of the nodes of one GPU model is avoided at a time, and never the only node.
Nodes with the most gangs against them come first. By rule 1 a gang avoids at most two nodes, and uses them if
nothing else fits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from webhook.configuration.settings import BadNodes
from webhook.extensions.node_health.pod_failures import NodeFailure
from webhook.grouping import grouped

# --- kept failures ------------------------------------------------------------------------------------
# A failed pod proves little: most programs that fail would fail on any node. So one failure is kept for each
# gang and node, and has one of these states:
#
#     open     a pod failed there. Of pods that ran together only the first failure is kept, since it may
#              have caused the others. Of several failures in the same second the first is unknown.
#     proven   a pod of the same gang with the same requests has since run on another node, for longer than
#              the failed pod: the program is not the cause.
#     cleared  a younger pod of the same namespace with as many GPUs has since run well on the node.
#
# A user who can create pods in one namespace can cause any of these states for that namespace alone. The
# failures are bounded: the oldest ones of the namespace with the most failures are dropped first.

MOST: Final = 1000
MOST_OF_A_NAMESPACE: Final = 64


class FailureState(StrEnum):
    """How much a failure proves about its node."""

    OPEN = "open"
    PROVEN = "proven"
    CLEARED = "cleared"


@dataclass(frozen=True)
class GangFailure:
    """The first failure among a gang's pods that ran together.

    created: when the failed pod was created; at, ran: see NodeFailure. pods: uid and node of the pod that
    failed first; several if it is unknown which one did.
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
        """A new, open failure."""
        return cls(
            failure.namespace, failure.gang, failure.created, failure.at, failure.ran, failure.cause,
            failure.gpus, failure.asks, ((failure.uid, failure.node),),
        )  # fmt: skip

    @property
    def node(self) -> str:
        """The node that may be the cause, "" if there are several."""
        return self.pods[0][1] if len(self.pods) == 1 else ""


Failures = tuple[GangFailure, ...]


def _by_gang(failures: Iterable[GangFailure]) -> dict[tuple[str, str], list[GangFailure]]:
    """(namespace, gang) -> its failures."""
    return grouped(((each.namespace, each.gang), each) for each in failures)


@dataclass(frozen=True)
class _Sorted:
    """Failures by gang; and for each namespace their number, and the time of the oldest."""

    failures: Failures
    by_gang: Mapping[tuple[str, str], Sequence[GangFailure]]
    counts: Mapping[str, int]
    oldest: Mapping[str, int]

    @classmethod
    def of(cls, failures: Failures) -> "_Sorted":
        times = grouped((each.namespace, each.at) for each in failures)
        counts = {namespace: len(those) for namespace, those in times.items()}
        oldest = {namespace: min(those) for namespace, those in times.items()}
        return cls(failures, _by_gang(failures), counts, oldest)

    def would_stay(self, failure: NodeFailure) -> bool:
        """Whether it would not be dropped at once. Of two failures of the same age the new one is dropped."""
        namespace = failure.namespace
        if namespace not in self.oldest or failure.at > self.oldest[namespace]:
            return True
        counts = {**self.counts, namespace: self.counts[namespace] + 1}
        return _too_many(counts, namespace, len(self.failures) + 1) != namespace


def with_failures(failures: Failures, *more: NodeFailure) -> Failures:
    """The failures with more of them; the same object if these add nothing, as for known ones.

    Known failures must cost little: during an incident, each pass gets thousands of them.
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
    if any(_covers(each, failure) for each in own):
        return failures
    together = next((each for each in own if each.at == failure.at and failure.created <= each.at), None)
    if together is not None:  # it is unknown which of the two was first
        pods = (*together.pods, (failure.uid, failure.node))
        return _replaced(failures, together, replace(together, pods=pods, state=FailureState.OPEN))
    later = {id(each) for each in own if each.created <= failure.at < each.at}
    if not later and not there.would_stay(failure):
        return failures
    rest = tuple(each for each in failures if id(each) not in later)
    return _bounded((*rest, GangFailure.first(failure)))


def _covers(known: GangFailure, failure: NodeFailure) -> bool:
    """Whether a failure adds nothing to a known one of its gang."""
    if any(uid == failure.uid for uid, _ in known.pods):
        return True
    if known.at == failure.at and failure.created <= known.at:
        return len(known.pods) > 1 or failure.node == known.node
    return known.at < failure.at and failure.created <= known.at  # its pod existed when the other failed


def _replaced(failures: Failures, before: GangFailure, after: GangFailure) -> Failures:
    return tuple(after if each is before else each for each in failures)


def unexpired(failures: Failures, now: float, keep_seconds: float) -> Failures:
    """The failures that are not too old."""
    found = tuple(each for each in failures if now - each.at < keep_seconds)
    return found if len(found) < len(failures) else failures


@dataclass(frozen=True)
class Running:
    """A pod that has been seen to run on a node without trouble for so many seconds."""

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
    """The failures with their states updated by running pods.

    outlive_seconds: how much longer than the failed pod a pod must have run on another node to prove a
    failure. soon_seconds: how long a pod must have run on the node to clear it.
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
    if any(_refutes(each, failure, soon_seconds) for each in own):
        return replace(failure, state=FailureState.CLEARED)
    if state is FailureState.OPEN and any(_outlives(each, failure, outlive_seconds) for each in own):
        return replace(failure, state=FailureState.PROVEN)
    return failure


def _refutes(pod: Running, failure: GangFailure, seconds: float) -> bool:
    """Whether a younger pod with as many GPUs has run on the node for so long."""
    is_younger_there = pod.node == failure.node and pod.created > failure.at
    return is_younger_there and pod.gpus >= failure.gpus and pod.seconds >= seconds


def _outlives(pod: Running, failure: GangFailure, seconds: float) -> bool:
    """Whether a pod with the same gang and requests has run on another node for so much longer."""
    is_replica = (pod.gang, pod.asks) == (failure.gang, failure.asks)
    return is_replica and pod.node != failure.node and pod.seconds >= failure.ran + seconds


def of_interest(
    failures: Iterable[GangFailure],
) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]:
    """The running pods that may change a state, as (namespace, gang) and as (namespace, node)."""
    live = [each for each in failures if each.state is not FailureState.CLEARED and each.node]
    gangs = frozenset((each.namespace, each.gang) for each in live if each.state is FailureState.OPEN)
    return gangs, frozenset((each.namespace, each.node) for each in live)


def _bounded(failures: Failures) -> Failures:
    counts = Counter(each.namespace for each in failures)
    namespace = _too_many(counts, failures[-1].namespace, len(failures))
    return failures if namespace is None else _without_oldest(failures, namespace)


def _too_many(counts: Mapping[str, int], newest: str, total: int) -> str | None:
    """The namespace with too many failures, None if there is none. newest: that of the last failure."""
    if counts[newest] > MOST_OF_A_NAMESPACE:
        return newest
    return max(counts, key=lambda name: (counts[name], name)) if total > MOST else None


def _without_oldest(failures: Failures, namespace: str) -> Failures:
    oldest = min((each for each in failures if each.namespace == namespace), key=lambda each: each.at)
    return tuple(each for each in failures if each is not oldest)


# --- failing nodes ------------------------------------------------------------------------------------

MOST_OF_A_GANG: Final = 2
"""A gang that has failed on more nodes is itself the cause, so other nodes would not help it."""


@dataclass(frozen=True)
class NodeFacts:
    """The facts of a node that its failures depend on.

    since: when it was created. reset_at: earlier failures do not count.
    """

    model: str
    since: int = 0
    reset_at: int = 0


@dataclass(frozen=True)
class FailingNode:
    """A failing node.

    gangs: how many count against it. at: of the last failure. until: the end of the time that it is avoided.
    Times are in seconds since 1970.
    """

    node: str
    model: str
    gangs: int
    cause: str
    at: int
    until: int


@dataclass(frozen=True)
class FailingNodes:
    """The failing nodes: for all pods, for each namespace, and for each (namespace, gang)."""

    for_all: Mapping[str, FailingNode] = field(default_factory=dict)
    for_namespaces: Mapping[str, Mapping[str, FailingNode]] = field(default_factory=dict)
    for_gangs: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)


def why_bad(gangs: int, at: int, cause: str) -> str:
    """Why a node is failing. It names no gang, since its readers may not see other namespaces.

    at: the last failure, in seconds since 1970.
    """
    failed = "1 gang" if gangs == 1 else f"{gangs} gangs"
    when = datetime.fromtimestamp(at, UTC)
    return f"pods of {failed} failed there and ran elsewhere, last at {when:%Y-%m-%d %H:%M:%SZ} by {cause}"


def failures_against(
    failures: Iterable[GangFailure], nodes: Mapping[str, NodeFacts]
) -> dict[str, list[GangFailure]]:
    """Node -> the failures of the gangs that count against it, only the last one of each gang."""
    found: dict[str, list[GangFailure]] = {}
    for own in _by_gang(failures).values():
        if len({node for each in own for _, node in each.pods}) > 1:
            continue
        proven = [each for each in own if each.state is FailureState.PROVEN and _counts(each, nodes)]
        if proven:
            last = max(proven, key=lambda each: each.at)
            found.setdefault(last.node, []).append(last)
    return found


def _counts(failure: GangFailure, nodes: Mapping[str, NodeFacts]) -> bool:
    facts = nodes.get(failure.node)
    return facts is not None and failure.at > max(facts.reset_at, facts.since - 1)


def failing_nodes(
    failures: Iterable[GangFailure], nodes: Mapping[str, NodeFacts], rules: BadNodes, now: float
) -> FailingNodes:
    """The failing nodes by these failures. now: seconds since 1970."""
    failures = tuple(failures)
    against_nodes = failures_against(failures, nodes)
    general = [
        failing
        for node, against in against_nodes.items()
        if (until := _until_for_all(against, rules)) > now
        for failing in [_failing_node(node, nodes, against, until)]
    ]
    bounds = {model: _most(count, rules) for model, count in Counter(f.model for f in nodes.values()).items()}
    for_all = _chosen(general, {}, bounds)
    namespaces = {each.namespace for against in against_nodes.values() for each in against}
    special = {
        namespace: list(_failing_for(namespace, against_nodes, nodes, rules, now)) for namespace in namespaces
    }
    for_namespaces = {
        namespace: _chosen(those, for_all, bounds)
        for namespace, each in special.items()
        if (those := [node for node in each if node.node not in for_all])
    }
    return FailingNodes(for_all, for_namespaces, _of_gangs(failures, nodes, rules, now))


def _failing_for(
    namespace: str,
    against_nodes: Mapping[str, Sequence[GangFailure]],
    nodes: Mapping[str, NodeFacts],
    rules: BadNodes,
    now: float,
) -> Iterator[FailingNode]:
    """The nodes that are failing by the gangs of one namespace."""
    for node, against in against_nodes.items():
        own = [each for each in against if each.namespace == namespace]
        until = _until(len(own), own, rules)
        if until > now:
            yield _failing_node(node, nodes, own, until)


def _until(count: int, against: Iterable[GangFailure], rules: BadNodes) -> int:
    """Until when a node is avoided because of so many gangs; 0 if these are too few."""
    last = max((each.at for each in against), default=0)
    if count < rules.failures or not last:
        return 0
    seconds = rules.avoid_seconds * 2 ** min(count - rules.failures, 8)
    return int(last + min(seconds, rules.keep_seconds))


def _until_for_all(against: list[GangFailure], rules: BadNodes) -> int:
    """The same for all pods: the minimum over one left-out namespace, which counts as one gang."""
    rests = (
        [each for each in against if each.namespace != left_out]
        for left_out in {each.namespace for each in against}
    )
    return min(_until(len(rest) + 1, rest, rules) for rest in rests)


def _failing_node(
    node: str, nodes: Mapping[str, NodeFacts], against: list[GangFailure], until: int
) -> FailingNode:
    last = max(against, key=lambda each: (each.at, each.cause))
    return FailingNode(node, nodes[node].model, len(against), last.cause, last.at, until)


def _most(count: int, rules: BadNodes) -> int:
    """The most nodes, of so many, that are avoided at a time."""
    if count < 2:
        return 0
    return max(1, min(count - 1, int(rules.share * count)))


def _chosen(
    candidates: Iterable[FailingNode], before: Mapping[str, FailingNode], bounds: Mapping[str, int]
) -> dict[str, FailingNode]:
    """The nodes in `before`, plus candidates within the bound of each model."""
    found = dict(before)
    taken = Counter(each.model for each in before.values())
    for each in sorted(candidates, key=lambda each: (-each.gangs, -each.at, each.node)):
        if taken[each.model] < bounds.get(each.model, 0):
            found[each.node] = each
            taken[each.model] += 1
    return found


def _of_gangs(
    failures: Iterable[GangFailure], nodes: Mapping[str, NodeFacts], rules: BadNodes, now: float
) -> dict[tuple[str, str], frozenset[str]]:
    counted = (
        each
        for each in failures
        if each.node and each.state is not FailureState.CLEARED and _counts(each, nodes)
    )
    found = {}
    for key, those in _by_gang(counted).items():
        seconds = rules.avoid_seconds * 2 ** min(len(those) - 1, 8)
        if max(each.at for each in those) + min(seconds, rules.keep_seconds) > now:
            bad = frozenset(each.node for each in those)
            if len(bad) <= MOST_OF_A_GANG:
                found[key] = bad
    return found
