"""Jobs and groups that have a domain of their own: in one domain each, and none of it shared. Pure.

JobSet and LeaderWorkerSet ask for it by an annotation that names a node label, and have their own webhooks
write affinity and node selectors that say the same to kube-scheduler, which knows domains by the label's
value alone. That affinity is heeded, whoever wrote it and whom it keeps out: also Jobs and groups that want
no domain of their own. Beside it, whose domains count as taken follows the same rules: of JobSets all, of
LeaderWorkerSets those of the same namespace. The annotation alone, which anybody may write, is believed
within its namespace; a domain is another namespace's only if the affinity of either says so to kube-scheduler
as well, as what a JobSet makes does.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.placement import PlacementError, Topology
from webhook.sweeper.decide.domains import Others, label_of
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.decide.replicas import beside_replicas
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import Claim, claims_of, is_of_a_set
from webhook.sweeper.observe.view import View
from webhook.text import joined
from webhook.workloads import marks

_TRIED: Final = 64
"""Domains of a label that is no level which are tried in a pass."""

_ASKED: Final = 8
"""Members of a gang by which it is told whether they are of a set."""

_NAMED: Final = 3
"""Domains that a sentence names."""


@dataclass(frozen=True)
class Ask:
    """What an exclusive gang is asked about: the gang, nodes where it may not be, and a sentence on these."""

    gang: PodGang
    closed: frozenset[str] = frozenset()
    told: str = ""


def asks(gang: PodGang, view: View, plans: Iterable[NewPlan], topology: Topology) -> Iterator[Ask]:
    """The questions for a gang, of which the first with an answer counts: one, unless its label is no level.

    Each knows where other replicas of its owner are, see beside_replicas. Parts that want domains to
    themselves know what others have, see apart.

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


def closed_to_companions(
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
    domains: dict[str, set[str]] = {}
    for name in view.nodes:
        domains.setdefault(label_of(view, name, key), set()).add(name)
    open_ = {value for value in domains if value and (value in here if here else value not in taken)}
    told = _told(key, taken) if not here else ""
    level = _level(gang, key, topology)
    if level is not None and not gang.parts:
        closed = frozenset[str]().union(*(nodes for value, nodes in domains.items() if value not in open_))
        yield Ask(replace(gang, required_level=level), closed, told)
        return
    everywhere = frozenset(view.nodes)
    ordered = sorted(open_, key=lambda value: (len(domains[value]), value))
    if not ordered:
        yield Ask(gang, everywhere, told)
    for value in ordered[-_TRIED:]:
        yield Ask(gang, everywhere - domains[value], told)


def _in_groups(
    gang: PodGang, grouped: set[Claim], claims: set[Claim], others: Others, topology: Topology
) -> Iterator[Ask]:
    """Groups with a domain each; all of them in one domain of a larger kind, if the gang claims that too."""
    told: dict[str, set[str]] = {}
    parts = []
    shut = others.shut()
    for part in gang.parts:
        own = frozenset({part.claim} if part.claim is not None else _of_jobsets(grouped))
        closed = shut
        for claim in own:
            here = others.here(claim) if part.claim is not None else set()
            if here:
                closed = frozenset(others.view.nodes) - others.in_domains(claim.over, here)
                continue
            taken = others.taken_by(claim)
            told.setdefault(claim.over, set()).update(taken)
            closed |= others.in_domains(claim.over, taken | ({""} if part.claim is not None else set()))
        parts.append(replace(part, closed=closed))
    gang = replace(gang, parts=tuple(parts))
    said = "; ".join(filter(None, (_told(over, taken) for over, taken in sorted(told.items()))))
    whole = min((claim for claim in claims if not claim.group), default=None)
    if whole is None:
        yield Ask(gang, told=said)
        return
    for each in _as_one(gang, whole, others, topology):
        yield replace(each, told=joined(each.told, said))


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


def _told(key: str, taken: set[str]) -> str:
    if not taken:
        return ""
    names = sorted(taken)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"it wants a domain of {key} of its own, and others have {', '.join(names[:_NAMED])}{more}"
