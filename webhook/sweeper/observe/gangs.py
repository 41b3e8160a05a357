"""The gangs: their pods in order of rank, their expected size, and their requests."""

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final

from labeler.contract import keys
from webhook.grouping import grouped
from webhook.identity_cache import IdentityCache
from webhook.kube.annotation_lengths import NEVER_SHORTENED, is_too_long
from webhook.kube.events import shortened
from webhook.kube.objects import Pod
from webhook.placement import PlacementError, Slice, Spread
from webhook.sweeper.observe.gang_requests import (
    UNDIVIDED,
    Division,
    GangPart,
    common_value,
    minimum_of,
    parts_of,
    size_of,
    spread_of,
    stated_size,
)
from webhook.sweeper.observe.lost_owners import LostOwners, lost_owners
from webhook.sweeper.observe.membership import GangKey as GangKey
from webhook.sweeper.observe.membership import LostOwner, controller_of, cpu_pods, has_owners, made_by
from webhook.sweeper.observe.membership import key_of as key_of
from webhook.text import counted, printable
from webhook.workloads import native_gangs
from webhook.workloads.pod_sets import (
    MOST_PODS,
    MissingPods,
    PodPositions,
    PodSets,
    asks_for_devices,
    missing_pods,
    pod_count,
)
from webhook.workloads.ranks import ranks_by_uid
from webhook.workloads.shared_gangs import controller_name, why_alone, why_wrongly_shared

SPREAD_PARTS: Final = f"{keys.SPREAD_TOPOLOGY_ANNOTATION} needs one level for all pods of the gang"

OWN_ERROR: Final = "an error of topogate's own; see the sweeper's log"

_CUT: Final = "its pods are planned as they are created: too many are missing to plan all of them"

_PROBLEMS: Final = 5
"""Problems of one gang that its reason names."""

_MOST_LATER: Final = 20_000
"""At most this many pods of all gangs are planned in a pass before they exist."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnerFacts:
    """What a gang's controller states: how many pods it creates, which, and whether some come later.

    sets: the pods that run at the same time, of a staged gang whose controller describes them. is_cut: they
    are left out, since they are too many to be planned before they exist. blocked: returns when the
    controller last reported that it cannot create a pod, and why; "" if never. It is asked for gangs that
    lack pods only. devices: returns whether any pod of the gang asks for an extended resource, None if
    unknown. It is asked for gangs only of which no existing pod does. failed: takes the existing pods, and
    returns how many have failed of one Job that lacks pods, the most among the gang's Jobs. It is asked for
    gangs that lack pods only. controllers: "Kind/name" of those whose pods others have grouped, and made: how
    many pods they create, as far as is known. missing: the sentence on the object that states the size and
    does not exist, "" otherwise. described: all pods that its only controller creates over time, () if it
    does not describe them.
    """

    size: int | None = None
    staged: bool = False
    sets: PodSets = ()
    minimum: int | None = None
    blocked: Callable[[], tuple[str, str]] = lambda: ("", "")
    is_cut: bool = False
    devices: Callable[[], bool | None] = lambda: None
    failed: Callable[[Sequence[Pod]], int] = lambda pods: 0
    controllers: tuple[str, ...] = ()
    made: int = 0
    missing: str = ""
    described: PodSets = ()

    @property
    def problems(self) -> list[str]:
        """Facts to show to the user."""
        return [_CUT] if self.is_cut or (self.staged and (self.size or 0) > MOST_PODS) else []


@dataclass(frozen=True)
class PodGang:
    """A gang as it is now: its gated pods and those that were released, both in the order of rank.

    size: the expected number of pods, None if unknown; a staged gang gets the later ones only once the
    earlier run. ranks: a pod's uid -> its rank, where every pod has one. slices: the largest first.
    problems: sentences for the user. fault: why the gang cannot be placed as it is written, "" if it can.
    later: pods of a staged gang that are created once its present ones run. is_stage_complete: no more
    pods come before these run. minimum: how many are enough to run, while the others join as capacity
    comes; None where all are needed. blocked_reason: why its controller cannot create the missing pods,
    "" if it reports nothing. failed: how many pods have failed of one Job that lacks pods, 0 without such
    a Job. parts: the pod sets that ask for different levels or slices, () where all pods ask for the
    same: then levels and slices are those of the gang. cpu_pods: uids of pods without GPUs that are
    placed beside the others. alone: whether the gang has no other pods, and will have none. division: how
    an extension has divided it. lost_owner: the controller without which none of its gated pods is
    placed, None if all controllers exist. wrongly_shared: why these pods should not be one gang, or why
    this pod is in none, "" if that is right. left: why its pods are left to kube-scheduler, "" if they are
    not. described: see OwnerFacts.
    """

    key: GangKey
    gated: tuple[Pod, ...]
    released: tuple[Pod, ...]
    size: int | None = None
    staged: bool = False
    ranks: Mapping[str, int] = field(default_factory=dict)
    required_level: str | None = None
    preferred_levels: tuple[str, ...] = ()
    slices: tuple[Slice, ...] = ()
    spread: Spread | None = None
    problems: tuple[str, ...] = ()
    fault: str = ""
    later: tuple[Pod, ...] = ()
    is_stage_complete: bool = False
    minimum: int | None = None
    blocked_reason: str = ""
    failed: int = 0
    parts: tuple[GangPart, ...] = ()
    cpu_pods: frozenset[str] = frozenset()
    alone: bool = False
    division: Division = UNDIVIDED
    lost_owner: LostOwner | None = None
    wrongly_shared: str = ""
    left: str = ""
    described: PodSets = ()

    @property
    def workers(self) -> tuple[Pod, ...]:
        """Its pods without CPU-only pods: those whose places are optimized."""
        if not self.cpu_pods:
            return self.pods
        return tuple(pod for pod in self.pods if pod.metadata.uid not in self.cpu_pods)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All members."""
        return self.gated + self.released

    @property
    def lacks_pods(self) -> bool:
        """Whether fewer pods are there than it needs to run, as far as is known."""
        return _lacks_pods(self.pods, self.size, self.minimum)

    @cached_property
    def controller(self) -> GangKey:
        """Whose failures count for it, see controller_of."""
        return controller_of(self.pods[0], self.key)

    @cached_property
    def priority(self) -> int:
        """Its priority: the lowest of the gated members that ask for what the gang waits for.

        These are extended resources, such as GPUs, where any gated member asks for some. Other pods do not
        count: a running pod or a launcher does not lend its PriorityClass to those that wait.
        """
        return urgency(self.gated)

    @cached_property
    def created(self) -> str:
        """When its oldest member was created (RFC 3339, which sorts as text)."""
        return min((pod.metadata.creation_timestamp or "" for pod in self.pods), default="")


def gather(
    gated: Iterable[Pod],
    released: Iterable[Pod],
    ask_owner: Callable[[GangKey], OwnerFacts],
    member_of: Callable[[Pod], GangKey] = key_of,
    make: Callable[[GangKey, Sequence[Pod], Sequence[Pod], OwnerFacts], PodGang] | None = None,
    lost_owner: Callable[[Pod], LostOwner | None] = has_owners,
) -> list[PodGang]:
    """All gangs that have one of these gated pods, see gather_groups. member_of: the gang of a pod."""
    waiting, mates = (grouped((member_of(pod), pod) for pod in pods) for pods in (gated, released))
    lost = lost_owners((*waiting.values(), *mates.values()), lost_owner)
    return gather_groups(waiting, mates, ask_owner, make or gang_of, lost)


def gather_groups(
    waiting: Mapping[GangKey, Sequence[Pod]],
    mates: Mapping[GangKey, Sequence[Pod]],
    ask_owner: Callable[[GangKey], OwnerFacts],
    make: Callable[[GangKey, Sequence[Pod], Sequence[Pod], OwnerFacts], PodGang],
    lost: LostOwners,
    start_with_fewer: bool = False,
) -> list[PodGang]:
    """All gangs that have a gated pod, ordered by priority, then age, then name.

    A pod that is being deleted takes capacity until it is gone, but is no member: its successor is. Nor is a
    pod without controller: such pods are a gang only to say so, where the gang has no others. waiting, mates:
    the gated pods of each gang, and the released ones. ask_owner: returns the facts of a gang's controller.
    make: see gang_of. lost: of all of them. start_with_fewer: see Settings.
    """
    by_key: dict[GangKey, tuple[Sequence[Pod], Sequence[Pod]]] = {}
    gangs: list[PodGang] = []
    for key, pods in waiting.items():
        gated = _members(pods, lost.by_uid)
        if gated:
            by_key[key] = gated, _members(mates.get(key, ()), lost.by_uid)
        elif left := [pod for pod in pods if not pod.metadata.deletion_timestamp]:
            gangs.append(PodGang(key, tuple(left), (), lost_owner=lost.by_uid[left[0].metadata.uid]))
    owners = _bounded(
        {key: _facts_of(key, map(lost.one_of_each, each), ask_owner) for key, each in by_key.items()}
    )
    gangs += (make(key, *members, owners[key]) for key, members in by_key.items())
    if start_with_fewer:
        gangs = [replace(each, minimum=len(each.pods)) if each.blocked_reason else each for each in gangs]
    return sorted(gangs, key=by_age)


def _members(pods: Sequence[Pod], lost: Container[str]) -> Sequence[Pod]:
    """Those that are not being deleted, and have a controller; the same object where these are all."""
    found = [pod for pod in pods if not pod.metadata.deletion_timestamp and pod.metadata.uid not in lost]
    return pods if len(found) == len(pods) else found


def _facts_of(
    key: GangKey, members: Iterable[Sequence[Pod]], ask_owner: Callable[[GangKey], OwnerFacts]
) -> OwnerFacts:
    """The facts of a gang's controller; where others group its pods, with the stages of their controllers.

    A StatefulSet creates its pods one by one, also where Kueue writes their total on each of them. To wait
    for all of them would be a deadlock. kube-scheduler itself waits for those of its own PodGroups.
    """
    facts = ask_owner(key)
    if key.kind not in _GROUPED_BY_OTHERS or key.id.startswith(f"{native_gangs.GROUP}/"):
        return facts
    controllers = {controller: pod for pod in chain(*members) if (controller := made_by(pod)) is not None}
    names = {
        controller_name(pod, controller.kind, controller.name) for controller, pod in controllers.items()
    }
    asked = {controller: ask_owner(controller) for controller in controllers}
    made = sum(own.size or 0 for controller, own in asked.items() if controller.kind in _OF_ONE_TEMPLATE)
    return _with_stages(replace(facts, controllers=tuple(sorted(names)), made=made), list(asked.values()))


def _with_stages(facts: OwnerFacts, controllers: Sequence[OwnerFacts]) -> OwnerFacts:
    """The facts of a gang with the stages, and the numbers, that the controllers of its pods state."""
    if len(controllers) == 1:
        facts = replace(facts, described=controllers[0].described)
    staged = [own for own in controllers if own.staged]
    if not staged:
        return facts
    sets = staged[0].sets if len(controllers) == 1 else ()
    return replace(facts, staged=True, sets=sets, size=facts.size or (staged[0].size if sets else None))


_OF_ONE_TEMPLATE: Final = ("Job", "StatefulSet")
"""Controllers all of whose pods name one gang, if one does."""

_GROUPED_BY_OTHERS: Final = ("PodGroup", "Gang", "Group")
"""Kinds of gangs that are named by others than the controller of their pods."""


def by_age(gang: PodGang) -> tuple[int, str, GangKey]:
    """Sorts gangs by priority, then by age, then by name."""
    return -gang.priority, gang.created, gang.key


def _bounded(owners: dict[GangKey, OwnerFacts]) -> dict[GangKey, OwnerFacts]:
    """The same gangs; for the largest, only existing pods are planned.

    Any user may create owners: one with many pods, or many owners, must not slow a pass down, nor use up the
    limit for gangs of other namespaces. Those with the fewest pods not yet created take of the limit first.
    """
    counts = {key: count for key, owner in owners.items() if (count := pod_count(owner.sets))}
    taken: dict[str, int] = {}
    positions: list[tuple[int, GangKey]] = []
    for key in sorted(counts, key=lambda each: (counts[each], each)):
        taken[key.namespace] = taken.get(key.namespace, 0) + counts[key]
        positions.append((taken[key.namespace], key))
    left = _MOST_LATER
    for _, key in sorted(positions):
        if counts[key] > min(left, MOST_PODS):
            owners[key] = replace(owners[key], sets=(), is_cut=True)
        else:
            left -= counts[key]
    return owners


def urgency(pods: Sequence[Pod]) -> int:
    """The lowest priority of the pods that ask for extended resources, or of all where none does."""
    counting = [pod for pod in pods if asks_for_devices(pod.spec)] or pods
    return min((pod.spec.priority or 0 for pod in counting), default=0)


def gang_of(key: GangKey, gated: Sequence[Pod], released: Sequence[Pod], owner: OwnerFacts) -> PodGang:
    """The gang of these pods, whatever other gang their labels name."""
    problems = owner.problems
    pods = [*gated, *released]
    missing = missing_pods(owner.sets, pods)
    later = tuple(pod for _, pod in missing.later)
    beside = cpu_pods(pods, bool(later))
    ranks = _ranks(gated, released, beside, missing, owner.described, problems)
    common, parts, spread, fault = _topology_requests([*pods, *later], beside, ranks, problems)
    stated = stated_size(pods, problems)
    size = size_of(key, stated, owner.size)
    fault = fault or (owner.missing if size is None else "")
    wrongly_shared = _why_wrongly_shared(key, len(pods), stated, owner)
    problems += filter(None, [wrongly_shared])
    minimum = minimum_of(pods, size, owner.minimum, problems)
    lacks_pods = _lacks_pods(pods, size, minimum) and not missing.is_stage_complete
    blocked_reason, failed = _missed(pods, size, owner, problems) if lacks_pods else ("", 0)
    return PodGang(
        key,
        _by_rank(gated, ranks),
        _by_rank(released, ranks),
        size=size,
        staged=owner.staged,
        ranks=ranks,
        required_level=common.required_level,
        preferred_levels=common.preferred_levels,
        slices=common.slices,
        spread=spread,
        parts=parts,
        problems=few_problems(problems),
        fault=printable(next(filter(None, map(_too_long, gated)), fault)),
        later=later,
        is_stage_complete=missing.is_stage_complete,
        minimum=minimum,
        blocked_reason=blocked_reason,
        failed=failed,
        cpu_pods=beside,
        alone=len(beside) == len(pods) and not later and owner.devices() is False,
        wrongly_shared=wrongly_shared,
        described=owner.described,
    )


def _why_wrongly_shared(key: GangKey, pods: int, stated: int | None, owner: OwnerFacts) -> str:
    """The sentence on pods that should not be one gang, "" if they may be. Operators group as they like."""
    if key.kind == "Pod":
        return why_alone(stated)
    if key.kind == "Group" or (stated is None and owner.size is not None):
        return ""
    return why_wrongly_shared(stated, max(pods, owner.made), owner.controllers)


def _lacks_pods(pods: Sequence[Pod], size: int | None, minimum: int | None) -> bool:
    enough = size if minimum is None else minimum
    return enough is not None and len(pods) < enough


def _ranks(
    gated: Sequence[Pod],
    released: Sequence[Pod],
    beside: Set[str],
    missing: MissingPods,
    described: PodSets,
    problems: list[str],
) -> dict[str, int]:
    """Ranks by uid, see ranks_by_uid; of CPU-only pods (beside) none needs to have one."""
    ranked = [pod for pod in gated if pod.metadata.uid not in beside]
    others = [*released, *(pod for pod in gated if pod.metadata.uid in beside)]
    return ranks_by_uid(ranked, others, problems, missing.later, PodPositions(described).position)


def _by_rank(pods: Sequence[Pod], ranks: Mapping[str, int]) -> tuple[Pod, ...]:
    def order(pod: Pod) -> tuple[int, str, str]:
        return ranks.get(pod.metadata.uid, 0), pod.metadata.creation_timestamp or "", pod.metadata.name

    return tuple(sorted(pods, key=order))


class GangCache:
    """Makes gangs as gang_of does; an unchanged gang is the same object.

    An error with one gang, by a defect of ours, stops no other: that gang waits, with this reason.
    """

    def __init__(self) -> None:
        self._gangs = IdentityCache[tuple[GangKey, object], PodGang]()
        self._unread: set[GangKey] = set()

    def asking(self, ask_owner: Callable[[GangKey], OwnerFacts]) -> Callable[[GangKey], OwnerFacts]:
        """Asks the same; a gang about which that fails is not placed in this round."""

        def ask(key: GangKey) -> OwnerFacts:
            try:
                return ask_owner(key)
            except Exception:
                logger.exception("owner_failed gang=%s", key)
                self._unread.add(key)
                return OwnerFacts()

        return ask

    def gang_of(
        self, key: GangKey, gated: Sequence[Pod], released: Sequence[Pod], owner: OwnerFacts
    ) -> PodGang:
        """The gang of these pods; see there."""
        try:
            if key not in self._unread:
                return self._gang_of(key, gated, released, owner)
        except Exception:
            logger.exception("gang_failed gang=%s", key)
        return PodGang(key, tuple(gated), tuple(released), fault=OWN_ERROR)

    def _gang_of(
        self, key: GangKey, gated: Sequence[Pod], released: Sequence[Pod], owner: OwnerFacts
    ) -> PodGang:
        if owner.sets:
            return gang_of(key, gated, released, owner)
        known_by = key, (owner.size, owner.staged, owner.minimum, owner.is_cut, owner.made)
        made_of = (*gated, None, *released, owner.described)
        if (known := self._gangs.find(known_by, *made_of)) is not None:
            return known
        gang = gang_of(key, gated, released, owner)
        return gang if _asks_again(gang) else self._gangs.keep(known_by, gang, *made_of)

    def end_pass(self) -> None:
        """Drop the gangs that were not asked for since the last pass."""
        self._gangs.end_pass()
        self._unread = set()


def _asks_again(gang: PodGang) -> bool:
    """Whether more is asked about it than its pods and the owner's figures: complaints, or templates."""
    return gang.lacks_pods or len(gang.cpu_pods) == len(gang.pods)


def _missed(pods: list[Pod], size: int | None, owner: OwnerFacts, problems: list[str]) -> tuple[str, int]:
    """The controller's report, and how many pods have failed; adds to `problems` why pods are missing."""
    blocked_reason, failed = _blocked_reason(pods, owner), owner.failed(pods)
    problems[:0] = _why_lacking(f"{len(pods)} of {size} pods exist", blocked_reason, failed)
    return blocked_reason, failed


def _blocked_reason(pods: list[Pod], owner: OwnerFacts) -> str:
    """The controller's report, unless it has created a pod since then."""
    at, message = owner.blocked()
    newest = max((pod.metadata.creation_timestamp or "" for pod in pods), default="")
    return message if at and at >= newest[: len(at)] else ""


def _why_lacking(there: str, blocked_reason: str, failed: int) -> list[str]:
    """Why a gang's controller has not created all of its pods, as far as is known.

    The Job controller does not report how long it delays the replacements of failed pods, see
    job_delay_seconds.
    """
    reasons = (
        [f"{there}, as its controller cannot create the others: {blocked_reason}"] if blocked_reason else []
    )
    if failed:
        have = "1 pod of one Job has" if failed == 1 else f"{failed} pods of one Job have"
        first = "" if blocked_reason else f"{there}; "
        reasons.append(
            f"{first}{have} failed: the Job controller creates others "
            "10 seconds to 10 minutes after the last failure, later the more have failed"
        )
    return reasons


def _topology_requests(
    pods: Sequence[Pod], beside: Set[str], ranks: Mapping[str, int], problems: list[str]
) -> tuple[GangPart, tuple[GangPart, ...], Spread | None, str]:
    """The common request of a gang; its pod sets, () where all ask for the same; its spread; and its faults.

    beside: CPU-only pods, whose levels and slices do not count. problems: gains sentences for the user.
    """
    parts, fault = _parts([pod for pod in pods if pod.metadata.uid not in beside], ranks, problems)
    spread, spread_fault = _spread(pods, len(parts) > 1, problems)
    fault = fault or spread_fault
    return (parts[0], (), spread, fault) if len(parts) == 1 else (GangPart(frozenset()), parts, spread, fault)


def _parts(
    pods: list[Pod], ranks: Mapping[str, int], problems: list[str]
) -> tuple[tuple[GangPart, ...], str]:
    """The pod sets of a gang, and the faults of their requests."""
    try:
        parts = parts_of(pods)
    except PlacementError as error:
        return (), str(error)
    sliced = next((each.slices[0] for each in parts if each.slices), None)
    if sliced is not None and not ranks:
        problems.append(f"the pods have no ranks: any {sliced.size} of them form a slice")
    return parts, ""


def _spread(pods: Sequence[Pod], has_parts: bool, problems: list[str]) -> tuple[Spread | None, str]:
    """The spread request, and its faults."""
    try:
        spread = spread_of(common_value(pods, keys.SPREAD_TOPOLOGY_ANNOTATION, problems))
        return spread, SPREAD_PARTS if spread and has_parts else ""
    except PlacementError as error:
        return None, str(error)


def _too_long(pod: Pod) -> str:
    """Which annotation of a pod that waits is too long to be used, "" if none is."""
    for key, value in pod.metadata.annotations.items():
        if key in NEVER_SHORTENED and is_too_long(value):
            return f"annotation {key} of pod {pod.metadata.name} is longer than topogate reads: {value}"
    return ""


def few_problems(problems: Sequence[str]) -> tuple[str, ...]:
    """The first ones, each cut to a bounded length, since authors of pods choose their text and number."""
    few = [shortened(printable(problem)) for problem in problems[:_PROBLEMS]]
    left = len(problems) - len(few)
    return (*few, f"and {counted(left, 'more problem')}") if left else tuple(few)
