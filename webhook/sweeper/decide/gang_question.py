"""From a gang of pods to a question for the placement core, and from answers for pod sets to one. Pure."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from webhook.kube.objects import Pod
from webhook.placement import Anchor, Assignment, Gang, Member, NoFit, PlacementError, Snapshot
from webhook.placement.model import Objective, PodClass
from webhook.placement.snapshot import NodeState, families_of, place_of
from webhook.scheduling import convert
from webhook.scheduling.acceptance import Acceptance
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.sweeper.decide.gang_slices import numbered_by_slices, with_slices
from webhook.sweeper.observe.gang_requests import UNDIVIDED, Division, GangPart
from webhook.sweeper.observe.gangs import PodGang
from webhook.text import counted
from webhook.workloads.own_domains import DomainRequest
from webhook.workloads.roles import role_of

ClassOf = Callable[[Pod], PodClass]


@dataclass(frozen=True)
class GangQuestion:
    """A gang as the placement core sees it, and which pod each of its members is.

    Members that are none of these pods are not created yet, see PodGang.later. parts: the questions of its
    pod sets, where these ask for different levels, slices or domains of their own; the gang then names none
    of these. requests: for each pod set the domain that it wants to itself; such a set may have only anchors.
    See core_questions.
    """

    gang: Gang
    pods: Mapping[str, Pod]
    parts: tuple[Gang, ...] = ()
    domain_requests: tuple[DomainRequest | None, ...] = ()
    rules: Acceptance | None = None
    """The rules of its members on other pods, None if they have none."""
    division: Division = UNDIVIDED
    """Places the parts that request domains."""

    def without(self, nodes: Set[str]) -> "GangQuestion":
        """The same question with these nodes out of the question as well."""
        if not nodes:
            return self
        return replace(
            self, gang=_without(self.gang, nodes), parts=tuple(_without(p, nodes) for p in self.parts)
        )

    @property
    def question_key(self) -> Hashable:
        """The inputs of the answer, without names: gangs with the same question find the same capacity.

        Ranks matter to slices only.
        """
        # With rules on other pods, capacity may also grow during a pass.
        own = frozenset(member.name for member in self.gang.members) if self.rules is not None else None
        return (
            _key_without_names(self.gang),
            tuple(map(_key_without_names, self.parts)),
            self.domain_requests,
            own,
        )


def _without(gang: Gang, nodes: Set[str]) -> Gang:
    return replace(gang, excluded_nodes=gang.excluded_nodes | nodes)


def _key_without_names(gang: Gang) -> Hashable:
    ranks = tuple(member.rank for member in gang.members) if gang.slices else ()
    classes = frozenset(Counter(member.pod_class for member in gang.members).items())
    topology = gang.required_level, gang.preferred_levels, gang.slices, gang.spread
    return classes, ranks, topology, gang.anchors, gang.excluded_nodes


def question(
    gang: PodGang,
    pods: Iterable[Pod],
    placed_on: Mapping[str, str],
    avoid: frozenset[str] = frozenset(),
    class_of: ClassOf = convert.pod_class_of,
    is_ours: Callable[[Pod], bool] = lambda _: False,
    near: Neighbourhood | None = None,
) -> GangQuestion:
    """Ask for places for `pods` and for those not created yet; the gang's other pods anchor them.

    CPU-only pods among them are left out, see core_questions.beside.

    class_of: the request of a pod, see View.class_of. is_ours: whether topogate placed a pod. near: the pods
    that have a node, None where no pod has rules on other pods. placed_on: uid -> node of the members that
    have a node already. avoid: nodes that are not to be used. Raises PlacementError for a gang that cannot be
    placed as it is written.
    """
    if gang.fault:
        raise PlacementError(gang.fault)
    own = {pod.metadata.uid for pod in gang.workers}
    by_name = {pod.metadata.uid: pod for pod in pods if pod.metadata.uid in own}

    def ask(some: PodGang, excluded: frozenset[str], *, alone: bool) -> Gang:
        return _asked(some, by_name, placed_on, avoid | excluded, class_of, is_ours, alone=alone)

    rules = _rules(gang, (*by_name.values(), *gang.later), near) if near is not None else None
    whole = ask(gang, frozenset(), alone=False)
    if not gang.parts:
        return GangQuestion(whole, by_name, rules=rules)
    asked = GangQuestion(whole, by_name, rules=rules, division=gang.division)
    parts = (
        (ask(_only(gang, part), part.excluded_nodes, alone=part.request is not None), part.request)
        for part in gang.parts
    )
    return _in_parts(asked, parts)


def _asked(
    gang: PodGang,
    pods: Mapping[str, Pod],
    placed_on: Mapping[str, str],
    avoid: frozenset[str],
    class_of: ClassOf,
    is_ours: Callable[[Pod], bool],
    *,
    alone: bool,
) -> Gang:
    """A gang, or a pod set of one, as the placement core sees it. pods: by uid, those that wait, of all sets.

    alone: whether it shares a domain with no other gang, so that each of its placed pods counts.
    """
    own = {pod.metadata.uid for pod in gang.workers}
    waiting = [pod for uid, pod in pods.items() if uid in own]
    gang, size = numbered_by_slices(gang, is_new=own.isdisjoint(placed_on)) if gang.slices else (gang, 0)
    members = members_of(gang, (*waiting, *gang.later), class_of)
    if not gang.parts:
        over = frozenset[str]().union(*map(gang.division.own_labels, gang.pods))
        members, closed = _homogeneous_in_one_domain(members, over)
        avoid |= closed
    anchoring = gang.workers if alone else _anchoring(gang, members, is_ours)
    asked = Gang(
        str(gang.key),
        members,
        required_level=gang.required_level,
        preferred_levels=gang.preferred_levels,
        anchors=_anchors(gang, anchoring, placed_on),
        excluded_nodes=avoid,
        spread=gang.spread,
    )
    return with_slices(asked, gang, size) if gang.slices and members else asked


def _anchors(gang: PodGang, pods: Iterable[Pod], placed_on: Mapping[str, str]) -> tuple[Anchor, ...]:
    uids = (pod.metadata.uid for pod in pods)
    return tuple(Anchor(placed_on[uid], gang.ranks.get(uid)) for uid in uids if uid in placed_on)


def _in_parts(asked: GangQuestion, parts: Iterable[tuple[Gang, DomainRequest | None]]) -> GangQuestion:
    """The question with those of its pod sets that ask for something, if only for their anchors."""
    asking = [
        (part, request) for part, request in parts if part.members or (request is not None and part.anchors)
    ]
    if len(asking) == 1 and asking[0][1] is None:
        return replace(asked, gang=asking[0][0])
    return replace(
        asked,
        parts=tuple(part for part, _ in asking),
        domain_requests=tuple(request for _, request in asking),
    )


def members_of(gang: PodGang, pods: Iterable[Pod], class_of: ClassOf) -> tuple[Member, ...]:
    """Some pods of a gang as the placement core sees them."""
    ranks = gang.ranks
    return tuple(
        Member(uid, ranks.get(uid), class_of(pod), pod.metadata.name, role_of(pod))
        for uid, pod in ((pod.metadata.uid, pod) for pod in pods)
    )


def _homogeneous_in_one_domain(
    members: tuple[Member, ...], over: frozenset[str]
) -> tuple[tuple[Member, ...], frozenset[str]]:
    """The members of a gang that has domains of these labels to itself, and nodes that it may not use.

    A domain that one of them may not use is excluded for all. Often only the leader states this; it would
    otherwise be of another class than the workers, and their ranks would not follow the topology.
    """
    names = {f"pod {rule} over {key}" for key in over for rule in ("affinity", "anti-affinity")}
    closed: set[str] = set()
    made = []
    for member in members if names else ():
        rules = member.pod_class.rules
        closed.update(*(nodes for name, nodes in rules.exclusions if name in names))
        left = tuple(each for each in rules.exclusions if each[0] not in names)
        made.append(
            replace(member, pod_class=replace(member.pod_class, rules=replace(rules, exclusions=left)))
        )
    return tuple(made) if names else members, frozenset(closed)


def _rules(gang: PodGang, pods: Iterable[Pod], near: Neighbourhood) -> Acceptance | None:
    """The rules of some of its pods on other pods; None if its own domains meet all of them."""
    members = {pod.metadata.uid: pod for pod in pods}
    if not any(near.rules_of(pod).over - gang.division.own_labels(pod) for pod in members.values()):
        return None
    return Acceptance(near, members) or None


def _only(gang: PodGang, part: GangPart) -> PodGang:
    """A part of a gang as a gang."""

    def mine(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if pod.metadata.uid in part.uids)

    return replace(
        gang,
        gated=mine(gang.gated),
        released=mine(gang.released),
        later=mine(gang.later),
        size=None,
        ranks={uid: rank for uid, rank in gang.ranks.items() if uid in part.uids},
        required_level=part.required_level or gang.required_level,
        preferred_levels=part.preferred_levels,
        slices=part.slices,
        parts=(),
    )


def _anchoring(gang: PodGang, members: Iterable[Member], is_ours: Callable[[Pod], bool]) -> Iterator[Pod]:
    """The members near which the waiting ones are placed: those that we hold, planned or released.

    CPU-only pods attract no others. A pod that topogate did not place is wherever kube-scheduler put it: a
    head or driver without GPU, perhaps on a node without topology labels, and nothing needs to be near it.
    But a gang may also have begun before topogate was installed, so a foreign pod counts if it takes some of
    the extended resources (GPUs, cards) that the waiting members ask for.
    """
    wanted = {name for member in members for name in _extended(member.pod_class)}
    gated = {pod.metadata.uid for pod in gang.gated}
    for pod in gang.workers:
        if pod.metadata.uid in gated or is_ours(pod) or wanted & _extended(convert.pod_class_of(pod)):
            yield pod


def _extended(pod_class: PodClass) -> frozenset[str]:
    """The extended resources of a request: those with a domain in their name, such as nvidia.com/gpu."""
    names = (name for name, _ in pod_class.requests)
    return frozenset(name for name in names if "/" in name and "kubernetes.io/" not in name)


def is_enough_free(wanted: Iterable[PodClass], nodes: Iterable[NodeState]) -> bool:
    """Whether nodes have, all together, as many GPUs free as pods of these classes request."""
    requested, free = Counter[str](), Counter[str]()
    for pod_class in wanted:
        requested.update({name: amount for name, amount in pod_class.requests if "/" in name})
    for state in nodes:
        free.update({name: max(0, state.free.get(name, 0)) for name in requested})
    return all(free[name] >= amount for name, amount in requested.items())


def in_order(answer: Assignment, rules: Acceptance) -> Assignment | None:
    """The answer with its members in the order of release; None if it breaks a rule."""
    placed = {each.member: each for each in answer.placed}
    ordered, reason = rules.order([(each.member, each.node) for each in answer.placed])
    return None if reason else replace(answer, placed=tuple(placed[name] for name in ordered))


def domains_of(snapshot: Snapshot, names: Set[str]) -> tuple[int, ...]:
    """How many domains of each level these nodes are in, coarsest first, and how many nodes they are."""
    levels = len(snapshot.topology.level_names)
    paths = {place_of(snapshot.nodes[name], levels) for name in names}
    return (*(len({path[: level + 2] for path in paths}) for level in range(levels)), len(names))


def together(gang: Gang, found: Sequence[Assignment], snapshot: Snapshot) -> Assignment:
    """One answer from those of all pod sets. Its objective has only the domains: each set has its own."""
    placed = {each.member: each for answer in found for each in answer.placed}
    topology = snapshot.topology
    names = {each.node for each in placed.values()}
    domains = domains_of(snapshot, names)
    objective = Objective(domains, 0, (0,) * len(domains), 0)
    order = tuple(placed[member.name] for member in gang.members)
    return Assignment(order, objective, False, topology.spread(domains, families_of(snapshot, names)))


def broken(gang: Gang, rules: Acceptance, snapshot: Snapshot) -> NoFit:
    """The answer for a gang that has capacity, but none that was found to keep its rules."""
    names = {reason for kind in rules.classes for reason in kind.names}
    sentence = (
        f"Gang {gang.name} is not placed: there is capacity for {counted(len(gang.members), 'pod')}, but no "
        f"placement was found that also keeps their rules on other pods ({', '.join(sorted(names))})."
    )
    return NoFit(sentence, len(gang.members), 0, len(snapshot.nodes), {}, proven=False)
