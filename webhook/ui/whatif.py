"""What-if: the core places a manifest or a changed gang on the live snapshot. Nothing is written."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import msgspec

from webhook.configuration.settings import Settings
from webhook.inquiry import documents, simulation
from webhook.inquiry.documents import InputError
from webhook.inquiry.gang_answer import GangAnswer, ask_gang, resized, with_levels
from webhook.inquiry.next_pass import VIEW_ALONE, PassFacts, state_for
from webhook.kube.objects import Node, Pod, SchedulingGate
from webhook.kube.placements import Placement
from webhook.placement import NoFit, PlacementError, Snapshot, Usage
from webhook.scheduling import unmodelled_rules
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.scheduling.conflicts import Conflicts
from webhook.scheduling.gpus import Counting
from webhook.scheduling.podrules import has_rules
from webhook.scheduling.storage import Storage
from webhook.sweeper.decide.attempt import PassState
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.text import counted
from webhook.ui.live import Scene
from webhook.ui.picture import Shown
from webhook.ui.redact import EVERYTHING, Rights
from webhook.workloads import marks
from webhook.workloads.own_domains import is_of_a_set

LARGEST_TEXT = 256 * 1024
"""The longest manifest that is read, in bytes."""

MOST_VALUES = LARGEST_TEXT
"""The most values of one manifest: more than a text of this length can have without YAML aliases."""

MOST_PODS = 20_000

_GROUPS = 3
"""The groups of a LeaderWorkerSet whose nodes the sentence names; the map shows all."""


class WhatIf(Shown, frozen=True):
    """The answer: the nodes, or a sentence why the gang does not fit.

    places: member -> node; domains: id of a top-level domain -> its number of members.
    """

    fits: bool
    sentence: str
    places: dict[str, str] = msgspec.field(default_factory=dict)
    domains: dict[str, int] = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class WhatIfChange:
    """The requested changes: members, required topology level, GPU model; "" or None: unchanged."""

    size: int | None = None
    level: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class _With:
    """The objects of a view, plus hypothetical pods."""

    view: View
    more: tuple[Pod, ...]
    rights: Rights

    def pod_items(self) -> Iterable[Pod]:
        """The view's pods, without the affinity of hidden ones, plus the hypothetical pods."""
        for pod in (*self.view.others, *self.view.gated):
            if pod.spec.affinity is None or self.rights.may_list(pod.metadata.namespace):
                yield pod
            else:
                yield msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=None))
        yield from self.more

    def node_items(self) -> Mapping[str, Node]:
        """The nodes of the view, by name."""
        return self.view.nodes

    def current_placements(self) -> Mapping[str, Placement]:
        """The Placements of the view."""
        return self.view.placements

    def storage(self, is_wanted: bool) -> Storage | None:
        """None: hypothetical pods have no claims."""
        return None

    def namespace_labels(self) -> NamespaceLabels | None:
        """None: not every viewer may list namespaces."""
        return None


@dataclass(frozen=True)
class _Listed(Conflicts):
    """Rules between pods, without hidden pods: their rules could reveal which pods run there."""

    rights: Rights = EVERYTHING

    def usage(self, pod: Pod, usage: Usage) -> Usage:
        """The usage of a pod; for a hidden pod only its resources."""
        return super().usage(pod, usage) if self.rights.may_list(pod.metadata.namespace) else usage


LEFT_OUT = (
    "Rules between these pods and those of namespaces that you may not list (anti-affinity, host ports, "
    "domains of their own) are left out: where one of them holds, it fits less well."
)


def of_manifest(
    text: str,
    scene: Scene,
    settings: Settings,
    change: WhatIfChange,
    counting: Counting,
    rights: Rights = EVERYTHING,
    facts: PassFacts = VIEW_ALONE,
) -> WhatIf:
    """The nodes that the pods of a manifest would get now. Raises InputError for an invalid manifest."""
    if len(text.encode()) > LARGEST_TEXT:
        raise InputError(f"the manifest is longer than {LARGEST_TEXT // 1024} KiB")
    found = documents.of_text(text, "the manifest", MOST_VALUES)
    read = simulation.read_pods(found, "the manifest", MOST_PODS)
    name, pods = read.name, read.pods
    if not pods:
        raise InputError("the manifest describes no pods")
    waiting = tuple(_gated(pod, number, settings.gate_prefix) for number, pod in enumerate(pods))
    snapshotter = Snapshotter(_With(scene.view, waiting, rights), settings)
    view = replace(snapshotter.view(scene.view.now), objects=scene.view.objects)
    view = view.without_plans(view.planned.keys() - scene.view.planned.keys())
    if rights.namespaces is not None:
        rules = view.conflicts
        view = replace(
            view, conflicts=_Listed(rules.terms, rules.ports, rules.loners, rules.lumped, rights=rights)
        )
    notes = [*unmodelled_rules.claim_notes(waiting), *unmodelled_rules.taken_widely(waiting)]
    has_some = any(is_of_a_set(pod) or has_rules(pod.spec) for pod in waiting)
    if rights.namespaces is not None and (view.conflicts or has_some):
        notes.append(LEFT_OUT)
    try:
        gangs = _gangs(name, waiting)
    except PlacementError as error:
        raise InputError(str(error)) from None
    snapshot = snapshotter.snapshot(view)
    seen = listed(view, rights, waiting)
    if len(gangs) == 1:
        (gang,) = gangs
        return answer(gang, seen, snapshot, settings, change, counting, facts, notes, gang.key.name)
    return _each(gangs, seen, snapshot, settings, change, counting, notes, facts)


def _gangs(name: str, pods: Sequence[Pod]) -> list[PodGang]:
    """The pods of a manifest as one gang, or one for each LeaderWorkerSet group. Raises PlacementError."""
    groups: dict[str | None, list[Pod]] = {}
    for each in pods:
        label = each.metadata.labels.get(marks.LEADER_WORKER_SET_GROUP_LABEL)
        groups.setdefault(label, []).append(each)
    if len(groups) == 1:
        return [simulation.gang_of(name, list(pods))]
    namespace, found = pods[0].metadata.namespace, []
    for number, some in enumerate(groups.values()):
        own = f"{name}-{number}"
        found.append(simulation.gang_of(name, some, GangKey(namespace, "LeaderWorkerSet", own, own)))
    return found


def listed(view: View, rights: Rights, own: Sequence[Pod] = ()) -> View:
    """The view without pods that the viewer may not list: their rules and domains would reveal them.

    own: the viewer's hypothetical pods.
    """
    if rights.namespaces is None:
        return view
    uids = {pod.metadata.uid for pod in own}
    gated = [pod for pod in view.gated if pod.metadata.uid in uids or rights.may_list(pod.metadata.namespace)]
    others = [pod for pod in view.others if rights.may_list(pod.metadata.namespace)]
    return replace(view, gated=gated, others=others, pods=None)


def _gated(pod: Pod, number: int, prefix: str) -> Pod:
    """The pod with a gate, as if it waited, so that its rules with other pods count."""
    metadata = msgspec.structs.replace(pod.metadata, uid=f"what-if-{number}")
    gate = SchedulingGate(name=f"{prefix}what-if")
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=[gate], node_name="")
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def _each(
    gangs: Sequence[PodGang],
    view: View,
    snapshot: Snapshot,
    settings: Settings,
    change: WhatIfChange,
    counting: Counting,
    notes: Iterable[str],
    facts: PassFacts,
) -> WhatIf:
    """Place independent gangs one after the other. Raises InputError."""
    found: list[WhatIf] = []
    gangs = [_changed(gang, change, counting) for gang in gangs]
    state = _state(gangs, view, snapshot, settings, change, counting, facts)
    for gang in gangs:
        asked = _ask(gang, state, gang.key.name)
        found.append(_of_answer(asked, ()))
        if asked.plan is not None:
            state = state.with_plan(asked.plan)
    return _of_groups(found, notes)


def _of_groups(found: Sequence[WhatIf], notes: Iterable[str]) -> WhatIf:
    """The combined answer of all groups: it fits if all of them fit."""
    placed, waits = [each for each in found if each.fits], [each for each in found if not each.fits]
    places = {member: node for each in placed for member, node in each.places.items()}
    if waits:
        sentence = f"{len(waits)} of {len(found)} groups have no place. {waits[0].sentence}"
        return WhatIf(False, sentence, places, notes=list(notes))
    shown = [each.sentence.removeprefix("It fits: ").removesuffix(".") for each in placed]
    more = f"; and {counted(len(shown) - _GROUPS, 'more group')}" if len(shown) > _GROUPS else ""
    sentence = f"It fits, {len(shown)} groups, each by itself: {'; '.join(shown[:_GROUPS])}{more}."
    return WhatIf(True, sentence, places, notes=list(notes))


def answer(
    gang: PodGang,
    view: View,
    snapshot: Snapshot,
    settings: Settings,
    change: WhatIfChange,
    counting: Counting,
    facts: PassFacts,
    notes: Iterable[str] = (),
    name: str = "",
) -> WhatIf:
    """The answer for a changed gang, as the sweeper would place it. name: its name in the answer.

    Raises InputError for an invalid change.
    """
    gang = _changed(gang, change, counting)
    state = _state([gang], view, snapshot, settings, change, counting, facts)
    return _of_answer(_ask(gang, state, name), notes)


def _state(
    gangs: Sequence[PodGang],
    view: View,
    snapshot: Snapshot,
    settings: Settings,
    change: WhatIfChange,
    counting: Counting,
    facts: PassFacts,
) -> PassState:
    """The state in which gangs are asked about, on nodes of the wanted model. Raises InputError."""
    others = frozenset[str]()
    if change.model:
        models = {name: counting.model(state.node.labels) for name, state in snapshot.nodes.items()}
        others = frozenset(name for name, model in models.items() if model != change.model)
        if len(others) == len(snapshot.nodes):
            raise InputError(f"no node has GPUs of the model {change.model!r}")
    return state_for(gangs, view, snapshot, settings, facts, others)


def _ask(gang: PodGang, state: PassState, name: str) -> GangAnswer:
    try:
        return ask_gang(gang, replace(state, answers={}), name)
    except ValueError as error:  # invalid input, such as an unknown level or a text that is not a quantity
        raise InputError(str(error)) from None


def _of_answer(found: GangAnswer, notes: Iterable[str]) -> WhatIf:
    if isinstance(found.found, NoFit):
        return WhatIf(False, found.sentence, notes=list(notes))
    places = {each.member: each.node for each in found.placed}
    return WhatIf(True, f"It fits: {found.sentence}.", places, notes=list(notes))


def _changed(gang: PodGang, change: WhatIfChange, counting: Counting) -> PodGang:
    """The gang with another size, level or model. Raises InputError."""
    if change.size is not None:
        if not 1 <= change.size <= MOST_PODS:
            raise InputError(f"a size is between 1 and {MOST_PODS}, not {change.size}")
        gang = resized(gang, change.size)
    if change.model:
        labels = set(counting.model_labels)
        gated, later = (
            tuple(_without_selectors(pod, labels) for pod in pods) for pods in (gang.gated, gang.later)
        )
        gang = replace(gang, gated=gated, later=later)
    try:
        return with_levels(gang, change.level)
    except PlacementError as error:
        raise InputError(str(error)) from None


def _without_selectors(pod: Pod, labels: Set[str]) -> Pod:
    """The pod without nodeSelectors of these labels."""
    selector = {key: value for key, value in pod.spec.node_selector.items() if key not in labels}
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_selector=selector))
