"""What of the failures of gangs is kept, and which nodes are bad by that, for whom and until when. Pure.

The rule. A gang counts against a node if all its failures that are kept were on that node, and one of them is
proven and not cleared (see FailureState): a program that fails on two nodes counts against none. Then:

1. A gang itself avoids the nodes where it has failed, if there are no more than two, from its first failure
   on. Its next try is then elsewhere, and shows whether the node or the program is at fault.
2. Pods of a namespace avoid a node if as many gangs of it as the threshold count against the node.
3. All avoid a node if, whichever one namespace is left out, one gang less than the threshold is left.
   So one namespace adds one gang at most, whatever its pods do: nobody excludes a node for others
   alone.

A node is avoided for a while after the last failure that counts, twice as long for each gang
above the threshold, and never for longer than failures are kept. Failures before the time that an operator
has written on a Node do not count, nor those of an earlier Node of the same name.

Of the nodes of one GPU model a share at most is avoided at a time by 2 and 3, and never the only one: those
with the most gangs against them first. By 1 a gang avoids two nodes at most, and never if nothing else fits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from webhook.extensions.node_health.pod_failures import NodeFailure
from webhook.grouping import grouped
from webhook.sweeper.extension_settings import BadNodes

# --- what is kept -------------------------------------------------------------------------------------
# A failed pod proves little: most programs that fail would fail anywhere. So of each gang and node one
# failure is kept, and goes through these states:
#
#     open     a pod failed there. Of pods that were there together only the first to fail is kept: the
#              others may have failed by its failure. Of several in the same second nobody knows the first.
#     proven   a pod of the same gang that asks for the same has run on another node since, for longer than
#              the failed one: what the program does is no reason to fail.
#     cleared  a younger pod of the same namespace with as many GPUs has run well on the node since.
#
# Who writes pods of one namespace can bring about any of these for pods of that namespace, and for no others.
# What is kept is bounded: the oldest failures of the namespace with the most of them are dropped first.

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


def _by_gang(failures: Iterable[GangFailure]) -> dict[tuple[str, str], list[GangFailure]]:
    """By namespace and gang."""
    return grouped(((each.namespace, each.gang), each) for each in failures)


@dataclass(frozen=True)
class _Sorted:
    """Failures by gang; of each namespace how many, and when the oldest was."""

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
        """Whether it would not be the first to be dropped again; of two as old that is the new one."""
        namespace = failure.namespace
        if namespace not in self.oldest or failure.at > self.oldest[namespace]:
            return True
        counts = {**self.counts, namespace: self.counts[namespace] + 1}
        return _too_many(counts, namespace, len(self.failures) + 1) != namespace


def with_failures(failures: Failures, *more: NodeFailure) -> Failures:
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
    if any(_covers(each, failure) for each in own):
        return failures
    together = next((each for each in own if each.at == failure.at and failure.created <= each.at), None)
    if together is not None:  # nobody knows which of the two was the first
        pods = (*together.pods, (failure.uid, failure.node))
        return _replaced(failures, together, replace(together, pods=pods, state=FailureState.OPEN))
    later = {id(each) for each in own if each.created <= failure.at < each.at}
    if not later and not there.would_stay(failure):
        return failures
    rest = tuple(each for each in failures if id(each) not in later)
    return _bounded((*rest, GangFailure.first(failure)))


def _covers(known: GangFailure, failure: NodeFailure) -> bool:
    """Whether a failure says nothing beside a known one of its gang."""
    if any(uid == failure.uid for uid, _ in known.pods):
        return True
    if known.at == failure.at and failure.created <= known.at:
        return len(known.pods) > 1 or failure.node == known.node
    return known.at < failure.at and failure.created <= known.at  # it was there when the other failed


def _replaced(failures: Failures, before: GangFailure, after: GangFailure) -> Failures:
    return tuple(after if each is before else each for each in failures)


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
    if any(_refutes(each, failure, soon_seconds) for each in own):
        return replace(failure, state=FailureState.CLEARED)
    if state is FailureState.OPEN and any(_outlives(each, failure, outlive_seconds) for each in own):
        return replace(failure, state=FailureState.PROVEN)
    return failure


def _refutes(pod: Running, failure: GangFailure, seconds: float) -> bool:
    """Whether a younger pod with as many GPUs has run for so long on the node."""
    is_younger_there = pod.node == failure.node and pod.created > failure.at
    return is_younger_there and pod.gpus >= failure.gpus and pod.seconds >= seconds


def _outlives(pod: Running, failure: GangFailure, seconds: float) -> bool:
    """Whether a pod has run elsewhere for so much longer than one of its gang that asks for the same."""
    is_replica = (pod.gang, pod.asks) == (failure.gang, failure.asks)
    return is_replica and pod.node != failure.node and pod.seconds >= failure.ran + seconds


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


# --- which nodes are bad by that ----------------------------------------------------------------------

MOST_OF_A_GANG: Final = 2
"""A gang that has failed on more nodes fails by itself: it gains nothing by going elsewhere."""


@dataclass(frozen=True)
class NodeFacts:
    """What of a node decides about its failures. since: when it was created; reset_at: none before counts."""

    model: str
    since: int = 0
    reset_at: int = 0


@dataclass(frozen=True)
class FailingNode:
    """A node that is bad. gangs: how many count against it. at: of the last failure; until: since 1970."""

    node: str
    model: str
    gangs: int
    cause: str
    at: int
    until: int


@dataclass(frozen=True)
class FailingNodes:
    """Which nodes are bad: for all, in the eyes of each namespace, and of each (namespace, gang)."""

    for_all: Mapping[str, FailingNode] = field(default_factory=dict)
    for_namespaces: Mapping[str, Mapping[str, FailingNode]] = field(default_factory=dict)
    for_gangs: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def of(self, namespace: str) -> Mapping[str, FailingNode]:
        """The nodes that pods of a namespace avoid, without those that a single gang avoids."""
        return self.for_namespaces.get(namespace, self.for_all)


def why_bad(gangs: int, at: int, cause: str) -> str:
    """Why a node is bad, without a word of whose pods: who reads it may know nothing of other namespaces.

    at: the last failure, in seconds since 1970.
    """
    failed = "1 gang" if gangs == 1 else f"{gangs} gangs"
    when = datetime.fromtimestamp(at, UTC)
    return f"pods of {failed} failed there and ran elsewhere, last at {when:%Y-%m-%d %H:%M:%SZ} by {cause}"


def failures_against(
    failures: Iterable[GangFailure], nodes: Mapping[str, NodeFacts]
) -> dict[str, list[GangFailure]]:
    """Node -> the failures by which gangs count against it, one of each gang: its last."""
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
    """What failures come to. now: seconds since 1970."""
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
    """The nodes that fail by what the gangs of one namespace say."""
    for node, against in against_nodes.items():
        own = [each for each in against if each.namespace == namespace]
        until = _until(len(own), own, rules)
        if until > now:
            yield _failing_node(node, nodes, own, until)


def _until(count: int, against: Iterable[GangFailure], rules: BadNodes) -> int:
    """Until when so many gangs, of which these are counted, have a node avoided; 0 if too few do."""
    last = max((each.at for each in against), default=0)
    if count < rules.failures or not last:
        return 0
    seconds = rules.avoid_seconds * 2 ** min(count - rules.failures, 16)
    return int(last + min(seconds, rules.keep_seconds))


def _until_for_all(against: list[GangFailure], rules: BadNodes) -> int:
    """The same where any one namespace may be wrong: by what is left without it, and one gang more."""
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
    """How many of so many nodes are avoided at a time."""
    if count < 2:
        return 0
    return max(1, min(count - 1, int(rules.share * count)))


def _chosen(
    candidates: Iterable[FailingNode], before: Mapping[str, FailingNode], bounds: Mapping[str, int]
) -> dict[str, FailingNode]:
    """Those before, and of the others as many of each model as its bound allows."""
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
        seconds = rules.avoid_seconds * 2 ** min(len(those) - 1, 16)
        if max(each.at for each in those) + min(seconds, rules.keep_seconds) > now:
            bad = frozenset(each.node for each in those)
            if len(bad) <= MOST_OF_A_GANG:
                found[key] = bad
    return found
