"""The Placement object: one gang's plan and progress, written before any of its pods is changed.

spec is the plan: the node and the cards of each pod (by uid). status is the progress and, for a waiting gang,
the reason. A new leader needs nothing else to finish the work of an earlier one. A plan is one object, so
that one write makes it durable; the pods of a large plan are packed to fit in it.

Fields under their names in v0.1 are read until v0.3, and removed by the next write. So v0.1 was the last to
write what is there under its name, and that counts rather than the present name.
"""

import contextlib
import functools
import logging
from typing import Any, ClassVar, Final

import msgspec

from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.kube.decoding import Reader
from webhook.kube.objects import Metadata, OwnerReference
from webhook.kube.plan_pods import PLAIN_PODS, PlannedPod, pack, unpack
from webhook.kube.struct import Struct

GROUP_VERSION: Final = "topogate.io/v1alpha1"
KIND: Final = "Placement"
ALL: Final = "/apis/topogate.io/v1alpha1/placements"

WAITING: Final = "Waiting"
RELEASING: Final = "Releasing"
RELEASED: Final = "Released"
BOUND: Final = "Bound"

logger = logging.getLogger(__name__)

PLAN_BYTES: Final = 1_400_000
"""The largest plan in bytes of JSON: etcd accepts 1.5 MiB for an object, and its status must still fit."""


def owner_reference(owner: Metadata) -> dict[str, str]:
    """The owner reference of an object that is deleted with this Placement."""
    return {"apiVersion": GROUP_VERSION, "kind": KIND, "name": owner.name, "uid": owner.uid}


class VictimGroup(Struct, frozen=True, omit_defaults=True):
    """Pods of one gang to evict for another gang.

    pods: their uids, which reveal nothing to users who may not list them. whole: the whole gang is evicted;
    otherwise it can run without these pods.

    nodes: of a gang that is moved, its new place, which is reserved for it; other victims have none.
    moved_gang: the Placement of the gang, or of the controller of a pod that is a gang alone. moves: when the
    gang was moved, in RFC 3339; the last one is this move. owner: the controller that recreates the whole
    gang; None where another one recreates that controller, as a JobSet its Jobs.
    """

    pods: list[str] = msgspec.field(default_factory=list)
    whole: bool = False
    nodes: list[str] = msgspec.field(default_factory=list)
    moved_gang: str = ""
    moves: list[str] = msgspec.field(default_factory=list)
    owner: OwnerReference | None = None

    @property
    def is_moved(self) -> bool:
        """Whether the gang has a new place; it may then be of the same priority."""
        return bool(self.nodes and self.moves)


class PlacementSpec(Struct, frozen=True, omit_defaults=True):
    """The plan of a gang.

    gang: its displayed name ("Job/train"); gangId distinguishes it from a later gang with the same name.
    size: how many pods were expected, 0 if unknown. proven: no better plan existed by the objective.
    preempts: pods of lower priority occupy the nodes of the plan. victims: the pods to remove, by gang. The
    sweeper evicts those that topogate placed, and kube-scheduler preempts the others. Other clients may write
    Placements, so victims are checked again before any eviction.
    attempt: how often the gang had restarted with all its planned pods gone when this was written.
    minimum: how many pods are enough to run, 0 if all are needed.
    later_pod_nodes: nodes reserved for pods that are created only once those of the plan run; `kept` in v0.1.
    usable_nodes: the nodes available for plans when the gang began, a share of which may be reserved; 0
    without reserved nodes.
    domains: the gang's exclusive topology domains, by label value, for each Job or subgroup ("" for the whole
    gang). They stay the gang's if nodes of the plan are gone, since its pods may still run there.
    moves: when the gang was moved so that another fits, in RFC 3339, within the last day.
    avoided: failing nodes that the plan avoids, at most ten, and why; only for display.
    packed: the pods of a large plan on the wire; in memory they are always in `pods`.
    """

    gang: str = ""
    gang_id: str = ""
    size: int = 0
    proven: bool = True
    preempts: bool = False
    victims: list[VictimGroup] = msgspec.field(default_factory=list)
    attempt: int = 0
    pods: list[PlannedPod] = msgspec.field(default_factory=list)
    later_pod_nodes: list[str] = msgspec.field(default_factory=list)
    usable_nodes: int = 0
    minimum: int = 0
    domains: dict[str, str] = msgspec.field(default_factory=dict)
    avoided: dict[str, str] = msgspec.field(default_factory=dict)
    moves: list[str] = msgspec.field(default_factory=list)
    packed: str = ""
    kept_v01: list[str] = msgspec.field(default_factory=list, name="kept")

    def __post_init__(self) -> None:
        """Unpack; a text that cannot be unpacked stays, and the plan has no pods then."""
        _rename(self, "kept_v01", "later_pod_nodes")
        if self.packed and not self.pods:
            with contextlib.suppress(ValueError):
                msgspec.structs.force_setattr(self, "pods", unpack(self.packed))
                msgspec.structs.force_setattr(self, "packed", "")

    def on_the_wire(self) -> dict[str, Any]:
        """The fields as in the API server, without defaults."""
        if len(self.pods) <= PLAIN_PODS:
            return dict(msgspec.to_builtins(self))
        rest = msgspec.to_builtins(msgspec.structs.replace(self, pods=[]))
        return {**rest, "packed": pack(self.pods)}


_MAPS: Final = tuple(
    each.name for each in msgspec.structs.fields(PlacementSpec) if each.default_factory is dict
)
"""The fields of a plan that are maps."""

_V01_STATUS: Final = ("held", "heldUntil", "turn")


class PlacementStatus(Struct, frozen=True, omit_defaults=True):
    """The progress of a gang.

    pods: how many of its pods exist. spread, reason: sentences. complete: all pods have been bound at some
    time, so the gang is never rolled back; attempt: the plan that this refers to, see Placement.is_complete.
    reserved_nodes: nodes reserved for the gang while it waits, or until its later pods exist, until
    reserved_until (RFC 3339) at the latest; without nodes, that time is over, or others have the share.
    fair_order: how its account stands while it waits. These three are for display, and no decision reads
    them. In v0.1 they are called held, held_until and turn.
    """

    state: str = ""
    pods: int = 0
    released: int = 0
    bound: int = 0
    spread: str = ""
    complete: bool = False
    attempt: int = 0
    reason: str = ""
    reserved_nodes: list[str] = msgspec.field(default_factory=list)
    reserved_until: str = ""
    fair_order: str = ""
    held_v01: list[str] = msgspec.field(default_factory=list, name="held")
    held_until_v01: str = msgspec.field(default="", name="heldUntil")
    turn_v01: str = msgspec.field(default="", name="turn")

    def __post_init__(self) -> None:
        """Read the names of v0.1."""
        _rename(self, "held_v01", "reserved_nodes")
        _rename(self, "held_until_v01", "reserved_until")
        _rename(self, "turn_v01", "fair_order")


def _rename(part: PlacementSpec | PlacementStatus, old: str, new: str) -> None:
    value = getattr(part, old)
    if value:
        msgspec.structs.force_setattr(part, new, value)
        msgspec.structs.force_setattr(part, old, type(value)())


class Placement(Struct, frozen=True):
    """The object as the API server has it."""

    leaves_out_unreadable: ClassVar[bool] = True

    metadata: Metadata
    spec: PlacementSpec = PlacementSpec()
    status: PlacementStatus = PlacementStatus()

    def __post_init__(self) -> None:
        """Leave out what topogate would not have written: the plan is then written again without it.

        A client may write any number and any text that the schema allows. It is reported once.
        """
        spec = self.spec
        wrong = [name for name in _COUNTS if not 0 <= getattr(spec, name) <= _MOST]
        if not wrong and not spec.packed:
            return
        repaired = msgspec.structs.replace(spec, packed="", **dict.fromkeys(wrong, 0))
        msgspec.structs.force_setattr(self, "spec", repaired)
        _report(self.key, ", ".join([*wrong, *(["packed"] if spec.packed else [])]))

    @property
    def key(self) -> str:
        """ "namespace/name"."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def holding(self) -> list[str]:
        """Nodes that are reserved for the gang: it has waited long, or pods of it do not exist yet."""
        is_reported = self.is_complete or bool(self.status.reserved_until)
        return self.status.reserved_nodes or ([] if is_reported else self.spec.later_pod_nodes)

    @property
    def is_complete(self) -> bool:
        """Whether the whole gang has been bound since its last restart.

        Plan and status are separate writes. Between them, or after a crash there, the status still describes
        the previous attempt.
        """
        return self.status.complete and self.status.attempt == self.spec.attempt


_COUNTS: Final = ("attempt", "minimum", "size", "usable_nodes")
_MOST: Final = 1_000_000_000
"""The largest count that is believed: the next attempt must still be a number for the API server."""


@functools.lru_cache(maxsize=4096)
def _report(key: str, fields: str) -> None:
    logger.warning("placement_repaired placement=%s unreadable=%s", key, fields)


_reader: Final = Reader(ALL, Placement)


def _answered(body: bytes) -> Placement:
    """The object in an answer of the API server. Raises ApiError if it is none."""
    placement, key, why = _reader.object(msgspec.Raw(body))
    if placement is None:
        raise ApiError(0, "Unreadable", f"the answer about placement {key} cannot be read: {why}")
    return placement


def path(namespace: str, name: str = "") -> str:
    """The path of a namespace's Placements, or of one of them."""
    return f"/apis/{GROUP_VERSION}/namespaces/{namespace}/placements" + (f"/{name}" if name else "")


def write_plan(
    api: Api, before: Placement | None, metadata: dict[str, Any], spec: PlacementSpec
) -> Placement:
    """Save the plan in one write: a new object, or `before` with this spec and these owners.

    The gang's controller may have been replaced since `before` was created (a JobSet recreates its Jobs). The
    new owners prevent that garbage collection deletes the plan with the earlier controller.
    Raises ApiError: status 409 if another leader wrote since `before` was read, 413 if the plan is too large
    for one object.
    """
    fields = spec.on_the_wire()
    if len(msgspec.json.encode(fields)) > PLAN_BYTES:
        # The API server would return a server error (500), which is retried forever.
        limit = f"its plan would take more than the {PLAN_BYTES / 1e6:.1f} MB that one object may have"
        raise ApiError(
            413, "RequestEntityTooLarge", f"{limit}: make several gangs of the {len(spec.pods):,} pods"
        )
    body: dict[str, Any] = {
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": fields,
    }
    if before is None:
        return _answered(api.request("POST", path(metadata["namespace"]), body=body))
    # The API server refuses the write if another client wrote since the read.
    guard = {
        "uid": before.metadata.uid,
        "resourceVersion": before.metadata.resource_version,
        "ownerReferences": metadata.get("ownerReferences"),
    }
    answer = api.request(
        "PATCH",
        path(before.metadata.namespace, before.metadata.name),
        body={"metadata": guard, "spec": _replacing(before.spec, fields)},
        content_type=MERGE_PATCH,
    )
    return _answered(answer)


def _replacing(before: PlacementSpec, fields: dict[str, Any]) -> dict[str, Any]:
    """The merge patch for a plan of these fields: of maps it merges the keys, so each is removed."""
    gone = {name: None for name in PlacementSpec.__struct_encode_fields__ if name not in fields}
    maps = {
        name: {**dict.fromkeys(getattr(before, name)), **fields[name]} for name in _MAPS if name in fields
    }
    return fields | gone | maps


def write_status(api: Api, placement: Placement, status: PlacementStatus) -> Placement:
    """Replace the status; fields at their default are removed."""
    fields = msgspec.to_builtins(status)
    before = {**msgspec.to_builtins(placement.status), **dict.fromkeys(_V01_STATUS)}
    gone = {name: None for name in before if name not in fields}
    metadata = placement.metadata
    answer = api.request(
        "PATCH",
        path(metadata.namespace, metadata.name) + "/status",
        body={"metadata": {"uid": metadata.uid}, "status": {**fields, **gone}},
        content_type=MERGE_PATCH,
    )
    return _answered(answer)


def delete(api: Api, placement: Placement) -> None:
    """Delete a Placement, unless it has changed since it was read."""
    metadata = placement.metadata
    api.request(
        "DELETE",
        path(metadata.namespace, metadata.name),
        body={
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        },
    )
