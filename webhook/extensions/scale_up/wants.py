"""The gangs that request nodes from an autoscaler, and their pods by kind. Pure.

A kind has only the fields that kube-scheduler uses. It has no image, command, environment or ServiceAccount,
since users who may read PodTemplates may not be allowed to read pods.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from labeler.contract import keys
from webhook.extensions.scale_up.provisioning_requests import REQUESTS, TEMPLATES, ProvisioningRequest
from webhook.grouping import grouped
from webhook.kube import placements
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.kube.times import since_1970
from webhook.sweeper.decide.core_questions import has_enough, needed
from webhook.sweeper.decide.orders import NO_HURRY, Cause
from webhook.sweeper.extension import HookInput
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.workloads import marks
from webhook.workloads.pod_sets import asks_for_devices

MOST_POD_CLASSES: Final = 32
"""The most pod sets of one request."""

_NAME_LENGTH: Final = 50
"""Characters of a request's name before its hash: the name is also a label value, with at most 63
characters."""

_IMAGE: Final = "not-run"
"""The image of our PodTemplates: the API server requires one, but these pods never run."""

_NOT_ASKED: Final = (
    "nodeName",
    "schedulingGates",
    "schedulingGroup",
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
)

Json = dict[str, Any]


@dataclass(frozen=True)
class PodKind:
    """Pods that are identical for kube-scheduler. template: as in a PodTemplate."""

    count: int
    template: Json


@dataclass(frozen=True)
class Want:
    """The nodes that a gang needs. owner: its Placement. shape: a hash of the kinds."""

    gang: PodGang
    owner: Placement
    classes: tuple[PodKind, ...]
    shape: str

    @property
    def pods(self) -> int:
        """The number of pods."""
        return sum(kind.count for kind in self.classes)

    def name(self, attempt: int, salt: str) -> str:
        """The name of a request for it, unique for each shape, attempt and salt."""
        text = "\0".join((self.owner.metadata.uid, self.shape, str(attempt), salt))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{self.owner.metadata.name[:_NAME_LENGTH].rstrip('-')}-{digest}"

    def labels(self, name: str, attempt: int) -> dict[str, str]:
        """The labels of the request with this name, and of its PodTemplates."""
        return {
            keys.SCALE_UP_LABEL: name,
            keys.SCALE_UP_SHAPE_LABEL: self.shape,
            keys.SCALE_UP_ATTEMPT_LABEL: str(attempt),
        }


def members(gang: PodGang, view: View) -> list[Pod]:
    """The pods of a gang that must fit together: waiting pods, and pods that do not exist yet.

    CPU-only pods are left out: they use existing capacity, or kube-scheduler places them.
    """
    waiting = _waiting_members(gang, view)
    if not waiting:
        return []
    later = [pod for pod in gang.later if asks_for_devices(pod.spec)]
    return [*waiting[: needed(gang, waiting)], *later]


def _waiting_members(gang: PodGang, view: View) -> list[Pod]:
    """The pods without a place that a gang needs to run."""
    waiting = [
        pod
        for pod in gang.gated
        if pod.metadata.uid not in view.planned and pod.metadata.uid not in gang.cpu_pods
    ]
    return [] if has_enough(gang, waiting) else waiting


def want_of(gang: PodGang, pods: Sequence[Pod], owner: Placement) -> Want:
    """The nodes that these pods of a gang need."""
    by_spec = grouped((msgspec.json.encode(_spec(pod), order="sorted"), pod) for pod in pods)
    classes = [
        PodKind(len(same), {"metadata": {"labels": _common(same)}, "spec": msgspec.json.decode(text)})
        for text, same in sorted(by_spec.items())
    ]
    text = msgspec.json.encode([(kind.count, kind.template) for kind in classes], order="sorted")
    return Want(gang, owner, tuple(classes), hashlib.sha256(text).hexdigest()[:12])


def _common(pods: Sequence[Pod]) -> dict[str, str]:
    """The labels that all pods have: a selector with another label would not match the whole kind."""
    shared = set(pods[0].metadata.labels.items())
    for pod in pods[1:]:
        shared &= pod.metadata.labels.items()
    return dict(sorted(shared))


def _spec(pod: Pod) -> Json:
    """The fields that kube-scheduler uses, for a PodTemplate; topogate reads no others of a pod's spec."""
    spec = _pruned(msgspec.to_builtins(pod.spec))
    for name in _NOT_ASKED:
        spec.pop(name, None)
    for name in ("containers", "initContainers"):
        for container in spec.get(name, ()):
            container["image"] = _IMAGE
            for port in container.get("ports", ()):
                port["containerPort"] = port["hostPort"]
    return dict(spec)


def _pruned(value: Any, name: str = "") -> Any:
    """The value without empty fields, except empty selectors, which select everything."""
    if isinstance(value, dict):
        whole = {key: _pruned(each, key) for key, each in value.items()}
        return {
            key: each
            for key, each in whole.items()
            if each not in (None, "", [], {}) or (key.endswith("Selector") and each == {})
        }
    if isinstance(value, list | tuple):
        return [_pruned(each) for each in value]
    return value


# --- gangs that request nodes -------------------------------------------------------------------------

_ASKING: Final = frozenset({Cause.INSUFFICIENT_CAPACITY, Cause.WORK_BUDGET})
"""Causes that more nodes may solve."""
_PASSING: Final = frozenset(
    {
        Cause.RESERVED,
        Cause.CLUSTER_CHANGED,
        Cause.INCOMPLETE,
        Cause.MISSING_PODS,
        Cause.PLAN_REFUSED,
        Cause.INTERNAL_ERROR,
    }
)
"""Causes that may end in the next pass, so requests are not withdrawn."""

_UNDER_WAY: Final = (placements.RELEASING, placements.RELEASED)

KnownWant = tuple[frozenset[tuple[str, str]], Want]
"""The pods (uid and resourceVersion) of a gang, and the nodes that they need."""


@dataclass(frozen=True)
class Asking:
    """The gangs that request nodes in a pass.

    since: when each of them was first seen to wait for nodes (Moment.seconds). wants: of gangs that have
    waited long enough, or have a request, the most urgent first. early: gangs that have not. behind: gangs
    that wait for others of their namespace. due_seconds: until the next gang has waited long enough.
    by_others: gangs for which another program has requested nodes, such as Kueue, and its request.
    """

    since: Mapping[GangKey, float]
    wants: Mapping[GangKey, KnownWant]
    early: frozenset[GangKey]
    behind: frozenset[GangKey]
    due_seconds: float
    by_others: Mapping[GangKey, str] = field(default_factory=dict)

    @property
    def wanted(self) -> list[Want]:
        """The needed nodes, the most urgent first."""
        return [want for _, want in self.wants.values()]


def who_asks(given: HookInput, since: Mapping[GangKey, float], known: Mapping[GangKey, KnownWant]) -> Asking:
    """The gangs that request nodes. since, known: from the previous pass, see Asking."""
    view, choices = given.view, given.settings.scale_up
    waiting = [gang for gang in given.gangs if given.causes.get(gang.key) in _ASKING]
    waiting, by_others = _without_requests_of_others(waiting)
    since = {gang.key: since.get(gang.key, view.now.seconds) for gang in waiting}
    there = [gang for gang in waiting if gang.key.placement_key in view.placements]
    asked_for = {each.owner_uid for each in (REQUESTS.of(view) or {}).values()}
    left = {
        gang.key: since[gang.key] + choices.after_seconds - view.now.seconds
        for gang in there
        if view.placements[gang.key.placement_key].metadata.uid not in asked_for
    }
    early = {key: seconds for key, seconds in left.items() if seconds > 0}
    wants, behind = _bounded([gang for gang in there if gang.key not in early], given, known, asked_for)
    due = min(early.values(), default=NO_HURRY)
    return Asking(since, wants, frozenset(early), behind, due, by_others)


def _may_ask(given: HookInput, gang: PodGang) -> bool:
    """Whether nodes are requested for a gang once it has waited long enough, and by topogate."""
    waits = given.causes.get(gang.key) in _ASKING
    return given.settings.scale_up.is_on and waits and not _consumed(gang)


def _without_requests_of_others(
    gangs: Iterable[PodGang],
) -> tuple[list[PodGang], dict[GangKey, str]]:
    """The gangs that may request nodes, and by the other gangs their request, see _consumed."""
    named = [(gang, _consumed(gang)) for gang in gangs]
    return [gang for gang, name in named if not name], {gang.key: name for gang, name in named if name}


def _consumed(gang: PodGang) -> str:
    """The request of another program that the waiting pods of a gang name, "" if they name none.

    Pods get topogate's own when they are released, and recreated ones are without it.
    """
    names = (pod.metadata.annotations.get(marks.CONSUMED_REQUEST, "") for pod in gang.gated)
    return next(filter(None, names), "")


def waiting_since(given: HookInput, leads_since: float | None) -> dict[GangKey, float]:
    """Since when gangs have waited for nodes at the longest: their Placements exist, and the leader leads.

    leads_since: in seconds since 1970, None if it has led all the time.
    """
    now, found = given.view.now, dict[GangKey, float]()
    for gang in given.gangs:
        if (placement := given.view.placements.get(gang.key.placement_key)) is not None:
            created = since_1970(placement.metadata.creation_timestamp) or 0.0
            age = now.at.timestamp() - max(created, leads_since or 0.0)
            found[gang.key] = now.seconds - max(0.0, age)
    return found


def not_known(given: HookInput, gang: PodGang) -> Iterator[str]:
    """What a reader of the cluster cannot know of the requests for a gang that waits for nodes."""
    choices, placement = given.settings.scale_up, given.view.placements.get(gang.key.placement_key)
    if not _may_ask(given, gang) or placement is None:
        return
    requests = REQUESTS.of(given.view)
    asking = {each.owner_uid for each in (requests or {}).values()}
    if requests is None or TEMPLATES.of(given.view) is None:
        yield (
            "Whether nodes are requested for it is not known here: ProvisioningRequests or PodTemplates "
            "cannot be read."
        )
    elif choices.after_seconds and placement.metadata.uid not in asking:
        yield (
            "When it began to find no nodes is not known here: they may be requested up to "
            f"{choices.after_seconds:g} s later."
        )


def _bounded(
    gangs: Sequence[PodGang], given: HookInput, known: Mapping[GangKey, KnownWant], asked_for: Set[str]
) -> tuple[dict[GangKey, KnownWant], frozenset[GangKey]]:
    """The nodes that these gangs need, and the gangs that wait for others of their namespace.

    For each namespace, only as many gangs without a request are examined as it may have requests: a namespace
    with thousands of gangs must not delay a pass. asked_for: uids of the Placements that have one.
    """
    view, choices = given.view, given.settings.scale_up
    wants: dict[GangKey, KnownWant] = {}
    behind: set[GangKey] = set()
    first: Counter[str] = Counter()
    for gang in gangs:
        owner, pods = view.placements[gang.key.placement_key], members(gang, view)
        if not pods:
            continue
        if owner.metadata.uid not in asked_for and len(pods) <= choices.pods:
            first[gang.key.namespace] += 1
            if first[gang.key.namespace] > choices.requests:
                behind.add(gang.key)
                continue
        wants[gang.key] = _want(gang, pods, owner, known.get(gang.key))
    return wants, frozenset(behind)


def _want(gang: PodGang, pods: Sequence[Pod], owner: Placement, known: KnownWant | None) -> KnownWant:
    """The needed nodes of a gang; the known ones if its pods have not changed."""
    of = frozenset((pod.metadata.uid or pod.metadata.name, pod.metadata.resource_version) for pod in pods)
    if known is not None and known[0] == of and known[1].owner.metadata.uid == owner.metadata.uid:
        return known
    return of, want_of(gang, pods, owner)


def still_wanted(given: HookInput, early: frozenset[GangKey]) -> set[str]:
    """uids of Placements whose requests stay although their gangs need no nodes in this pass."""
    passing = {
        gang.key.placement_key
        for gang in given.gangs
        if gang.key not in given.causes or given.causes[gang.key] in _PASSING or gang.key in early
    }
    return {each.metadata.uid for name, each in given.view.placements.items() if name in passing}


def without_nodes(given: HookInput) -> set[str]:
    """uids of Placements of gangs that wait, whatever for: their provided requests stay."""
    waiting = {
        gang.key.placement_key
        for gang in given.gangs
        if given.causes.get(gang.key) is not Cause.OWNER_DELETED and _waiting_members(gang, given.view)
    }
    return {each.metadata.uid for name, each in given.view.placements.items() if name in waiting}


def being_released(view: View, requests: Iterable[ProvisioningRequest]) -> set[str]:
    """uids of the Placements that own these requests, and whose gangs have nodes, but are not bound yet.

    Their status alone is not enough, as it is written later than pods are released.
    """
    owners = {each.owner_uid for each in requests}
    return {
        each.metadata.uid
        for each in view.placements.values()
        if each.metadata.uid in owners
        and (each.status.state in _UNDER_WAY or any(map(_is_unbound, view.pods_of(each))))
    }


def _is_unbound(pod: Pod) -> bool:
    return not pod.spec.node_name and not pod.metadata.deletion_timestamp
