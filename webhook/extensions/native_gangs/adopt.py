"""Applies PodGroups to gangs, so that kube-scheduler can bind each group as planned. Pure.

kube-scheduler binds no pod of a group before the PodGroup exists and has minCount pods, nor across domains of
the group's topology key. So a gang waits until then, and is placed within one domain.

A PodGroup may be in a tree of CompositePodGroups (alpha in Kubernetes 1.37), which kube-scheduler binds as a
whole. Gangs of such PodGroups are left to it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Final

from webhook.extensions.native_gangs.group_constraints import label_problem, leveled
from webhook.extensions.native_gangs.own_pod_groups import GROUPS, collection_of, foreign_groups
from webhook.grouping import grouped
from webhook.kube.objects import Pod
from webhook.sweeper.extension import HookInput
from webhook.sweeper.observe.gangs import OWN_ERROR, GangKey, PodGang, few_problems
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import View
from webhook.text import counted, printable, sentence_list
from webhook.workloads.native_gangs import BINDS_ANY_PRIORITY, NativePodGroup, group_name
from webhook.workloads.pod_group_names import bind_group_of, native_group_of

_NAMED: Final = 3
"""The most groups or gangs that a sentence names."""

_PREEMPTS: Final = "PreemptLowerPriority"
"""The default preemptionPolicy of pods."""

logger = logging.getLogger(__name__)


def complete_gangs(given: HookInput) -> Sequence[PodGang]:
    """The gangs, with the constraints of their PodGroups."""
    there = GROUPS.of(given.view)
    if there is None or not given.view.index.of[PodTrait.OF_A_POD_GROUP]:
        return given.gangs
    groups = _PodGroups(given.view, there)
    problem_of = cache(lambda key: label_problem(key, given.view, given.settings.topology))
    return [_guarded(gang, groups, given, problem_of) for gang in given.gangs]


def pods_not_tried(view: View) -> Mapping[str, str]:
    """uid -> why kube-scheduler tries to bind none of these planned or released pods: their PodGroup.

    It may have been deleted since they were planned, or have got fewer pods.
    """
    there, of = GROUPS.of(view), view.index.of
    if there is None or not of[PodTrait.OF_A_POD_GROUP]:
        return {}
    groups, found = _PodGroups(view, there), dict[str, str]()
    why = cache(lambda namespace, name: _why_not_tried(name, *groups.of(namespace, [name])))
    for uid in of[PodTrait.OF_A_POD_GROUP].keys() & of[PodTrait.UNBOUND].keys():
        pod = view.by_uid[uid]
        name = native_group_of(pod) if view.is_ours(pod) and not pod.metadata.deletion_timestamp else ""
        if name and (sentence := why(pod.metadata.namespace, name)):
            found[uid] = sentence
    return found


def _why_not_tried(name: str, there: Mapping[str, NativePodGroup], members: Mapping[str, "_Members"]) -> str:
    """Why kube-scheduler tries no pod of this PodGroup, "" if it does, or binds a tree that has it."""
    return "" if _left(there) else _missing([name] if name not in there else []) or _lacking(there, members)


@dataclass(frozen=True)
class _Members:
    """The pods of a PodGroup that are not being deleted. gangs: their gangs, sorted."""

    count: int = 0
    gangs: tuple[GangKey, ...] = ()

    def besides(self, gang: GangKey) -> str:
        """The other gangs of the group, the first ones by name; "" if there are none.

        Only a few are examined, since each pod of a group may name its own gang.
        """
        if len(self.gangs) < 2:
            return ""
        others = [each for each in self.gangs[: _NAMED + 1] if each != gang]
        return _few([f"{each.kind}/{each.name}" for each in others], len(self.gangs) - 1)


@dataclass(frozen=True)
class _PodGroups:
    """The PodGroups, by "namespace/name", and the gangs of their pods."""

    view: View
    by_name: Mapping[str, NativePodGroup]

    def of(
        self, namespace: str, names: Iterable[str]
    ) -> tuple[Mapping[str, NativePodGroup], Mapping[str, _Members]]:
        """The existing groups with these names, and the pods of each name."""
        where = {name: f"{namespace}/{name}" for name in names}
        there = {name: self.by_name[key] for name, key in where.items() if key in self.by_name}
        return there, {name: self.members.get(key, _Members()) for name, key in where.items()}

    @cached_property
    def members(self) -> Mapping[str, _Members]:
        """By "namespace/name" of a PodGroup."""
        found = grouped(
            (f"{pod.metadata.namespace}/{group_name(pod.spec)}", self.view.gang_of(pod))
            for pod in self.view.index.of[PodTrait.OF_A_POD_GROUP].values()
            if not pod.metadata.deletion_timestamp
        )
        return {name: _Members(len(gangs), tuple(sorted(set(gangs)))) for name, gangs in found.items()}


def _guarded(
    gang: PodGang, groups: _PodGroups, given: HookInput, problem_of: Callable[[str], str]
) -> PodGang:
    try:
        if taken := _taken(gang, given.view):
            gang = replace(gang, fault=gang.fault or taken)
        names = _names(native_group_of, gang)
        return _adopted(gang, names, groups, given, problem_of) if names else gang
    except Exception:  # one bad gang must not stop the others
        logger.exception("adopt_failed gang=%s", gang.key)
        return replace(gang, fault=OWN_ERROR)


def _adopted(
    gang: PodGang,
    names: Sequence[str],
    groups: _PodGroups,
    given: HookInput,
    problem_of: Callable[[str], str],
) -> PodGang:
    """One gang with the constraints of the PodGroups of its gated pods. names: of these PodGroups."""
    there, members = groups.of(gang.key.namespace, names)
    if left := _left(there):
        return replace(gang, left=left, fault=left)
    fault = gang.fault or _missing([name for name in names if name not in there]) or _lacking(there, members)
    if fault:
        return replace(gang, fault=fault)
    gang, problems = leveled(gang, there, given.settings.topology)
    keys = sorted({key for group in there.values() for key in group.topology_keys})
    problems = [*problems, *filter(None, map(problem_of, keys)), *_shared(gang, members)]
    problems += _priority_problems(gang, there, given.view)
    minimum, problem = _minimum(gang, there, members)
    return replace(gang, minimum=minimum, problems=(*gang.problems, *few_problems([*problems, *problem])))


def _left(groups: Mapping[str, NativePodGroup]) -> str:
    """Why a gang of these PodGroups is left to kube-scheduler, "" if it is not."""
    for name, group in groups.items():
        if group.parent:
            return (
                f"PodGroup {printable(name)} is in CompositePodGroup {printable(group.parent)}, and topogate "
                "does not place trees of groups: kube-scheduler chooses the nodes, by the topology keys of "
                "the groups, and topology annotations have no effect"
            )
    return ""


def _names(group_of: Callable[[Pod], str], gang: PodGang) -> list[str]:
    """The names of the PodGroups of its gated pods."""
    return sorted({name for pod in gang.gated if (name := group_of(pod))})


def _taken(gang: PodGang, view: View) -> str:
    names = foreign_groups(_names(bind_group_of, gang), gang.key.namespace, view)
    if not names:
        return ""
    return (
        f"the name of its PodGroup {_few(names)} is taken by one that is not topogate's and "
        "would decide how it is bound; delete that PodGroup and the pods that keep it"
    )


def _missing(names: Sequence[str]) -> str:
    """Why a gang without its PodGroups is not placed: its nodes would stay unused."""
    if not names:
        return ""
    those = f"PodGroup {_few(names)} is" if len(names) == 1 else f"PodGroups {_few(names)} are"
    return f"its {those} missing: kube-scheduler binds no pod of a PodGroup that does not exist"


def _lacking(groups: Mapping[str, NativePodGroup], members: Mapping[str, _Members]) -> str:
    for name, group in groups.items():
        least = group.min_count or 0
        if members[name].count < least:
            there, of_group = members[name].count, f"of PodGroup {printable(name)}"
            return (
                f"{counted(there, f'pod {of_group} exists', f'pods {of_group} exist')}, and kube-scheduler "
                f"binds none before there are {least} (minCount)"
            )
    return ""


def _minimum(
    gang: PodGang, groups: Mapping[str, NativePodGroup], members: Mapping[str, _Members]
) -> tuple[int | None, Iterable[str]]:
    """How many pods are enough, at least those that kube-scheduler binds together; None if all are needed."""
    if len(groups) > 1:
        return None, _no_minimum(gang)
    (least,) = (group.min_count for group in groups.values())
    if least is None or (gang.minimum is None and any(_shared(gang, members))):
        return gang.minimum, ()  # minCount does not say how many pods of each gang are enough
    count = gang.size if gang.size is not None else len(gang.pods)
    enough = min(max(gang.minimum or 0, least), count)
    return (None if gang.minimum is None and enough == count else enough), ()


def _no_minimum(gang: PodGang) -> Iterable[str]:
    if gang.minimum is not None:
        yield f"its minimum of {gang.minimum} pods does not count, as its pods are of several PodGroups"


def _shared(gang: PodGang, members: Mapping[str, _Members]) -> Iterable[str]:
    """Problems of groups that also have pods of other gangs: kube-scheduler binds them together."""
    for name, those in members.items():
        if others := those.besides(gang.key):
            yield (
                f"PodGroup {printable(name)} has pods of {others} too: each gang is placed by itself, but "
                "kube-scheduler binds them together; set one topogate.io/gang on all of them"
            )


def _priority_problems(gang: PodGang, groups: Mapping[str, NativePodGroup], view: View) -> Iterator[str]:
    """Problems with priorities: from Kubernetes 1.37 on, pods need the priority of their group.

    They also need one preemptionPolicy, the group's if it has one. See validatePodGroup in
    pkg/scheduler/schedule_one_podgroup.go.
    """
    served = collection_of(view)
    if served is None or served.api_version.endswith(f"/{BINDS_ANY_PRIORITY}"):
        return
    for name, pods in sorted(grouped((native_group_of(pod), pod) for pod in gang.gated).items()):
        if name in groups:
            shown, spec, priorities = f"PodGroup {printable(name)}", groups[name].spec, _priorities(pods)
            yield from _mismatch(shown, "priority", spec.priority or 0, priorities)
            yield from _policy_problems(shown, spec.preemption_policy, pods)


def _priorities(pods: Sequence[Pod]) -> list[int]:
    return [pod.spec.priority or 0 for pod in pods]


def _policy_problems(group: str, own: str | None, pods: Sequence[Pod]) -> Iterator[str]:
    """Problems with preemptionPolicies. own: the group's."""
    policies = {pod.spec.preemption_policy or _PREEMPTS for pod in pods}
    if own:
        yield from _mismatch(group, "preemptionPolicy", own, policies)
    elif len(policies) > 1:
        yield (
            f"pods of {group} have preemptionPolicy {_few(sorted(policies))}: kube-scheduler binds none of "
            "them; recreate them with one PriorityClass"
        )


def _mismatch(group: str, what: str, own: int | str, of_pods: Iterable[int | str]) -> Iterator[str]:
    """The problem if pods have another value than their group."""
    if others := sorted({str(each) for each in of_pods if each != own}):
        yield (
            f"{group} has {what} {own}, and pods of it have {_few(others)}: "
            "kube-scheduler binds none of them; recreate it with the PriorityClass of all its pods"
        )


def _few(names: Sequence[str], count: int | None = None) -> str:
    """The first of these names. count: of all names, if only some are given."""
    left = (len(names) if count is None else count) - _NAMED
    more = [f"{left} more"] if left > 0 else []
    return sentence_list([*map(printable, names[:_NAMED]), *more])
