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

from webhook.placement import PlacementError, Topology
from webhook.sweeper.decide.domains import here_and_taken, label_of, rule_of
from webhook.sweeper.decide.orders import NewPlan
from webhook.sweeper.decide.replicas import beside_replicas
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View

_TRIED: Final = 64
"""Domains of a label that is no level which are tried in a pass."""

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

    Each knows where other replicas of its owner are, see beside_replicas.

    plans: made in this pass. Labels that are no level of ours are tried domain by domain, small ones first;
    of very many the largest. There is one question at least. Raises PlacementError for one in parts.
    """
    gang = beside_replicas(gang, view, plans)
    rule = next(filter(None, map(rule_of, gang.pods)), None)
    if rule is None:
        yield Ask(gang)
        return
    if gang.parts:
        raise PlacementError("a gang with a domain of its own is in one part; its pods name unlike levels")
    key = rule[2]
    here, taken = here_and_taken(gang, rule, view, plans)
    domains: dict[str, set[str]] = {}
    for name in view.nodes:
        domains.setdefault(label_of(view, name, key), set()).add(name)
    open_ = {value for value in domains if value and (value in here if here else value not in taken)}
    told = _told(key, taken) if not here else ""
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
