"""The extension for scale-up: gangs that do not fit request nodes by ProvisioningRequests. Pure."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from labeler.contract.event_reasons import EventReason
from webhook.extensions.scale_up.attempts import (
    SILENT_SECONDS,
    Steps,
    asked_sentence,
    request_name,
    steps,
    writes,
)
from webhook.extensions.scale_up.new_nodes import NEW_NODES, excluded, missing_labels, reserve
from webhook.extensions.scale_up.provisioning_requests import (
    REQUESTS,
    TEMPLATES,
    Progress,
    ProvisioningRequest,
    Sightings,
    live_requests,
    progress_of,
    sighted,
    since_by_uid,
)
from webhook.extensions.scale_up.wants import (
    Asking,
    KnownWant,
    being_released,
    not_known,
    still_wanted,
    waiting_since,
    who_asks,
    without_nodes,
)
from webhook.sweeper.decide.node_rules import NodeRules
from webhook.sweeper.decide.orders import NO_HURRY
from webhook.sweeper.decide.reservations import ReservationSource
from webhook.sweeper.extension import (
    DoctorCheck,
    DoctorLine,
    EndOrders,
    Extension,
    HookInput,
    ObjectEvent,
    Ordered,
    WriteResult,
)
from webhook.sweeper.metrics import CounterSpec, GaugeSpec
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.observe.watches import Verb
from webhook.text import printable, sentence_list
from webhook.workloads import marks

# --- topogate doctor ----------------------------------------------------------------------------------

_NAMED: Final = 3
"""The most requests that a line names."""


def examine(given: HookInput) -> Iterator[DoctorLine]:
    """Report requests that no autoscaler has answered."""
    name = given.settings.scale_up.provisioning_class
    requests = REQUESTS.of(given.view) or {}
    silent = sorted(name for name, each in requests.items() if _is_unanswered(each, given.view.now.at))
    if silent:
        more = [f"{len(silent) - _NAMED} more"] if len(silent) > _NAMED else []
        names = sentence_list([*silent[:_NAMED], *more])
        yield DoctorLine(
            f"requests for nodes that no autoscaler has answered: {len(silent)} ({names})",
            f"Is there one that serves the class {name}? The Kubernetes cluster-autoscaler needs "
            "--enable-provisioning-requests; Karpenter serves no ProvisioningRequests.",
        )
    else:
        yield DoctorLine(f"nodes are requested by the class {name}; requests now: {len(requests)}")


def _is_unanswered(request: ProvisioningRequest, now: datetime) -> bool:
    if request.status.conditions:
        return False
    created = datetime.fromisoformat(request.metadata.creation_timestamp or "")
    return now - created >= timedelta(seconds=SILENT_SECONDS)


CHECK: Final = DoctorCheck(
    "scale-up",
    off="no nodes are requested: scale-up is off",
    component="scale-up",
    served_by="the autoscaler",
    reads=REQUESTS,
    examine=examine,
)


STATES: Final = GaugeSpec(
    "topogate_scale_up_requests",
    "Requests for nodes: requested, delayed (the autoscaler tries again), provided, failed, expired, "
    "revoked; only with scale-up.",
    ("state",),
)
OUTCOMES: Final = CounterSpec(
    "topogate_scale_ups_total",
    "Requests for nodes created (requested), and their outcomes; only with scale-up.",
    ("outcome",),
)

UNREAD_SECONDS: Final = 10.0
"""After this long it is reported that requests cannot be read."""
UNREAD: Final = (
    "no nodes are requested: the sweeper cannot read ProvisioningRequests and PodTemplates; are the "
    "autoscaler's CustomResourceDefinition and the component scale-up installed?"
)

BEHIND: Final = "no nodes are requested yet: other gangs of its namespace come first"

_BY_OTHERS: Final = "its pods name ProvisioningRequest {} of another program, so none is made for it"

_NEWS: Final = {
    Progress.DELAYED: EventReason.NODES_DELAYED,
    Progress.PROVIDED: EventReason.NODES_PROVIDED,
    Progress.FAILED: EventReason.NODES_REFUSED,
    Progress.EXPIRED: EventReason.NODES_EXPIRED,
    Progress.REVOKED: EventReason.NODES_REVOKED,
}
"""The Events on the progress of a request."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScaleUpMemory:
    """The state between passes; losing it only causes a delay, or repeats an Event.

    since, wants: see Asking. unread_since: when requests were first found to be unread (Moment.seconds), None
    while they are read. progress: of each gang's request, as last reported. asked: group of writes -> the
    gang whose request the previous pass ordered. labels_due_seconds: until the next new node is used without
    topology labels.
    """

    since: Mapping[GangKey, float] = field(default_factory=dict)
    wants: Mapping[GangKey, KnownWant] = field(default_factory=dict)
    unread_since: float | None = None
    sightings: Sightings = field(default_factory=dict)
    progress: Mapping[GangKey, Progress] = field(default_factory=dict)
    asked: Mapping[str, GangKey] = field(default_factory=dict)
    labels_due_seconds: float = NO_HURRY


def annotations(view: View) -> dict[str, dict[str, str]]:
    """Placement -> annotations for the pods of its gang, so that they use the nodes provided for them."""
    return {
        f"{each.metadata.namespace}/{owner.name}": {
            marks.CONSUMED_REQUEST: each.metadata.name,
            marks.PROVISIONING_CLASS: each.spec.provisioning_class_name,
        }
        for each in live_requests(view)
        if progress_of(each).state is Progress.PROVIDED
        for owner in each.placement_owners
    }


def _unread(view: View, memory: ScaleUpMemory, asking: Asking) -> tuple[EndOrders, ScaleUpMemory]:
    """Requests have not been read: create none, and report that after a while."""
    now = view.now.seconds
    since = now if memory.unread_since is None else memory.unread_since
    notes = dict.fromkeys(asking.wants, UNREAD) if now - since >= UNREAD_SECONDS else {}
    due = min(asking.due_seconds, memory.labels_due_seconds, 1.0 if asking.wants else NO_HURRY)
    orders = EndOrders(notes=notes, due_seconds=due)
    return orders, replace(memory, since=asking.since, wants=asking.wants, unread_since=since)


_Outcome = tuple[str, ObjectEvent | None]
"""The counted outcome, and its Event."""


def _made(given: HookInput, asked: Mapping[str, GangKey]) -> list[_Outcome]:
    """The requests that were created since the previous pass."""
    gangs = {gang.key: gang for gang in given.gangs}
    found: list[_Outcome] = []
    for result in given.written:
        write = result.write
        if result.is_done and write.verb is Verb.CREATE and write.collection is REQUESTS:
            gang = gangs.get(asked[write.group]) if write.group in asked else None
            event = (
                ObjectEvent(gang.gated[0], EventReason.NODES_REQUESTED, asked_sentence(write.name))
                if gang is not None
                else None
            )
            found.append((Progress.REQUESTED, event))
    return found


def _news(asking: Asking, decided: Steps, known: Mapping[GangKey, Progress]) -> list[_Outcome]:
    """The answers of autoscalers that have no Event yet."""
    found: list[_Outcome] = []
    for want in asking.wanted:
        key = want.gang.key
        progress = decided.progress.get(key)
        if progress is None or progress.state in (Progress.REQUESTED, known.get(key)):
            continue
        reason = _NEWS[progress.state]
        logger.info("nodes_%s gang=%s message=%r", progress.state, key, progress.message)
        event = ObjectEvent(want.gang.gated[0], reason, decided.notes.get(key, ""))
        found.append((progress.state, event))
    return found


def _notes(
    asking: Asking, decided: Steps, names: Mapping[GangKey, str], written: Sequence[WriteResult]
) -> dict[GangKey, str]:
    """The notes for gangs. names: of requests that this pass creates."""
    errors = {result.write.group: result.error for result in written if result.error}
    others = {key: _BY_OTHERS.format(printable(name)) for key, name in asking.by_others.items()}
    notes = {**others, **dict.fromkeys(asking.behind, BEHIND), **decided.notes}
    for key, name in names.items():
        error = errors.get(f"{key.namespace}/{name}")
        notes[key] = f"nodes cannot be requested: {error}" if error else asked_sentence(name)
    return notes


def _states(requests: Sequence[ProvisioningRequest]) -> dict[tuple[str, ...], float]:
    counts = Counter(progress_of(each).state for each in requests)
    return {(state,): counts[state] for state in Progress}


class ScaleUpExtension(Extension):
    """Requests nodes for gangs that do not fit, and reserves the new nodes for them."""

    name = "scale_up"
    memory = ScaleUpMemory()
    collections = (REQUESTS, TEMPLATES)
    gauges = (STATES,)
    counters = (OUTCOMES,)
    source = ReservationSource(NEW_NODES, reserve)
    doctor = CHECK

    def memory_of_leader(self, given: HookInput, leads_since: float | None) -> ScaleUpMemory:
        """See waiting_since; a new leader has none of the rest either."""
        return ScaleUpMemory(waiting_since(given, leads_since))

    def explain(self, given: HookInput, gang: PodGang) -> Iterator[str]:
        """What is not known of the requests for a gang."""
        return not_known(given, gang)

    def order_gangs(self, given: HookInput, memory: ScaleUpMemory) -> tuple[Ordered, ScaleUpMemory]:
        """The same order, with annotations for pods of gangs that have nodes from an autoscaler."""
        return Ordered(given.gangs, annotations=annotations(given.view)), memory

    def exclude_nodes(self, given: HookInput, memory: ScaleUpMemory) -> tuple[NodeRules, ScaleUpMemory]:
        """Exclude new nodes that have no topology labels yet."""
        view, settings = given.view, given.settings
        if not given.gangs:
            return NodeRules(), replace(memory, labels_due_seconds=NO_HURRY)
        seconds = missing_labels(
            view.nodes, settings.scale_up.label_seconds, settings.topology, view.now.at.timestamp()
        )
        due = min(seconds.values(), default=NO_HURRY)
        return excluded(seconds), replace(memory, labels_due_seconds=due)

    def after_pass(self, given: HookInput, memory: ScaleUpMemory) -> tuple[EndOrders, ScaleUpMemory]:
        """Create and withdraw requests so that they match the needs of gangs."""
        view, choices = given.view, given.settings.scale_up
        asking = who_asks(given, memory.since, memory.wants)
        templates = TEMPLATES.of(view)
        if templates is None or REQUESTS.of(view) is None:
            return _unread(view, memory, asking)
        requests, now = live_requests(view), view.now.at.timestamp()
        sightings, released = sighted(memory.sightings, requests, now), being_released(view, requests)
        stay, waiting = still_wanted(given, asking.early) | released, without_nodes(given)
        decided = steps(
            asking.wanted, stay, requests, choices, now, since_by_uid(sightings), released, waiting
        )
        names = {ask.want.gang.key: request_name(ask, choices) for ask in decided.asks}
        news = _news(asking, decided, memory.progress)
        made = _made(given, memory.asked)
        outcomes = Counter(outcome for outcome, _ in (*made, *news))
        orders = EndOrders(
            gauges={STATES.name: _states(requests)},
            writes=writes(decided, choices, requests, templates),
            events=[event for _, event in (*made, *news) if event is not None],
            counts={OUTCOMES.name: {(outcome,): count for outcome, count in outcomes.items()}},
            due_seconds=min(asking.due_seconds, decided.due_seconds, memory.labels_due_seconds),
            notes=_notes(asking, decided, names, given.written),
        )
        progress = {key: each.state for key, each in decided.progress.items()}
        asked = {f"{key.namespace}/{name}": key for key, name in names.items()}
        return orders, ScaleUpMemory(asking.since, asking.wants, None, sightings, progress, asked)


SCALE_UP: Final = ScaleUpExtension()
