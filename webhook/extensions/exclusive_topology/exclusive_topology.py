"""The extension for exclusive topology: the questions to the placement core for such gangs. Pure.

A whole gang may need one domain, or each of its groups one, or both. Domains of other owners are excluded;
see domain_owners.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Final

from webhook.extensions.exclusive_topology.domain_owners import ASKED, Others, label_of, lost_domains
from webhook.extensions.exclusive_topology.domain_search import Group, lay
from webhook.grouping import grouped
from webhook.kube.objects import Pod
from webhook.placement import Budget, Gang, NoFit, Options, PlacementError, Snapshot, Topology
from webhook.sweeper.decide.core_questions import DividedGang, DivisionInput, outside
from webhook.sweeper.extension import Extension, HookInput, PlanCheck
from webhook.sweeper.observe.gang_requests import Division, DomainLayout, GangPart, in_order
from webhook.sweeper.observe.gangs import SPREAD_PARTS, PodGang
from webhook.text import counted, few, joined, printable
from webhook.workloads import marks
from webhook.workloads.own_domains import DomainRequest, domain_requests_of, is_of_a_set, own_domain_labels

_TRIED: Final = 64
"""The most domains that are tried in a pass for a label that is not a level."""


class ExclusiveDivision(Division):
    """A gang with pods that need exclusive domains, or that other owners' domains exclude."""

    def __init__(self, gang: PodGang, given: DivisionInput) -> None:
        """gang: divided into its pod sets."""
        self._gang = gang
        self._given = given

    @cached_property
    def others(self) -> Others:
        """The pods of other owners, and of the gang itself."""
        return Others(self._gang, self._given.view, self._given.plans)

    def own_labels(self, pod: Pod) -> frozenset[str]:
        return own_domain_labels(pod)

    def place_groups(
        self,
        groups: Sequence[tuple[Gang, DomainRequest]],
        snapshot: Snapshot,
        options: Options,
        budget: Budget,
    ) -> DomainLayout | NoFit:
        return lay([Group(*each) for each in groups], snapshot, options, budget)

    def excluded_beside(self, placed: Mapping[str, str]) -> frozenset[str]:
        """Nodes in the domains of its own Jobs, and in those of others."""
        closed = self.others.shut()
        for pod in self._gang.workers:
            for request in _of_jobsets(domain_requests_of(pod)):
                node = placed.get(pod.metadata.uid, "")
                domain = label_of(self._given.view, node, request.over)
                closed |= self.others.in_domains(request.over, {domain} - {""})
        return closed

    def domains(self, placed: Mapping[str, str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        grouped = any(part.request is not None for part in self._gang.parts)
        for pod in (*self._gang.pods, *self._gang.later):
            node = placed.get(pod.metadata.uid, "")
            for request in domain_requests_of(pod) if node else ():
                domain = label_of(self._given.view, node, request.over)
                group = request.group if grouped else ""
                if domain and domain <= found.get(group, domain):
                    found[group] = domain
        return found


def divide_gang(given: DivisionInput) -> DividedGang:
    """The gang, with one variant unless it needs one domain of a label that is not a level.

    The domains of such a label are tried one by one, smallest first; if there are too many, only the largest
    ones. Raises PlacementError for an unknown level, and for different requests in one domain.
    """
    gang = given.gang
    if gang.fault or not any(map(is_of_a_set, gang.pods)):
        return DividedGang(gang)
    gang = _in_parts(gang)
    division = ExclusiveDivision(gang, given)
    gang = replace(gang, division=division)
    requests = {request for pod in gang.pods for request in domain_requests_of(pod)}
    grouped = {part.request for part in gang.parts if part.request is not None}
    if grouped:
        return _in_groups(gang, grouped, requests, division.others, given.topology)
    if requests:
        return _as_one(gang, min(requests), division.others, given.topology)
    is_excluded = any(map(is_of_a_set, gang.gated[:ASKED]))
    return DividedGang(gang, (outside(division.others.shut() if is_excluded else frozenset()),))


def explain(given: HookInput, gang: PodGang) -> Iterator[str]:
    """A line for each label whose domains a gang needs: its own domains, and those of others."""
    try:
        gang = gang if gang.fault else _in_parts(gang)
    except PlacementError:
        return  # the answer reports it
    others = Others(gang, given.view, ())
    requests = {request for pod in (*gang.pods, *gang.later) for request in domain_requests_of(pod)}
    for over, wanted in sorted(grouped((request.over, request) for request in requests).items()):
        own = set[str]().union(*map(others.here, wanted))
        taken = set[str]().union(*map(others.taken_by, wanted)) - own
        label = printable(over)
        domains = counted(len(wanted), f"domain of {label}", f"domains of {label}")
        there = " and ".join(filter(None, (_named("it has", own), _named("others have", taken))))
        yield f"Exclusive topology: it needs {domains} to itself; {there or 'none is taken yet'}."


def _named(whose: str, domains: Set[str]) -> str:
    """An owner and its domains, the first ones by name; "" without domains."""
    return f"{whose} {few(sorted(domains))}" if domains else ""


def _in_parts(gang: PodGang) -> PodGang:
    """The gang with a part for each group that needs a domain. Raises PlacementError, see divide_gang."""
    requests = _requests_of_groups([*gang.workers, *gang.later])
    if not any(requests.values()):
        return gang
    whole = GangPart(frozenset(requests), gang.required_level, gang.preferred_levels, gang.slices)
    found: list[GangPart] = []
    for part in gang.parts or (whole,):
        uids = grouped((requests.get(uid), uid) for uid in part.uids)
        found += (replace(part, uids=frozenset(of), request=request) for request, of in uids.items())
    requested = [part.request for part in found if part.request is not None]
    if len(set(requested)) < len(requested):
        raise PlacementError("the pods of one exclusive domain name different levels or slices")
    if gang.spread is not None:
        raise PlacementError(SPREAD_PARTS)
    return replace(gang, parts=in_order(found), required_level=None, preferred_levels=(), slices=())


def _requests_of_groups(pods: Sequence[Pod]) -> dict[str, DomainRequest | None]:
    """uid -> the request of a pod's group; None for all, if the whole gang shares one request."""
    requests = {
        pod.metadata.uid: next((request for request in domain_requests_of(pod) if request.group), None)
        for pod in pods
    }
    return dict.fromkeys(requests) if len(set(requests.values())) == 1 else requests


def _as_one(
    gang: PodGang, request: DomainRequest, others: Others, topology: Topology, more: str = ""
) -> DividedGang:
    """The gang in one domain. more: a further note."""
    view, key = others.view, request.over
    here, taken = others.here(request), others.taken_by(request)
    domains = view.domains_of(view.nodes).by_value(key)
    open_ = domains.keys() & here if here else domains.keys() - taken
    open_ -= {""}
    note = joined("" if here else _taken_note(key, taken), more)
    everywhere = frozenset(view.nodes)
    level = _level(gang, key, topology)
    if level is not None and not gang.parts:
        closed = everywhere.difference(*(domains[value] for value in open_))
        return DividedGang(replace(gang, required_level=level), (outside(closed, note),))
    ordered = sorted(open_, key=lambda value: (len(domains[value]), value))
    closed_to_each = [everywhere.difference(domains[value]) for value in ordered[-_TRIED:]]
    return DividedGang(gang, tuple(outside(closed, note) for closed in closed_to_each or [everywhere]))


def _in_groups(
    gang: PodGang,
    grouped: set[DomainRequest],
    requests: set[DomainRequest],
    others: Others,
    topology: Topology,
) -> DividedGang:
    """The gang with a domain for each group, all within one larger domain if it requests that too."""
    taken_by_label: dict[str, set[str]] = {}
    jobset = next(_of_jobsets(grouped), None)
    shut = others.shut()
    parts = (
        replace(part, excluded_nodes=_closed_to(part, jobset, others, shut, taken_by_label))
        for part in gang.parts
    )
    gang = replace(gang, parts=tuple(parts))
    all_notes = "; ".join(
        filter(None, (_taken_note(over, taken) for over, taken in sorted(taken_by_label.items())))
    )
    whole = min((request for request in requests if not request.group), default=None)
    if whole is None:
        return DividedGang(gang, (outside(frozenset(), all_notes),))
    return _as_one(gang, whole, others, topology, all_notes)


def _closed_to(
    part: GangPart,
    jobset: DomainRequest | None,
    others: Others,
    shut: frozenset[str],
    taken_by_label: dict[str, set[str]],
) -> frozenset[str]:
    """The nodes that are closed to the pods of a part. shut: those closed to the whole gang.

    jobset: a request whose domains are closed even to pods without a request. taken_by_label: filled with the
    domains of others, by label.
    """
    request = part.request if part.request is not None else jobset
    if request is None:
        return shut
    if part.request is not None and (here := others.here(request)):
        return frozenset(others.view.nodes) - others.in_domains(request.over, here)
    taken = others.taken_by(request)
    taken_by_label.setdefault(request.over, set()).update(taken)
    unlabelled = {""} if part.request is not None else set[str]()
    return shut | others.in_domains(request.over, taken | unlabelled)


def _of_jobsets(requests: Iterable[DomainRequest]) -> Iterator[DomainRequest]:
    """The first JobSet request: its domains are closed to all other pods of the gang too."""
    yield from sorted(request for request in requests if request.rule == marks.JOBSET_EXCLUSIVE)[:1]


def _level(gang: PodGang, key: str, topology: Topology) -> str | None:
    """The level that the whole gang shares a domain of: the label's, or a finer one that it requires.

    None if the label is not a level. Raises PlacementError if the gang requires an unknown level.
    """
    try:
        level = topology.level(key)
    except PlacementError:
        return None
    required = gang.required_level
    return required if required is not None and topology.level(required) > level else key


def _taken_note(key: str, taken: set[str]) -> str:
    return f"it needs an exclusive domain of {key}, and {_named('others have', taken)}" if taken else ""


class ExclusiveTopology(Extension):
    """Gives gangs topology domains to themselves."""

    name = "exclusive_topology"

    def check_plans(self, given: HookInput) -> PlanCheck:
        """Drop plans whose domains others have taken, for example while their nodes were not ready."""
        return PlanCheck(invalid=lost_domains(given.view, given.sent))

    def divide_gang(self, given: DivisionInput) -> DividedGang:
        """The gang with the domains that it may have to itself."""
        return divide_gang(given)

    def explain(self, given: HookInput, gang: PodGang) -> Iterator[str]:
        """The domains that the gang needs, and those of others."""
        return explain(given, gang)


EXCLUSIVE_TOPOLOGY: Final = ExclusiveTopology()
