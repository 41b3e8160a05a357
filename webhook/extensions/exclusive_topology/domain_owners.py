"""The owners of exclusive topology domains. Pure.

JobSet and LeaderWorkerSet request a domain by an annotation that names a node label. Their webhooks also
write affinity and node selectors for kube-scheduler, which identifies domains by the label's value alone.
topogate obeys that affinity for all pods, also for Jobs and groups without exclusive topology. JobSets
exclude each other in all namespaces, and LeaderWorkerSets in their own.

Any user can write the annotation, so by itself it counts only within its namespace. Across namespaces a
domain is taken only if the affinity of one of the two pods excludes the other, as for pods of a JobSet.

A pod counts in the domain of its planned node, even if that node is gone: until the pod is deleted, it may
still run there.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

from webhook.grouping import grouped
from webhook.kube.objects import Pod
from webhook.scheduling.antiaffinity import AntiAffinityTerm, terms_of
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.view import View, identity
from webhook.workloads.own_domains import DomainRequest, domain_requests_of, is_of_a_set, own_domain_labels

ASKED: Final = 8
"""The most members of a gang, and the most of their terms, that are examined for anti-affinity."""


def lost_domains(view: View, sent: Container[str]) -> frozenset[str]:
    """uids of gated pods whose planned domain others have taken.

    For example, a plan is not valid while its node is not ready, and others are placed there meanwhile. sent:
    uids of released pods that still appear gated.
    """
    waiting = _planned_requests(view, sent)
    if not waiting:
        return frozenset()
    there = _by_domain(view)
    lost: set[str] = set()
    for (key, request), pods in waiting.items():
        excluded = _ExcludedPods(key.namespace, pods)
        for pod in pods:
            domain = _domain(view, pod, view.planned[pod.metadata.uid].node, request)
            others = there.get((request.rule, request.over, domain), ()) if domain else ()
            if any(
                excluded.has(each, request) for whose, its, each in others if (whose, its) != (key, request)
            ):
                lost.add(pod.metadata.uid)
    return frozenset(lost)


def _planned_requests(view: View, sent: Container[str]) -> Mapping[tuple[GangKey, DomainRequest], list[Pod]]:
    """(gang, request) -> the gated pods that have a plan."""
    return grouped(
        ((view.gang_of(pod), request), pod)
        for pod in view.gated
        if pod.metadata.uid in view.planned and pod.metadata.uid not in sent
        for request in domain_requests_of(pod)
    )


def _by_domain(view: View) -> Mapping[tuple[str, str, str], list[tuple[GangKey, DomainRequest, Pod]]]:
    """(rule, label, domain) -> the placed pods that request it, each with its gang and request."""
    return grouped(
        ((request.rule, request.over, _domain(view, pod, node, request)), (view.gang_of(pod), request, pod))
        for pod, node in _placed(view, ())
        for request in domain_requests_of(pod)
    )


class Others:
    """The pods that a gang shares no domain with, its own placed pods, and their domains."""

    def __init__(self, gang: PodGang, view: View, plans: Iterable[NewPlan]) -> None:
        """plans: made in this pass."""
        self.view = view
        self._grouped = any(part.request is not None for part in gang.parts)
        self._excluded = _ExcludedPods(gang.key.namespace, gang.gated)
        self._mine: list[tuple[Pod, str]] = []
        self._theirs: list[tuple[Pod, str]] = []
        for pod, node in _placed(view, plans, gang.pods):
            (self._mine if view.gang_of(pod) == gang.key else self._theirs).append((pod, node))
        self._taken: dict[tuple[str, str], set[str]] = {}

    def here(self, request: DomainRequest) -> set[str]:
        """The domains of placed pods with this request, including pods that are being deleted."""
        found = {
            _domain(self.view, pod, node, request) for pod, node in self._mine if self._is_one(pod, request)
        }
        return found - {""}

    def taken_by(self, request: DomainRequest) -> set[str]:
        """The domains that others have, or that these pods may not share with others."""
        known = self._taken.get((request.rule, request.over))
        if known is None:
            known = self._taken[request.rule, request.over] = self._excluded_at(self._theirs, request)
        mine = [(pod, node) for pod, node in self._mine if not self._is_one(pod, request)]
        return known | self._excluded_at(mine, request)

    def _excluded_at(self, placed: Iterable[tuple[Pod, str]], request: DomainRequest) -> set[str]:
        found = {""}
        for pod, node in placed:
            value = _domain(self.view, pod, node, request)
            if value not in found and self._excluded.has(pod, request):
                found.add(value)
        return found - {""}

    def _is_one(self, pod: Pod, request: DomainRequest) -> bool:
        """Whether a pod of the gang has this request."""
        return not self._grouped or not request.group or request in domain_requests_of(pod)

    def shut(self) -> frozenset[str]:
        """Nodes in domains that other pods' affinity closes to this gang's pods."""
        shut: dict[str, set[str]] = {}
        for pod, node in self._theirs:
            for request in domain_requests_of(pod):
                value = _domain(self.view, pod, node, request)
                known = shut.setdefault(request.over, set())
                if value and value not in known and self._excluded.is_repelled_by(pod, request.over):
                    known.add(value)
        return frozenset[str]().union(*(self.in_domains(over, values) for over, values in shut.items()))

    def in_domains(self, over: str, values: Set[str]) -> frozenset[str]:
        """All nodes whose label has one of these values."""
        if not values:
            return frozenset()
        return frozenset(name for name in self.view.nodes if label_of(self.view, name, over) in values)


def _takes_a_domain(pod: Pod, view: View) -> bool:
    """Whether a pod takes the domain of its node.

    A pod with a pin that topogate did not write takes it only once it is bound, since any user can write one.
    """
    return bool(pod.spec.node_name) or pod.metadata.uid in view.planned or view.is_ours(pod)


def _placed(view: View, plans: Iterable[NewPlan], members: Sequence[Pod] = ()) -> Iterator[tuple[Pod, str]]:
    """Pods of sets with exclusive topology, and the members, each with its actual or planned node."""
    pods = {pod.metadata.uid: pod for pod in (*members, *view.of_sets)}
    own = {pod.metadata.uid for pod in members}
    nodes = view.placed_on(pod for uid, pod in pods.items() if uid in own or _takes_a_domain(pod, view))
    yield from ((pods[uid], node) for uid, node in nodes.items())
    for plan in plans:
        for entry in plan.entries:
            if entry.node and is_of_a_set(plan.pods[entry.uid]):
                yield plan.pods[entry.uid], entry.node


class _ExcludedPods:
    """The pods that a gang shares no domain with, by the requests of both or by anti-affinity."""

    def __init__(self, namespace: str, gated: Sequence[Pod]) -> None:
        self._namespace = namespace
        self._gated = gated
        # Usually all pods of a gang have the same terms, except the leaders'; but users may write others.
        self._sample = gated[:ASKED]
        self._terms: dict[str, list[AntiAffinityTerm]] = {}

    def has(self, pod: Pod, request: DomainRequest) -> bool:
        """Whether the gang shares no domain of a request's label with this pod."""
        metadata, over = pod.metadata, request.over
        if metadata.namespace == self._namespace and any(
            (theirs.rule, theirs.over) == (request.rule, over) for theirs in domain_requests_of(pod)
        ):
            return True
        if any(term.repels(metadata.namespace, metadata.labels) for term in self._terms_over(over)):
            return True
        return self.is_repelled_by(pod, over)

    def is_repelled_by(self, pod: Pod, over: str) -> bool:
        """Whether the anti-affinity of this pod excludes the gang's pods."""
        theirs = terms_of(pod, over)
        return any(
            term.repels(self._namespace, mine.metadata.labels) for mine in self._sample for term in theirs
        )

    def _terms_over(self, over: str) -> list[AntiAffinityTerm]:
        if over not in self._terms:
            terms = {term.name: term for pod in self._gated for term in terms_of(pod, over)}
            self._terms[over] = list(terms.values())[:ASKED]
        return self._terms[over]


def _domain(view: View, pod: Pod, node: str, request: DomainRequest) -> str:
    """The domain of a pod: its node's domain, or its planned domain if that node is gone.

    Until the pod is deleted, it may still run there.
    """
    if node in view.nodes:
        return label_of(view, node, request.over)
    if request.over not in own_domain_labels(pod):
        return ""
    planned = view.domains.get(identity(pod), {})
    own = next((each.group for each in domain_requests_of(pod) if each.over == request.over), "")
    return planned.get(own, planned.get("", ""))


def label_of(view: View, node: str, key: str) -> str:
    """The domain of a node, "" if it has none."""
    there = view.nodes.get(node)
    return there.metadata.labels.get(key, "") if there is not None else ""
