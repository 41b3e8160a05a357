"""Kubernetes' own PodGroups, in each version that a cluster may serve."""

from typing import Any

import msgspec
import pytest

from tests.sweeper.pods import decode, pod_json
from webhook.kube.objects import Pod
from webhook.sweeper.observe.membership import key_of
from webhook.workloads.native_gangs import VERSIONS, NativePodGroup, group_name
from webhook.workloads.owners import OwnerRules

PARENTS: dict[str, dict[str, Any]] = {
    "v1alpha2": {"podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}},
    "v1alpha3": {"parentCompositePodGroupName": "whole", "workloadRef": {"workloadName": "w"}},
    "v1beta1": {"workloadRef": {"workloadName": "w", "templateName": "t"}},
}
"""How each version says of what a PodGroup was made."""


def group(version: str = "v1beta1", **spec: Any) -> NativePodGroup:
    body = {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "here", "uid": "u"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 16}}, **PARENTS[version], **spec},
        "status": {"conditions": [{"type": "PodGroupScheduled", "status": "False"}]},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=NativePodGroup)


@pytest.mark.parametrize("version", VERSIONS)
def test_minimum_and_topology_are_read_in_each_version(version: str) -> None:
    found = group(version, schedulingConstraints={"topology": [{"key": "example.com/rack"}]})
    assert (found.min_count, found.topology_keys) == (16, ("example.com/rack",))
    assert group(version).topology_keys == ()
    assert group(version, schedulingPolicy={"basic": {}}).min_count is None


def of_group(name: str | None = "g", owner: str = "", **metadata: Any) -> Pod:
    """A pod that names a PodGroup, of an owner "Kind.group"."""
    kind, _, api_group = owner.partition(".")
    references = [
        {"apiVersion": f"{api_group}/v1", "kind": kind, "name": "o", "uid": "uid-o", "controller": True}
    ]
    body = pod_json(
        metadata={"namespace": "here", "ownerReferences": references if owner else [], **metadata},
        schedulingGroup={} if name is None else {"podGroupName": name},
    )
    return decode(body)


@pytest.mark.parametrize("owner", ["", "ReplicaSet.apps", "StatefulSet.apps", "Flow.example.com"])
def test_pods_of_a_group_are_one_gang_whatever_their_owner_is(owner: str) -> None:
    key = key_of(of_group(owner=owner))
    assert (key.namespace, key.kind, key.name) == ("here", "PodGroup", "g")
    assert key == key_of(of_group(owner=owner), OwnerRules(gang_labels=("app",)))
    assert key != key_of(of_group("another", owner=owner))


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({"labels": {"batch.kubernetes.io/job-name": "train"}}, "Job"),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}, "JobSet"),
        ({"labels": {"leaderworkerset.sigs.k8s.io/name": "train"}}, "LeaderWorkerSet"),
        ({"annotations": {"topogate.io/gang": "train"}}, "Gang"),
    ],
)
def test_the_gang_that_a_controller_or_an_author_has_marked_is_the_larger_one(
    metadata: dict[str, Any], kind: str
) -> None:
    key = key_of(of_group(**metadata))
    assert (key.kind, key.name) == (kind, "train")


def test_a_group_of_a_kind_that_nobody_knows_has_no_effect() -> None:
    assert group_name(of_group(None).spec) == ""
    assert key_of(of_group(None)).kind == "Pod"


def test_a_group_of_another_namespace_is_another_gang() -> None:
    assert key_of(of_group()) != key_of(of_group(namespace="there"))
