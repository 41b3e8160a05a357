"""Which nodes are bad, for whom and until when. Pure.

The rule. A gang counts against a node if all its failures that are kept were on that node, and one of them is
proven and not cleared (see gang_failures): a program that fails on two nodes counts against none. Then:

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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from webhook.extensions.node_health.gang_failures import FailureState, GangFailure
from webhook.sweeper.extension_settings import BadNodes

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
    by_gang: dict[tuple[str, str], list[GangFailure]] = {}
    for each in failures:
        by_gang.setdefault((each.namespace, each.gang), []).append(each)
    found: dict[str, list[GangFailure]] = {}
    for own in by_gang.values():
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
    own: dict[tuple[str, str], list[GangFailure]] = {}
    for each in failures:
        if each.node and each.state is not FailureState.CLEARED and _counts(each, nodes):
            own.setdefault((each.namespace, each.gang), []).append(each)
    found = {}
    for key, those in own.items():
        seconds = rules.avoid_seconds * 2 ** min(len(those) - 1, 16)
        if max(each.at for each in those) + min(seconds, rules.keep_seconds) > now:
            bad = frozenset(each.node for each in those)
            if len(bad) <= MOST_OF_A_GANG:
                found[key] = bad
    return found
