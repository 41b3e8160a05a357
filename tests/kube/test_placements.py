"""Plans as the API server stores them: their pods, the life of the gang that their status belongs to."""

from typing import Any, Final, get_origin

import msgspec
import pytest

from hack.local.cluster import Cluster
from tests.kube.plans import drawn
from tests.support import install_definitions
from webhook.kube import placements
from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.kube.decoding import Reader
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.kube.plan_pods import PlannedPod


def controller(api: Api, namespace: str, name: str) -> dict[str, Any]:
    """An object that may own others, as an owner reference."""
    made = api.json("POST", f"/api/v1/namespaces/{namespace}/configmaps", body={"metadata": {"name": name}})
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}


def spec(pod: str, attempt: int = 0) -> PlacementSpec:
    return PlacementSpec(
        gang="JobSet/g", attempt=attempt, pods=[PlannedPod(name=pod, uid=f"uid-{pod}", node="n")]
    )


def test_a_plan_of_a_later_controller_is_not_deleted_with_the_earlier_one(
    cluster: Cluster, namespace: str
) -> None:
    install_definitions(cluster)
    api = cluster.api()
    old, new = controller(api, namespace, "old"), controller(api, namespace, "new")
    metadata: dict[str, Any] = {"namespace": namespace, "name": "p"}
    first = placements.write_plan(api, None, metadata | {"ownerReferences": [old]}, spec("a"))
    placements.write_plan(api, first, metadata | {"ownerReferences": [new]}, spec("b"))
    # That the garbage collector has come by is seen by one that stays with the earlier controller.
    other = metadata | {"name": "other", "ownerReferences": [old]}
    placements.write_plan(api, None, other, spec("c"))
    api.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/old")

    def names() -> list[str]:
        items = api.json("GET", placements.path(namespace))["items"]
        return [item["metadata"]["name"] for item in items]

    cluster.wait_for("the garbage collector", lambda: "other" not in names())
    assert names() == ["p"]
    api.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/new")
    cluster.wait_for("the plan to go with its own controller", lambda: not names())


def test_a_plan_of_several_controllers_has_no_owner_any_more(cluster: Cluster, namespace: str) -> None:
    install_definitions(cluster)
    api = cluster.api()
    metadata: dict[str, Any] = {"namespace": namespace, "name": "p"}
    owned = metadata | {"ownerReferences": [controller(api, namespace, "old")]}
    first = placements.write_plan(api, None, owned, spec("a"))
    assert placements.write_plan(api, first, metadata, spec("b")).metadata.owner_references == []


def test_a_gang_that_began_again_is_not_complete_because_its_earlier_life_was(
    cluster: Cluster, namespace: str
) -> None:
    install_definitions(cluster)
    api = cluster.api()
    metadata: dict[str, Any] = {"namespace": namespace, "name": "p"}
    first = placements.write_plan(api, None, metadata, spec("a"))
    done = placements.write_status(api, first, PlacementStatus(placements.BOUND, 1, 1, 1, complete=True))
    assert done.is_complete
    written = placements.write_plan(api, done, metadata, spec("b"))
    assert written.is_complete, "a pod more"
    rewritten = placements.write_plan(api, written, metadata, spec("c", attempt=1))
    assert rewritten.status.complete, "the status is written in a write of its own"
    assert not rewritten.is_complete
    again = PlacementStatus(placements.BOUND, 1, 1, 1, complete=True, attempt=1)
    assert placements.write_status(api, rewritten, again).is_complete


def test_each_map_of_a_plan_loses_what_the_next_plan_does_not_name(cluster: Cluster, namespace: str) -> None:
    install_definitions(cluster)
    api = cluster.api()
    metadata: dict[str, Any] = {"namespace": namespace, "name": "p"}
    fields = msgspec.structs.fields(PlacementSpec)
    names = [field.name for field in fields if get_origin(field.type) is dict]
    written: Placement | None = None
    for found in ({"a": "1", "b": "1"}, {"b": "2", "c": "2"}, {"b": "2"}, {}):
        maps: dict[str, Any] = dict.fromkeys(names, found)
        plan = msgspec.structs.replace(spec("a"), **maps)
        written = placements.write_plan(api, written, metadata, plan)
        assert [getattr(written.spec, name) for name in names] == [found] * len(names), names


def test_a_plan_that_was_written_meanwhile_is_not_overwritten(cluster: Cluster, namespace: str) -> None:
    install_definitions(cluster)
    api = cluster.api()
    metadata: dict[str, Any] = {"namespace": namespace, "name": "p"}
    first: Placement = placements.write_plan(api, None, metadata, spec("a"))
    placements.write_plan(api, first, metadata, spec("b"))
    with pytest.raises(ApiError) as refused:
        placements.write_plan(api, first, metadata, spec("c"))
    assert refused.value.status == 409


@pytest.mark.promise("R6")
def test_a_plan_of_20_000_pods_is_stored_and_a_smaller_one_after_it_is_plain_again(
    cluster: Cluster, namespace: str
) -> None:
    install_definitions(cluster)
    api = cluster.api()
    metadata: dict[str, Any] = {"namespace": namespace, "name": "p"}
    large, small = (PlacementSpec(gang="Job/g", pods=drawn(count)) for count in (20_000, 2))
    written = placements.write_plan(api, None, metadata, large)
    assert written.spec == large
    reader = Reader(placements.ALL, Placement)
    (item, _, why), *_ = reader.page(api.request("GET", placements.path(namespace)))[0]
    assert item is not None, why
    assert item.spec == large
    assert placements.write_plan(api, written, metadata, small).spec == small
    stored = api.json("GET", placements.path(namespace, "p"))["spec"]
    assert [pod["name"] for pod in stored["pods"]] == [pod.name for pod in small.pods]
    assert "packed" not in stored


def test_a_plan_that_is_too_large_for_one_object_is_refused_for_good_with_the_reason(
    control_plane: Cluster,
) -> None:
    spec = PlacementSpec(gang="Job/g", pods=drawn(60_000))
    api = control_plane.api()
    with pytest.raises(ApiError, match=r"1.4 MB .* several gangs of the 60,000 pods") as refused:
        placements.write_plan(api, None, {"namespace": "n", "name": "p"}, spec)
    assert not refused.value.is_transient


# --- Placements of v0.1 -----------------------------------------------------------------------------

V01_PODS: Final = [{"name": "train-0", "uid": "uid-0", "node": "n0", "rank": 0}]
V01: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "waits": (
        {"gang": "Job/train", "gangId": "uid-train", "size": 2},
        {
            "state": "Waiting", "pods": 2, "reason": "no capacity", "held": ["n1", "n2"],
            "heldUntil": "2026-01-01T00:30:00Z", "turn": "its account has used 12 GPU hours",
        },
    ),
    "its later pods are to come": (
        {"gang": "LeaderWorkerSet/train", "size": 3, "pods": V01_PODS, "kept": ["n1"], "usableNodes": 4},
        {
            "state": "Releasing", "pods": 3, "released": 1, "bound": 1, "spread": "1 block, 1 host",
            "held": ["n1"], "heldUntil": "2026-01-01T00:30:00Z",
        },
    ),
    "preempts": (
        {
            "gang": "Job/high", "size": 1, "pods": V01_PODS, "preempts": True,
            "victims": [{"pods": ["uid-low"], "whole": True}],
        },
        {"state": "Waiting", "pods": 1, "reason": "it waits for 1 pod of lower priority to end"},
    ),
    "is released in part": (
        {"gang": "Job/half", "size": 2, "attempt": 1, "pods": [*V01_PODS, {**V01_PODS[0], "uid": "uid-1"}]},
        {"state": "Releasing", "pods": 2, "released": 1, "bound": 1, "complete": True, "attempt": 1},
    ),
}  # fmt: skip
"""Spec and status of gangs, as v0.1 writes them."""
RENAMED: Final = {
    "kept": "laterPodNodes", "held": "reservedNodes", "heldUntil": "reservedUntil", "turn": "fairOrder",
}  # fmt: skip
"""The names of v0.1 -> the present ones."""
V01_FIELDS: Final = frozenset(
    {
        "gang", "gangId", "size", "proven", "preempts", "victims", "attempt", "pods", "kept", "usableNodes",
        "minimum", "domains", "avoided", "packed", "state", "released", "bound", "spread", "complete",
        "reason", "held", "heldUntil", "turn",
    }
)  # fmt: skip
"""All fields of spec and status that v0.1 reads."""


def read(spec: dict[str, Any], status: dict[str, Any]) -> Placement:
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": status}, Placement)


@pytest.mark.promise("O327")
@pytest.mark.parametrize(("spec", "status"), V01.values(), ids=V01)
def test_a_placement_of_v0_1_is_read_whole_and_written_with_the_present_names(
    spec: dict[str, Any], status: dict[str, Any]
) -> None:
    placement = read(spec, status)
    written = placement.spec.on_the_wire(), msgspec.to_builtins(placement.status)
    assert written == tuple({RENAMED.get(name, name): part[name] for name in part} for part in (spec, status))


@pytest.mark.promise("O327")
@pytest.mark.parametrize(("spec", "status"), V01.values(), ids=V01)
def test_v0_1_lacks_only_the_renamed_fields_of_a_present_placement(
    spec: dict[str, Any], status: dict[str, Any]
) -> None:
    placement = read(spec, status)
    for part, written in (
        (spec, placement.spec.on_the_wire()), (status, msgspec.to_builtins(placement.status))
    ):  # fmt: skip
        known = {name: value for name, value in written.items() if name in V01_FIELDS}
        assert known == {name: value for name, value in part.items() if name not in RENAMED}


def test_of_a_field_under_both_names_that_of_v0_1_counts_as_v0_1_wrote_last() -> None:
    """The present version removes the name of v0.1, which does not know the present one."""
    placement = read({"kept": ["n1"], "laterPodNodes": ["n0"]}, {"turn": "2nd", "fairOrder": "1st"})
    assert (placement.spec.later_pod_nodes, placement.status.fair_order) == (["n1"], "2nd")


def test_the_next_write_removes_the_names_of_v0_1(cluster: Cluster, namespace: str) -> None:
    install_definitions(cluster)
    api = cluster.api()
    spec, status = V01["its later pods are to come"]
    metadata = {"namespace": namespace, "name": "p"}
    body = {
        "apiVersion": placements.GROUP_VERSION,
        "kind": placements.KIND,
        "metadata": metadata,
        "spec": spec,
    }
    api.json("POST", placements.path(namespace), body=body)
    path = placements.path(namespace, "p")
    stored = api.json(
        "PATCH", f"{path}/status", body={"status": {**status, "turn": "x"}}, content_type=MERGE_PATCH
    )
    assert stored["spec"] == spec
    found = msgspec.convert(stored, Placement)
    found = placements.write_plan(api, found, metadata, found.spec)
    placements.write_status(api, found, found.status)
    stored = api.json("GET", path)
    assert not (stored["spec"].keys() | stored["status"].keys()) & RENAMED.keys()
    assert (stored["spec"]["laterPodNodes"], stored["status"]["fairOrder"]) == (["n1"], "x")
