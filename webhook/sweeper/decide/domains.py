"""Where pods are whose Jobs or groups have a domain of their own, and who may share none with whom. Pure.

What a plan names counts, whatever has become of the pod's node: as long as the pod is there nobody knows that
it does not run.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

from webhook.kube.objects import Pod
from webhook.scheduling.antiaffinity import terms_of
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import GangKey, exclusive_over
from webhook.sweeper.observe.view import View, identity
from webhook.workloads import marks

_ASKED: Final = 8
"""Members of a gang, and terms of theirs, by which it is told whom they may not share a domain with."""

Rule = tuple[str, str, str]
"""Whose rule (an annotation), in which namespace ("" for all), over which label."""


def domain_of(gang: PodGang, nodes: Iterable[str], view: View) -> str:
    """The domain that a gang on these nodes has for itself, "" if it shares; see PlacementSpec.domain."""
    rule = next(filter(None, map(rule_of, gang.pods)), None)
    if rule is None:
        return ""
    return min(filter(None, (label_of(view, node, rule[2]) for node in nodes)), default="")


def shared(view: View, sent: Container[str]) -> frozenset[str]:
    """uids of gated pods that are planned into a domain which another gang has by now.

    A plan does not hold while its node is not ready, say, and others are placed meanwhile. sent: uids of
    those that have been let go, and look gated still.
    """
    waiting: dict[tuple[GangKey, Rule], list[Pod]] = {}
    for pod in view.gated:
        uid = pod.metadata.uid
        if uid in view.planned and uid not in sent and (rule := rule_of(pod)) is not None:
            waiting.setdefault((view.gang_of(pod), rule), []).append(pod)
    if not waiting:
        return frozenset()
    there: dict[tuple[Rule, str], list[tuple[GangKey, Pod]]] = {}
    for pod, node in _placed(view, ()):
        if (rule := rule_of(pod)) is not None:
            place = rule, _domain(view, pod, node, rule[2])
            there.setdefault(place, []).append((view.gang_of(pod), pod))
    lost: set[str] = set()
    for (key, rule), pods in waiting.items():
        shunned = _Shunned(key.namespace, pods, rule[2])
        for pod in pods:
            domain = _domain(view, pod, view.planned[pod.metadata.uid].node, rule[2])
            others = (other for whose, other in there.get((rule, domain), ()) if whose != key)
            if domain and any(other in shunned for other in others):
                lost.add(pod.metadata.uid)
    return frozenset(lost)


def here_and_taken(
    gang: PodGang, rule: Rule, view: View, plans: Iterable[NewPlan]
) -> tuple[set[str], set[str]]:
    """The domains where pods of the gang are or go, those that are being deleted as well, and those of others
    that it shares none with.
    """
    shunned = _Shunned(gang.key.namespace, gang.gated, rule[2])
    here, taken = set(), set()
    for pod, node in _placed(view, plans, gang.pods):
        domain = _domain(view, pod, node, rule[2])
        if view.gang_of(pod) == gang.key:
            here.add(domain)
        elif rule_of(pod) == rule and pod in shunned:
            taken.add(domain)
    return here - {""}, taken - {""}


def _placed(view: View, plans: Iterable[NewPlan], members: Iterable[Pod] = ()) -> Iterator[tuple[Pod, str]]:
    """The pods that want a domain, and members, that have a node or are to have one."""
    own = {pod.metadata.uid for pod in members}
    # A pin that is not ours takes no domain before kube-scheduler has bound it: anybody may write one.
    others = (pod for pod in view.others if pod.spec.node_name or view.is_ours(pod))
    pods = [pod for pod in (*view.gated, *others) if pod.metadata.uid in own or rule_of(pod) is not None]
    nodes = view.placed_on(pods)
    yield from ((pod, nodes[pod.metadata.uid]) for pod in pods if pod.metadata.uid in nodes)
    for plan in plans:
        yield from ((plan.pods[entry.uid], entry.node) for entry in plan.entries if entry.node)


class _Shunned:
    """With whom an exclusive gang shares no domain: by what both say, or by what kube-scheduler heeds."""

    def __init__(self, namespace: str, gated: Sequence[Pod], over: str) -> None:
        """gated: pods of the gang."""
        self._namespace = namespace
        self._over = over
        # They say the same of other Jobs, all but the leader's terms; but their authors write what they like.
        self._like = gated[:_ASKED]
        terms = {term.name: term for pod in gated for term in terms_of(pod, over)}
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


def rule_of(pod: Pod) -> Rule | None:
    """By which rule a pod's Job or group has a domain of its own, None if it shares."""
    key = exclusive_over(pod)
    if not key:
        return None
    if marks.JOBSET_EXCLUSIVE in pod.metadata.annotations:
        return marks.JOBSET_EXCLUSIVE, "", key
    return marks.LWS_EXCLUSIVE, pod.metadata.namespace, key


def _domain(view: View, pod: Pod, node: str, key: str) -> str:
    """The domain of a pod: its node's, or, where that node is gone, the one that its plan was made for.

    Until the pod is gone as well nobody knows that it does not run there.
    """
    return label_of(view, node, key) if node in view.nodes else view.domains.get(identity(pod), "")


def label_of(view: View, node: str, key: str) -> str:
    """The domain of a node, "" for one that has none and can be in nobody's."""
    there = view.nodes.get(node)
    return there.metadata.labels.get(key, "") if there is not None else ""
