"""The node's pods are read whatever else they say."""

import json

import pytest

from labeler.allocator.masks import HIERARCHY, UNKNOWN
from labeler.allocator.pods import decode_pods


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
