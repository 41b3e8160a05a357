"""Which gangs ask an autoscaler for nodes, and for what: how many pods of which kinds. Pure.

A kind is all that kube-scheduler goes by and nothing else of its pods: no image, command, environment or
ServiceAccount, as who may read PodTemplates need not be who may read pods.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from labeler.contract import keys
from webhook.extensions.scale_up.provisioning import REQUESTS
from webhook.grouping import grouped
from webhook.kube import placements
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.decide.asking import has_enough, needed
from webhook.sweeper.decide.orders import NO_HURRY, Cause
from webhook.sweeper.extension import PassEnd
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.workloads.shape import asks_for_devices

MOST_POD_CLASSES: Final = 32
"""Sets of pods that one request may have."""

_NAME_LENGTH: Final = 50
"""Of a request's name before its digest: whole it is the value of a label, which has 63 characters."""

_IMAGE: Final = "not-run"
"""An image has to be named; nobody runs a PodTemplate of ours."""

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
    """So many pods that are alike to kube-scheduler. template: as in a PodTemplate."""

    count: int
    template: Json


@dataclass(frozen=True)
class Want:
    """What is to be asked for a gang. owner: its Placement. shape: a digest of the kinds."""

    gang: PodGang
    owner: Placement
    classes: tuple[PodKind, ...]
    shape: str

    @property
    def pods(self) -> int:
        """For how many pods."""
        return sum(kind.count for kind in self.classes)

    def name(self, attempt: int, salt: str) -> str:
        """The name of a request for it, of its own for each shape, attempt and salt."""
        text = "\0".join((self.owner.metadata.uid, self.shape, str(attempt), salt))
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{self.owner.metadata.name[:_NAME_LENGTH].rstrip('-')}-{digest}"

    def labels(self, name: str, attempt: int) -> dict[str, str]:
        """Of the request of this name, and of its PodTemplates."""
        return {
            keys.SCALE_UP_LABEL: name,
            keys.SCALE_UP_SHAPE_LABEL: self.shape,
            keys.SCALE_UP_ATTEMPT_LABEL: str(attempt),
        }


def members(gang: PodGang, view: View) -> list[Pod]:
    """The pods of a gang that have to fit together: those that wait, and those yet to be made.

    CPU-only pods are left out: they go where there is capacity for them, or wherever kube-scheduler sends
    them.
    """
    waiting = [
        pod
        for pod in gang.gated
        if pod.metadata.uid not in view.planned and pod.metadata.uid not in gang.cpu_pods
    ]
    if not waiting or has_enough(gang, waiting):
        return []
    later = [pod for pod in gang.later if asks_for_devices(pod.spec)]
    return [*waiting[: needed(gang, waiting)], *later]


def want_of(gang: PodGang, pods: Sequence[Pod], owner: Placement) -> Want:
    """What is to be asked for these pods of a gang."""
    by_spec = grouped((msgspec.json.encode(_spec(pod), order="sorted"), pod) for pod in pods)
    classes = [
        PodKind(len(same), {"metadata": {"labels": _common(same)}, "spec": msgspec.json.decode(text)})
        for text, same in sorted(by_spec.items())
    ]
    text = msgspec.json.encode([(kind.count, kind.template) for kind in classes], order="sorted")
    return Want(gang, owner, tuple(classes), hashlib.sha256(text).hexdigest()[:12])


def _common(pods: Sequence[Pod]) -> dict[str, str]:
    """The labels that all of them have: by others nobody can select the kind."""
    shared = set(pods[0].metadata.labels.items())
    for pod in pods[1:]:
        shared &= pod.metadata.labels.items()
    return dict(sorted(shared))


def _spec(pod: Pod) -> Json:
    """What kube-scheduler goes by, as in a PodTemplate: topogate reads nothing else of a pod's spec."""
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
    """Without what says nothing. An empty selector says something: it selects everything."""
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


# --- who asks -----------------------------------------------------------------------------------------

_ASKING: Final = frozenset({Cause.NO_CAPACITY, Cause.UNDECIDED})
"""Causes for which more nodes may help."""
_PASSING: Final = frozenset({Cause.RESERVED, Cause.CHANGED, Cause.INCOMPLETE, Cause.REFUSED, Cause.DEFECT})
"""Causes that may be over in the next pass, so that what was asked for is not withdrawn."""

KnownWant = tuple[frozenset[tuple[str, str]], Want]
"""The pods (uid and resourceVersion) of a gang, and what it wants for them."""


@dataclass(frozen=True)
class Asking:
    """Who asks in a pass.

    since: when each gang that waits for nodes was first found to (Moment.seconds). wants: of gangs that have
    waited long enough, the most urgent first. early: gangs that have not. behind: those that wait for others
    of their namespace. due_seconds: when the next one has waited long enough.
    """

    since: Mapping[GangKey, float]
    wants: Mapping[GangKey, KnownWant]
    early: frozenset[GangKey]
    behind: frozenset[GangKey]
    due_seconds: float

    @property
    def wanted(self) -> list[Want]:
        """What is asked for, the most urgent first."""
        return [want for _, want in self.wants.values()]


def who_asks(given: PassEnd, since: Mapping[GangKey, float], known: Mapping[GangKey, KnownWant]) -> Asking:
    """The gangs that ask. since, known: of the pass before, see Asking."""
    view, choices = given.view, given.settings.scale_up
    waiting = [gang for gang in given.gangs if given.causes.get(gang.key) in _ASKING]
    since = {gang.key: since.get(gang.key, view.now.seconds) for gang in waiting}
    there = [gang for gang in waiting if gang.key.placement_key in view.placements]
    left = {gang.key: since[gang.key] + choices.after_seconds - view.now.seconds for gang in there}
    early = {key: seconds for key, seconds in left.items() if seconds > 0}
    wants, behind = _bounded([gang for gang in there if gang.key not in early], given, known)
    return Asking(since, wants, frozenset(early), behind, min(early.values(), default=NO_HURRY))


def _bounded(
    gangs: Sequence[PodGang], given: PassEnd, known: Mapping[GangKey, KnownWant]
) -> tuple[dict[GangKey, KnownWant], frozenset[GangKey]]:
    """What these want, and those that wait for others of their namespace.

    Of gangs without a request no more are looked at than their namespace may have requests: one of many
    thousand gangs must not hold up a pass.
    """
    view, choices = given.view, given.settings.scale_up
    asked_for = {each.owner_uid for each in (REQUESTS.of(view) or {}).values()}
    wants: dict[GangKey, KnownWant] = {}
    behind: set[GangKey] = set()
    first: Counter[str] = Counter()
    for gang in gangs:
        owner, pods = view.placements[gang.key.placement_key], members(gang, view)
        if owner.metadata.uid not in asked_for and len(pods) <= choices.pods:
            first[gang.key.namespace] += 1
            if first[gang.key.namespace] > choices.requests:
                behind.add(gang.key)
                continue
        if pods:
            wants[gang.key] = _want(gang, pods, owner, known.get(gang.key))
    return wants, frozenset(behind)


def _want(gang: PodGang, pods: Sequence[Pod], owner: Placement, known: KnownWant | None) -> KnownWant:
    """The same as before where nothing of the pods has changed."""
    of = frozenset((pod.metadata.uid or pod.metadata.name, pod.metadata.resource_version) for pod in pods)
    if known is not None and known[0] == of and known[1].owner.metadata.uid == owner.metadata.uid:
        return known
    return of, want_of(gang, pods, owner)


def still_wanted(given: PassEnd, early: frozenset[GangKey]) -> set[str]:
    """uids of Placements whose requests stay although their gangs ask for none: these wait for a moment."""
    passing = {
        gang.key.placement_key
        for gang in given.gangs
        if gang.key not in given.causes or given.causes[gang.key] in _PASSING or gang.key in early
    }
    return {each.metadata.uid for name, each in given.view.placements.items() if name in passing}


def placed(found: Mapping[str, Placement]) -> set[str]:
    """uids of the Placements of gangs that are on their way to nodes."""
    under_way = (placements.RELEASING, placements.RELEASED)
    return {each.metadata.uid for each in found.values() if each.status.state in under_way}
