"""What admission puts on a pod, and takes off again from a pod that it no longer manages. Pure.

A webhook that is called after topogate's may change the pod, and then the API server asks again. So each
decision is made on the pod without what topogate put there before, and its patch is the difference.

Gates and PodGroups of topogate have names of their own. What it added to the nodeSelector, and which priority
it replaced, is in a note in metadata.uid. The API server empties that field before the first webhook is
called (WipeObjectMetaSystemFields), and sets it after the last one. So no user can forge a note, and none is
stored. If another webhook drops the note, and the pod is given to others, what topogate would put on the pod
is taken off, but for what was there before: topogate lists that in managedFields, the API server lists there
what the author of a gate wrote, and a policy that adds the gate leaves an empty note. Of a pod whose gate was
dropped with the note, nothing shows that topogate was called: it stays as it is.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from labeler.contract import keys
from webhook.admission import patch
from webhook.admission.review import NewManager, NewPod, SchedulingGroup
from webhook.kube.struct import Struct
from webhook.policy.values import Policy
from webhook.workloads.pod_group_names import PREFIX

NOTE_PATH: Final = patch.pointer("metadata", "uid")
_SPEC: Final = ("spec",)
RECORDER: Final = "before-topogate"
"""The manager of what was there before topogate's first call; the API server has "before-first-apply"."""


class Priority(Struct, frozen=True):
    """The three fields of a pod's priority, None where the pod lacks one."""

    priority_class_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None

    @classmethod
    def of(cls, pod: NewPod) -> "Priority":
        """That of a pod."""
        spec = pod.spec
        return cls(
            priority_class_name=spec.priority_class_name,
            priority=spec.priority,
            preemption_policy=spec.preemption_policy,
        )


class RequestNote(Struct, frozen=True, omit_defaults=True):
    """node_selector: labels that topogate added. priority_class: given in the place of `replaced`."""

    node_selector: Mapping[str, str] = MappingProxyType({})
    priority_class: str = ""
    replaced: Priority = Priority()


_EMPTY: Final = RequestNote()


class Injection(Struct, frozen=True):
    """What topogate puts on a pod: "" or nothing for what it leaves to others.

    is_managed: whether topogate places the pod, so that its managedFields may be emptied. assumed: what is
    taken for topogate's if another webhook drops the note.
    """

    gate: str = ""
    pod_group: str = ""
    node_selector: Mapping[str, str] = MappingProxyType({})
    priority: Priority | None = None
    is_managed: bool = False
    assumed: RequestNote = _EMPTY


NOTHING: Final = Injection()
_NOTE: Final = f"{keys.INJECTION_NOTE}:"
_decoder: Final = msgspec.json.Decoder(RequestNote)


class _ListedFields(Struct, frozen=True):
    """What a manager lists of the spec: None for what it does not, empty for all of a field."""

    selector: Mapping[str, Any] | None = msgspec.field(name="f:nodeSelector", default=None)
    priority_class: Mapping[str, Any] | None = msgspec.field(name="f:priorityClassName", default=None)
    gates: Mapping[str, Any] | None = msgspec.field(name="f:schedulingGates", default=None)


class _Fields(Struct, frozen=True):
    spec: _ListedFields = msgspec.field(name="f:spec", default=_ListedFields())


_fields_decoder: Final = msgspec.json.Decoder(_Fields)


def lacks_note(pod: NewPod, policy: Policy) -> bool:
    """Whether a pod with topogate's gate has no note: none was needed, or another webhook has dropped it."""
    is_gated = any(gate.name == policy.gate for gate in pod.spec.scheduling_gates or ())
    return is_gated and not (pod.metadata.uid or "").startswith(_NOTE)


def not_by_others(pod: NewPod, note: RequestNote, policy: Policy) -> RequestNote:
    """What is taken for topogate's on a pod without note, without what others wrote."""
    return _unlisted(note, _listed_by_others(pod, policy))


def mistakable(pod: NewPod, without: NewPod, wanted: Injection, policy: Policy) -> RequestNote:
    """The labels and the class that would be taken for topogate's without a note, though others wrote them.

    pod: as it is; if its note was dropped already, only what is listed is known to be of others. without: the
    same without_injection.
    """
    assumed = wanted.assumed
    if assumed == _EMPTY:
        return _EMPTY
    there, own = without.spec.node_selector or {}, Priority.of(without)
    labels = {key: value for key, value in assumed.node_selector.items() if there.get(key) == value}
    is_class = own.priority_class_name == assumed.priority_class and own != assumed.replaced
    found = RequestNote(labels, assumed.priority_class if is_class else "")
    if not lacks_note(pod, policy):
        return found
    unlisted = not_by_others(pod, found, policy)
    return RequestNote(
        {key: value for key, value in labels.items() if key not in unlisted.node_selector},
        "" if unlisted.priority_class else found.priority_class,
    )


def not_recorded(pod: NewPod, written: RequestNote) -> RequestNote:
    """Of what others wrote, what managedFields do not list in the entry RECORDER yet."""
    return _unlisted(written, _listed(pod, RECORDER))


def _unlisted(note: RequestNote, listed: Iterable[_ListedFields]) -> RequestNote:
    """The labels and the class of a note that are not listed."""
    for each in listed:
        if (selector := each.selector) is not None:
            there = note.node_selector.items()
            labels = {key: value for key, value in there if selector and f"f:{key}" not in selector}
            note = msgspec.structs.replace(note, node_selector=labels)
        if each.priority_class is not None:
            note = RequestNote(note.node_selector)
    return note


def _listed_by_others(pod: NewPod, policy: Policy) -> list[_ListedFields]:
    """Once topogate was called, what it has recorded: the API server lists selectors without their labels.

    It was not called, or brought no gate, where the author wrote its gate.
    """
    listed, gate = _listed(pod), f'k:{{"name":"{policy.gate}"}}'
    is_authors = any(each.gates is not None and (not each.gates or gate in each.gates) for each in listed)
    return listed if is_authors else _listed(pod, RECORDER)


def _listed(pod: NewPod, manager: str = "") -> list[_ListedFields]:
    """What managedFields list of the spec, by each manager or by this one."""
    managers = pod.metadata.managed_fields or ()
    return [_read(each) for each in managers if manager in ("", each.manager)]


def _read(manager: NewManager) -> _ListedFields:
    try:
        return _fields_decoder.decode(manager.fields_v1).spec
    except msgspec.DecodeError:  # another webhook may write anything there
        return _ListedFields()


def without_injection(pod: NewPod, policy: Policy, note: RequestNote) -> NewPod:
    """The pod as its author and other webhooks have it, also where the API server itself added the gate.

    note: that of the pod, or what is taken for it.
    """
    spec = pod.spec
    changes: dict[str, Any] = {}
    gates = spec.scheduling_gates or []
    of_others = [gate for gate in gates if gate.name != policy.gate]
    if len(of_others) < len(gates):
        changes["scheduling_gates"] = of_others
    if _is_own_group(spec.scheduling_group, policy):
        changes["scheduling_group"] = None
    if note.node_selector:
        there = (spec.node_selector or {}).items()
        changes["node_selector"] = {k: v for k, v in there if note.node_selector.get(k) != v}
    if note.priority_class and spec.priority_class_name == note.priority_class:
        changes |= msgspec.structs.asdict(note.replaced)
    return pod if not changes else with_spec(pod, changes)


def with_spec(pod: NewPod, changes: Mapping[str, Any]) -> NewPod:
    """The pod with other values of these fields of its spec."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **changes))


def operations(pod: NewPod, without: NewPod, wanted: Injection, policy: Policy) -> list[patch.Operation]:
    """The patch by which a pod gets what is wanted, and loses what is not.

    pod: as it is. without: the same without_injection.
    """
    return [
        *_gates(pod, wanted.gate, policy),
        *_priority(pod, wanted.priority or Priority.of(without)),
        *_pod_group(pod, wanted.pod_group, policy),
        *_node_selector(pod, without, wanted.node_selector),
        *_noted(pod, without, wanted),
    ]


# --- pieces -------------------------------------------------------------------------------------------


def _is_own_group(group: SchedulingGroup | None, policy: Policy) -> bool:
    """Whether it names a PodGroup that only admission gives to pods."""
    return policy.binds_by_pod_group and group is not None and (group.pod_group_name or "").startswith(PREFIX)


def _gates(pod: NewPod, wanted: str, policy: Policy) -> Iterable[patch.Operation]:
    gates = pod.spec.scheduling_gates
    names = [gate.name for gate in gates or ()]
    # From the end, so that the indices of the others do not change.
    for index, name in reversed(list(enumerate(names))):
        if name == policy.gate and name != wanted:
            yield patch.remove(*_SPEC, "schedulingGates", str(index))
    if wanted and wanted not in names:
        yield patch.append((*_SPEC, "schedulingGates"), gates, {"name": wanted})


def _priority(pod: NewPod, wanted: Priority) -> Iterable[patch.Operation]:
    there = Priority.of(pod)
    if _is_same(wanted, there):
        return
    before = msgspec.to_builtins(there)
    for name, value in msgspec.to_builtins(wanted).items():
        if value is not None:
            yield patch.put_member(_SPEC, name, value)
        elif before[name] is not None:
            yield patch.remove(*_SPEC, name)


def _is_same(one: Priority, other: Priority) -> bool:
    """Whether two priorities are the same; an empty class is none."""
    is_same_class = (one.priority_class_name or "") == (other.priority_class_name or "")
    values, others = (one.priority, one.preemption_policy), (other.priority, other.preemption_policy)
    return is_same_class and values == others


def _pod_group(pod: NewPod, wanted: str, policy: Policy) -> Iterable[patch.Operation]:
    there = pod.spec.scheduling_group
    if wanted and (there is None or there.pod_group_name != wanted):
        yield patch.put_member(_SPEC, "schedulingGroup", {"podGroupName": wanted})
    elif not wanted and _is_own_group(there, policy):
        yield patch.remove(*_SPEC, "schedulingGroup")


def _node_selector(pod: NewPod, without: NewPod, wanted: Mapping[str, str]) -> Iterable[patch.Operation]:
    path = (*_SPEC, "nodeSelector")
    there, of_others = pod.spec.node_selector, without.spec.node_selector or {}
    for key in there or {}:
        if key not in of_others and key not in wanted:
            yield patch.remove(*path, key)
    yield from patch.put_members(path, there, wanted)


def _noted(pod: NewPod, without: NewPod, wanted: Injection) -> Iterable[patch.Operation]:
    """The note for the next call of the same request; an empty one where another would be assumed."""
    note = _new_note(without, wanted)
    is_needed = wanted.is_managed and (note != _EMPTY or wanted.assumed != _EMPTY)
    text = _NOTE + msgspec.json.encode(note).decode() if is_needed else ""
    if text and text != pod.metadata.uid:
        yield patch.put_member(("metadata",), "uid", text)
    elif not text and note_of(pod) != _EMPTY:
        yield patch.remove("metadata", "uid")


def _new_note(without: NewPod, wanted: Injection) -> RequestNote:
    of_others = without.spec.node_selector or {}
    added = {key: value for key, value in wanted.node_selector.items() if of_others.get(key) != value}
    if wanted.priority is None:
        return RequestNote(added)
    return RequestNote(added, wanted.priority.priority_class_name or "", Priority.of(without))


def note_of(pod: NewPod) -> RequestNote:
    """The note of an earlier call, an empty one without any."""
    text = pod.metadata.uid or ""
    if not text.startswith(_NOTE):
        return _EMPTY
    try:
        return _decoder.decode(text.removeprefix(_NOTE))
    except msgspec.DecodeError:
        return _EMPTY
