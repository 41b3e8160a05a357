"""Who has which topology domain to itself. Pure.

JobSet and LeaderWorkerSet ask for domains by an annotation that names a node label, and have their own
webhooks write affinity and node selectors that say the same to kube-scheduler, which knows domains by the
label's value alone. That affinity is heeded, whoever wrote it and whom it keeps out: also Jobs and groups
that want no domain of their own. Beside it, whose domains count as taken follows the same rules: of JobSets
all, of LeaderWorkerSets those of the same namespace. The annotation alone, which anybody may write, is
believed within its namespace; a domain is another namespace's only if the affinity of either says so to
kube-scheduler as well, as what a JobSet makes does.

Where a pod is counts by what its plan names, whatever has become of the node: as long as the pod is there
nobody knows that it does not run.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

from webhook.grouping import grouped
from webhook.kube.objects import Pod
from webhook.scheduling.antiaffinity import AntiAffinityTerm, terms_of
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import Claim, GangKey, claims_of, exclusive_over, is_of_a_set
from webhook.sweeper.observe.view import View, identity

ASKED: Final = 8
"""Members of a gang, and terms of theirs, that decide whom they may not share a domain with."""


def lost_domains(view: View, sent: Container[str]) -> frozenset[str]:
    """uids of gated pods that are planned into a domain which others have by now.

    A plan does not hold while its node is not ready, say, and others are placed meanwhile. sent: uids of
    those that have been released, and look gated still.
    """
    waiting = _planned_claims(view, sent)
    if not waiting:
        return frozenset()
    there = _by_domain(view)
    lost: set[str] = set()
    for (key, claim), pods in waiting.items():
        excluded = _ExcludedPods(key.namespace, pods)
        for pod in pods:
            domain = _domain(view, pod, view.planned[pod.metadata.uid].node, claim)
            others = there.get((claim.rule, claim.over, domain), ()) if domain else ()
            if any(excluded.has(each, claim) for whose, its, each in others if (whose, its) != (key, claim)):
                lost.add(pod.metadata.uid)
    return frozenset(lost)


def _planned_claims(view: View, sent: Container[str]) -> Mapping[tuple[GangKey, Claim], list[Pod]]:
    """By gang and claim, the gated pods that have a plan."""
    return grouped(
        ((view.gang_of(pod), claim), pod)
        for pod in view.gated
        if pod.metadata.uid in view.planned and pod.metadata.uid not in sent
        for claim in claims_of(pod)
    )


def _by_domain(view: View) -> Mapping[tuple[str, str, str], list[tuple[GangKey, Claim, Pod]]]:
    """By rule, label and domain, the pods that claim it and have a place there, with gang and claim."""
    return grouped(
        ((claim.rule, claim.over, _domain(view, pod, node, claim)), (view.gang_of(pod), claim, pod))
        for pod, node in _placed(view, ())
        for claim in claims_of(pod)
    )


class Others:
    """Where others are with whom a gang shares no domain, and where it is itself."""

    def __init__(self, gang: PodGang, view: View, plans: Iterable[NewPlan]) -> None:
        """plans: made in this pass."""
        self.view = view
        self._grouped = any(part.claim is not None for part in gang.parts)
        self._excluded = _ExcludedPods(gang.key.namespace, gang.gated)
        self._mine: list[tuple[Pod, str]] = []
        self._theirs: list[tuple[Pod, str]] = []
        for pod, node in _placed(view, plans, gang.pods):
            (self._mine if view.gang_of(pod) == gang.key else self._theirs).append((pod, node))
        self._taken: dict[tuple[str, str], set[str]] = {}

    def here(self, claim: Claim) -> set[str]:
        """The domains where pods are or go that want one together, those that are being deleted as well."""
        found = {_domain(self.view, pod, node, claim) for pod, node in self._mine if self._is_one(pod, claim)}
        return found - {""}

    def taken_by(self, claim: Claim) -> set[str]:
        """The domains that others have, or may not share with these."""
        known = self._taken.get((claim.rule, claim.over))
        if known is None:
            known = self._taken[claim.rule, claim.over] = self._excluded_at(self._theirs, claim)
        mine = [(pod, node) for pod, node in self._mine if not self._is_one(pod, claim)]
        return known | self._excluded_at(mine, claim)

    def _excluded_at(self, placed: Iterable[tuple[Pod, str]], claim: Claim) -> set[str]:
        found = {""}
        for pod, node in placed:
            value = _domain(self.view, pod, node, claim)
            if value not in found and self._excluded.has(pod, claim):
                found.add(value)
        return found - {""}

    def _is_one(self, pod: Pod, claim: Claim) -> bool:
        """Whether a pod of the gang is one of those that want this domain."""
        return not self._grouped or not claim.group or claim in claims_of(pod)

    def shut(self) -> frozenset[str]:
        """Nodes in domains which others' affinity keeps this gang's pods out of."""
        shut: dict[str, set[str]] = {}
        for pod, node in self._theirs:
            for claim in claims_of(pod):
                value = _domain(self.view, pod, node, claim)
                known = shut.setdefault(claim.over, set())
                if value and value not in known and self._excluded.is_repelled_by(pod, claim.over):
                    known.add(value)
        return frozenset[str]().union(*(self.in_domains(over, values) for over, values in shut.items()))

    def in_domains(self, over: str, values: Set[str]) -> frozenset[str]:
        """All nodes with one of these values."""
        if not values:
            return frozenset()
        return frozenset(name for name in self.view.nodes if label_of(self.view, name, over) in values)


def _takes_a_domain(pod: Pod, view: View) -> bool:
    """Whether a pod takes the domain of its node: a pin that is not ours, as anybody may write one, does not
    before kube-scheduler has bound it.
    """
    return bool(pod.spec.node_name) or pod.metadata.uid in view.planned or view.is_ours(pod)


def _placed(view: View, plans: Iterable[NewPlan], members: Sequence[Pod] = ()) -> Iterator[tuple[Pod, str]]:
    """The pods of sets among which some want a domain, and members, that have a node or are to have one."""
    pods = {pod.metadata.uid: pod for pod in (*members, *view.of_sets)}
    own = {pod.metadata.uid for pod in members}
    nodes = view.placed_on(pod for uid, pod in pods.items() if uid in own or _takes_a_domain(pod, view))
    yield from ((pods[uid], node) for uid, node in nodes.items())
    for plan in plans:
        for entry in plan.entries:
            if entry.node and is_of_a_set(plan.pods[entry.uid]):
                yield plan.pods[entry.uid], entry.node


class _ExcludedPods:
    """With whom pods share no domain: by what both say, or by what kube-scheduler heeds."""

    def __init__(self, namespace: str, gated: Sequence[Pod]) -> None:
        self._namespace = namespace
        self._gated = gated
        # They say the same of other Jobs, all but the leaders' terms; but their authors write what they like.
        self._sample = gated[:ASKED]
        self._terms: dict[str, list[AntiAffinityTerm]] = {}

    def has(self, pod: Pod, claim: Claim) -> bool:
        """Whether a pod is such a one, over the label of a claim."""
        metadata, over = pod.metadata, claim.over
        if metadata.namespace == self._namespace and any(
            (theirs.rule, theirs.over) == (claim.rule, over) for theirs in claims_of(pod)
        ):
            return True
        if any(term.repels(metadata.namespace, metadata.labels) for term in self._terms_over(over)):
            return True
        return self.is_repelled_by(pod, over)

    def is_repelled_by(self, pod: Pod, over: str) -> bool:
        """Whether the affinity of a pod says so to kube-scheduler."""
        theirs = terms_of(pod, over)
        return any(
            term.repels(self._namespace, mine.metadata.labels) for mine in self._sample for term in theirs
        )

    def _terms_over(self, over: str) -> list[AntiAffinityTerm]:
        if over not in self._terms:
            terms = {term.name: term for pod in self._gated for term in terms_of(pod, over)}
            self._terms[over] = list(terms.values())[:ASKED]
        return self._terms[over]


def _domain(view: View, pod: Pod, node: str, claim: Claim) -> str:
    """The domain of a pod: its node's, or, where that node is gone, the one that its plan was made for.

    Until the pod is gone as well nobody knows that it does not run there.
    """
    if node in view.nodes:
        return label_of(view, node, claim.over)
    if claim.over not in exclusive_over(pod):
        return ""
    planned = view.domains.get(identity(pod), {})
    own = next((each.group for each in claims_of(pod) if each.over == claim.over), "")
    return planned.get(own, planned.get("", ""))


def label_of(view: View, node: str, key: str) -> str:
    """The domain of a node, "" for one that has none and can be in nobody's."""
    there = view.nodes.get(node)
    return there.metadata.labels.get(key, "") if there is not None else ""
