"""The Placement object: one gang's plan, written before any pod of it is touched, and how far it is.

spec is the decision: which pod (by uid) goes to which node with which cards. status is progress and,
for a gang that waits, the reason. A later leader needs nothing else to finish what an earlier began.
A plan is one object, so that one write makes it durable; the pods of a large one are packed to fit in it.
"""

from typing import Any, Final

import msgspec

from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.kube.objects import Metadata
from webhook.kube.planned import PLAIN_PODS, PlannedPod, pack, unpack
from webhook.kube.struct import Struct

GROUP_VERSION: Final = "topogate.io/v1alpha1"
KIND: Final = "Placement"
ALL: Final = "/apis/topogate.io/v1alpha1/placements"

WAITING: Final = "Waiting"
RELEASING: Final = "Releasing"
RELEASED: Final = "Released"
BOUND: Final = "Bound"

PLAN_BYTES: Final = 1_400_000
"""A plan's JSON at most: etcd takes 1.5 MiB for an object, and its status must still fit."""


def owner_reference(owner: Metadata) -> dict[str, str]:
    """What stands in the metadata of an object that goes with this Placement."""
    return {"apiVersion": GROUP_VERSION, "kind": KIND, "name": owner.name, "uid": owner.uid}


class VictimGroup(Struct, frozen=True, omit_defaults=True):
    """Pods that are to go for a gang. pods: their uids, which say nothing to those who may not see them.

    whole: they are all of a gang, which goes whole; else it can spare them.
    """

    pods: list[str] = msgspec.field(default_factory=list)
    whole: bool = False


class PlacementSpec(Struct, frozen=True, omit_defaults=True):
    """The plan. gang: what people call it ("Job/train"); gangId tells it from a later one of that name.

    size: how many pods were expected, 0 where nobody said. proven: nothing better existed by the objective.
    preempts: pods of lower priority stand in the way of the plan. victims: who of them is to go, by gang;
    those that went through topogate the sweeper evicts, kube-scheduler preempts the others. A Placement may
    have been written by anybody, so they are checked again before anybody goes.
    attempt: how often the gang had started again, all its planned pods gone, when this was written.
    minimum: how many pods are enough to run, 0 where all are needed.
    kept: nodes for pods of the gang that are made only once those of the plan run. usable_nodes: how many
    nodes there were for plans when the gang began, of which a share may be reserved; 0 where none are kept.
    domains: the topology domains that the gang has for itself, by the value of the label that it names, for
    each Job or subgroup of it that has one ("" for all of it): it has them also where nodes of the plan are
    gone, and its pods may run there still.
    avoided: bad nodes that the plan does without, at most ten, and why; for people alone.
    packed: pods, where they are many, as they are on the wire; here they are always in `pods`.
    """

    gang: str = ""
    gang_id: str = ""
    size: int = 0
    proven: bool = True
    preempts: bool = False
    victims: list[VictimGroup] = msgspec.field(default_factory=list)
    attempt: int = 0
    pods: list[PlannedPod] = msgspec.field(default_factory=list)
    kept: list[str] = msgspec.field(default_factory=list)
    usable_nodes: int = 0
    minimum: int = 0
    domains: dict[str, str] = msgspec.field(default_factory=dict)
    avoided: dict[str, str] = msgspec.field(default_factory=dict)
    packed: str = ""

    def __post_init__(self) -> None:
        """Unpack. Raises ValueError, by which the whole object counts and is reported as unreadable."""
        if self.packed:
            if self.pods:
                raise ValueError("spec has both pods and packed")
            msgspec.structs.force_setattr(self, "pods", unpack(self.packed))
            msgspec.structs.force_setattr(self, "packed", "")

    def on_the_wire(self) -> dict[str, Any]:
        """The fields as the API server keeps them, without those at their defaults."""
        if len(self.pods) <= PLAIN_PODS:
            return dict(msgspec.to_builtins(self))
        rest = msgspec.to_builtins(msgspec.structs.replace(self, pods=[]))
        return {**rest, "packed": pack(self.pods)}


class PlacementStatus(Struct, frozen=True, omit_defaults=True):
    """Progress. pods is the number of members there are; spread and reason are sentences.

    complete: all of them have been bound at some time, so that the gang is never rolled back again; attempt:
    of which plan that was said, see Placement.is_complete. held: nodes that are held for the gang while it
    waits, or until its later pods come, until held_until (RFC 3339) at most; for people, and never read
    to decide anything. turn: of a gang that waits, how its account stands where the policy has a fair order.
    """

    state: str = ""
    pods: int = 0
    released: int = 0
    bound: int = 0
    spread: str = ""
    complete: bool = False
    attempt: int = 0
    reason: str = ""
    held: list[str] = msgspec.field(default_factory=list)
    held_until: str = ""
    turn: str = ""


class Placement(Struct, frozen=True):
    """The object as the API server has it."""

    metadata: Metadata
    spec: PlacementSpec = PlacementSpec()
    status: PlacementStatus = PlacementStatus()

    @property
    def key(self) -> str:
        """Where it stands among all: "namespace/name"."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def holding(self) -> list[str]:
        """Nodes that are held for the gang: it has waited long, or pods of it are yet to be made."""
        return self.status.held or ([] if self.is_complete else self.spec.kept)

    @property
    def is_complete(self) -> bool:
        """Whether the gang has been bound as a whole since it last started again.

        A plan is written in one write and its status in another: between the two, or after a crash there,
        the status is still that of the gang's earlier life.
        """
        return self.status.complete and self.status.attempt == self.spec.attempt


_decoder: Final = msgspec.json.Decoder(Placement)


def path(namespace: str, name: str = "") -> str:
    """Where a namespace's Placements, or one of them, live."""
    return f"/apis/{GROUP_VERSION}/namespaces/{namespace}/placements" + (f"/{name}" if name else "")


def write_plan(
    api: Api, before: Placement | None, metadata: dict[str, Any], spec: PlacementSpec
) -> Placement:
    """Make the plan durable, in one write: a new object, or `before` with this spec and these owners.

    The gang's controller may be another one than when `before` was made (a JobSet makes its Jobs again): the
    plan must not go with the earlier one.
    Raises ApiError; status 409 when another leader wrote since `before` was read, 413 for a plan that is too
    large for one object.
    """
    fields = spec.on_the_wire()
    if len(msgspec.json.encode(fields)) > PLAN_BYTES:
        # The API server would say so as an error of its own (500), which is tried again and again.
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
        return _decoder.decode(api.request("POST", path(metadata["namespace"]), body=body))
    # Refused if anybody wrote since it was read.
    guard = {
        "uid": before.metadata.uid,
        "resourceVersion": before.metadata.resource_version,
        "ownerReferences": metadata.get("ownerReferences"),
    }
    gone = {name: None for name in PlacementSpec.__struct_encode_fields__ if name not in body["spec"]}
    answer = api.request(
        "PATCH",
        path(before.metadata.namespace, before.metadata.name),
        body={"metadata": guard, "spec": body["spec"] | gone},
        content_type=MERGE_PATCH,
    )
    return _decoder.decode(answer)


def write_status(api: Api, placement: Placement, status: PlacementStatus) -> Placement:
    """Replace the status; fields that are back to their default are removed."""
    fields = msgspec.to_builtins(status)
    gone = {name: None for name in msgspec.to_builtins(placement.status) if name not in fields}
    metadata = placement.metadata
    answer = api.request(
        "PATCH",
        path(metadata.namespace, metadata.name) + "/status",
        body={"metadata": {"uid": metadata.uid}, "status": {**fields, **gone}},
        content_type=MERGE_PATCH,
    )
    return _decoder.decode(answer)


def delete(api: Api, placement: Placement) -> None:
    """Remove a Placement, unless it is no longer the one that was looked at."""
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
