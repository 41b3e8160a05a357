"""The node's pods are read whatever else they say."""

import json
from typing import Any

import msgspec
import pytest

from labeler.allocator.masks import HIERARCHY, UNKNOWN
from labeler.allocator.pods import decode_pods
from labeler.allocator.values import LocalContainer, LocalPod


@pytest.mark.parametrize(
    ("variable", "hierarchy"),
    [
        ({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, None),
        ({"name": HIERARCHY, "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}, UNKNOWN),
        ({"name": HIERARCHY, "value": "FLAT"}, "FLAT"),
    ],
)
def test_a_variable_that_comes_from_elsewhere_hides_no_pod(
    variable: dict[str, object], hierarchy: str | None
) -> None:
    container = {"name": "main", "env": [variable], "resources": {"limits": {"gpu.intel.com/i915": "1"}}}
    pod = {
        "metadata": {"name": "a", "namespace": "b", "uid": "c"},
        "spec": {"containers": [container]},
        "status": {"phase": "Pending"},
    }
    (found,) = decode_pods(json.dumps({"items": [pod]}).encode())
    assert [each.hierarchy for each in found.containers] == [hierarchy]


def item(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c", **container}]},
    }


def decode(*items: dict[str, Any]) -> tuple[LocalPod, ...]:
    return decode_pods(json.dumps({"kind": "PodList", "items": items}).encode())


@pytest.mark.parametrize(
    ("variables", "hierarchy"),
    [
        ([("OTHER", "FLAT")], None),
        ([(HIERARCHY, "FLAT"), (HIERARCHY, "COMPOSITE")], "COMPOSITE"),
        ([(HIERARCHY, "COMPOSITE"), ("OTHER", "x")], "COMPOSITE"),
    ],
)
def test_of_several_variables_of_one_name_the_last_counts(
    variables: list[tuple[str, str]], hierarchy: str | None
) -> None:
    (pod,) = decode(item(env=[{"name": name, "value": value} for name, value in variables]))
    assert pod.containers[0].hierarchy == hierarchy


def test_limits_of_extended_resources_are_whole_numbers() -> None:
    limits = {"gpu.intel.com/i915": "2", "example.com/many": "1k", "cpu": "100m", "memory": "1Gi"}
    (pod,) = decode(item(resources={"limits": limits}))
    assert pod.containers == (LocalContainer("c", {"gpu.intel.com/i915": 2, "example.com/many": 1000}),)


@pytest.mark.parametrize(
    ("status", "over", "started"),
    [
        ({}, False, False),
        ({"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}, False, True),
        ({"phase": "Failed"}, True, False),
        ({"phase": "Succeeded", "startTime": "2026-01-01T00:00:00Z"}, True, True),
    ],
)
def test_the_state_of_a_pod_is_read(status: dict[str, str], over: bool, started: bool) -> None:
    (pod,) = decode(item() | {"status": status})
    assert (pod.over, pod.started) == (over, started)


def test_sidecars_are_told_from_other_init_containers() -> None:
    whole = item()
    whole["spec"]["initContainers"] = [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]
    (pod,) = decode(whole)
    assert ([each.name for each in pod.init], [each.name for each in pod.sidecars]) == (["i"], ["s"])


def test_of_the_annotations_those_of_cards_alone_are_kept() -> None:
    whole = item()
    whole["metadata"]["annotations"] = {"gas-container-cards": "card1", "example.com/other": "x" * 1000}
    (pod,) = decode(whole)
    assert pod.annotations == {"gas-container-cards": "card1"}


def test_what_is_no_list_of_pods_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_pods(b'{"kind": "Status", "message": "no"}')
