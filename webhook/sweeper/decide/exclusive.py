"""Jobs and groups that have a domain of their own: in one domain each, and none of it shared. Pure.

JobSet and LeaderWorkerSet ask for it by an annotation that names a node label, and have their own webhooks
write affinity and node selectors that say the same to kube-scheduler, which knows domains by the label's
value alone. Whose domains count as taken follows those rules: of JobSets all, of LeaderWorkerSets those of
the same namespace. The annotation alone, which anybody may write, is believed within its namespace; a domain
is another namespace's only if the affinity of either says so to kube-scheduler as well, as what a JobSet
makes does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import PlacementError, Topology
from webhook.scheduling.antiaffinity import terms_of
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.decide.replicas import beside_replicas
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import exclusive_over
from webhook.sweeper.observe.view import View
from webhook.workloads import marks

_TRIED: Final = 64
"""Domains of a label that is no level which are tried in a pass."""

_ASKED: Final = 8
"""Members of a gang, and terms of theirs, by which it is told whom they may not share a domain with."""

_NAMED: Final = 3
"""Domains that a sentence names."""

Rule = tuple[str, str, str]
"""Whose rule (an annotation), in which namespace ("" for all), over which label."""


@dataclass(frozen=True)
class Ask:
    """What an exclusive gang is asked about: the gang, nodes where it may not be, and a sentence on these."""

    gang: PodGang
    closed: frozenset[str] = frozenset()
    told: str = ""


def asks(gang: PodGang, view: View, plans: Iterable[NewPlan], topology: Topology) -> Iterator[Ask]:
    """The questions for a gang, of which the first with an answer counts: one, unless its label is no level.

    Each knows where other replicas of its owner are, see beside_replicas.

    plans: made in this pass. Labels that are no level of ours are tried domain by domain, small ones first;
    of very many the largest. There is one question at least. Raises PlacementError for one in parts.
    """
    gang = beside_replicas(gang, view, plans)
    rule = next(filter(None, map(_rule, gang.pods)), None)
    if rule is None:
        yield Ask(gang)
        return
    if gang.parts:
        raise PlacementError("a gang with a domain of its own is in one part; its pods name unlike levels")
    key = rule[2]
    own = {pod.metadata.uid for pod in gang.pods}
    here = {_value(view, node, key) for node in view.placed_on(gang.pods).values()} - {""}
    shunned = _Shunned(gang, key)
    taken = {
        _value(view, node, key)
        for pod, node in _placed(view, plans)
        if pod.metadata.uid not in own and _rule(pod) == rule and pod in shunned
    }
    domains: dict[str, set[str]] = {}
    for name in view.nodes:
        domains.setdefault(_value(view, name, key), set()).add(name)
    open_ = {value for value in domains if value and (value in here if here else value not in taken)}
    told = _told(key, taken - {""}) if not here else ""
    level = _level(gang, key, topology)
    if level is not None:
        closed = frozenset[str]().union(*(nodes for value, nodes in domains.items() if value not in open_))
        yield Ask(replace(gang, required_level=level), closed, told)
        return
    everywhere = frozenset(view.nodes)
    ordered = sorted(open_, key=lambda value: (len(domains[value]), value))
    if not ordered:
        yield Ask(gang, everywhere, told)
    for value in ordered[-_TRIED:]:
        yield Ask(gang, everywhere - domains[value], told)


def _placed(view: View, plans: Iterable[NewPlan]) -> Iterator[tuple[Pod, str]]:
    """All pods that have a node, or are to have one."""
    # A pin that is not ours takes no domain before kube-scheduler has bound it: anybody may write one.
    others = (pod for pod in view.others if pod.spec.node_name or view.is_ours(pod))
    pods = [pod for pod in (*view.gated, *others) if _rule(pod) is not None]
    nodes = view.placed_on(pods)
    yield from ((pod, nodes[pod.metadata.uid]) for pod in pods if pod.metadata.uid in nodes)
    for plan in plans:
        yield from ((plan.pods[entry.uid], entry.node) for entry in plan.entries if entry.node)


class _Shunned:
    """With whom an exclusive gang shares no domain: by what both say, or by what kube-scheduler heeds."""

    def __init__(self, gang: PodGang, over: str) -> None:
        self._namespace = gang.key.namespace
        self._over = over
        # They say the same of other Jobs, all but the leader's terms; but their authors write what they like.
        self._like = gang.gated[:_ASKED]
        terms = {term.name: term for pod in gang.gated for term in terms_of(pod, over)}
        self._terms = list(terms.values())[:_ASKED]

    def __contains__(self, pod: Pod) -> bool:
        metadata = pod.metadata
        if metadata.namespace == self._namespace:
            return True
        if any(term.repels(metadata.namespace, metadata.labels) for term in self._terms):
            return True
        theirs = terms_of(pod, self._over)
        return any(
            term.repels(self._namespace, mine.metadata.labels) for mine in self._like for term in theirs
        )


def _rule(pod: Pod) -> Rule | None:
    key = exclusive_over(pod)
    if not key:
        return None
    if marks.JOBSET_EXCLUSIVE in pod.metadata.annotations:
        return marks.JOBSET_EXCLUSIVE, "", key
    return marks.LWS_EXCLUSIVE, pod.metadata.namespace, key


def _value(view: View, node: str, key: str) -> str:
    """The domain of a node, "" for one that has none and can be in nobody's."""
    there = view.nodes.get(node)
    return there.metadata.labels.get(key, "") if there is not None else ""


def _level(gang: PodGang, key: str, topology: Topology) -> str | None:
    """The level in one domain of which the gang must lie: its label's, or a lower one that it requires.

    None for a label that is no level. Raises PlacementError where the gang requires a level that is none.
    """
    try:
        level = topology.level(key)
    except PlacementError:
        return None
    wished = gang.required_level
    return wished if wished is not None and topology.level(wished) > level else key


def _told(key: str, taken: set[str]) -> str:
    if not taken:
        return ""
    names = sorted(taken)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"it wants a domain of {key} of its own, and others have {', '.join(names[:_NAMED])}{more}"
