"""Decides which requests for nodes are created and which are withdrawn. Pure.

    a gang needs nodes, and has           step
    ------------------------------------  ------------------------------------------------------------
    no request                            create one, within the limits of its namespace
    a request for earlier pods of it      withdraw it; create another once it is gone
    a pending or provided request         none; report its progress
    a failed or expired request           create another with backoff, then withdraw the old one

    a gang waits for something else       withdraw its pending requests; the others stay
    all planned pods of it are bound      withdraw its requests

The request itself has the attempt number, which determines the backoff. So a new leader continues where the
previous one stopped.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from labeler.contract import keys
from webhook.configuration.settings import ScaleUp
from webhook.extensions.scale_up.provisioning_requests import (
    FINISHED,
    REQUESTS,
    TEMPLATES,
    Progress,
    ProvisioningRequest,
    RequestProgress,
    RequestTemplate,
    progress_of,
    request_body,
)
from webhook.extensions.scale_up.wants import MOST_POD_CLASSES, Want
from webhook.grouping import grouped, round_robin
from webhook.kube.objects import Metadata
from webhook.kube.placements import owner_reference
from webhook.kube.times import since_1970
from webhook.sweeper.extension import ObjectWrite
from webhook.sweeper.observe.gangs import GangKey
from webhook.text import counted

LONGEST_PAUSE_SECONDS: Final = 3600.0
"""The longest backoff after a refusal by the autoscaler. For refusals by the API server see
extension_objects."""
SILENT_SECONDS: Final = 120.0
"""After this time without an answer, it is reported that no autoscaler has answered."""
_PENDING: Final = frozenset({Progress.REQUESTED, Progress.DELAYED})
"""The states in which an autoscaler may still create nodes."""
MOST_WRITES: Final = 16
"""The most requests that one pass creates, and the most that it withdraws: the others wait."""


@dataclass(frozen=True)
class NodeAsk:
    """A request to create."""

    want: Want
    attempt: int


@dataclass
class Steps:
    """The steps of a pass, and the notes for gangs. due_seconds: until a step is due without any change."""

    asks: list[NodeAsk] = field(default_factory=list)
    withdrawn: list[ProvisioningRequest] = field(default_factory=list)
    notes: dict[GangKey, str] = field(default_factory=dict)
    progress: dict[GangKey, RequestProgress] = field(default_factory=dict)
    due_seconds: float = float("inf")

    def later(self, seconds: float) -> None:
        """A step is due after this time."""
        self.due_seconds = min(self.due_seconds, max(0.0, seconds))

    def bounded(self) -> "Steps":
        """The steps of one pass; the others are due at once."""
        if len(self.withdrawn) > MOST_WRITES or len(self.asks) > MOST_WRITES:
            self.later(0.0)
        return replace(self, withdrawn=self.withdrawn[:MOST_WRITES], asks=self.asks[:MOST_WRITES])


def attempt_of(request: ProvisioningRequest) -> int:
    """The attempt number of a request; 1 if its label, which any user can write, is not a number."""
    text = request.metadata.labels.get(keys.SCALE_UP_ATTEMPT_LABEL, "")
    return min(int(text), 1000) if text.isdecimal() and len(text) < 5 else 1


def pause_seconds(attempt: int, choices: ScaleUp) -> float:
    """The backoff after a refusal or an expiry: retry_seconds, doubled for each attempt."""
    return float(min(LONGEST_PAUSE_SECONDS, choices.retry_seconds * 2 ** min(attempt - 1, 20)))


def steps(
    wants: Sequence[Want],
    not_withdrawn: Set[str],
    requests: Collection[ProvisioningRequest],
    choices: ScaleUp,
    now: float,
    since: Mapping[str, float] = MappingProxyType({}),
    placed: Set[str] = frozenset(),
    waiting: Set[str] = frozenset(),
) -> Steps:
    """The steps at this time (seconds since 1970).

    wants: the most urgent first. not_withdrawn: uids of the Placements of gangs whose requests stay although
    they need no nodes now. requests: all of topogate's requests that are not being deleted. since: uid ->
    when the state of a request last changed; its creation by default. placed: uids of the Placements of gangs
    that have nodes: their provided requests no longer count. waiting: those of gangs that wait for anything:
    of their requests only those are withdrawn for which nodes may still be created.
    """
    by_owner = grouped((request.owner_uid, request) for request in requests)
    wanted = {want.owner.metadata.uid for want in wants}
    decider = _Decider(choices, now, since)
    for uid, own in by_owner.items():
        if uid in wanted:
            decider.count(own)
            continue
        decider.count(own, {*FINISHED, Progress.PROVIDED} if uid in placed else FINISHED)
        if uid not in not_withdrawn:
            decider.withdraw_unwanted(own, waits=uid in waiting)
    for want in round_robin(wants, lambda each: each.gang.key.namespace):
        decider.decide(want, by_owner.get(want.owner.metadata.uid, []))
    return decider.made.bounded()


@dataclass
class _Decider:
    """The decisions of one pass. requests, pods: by namespace, how many are requested so far."""

    choices: ScaleUp
    now: float
    since: Mapping[str, float]
    made: Steps = field(default_factory=Steps)
    requests: Counter[str] = field(default_factory=Counter)
    pods: Counter[str] = field(default_factory=Counter)

    def count(self, own: Iterable[ProvisioningRequest], but: Set[Progress] = frozenset()) -> None:
        """Count the requests of a gang, but for those in these states."""
        for each in own:
            if progress_of(each).state not in but:
                self.requests[each.metadata.namespace] += 1
                self.pods[each.metadata.namespace] += each.pods

    def withdraw_unwanted(self, own: Iterable[ProvisioningRequest], *, waits: bool) -> None:
        """Withdraw the requests of a gang that needs none.

        waits: it has no nodes yet. A provided request keeps nodes for it, and a finished one has the attempt
        number, so these stay.
        """
        self.made.withdrawn += [each for each in own if not waits or progress_of(each).state in _PENDING]

    def decide(self, want: Want, own: Sequence[ProvisioningRequest]) -> None:
        """Request nodes for a gang, or follow its request. own: its requests."""
        key = want.gang.key
        same = [each for each in own if self._is_for(each, want)]
        stale = [each for each in own if each not in same]
        self.made.withdrawn += stale
        if same:
            *older, newest = sorted(same, key=lambda each: (attempt_of(each), each.metadata.name))
            self.made.withdrawn += older
            self._follow(want, newest)
        elif stale:
            self.made.notes[key] = "nodes are requested again, as its requests have changed"
        elif refusal := self._refusal(want):
            self.made.notes[key] = refusal
        else:
            self.requests[key.namespace] += 1
            self.pods[key.namespace] += want.pods
            self.made.asks.append(NodeAsk(want, 1))

    def _is_for(self, request: ProvisioningRequest, want: Want) -> bool:
        is_same = request.metadata.labels.get(keys.SCALE_UP_SHAPE_LABEL) == want.shape
        return is_same and request.spec.provisioning_class_name == self.choices.provisioning_class

    def _refusal(self, want: Want) -> str:
        """Why a gang may not request nodes, "" if it may."""
        choices, namespace = self.choices, want.gang.key.namespace
        count, pods = self.requests[namespace], self.pods[namespace]
        if len(want.classes) > MOST_POD_CLASSES:
            found = f"its pods have {len(want.classes)} classes, and a request at most {MOST_POD_CLASSES}"
            return f"no nodes are requested: {found}"
        if want.pods > choices.pods:
            found = f"it has {counted(want.pods, 'pod')}, and a namespace may ask for {choices.pods} in all"
            return f"no nodes are requested: {found}"
        if count >= choices.requests:
            found = f"its namespace has {counted(count, 'request')} for nodes, which is its limit"
            return f"no nodes are requested yet: {found}"
        if pods + want.pods > choices.pods:
            asked = counted(pods, "pod")
            found = (
                f"its namespace asks for nodes for {asked} already, of the {choices.pods} for which it may"
            )
            return f"no nodes are requested yet: {found}"
        return ""

    def _follow(self, want: Want, request: ProvisioningRequest) -> None:
        """Report the progress of a request; replace it when a retry is due."""
        progress, key, made = progress_of(request), want.gang.key, self.made
        taken = since_1970(request.metadata.creation_timestamp) or 0.0
        since = self.since.get(request.metadata.uid, taken)
        made.progress[key] = progress
        made.notes[key] = _SENTENCES[progress.state](request.metadata.name, progress)
        if progress.state not in FINISHED:
            silent = self.now - since
            if not progress.is_answered and silent >= SILENT_SECONDS:
                made.notes[key] += "; no autoscaler has answered yet"
            elif not progress.is_answered:
                made.later(SILENT_SECONDS - silent)
            return
        attempt = attempt_of(request)
        again = since + pause_seconds(attempt, self.choices)
        if self.now >= again:
            del made.notes[key]
            made.asks.append(NodeAsk(want, attempt + 1))
            return
        made.notes[key] += f"; requested again at {datetime.fromtimestamp(again, UTC):%H:%M:%S} UTC"
        made.later(again - self.now)


def asked_sentence(name: str) -> str:
    """The note for a gang whose request no autoscaler has answered yet. name: of the request."""
    return f"nodes are requested by ProvisioningRequest {name}"


_SENTENCES: Final[dict[Progress, Callable[[str, RequestProgress], str]]] = {
    Progress.REQUESTED: lambda name, _: asked_sentence(name),
    Progress.DELAYED: lambda name, progress: (
        f"the autoscaler has no nodes for it yet, and tries again by itself (ProvisioningRequest {name}: "
        f"{progress.message})"
    ),
    Progress.PROVIDED: lambda name, progress: (
        "the autoscaler reports that nodes for it exist or are being added "
        f"(ProvisioningRequest {name}: {progress.message})"
    ),
    Progress.FAILED: lambda name, progress: (
        f"the autoscaler refuses nodes (ProvisioningRequest {name}: {progress.message})"
    ),
    Progress.EXPIRED: lambda name, _: f"the booking of nodes for it has expired (ProvisioningRequest {name})",
    Progress.REVOKED: lambda name, progress: (
        f"the autoscaler has taken its nodes back (ProvisioningRequest {name}: {progress.message})"
    ),
}


# --- writes -------------------------------------------------------------------------------------------
# The API objects that are created and deleted.
#
# PodTemplates are created first, then the request that names them. A crash between the two leaves
# PodTemplates whose names identify their request. The next leader uses them, or deletes them if the gang no
# longer needs them. A PodTemplate without our label belongs to another client and is left alone.

_MOST_ORPHANS: Final = 4 * MOST_WRITES
"""The most PodTemplates without a request that are deleted in one pass."""

Templates = Mapping[str, RequestTemplate]
"""By "namespace/name"."""


def request_name(ask: NodeAsk, choices: ScaleUp) -> str:
    """The name of a request, unique for each class and parameters."""
    salt = repr((choices.provisioning_class, sorted(choices.parameters.items())))
    return ask.want.name(ask.attempt, salt)


def writes(
    decided: Steps, choices: ScaleUp, requests: Sequence[ProvisioningRequest], templates: Templates
) -> list[ObjectWrite]:
    """The writes for these decisions. requests, templates: the existing ones."""
    found: list[ObjectWrite] = []
    live = {each.metadata.name for each in requests}
    for ask in decided.asks:
        name = request_name(ask, choices)
        live.add(name)
        found += _creations(ask, name, choices, templates)
    reason = "its gang does not need these nodes, or has them"
    found += [ObjectWrite.delete(REQUESTS, each.metadata, reason) for each in decided.withdrawn]
    orphans = (
        ObjectWrite.delete(TEMPLATES, each.metadata, "no request names it")
        for each in templates.values()
        if each.metadata.labels.get(keys.SCALE_UP_LABEL, "") not in live
    )
    return [*found, *list(orphans)[:_MOST_ORPHANS]]


def _creations(ask: NodeAsk, name: str, choices: ScaleUp, templates: Templates) -> Iterator[ObjectWrite]:
    """The missing PodTemplates, then the request."""
    want, owner = ask.want, ask.want.owner.metadata
    common: dict[str, Any] = {
        "namespace": owner.namespace,
        "labels": want.labels(name, ask.attempt),
        "ownerReferences": [owner_reference(owner)],
    }
    reason = f"{want.gang.key} asks for nodes for {counted(want.pods, 'pod')}, attempt {ask.attempt}"
    group = f"{owner.namespace}/{name}"
    sets = [(f"{name}-{number}", kind.count) for number, kind in enumerate(want.classes)]
    for (template, _), kind in zip(sets, want.classes, strict=True):
        there = templates.get(f"{owner.namespace}/{template}")
        if there is None or not _is_ours(there.metadata, common["labels"]):
            body = {"metadata": {**common, "name": template}, "template": kind.template}
            yield ObjectWrite.create(TEMPLATES, body, reason, group)
    body = request_body({**common, "name": name}, choices.provisioning_class, sets, choices.parameters)
    yield ObjectWrite.create(REQUESTS, body, reason, group)


def _is_ours(metadata: Metadata, labels: Mapping[str, str]) -> bool:
    return metadata.labels == labels and not metadata.deletion_timestamp
