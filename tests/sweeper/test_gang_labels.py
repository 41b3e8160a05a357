"""Gangs by labels of the operator's choice, and capacity that kube-scheduler's own groups take."""

from typing import Any

import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.sweeper.observe.gangs import key_of
from webhook.workloads import marks
from webhook.workloads.owners import OwnerRules

HELM = "app.kubernetes.io/instance"
CHOSEN = (HELM, "name")


def of(kind: str, **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": "x/v1", "kind": kind, "name": "o", "uid": "uid-of-owner", "controller": True}
    return {"ownerReferences": [owner], **more}


@pytest.mark.promise("O105")
@pytest.mark.parametrize(
    ("metadata", "kind", "name"),
    [
        ({"labels": {HELM: "r", "name": "n"}}, "Group", "r"),
        ({"labels": {"name": "n"}}, "Group", "n"),
        ({"labels": {HELM: "", "name": "n"}}, "Group", "n"),
        ({"labels": {}}, "Pod", "p"),
        (of("Alien", labels={"name": "n"}), "Group", "n"),
        (of("StatefulSet", labels={"name": "n"}), "StatefulSet", "o"),
        (of("ReplicaSet", labels={"name": "n"}), "Pod", "p"),
        ({"labels": {"name": "n", marks.JOBSET_NAME_LABEL: "set"}}, "JobSet", "set"),
        ({"labels": {"name": "n"}, "annotations": {keys.GANG_ANNOTATION: "mine"}}, "Gang", "mine"),
    ],
    ids=[
        "the first label",
        "the second label",
        "an empty value",
        "none of them",
        "an unknown controller",
        "a known controller",
        "pods that do not wait for one another",
        "a controller's mark",
        "its own annotation",
    ],
)
def test_chosen_labels_count_behind_annotations_and_known_controllers(
    metadata: dict[str, Any], kind: str, name: str
) -> None:
    key = key_of(decode(pod_json(metadata=metadata)), OwnerRules(CHOSEN))
    assert (key.kind, key.name) == (kind, name)


def test_values_of_two_labels_are_two_gangs_even_if_they_are_the_same_text() -> None:
    one, two = (
        key_of(decode(pod_json(metadata={"labels": {label: "x"}})), OwnerRules(CHOSEN)) for label in CHOSEN
    )
    assert one != two
    assert one.placement_name != two.placement_name


@pytest.mark.promise("O108")
def test_bound_pods_of_a_scheduling_group_use_their_capacity() -> None:
    theirs = gpu_pod("theirs", node="n0", schedulingGroup={"podGroupName": "g"})
    placing = Placing(Nodes(2, theirs, gpu_pod("mine")), Settings(settle_seconds=0))
    assert places(placing.one()) == {"mine": "n1"}
