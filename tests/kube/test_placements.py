"""Plans as the API server stores them: their pods, and the life of the gang that their status belongs to."""

from typing import Any

import pytest

from hack.local.cluster import Cluster
from tests.kube.plans import drawn
from tests.support import install_definitions
from webhook.kube import placements
from webhook.kube.client import Api, ApiError
from webhook.kube.decoding import Reader
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.kube.planned import PlannedPod


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
