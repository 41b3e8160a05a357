"""Jobs and groups that have a domain of their own: in one domain each, and none of it shared. Pure.

JobSet and LeaderWorkerSet ask for it by an annotation that names a node label, and have their own webhooks
write affinity and node selectors that say the same to kube-scheduler, which knows domains by the label's
value alone. That affinity is heeded, whoever wrote it and whom it keeps out: also Jobs and groups that want
no domain of their own. Beside it, whose domains count as taken follows the same rules: of JobSets all, of
LeaderWorkerSets those of the same namespace. The annotation alone, which anybody may write, is believed
within its namespace; a domain is another namespace's only if the affinity of either says so to kube-scheduler
as well, as what a JobSet makes does.

Where a pod is counts by what its plan names, whatever has become of the node: as long as the pod is there
nobody knows that it does not run. The pods of a Deployment that are to be spread do not wait for one another,
so each is placed alone, beside those that have a node by then. Their owner is the ReplicaSet: in a rolling
update the pods of each revision are spread by themselves.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import PlacementError, Topology
from webhook.scheduling.antiaffinity import AntiAffinityTerm, terms_of
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.decide.question import Ask
from webhook.sweeper.observe.gang_requests import GangPart
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import Claim, GangKey, claims_of, exclusive_over, is_of_a_set
from webhook.sweeper.observe.view import View, identity
from webhook.text import joined
from webhook.workloads import marks

_ASKED: Final = 8
"""Members of a gang, and terms of theirs, by which it is told whom they may not share a domain with."""


def domains_of(gang: PodGang, placed: Mapping[str, str], view: View) -> dict[str, str]:
    """The domains that a gang has for itself; see PlacementSpec.domains.

    placed: uid -> node of its pods, those that are yet to be made as well.
    """
    found: dict[str, str] = {}
    grouped = any(part.claim is not None for part in gang.parts)
    for pod in (*gang.pods, *gang.later):
        node = placed.get(pod.metadata.uid, "")
        for claim in claims_of(pod) if node else ():
            domain = label_of(view, node, claim.over)
            group = claim.group if grouped else ""
            if domain and domain <= found.get(group, domain):
                found[group] = domain
    return found


def shared(view: View, sent: Container[str]) -> frozenset[str]:
    """uids of gated pods that are planned into a domain which others have by now.

    A plan does not hold while its node is not ready, say, and others are placed meanwhile. sent: uids of
    those that have been let go, and look gated still.
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
    found: dict[tuple[GangKey, Claim], list[Pod]] = {}
    for pod in view.gated:
        if pod.metadata.uid in view.planned and pod.metadata.uid not in sent:
            for claim in claims_of(pod):
                found.setdefault((view.gang_of(pod), claim), []).append(pod)
    return found


def _by_domain(view: View) -> Mapping[tuple[str, str, str], list[tuple[GangKey, Claim, Pod]]]:
    """By rule, label and domain, the pods that claim it and have a place there, with gang and claim."""
    found: dict[tuple[str, str, str], list[tuple[GangKey, Claim, Pod]]] = {}
    for pod, node in _placed(view, ()):
        for claim in claims_of(pod):
            place = claim.rule, claim.over, _domain(view, pod, node, claim)
            found.setdefault(place, []).append((view.gang_of(pod), claim, pod))
    return found


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
        self._sample = gated[:_ASKED]
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
            self._terms[over] = list(terms.values())[:_ASKED]
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


def beside_replicas(gang: PodGang, view: View, plans: Iterable[NewPlan]) -> PodGang:
    """The gang with the nodes of the other pods of its owner, see Spread.peers. plans: made in this pass."""
    maker = gang.maker
    if gang.spread is None or maker == gang.key:
        return gang
    own = {pod.metadata.uid for pod in gang.pods}
    there = view.spread_replicas.get(maker, {})
    nodes = [node for uid, node in there.items() if uid not in own]
    for plan in plans:
        if plan.gang.spread is not None and plan.gang.maker == maker:
            nodes += [entry.node for entry in plan.entries if entry.node]
    return replace(gang, spread=replace(gang.spread, peers=tuple(sorted(nodes))))


_TRIED: Final = 64
"""Domains of a label that is no level which are tried in a pass."""

_NAMED: Final = 3
"""Domains that a sentence names."""


def asks(gang: PodGang, view: View, plans: Iterable[NewPlan], topology: Topology) -> Iterator[Ask]:
    """The questions for a gang, of which the first with an answer counts: one, unless its label is no level.

    Each knows where other replicas of its owner are, see beside_replicas. Parts that want domains to
    themselves know what others have, see exclusive_groups.

    plans: made in this pass. Labels that are no level of ours are tried domain by domain, small ones first;
    of very many the largest. There is one question at least. Raises PlacementError for a level that is none.
    """
    gang = beside_replicas(gang, view, plans)
    claims = {claim for pod in gang.pods for claim in claims_of(pod)}
    if not claims and not any(map(is_of_a_set, gang.gated[:_ASKED])):
        yield Ask(gang)
        return
    others = Others(gang, view, plans)
    grouped = {part.claim for part in gang.parts if part.claim is not None}
    if grouped:
        yield from _in_groups(gang, grouped, claims, others, topology)
    elif claims:
        yield from _as_one(gang, min(claims), others, topology)
    else:
        yield Ask(gang, others.shut())


def closed_to_cpu_pods(
    gang: PodGang, placed: Mapping[str, str], view: View, plans: Iterable[NewPlan]
) -> frozenset[str]:
    """Where pods of a gang may not be that want no domain: domains of its own Jobs, and those of others.

    placed: uid -> node of its other pods.
    """
    if not any(map(is_of_a_set, gang.pods)):
        return frozenset()
    others = Others(gang, view, plans)
    closed = others.shut()
    for pod in gang.workers:
        for claim in _of_jobsets(claims_of(pod)):
            node = placed.get(pod.metadata.uid, "")
            closed |= others.in_domains(claim.over, {label_of(view, node, claim.over)} - {""})
    return closed


def _as_one(gang: PodGang, claim: Claim, others: Others, topology: Topology) -> Iterator[Ask]:
    """All of the gang in one domain."""
    view, key = others.view, claim.over
    here, taken = others.here(claim), others.taken_by(claim)
    domains = view.domains_of(view.nodes).by_value(key)
    open_ = domains.keys() & here if here else domains.keys() - taken
    open_ -= {""}
    note = _taken_note(key, taken) if not here else ""
    everywhere = frozenset(view.nodes)
    level = _level(gang, key, topology)
    if level is not None and not gang.parts:
        closed = everywhere.difference(*(domains[value] for value in open_))
        yield Ask(replace(gang, required_level=level), closed, note)
        return
    ordered = sorted(open_, key=lambda value: (len(domains[value]), value))
    if not ordered:
        yield Ask(gang, everywhere, note)
    for value in ordered[-_TRIED:]:
        yield Ask(gang, everywhere.difference(domains[value]), note)


def _in_groups(
    gang: PodGang, grouped: set[Claim], claims: set[Claim], others: Others, topology: Topology
) -> Iterator[Ask]:
    """Groups with a domain each; all of them in one domain of a larger kind, if the gang claims that too."""
    taken_by_label: dict[str, set[str]] = {}
    jobset = next(_of_jobsets(grouped), None)
    shut = others.shut()
    parts = (
        replace(part, closed=_closed_to(part, jobset, others, shut, taken_by_label)) for part in gang.parts
    )
    gang = replace(gang, parts=tuple(parts))
    all_notes = "; ".join(
        filter(None, (_taken_note(over, taken) for over, taken in sorted(taken_by_label.items())))
    )
    whole = min((claim for claim in claims if not claim.group), default=None)
    if whole is None:
        yield Ask(gang, note=all_notes)
        return
    for each in _as_one(gang, whole, others, topology):
        yield replace(each, note=joined(each.note, all_notes))


def _closed_to(
    part: GangPart,
    jobset: Claim | None,
    others: Others,
    shut: frozenset[str],
    taken_by_label: dict[str, set[str]],
) -> frozenset[str]:
    """Where the pods of a part may not be. shut: where none of its gang may be.

    jobset: a claim by which domains are closed to pods that want none. taken_by_label: gains, by label,
    the domains that others have.
    """
    claim = part.claim if part.claim is not None else jobset
    if claim is None:
        return shut
    if part.claim is not None and (here := others.here(claim)):
        return frozenset(others.view.nodes) - others.in_domains(claim.over, here)
    taken = others.taken_by(claim)
    taken_by_label.setdefault(claim.over, set()).update(taken)
    unlabelled = {""} if part.claim is not None else set[str]()
    return shut | others.in_domains(claim.over, taken | unlabelled)


def _of_jobsets(claims: Iterable[Claim]) -> Iterator[Claim]:
    """The first of those whose domains are closed to all other pods of their gang too."""
    yield from sorted(claim for claim in claims if claim.rule == marks.JOBSET_EXCLUSIVE)[:1]


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


def _taken_note(key: str, taken: set[str]) -> str:
    if not taken:
        return ""
    names = sorted(taken)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"it wants a domain of {key} of its own, and others have {', '.join(names[:_NAMED])}{more}"
