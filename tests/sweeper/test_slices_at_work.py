"""Slices on the real API server, with kube-scheduler."""

import re

import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import delete
from tests.sweeper.at_work import Pods, create_pod, sweep, template
from webhook.configuration.settings import Settings
from webhook.workloads import marks


def create(cluster: Cluster, namespace: str, rank: int, name: str) -> None:
    annotations = {
        keys.GANG_ANNOTATION: "g",
        keys.GANG_SIZE_ANNOTATION: "4",
        keys.SLICE_TOPOLOGY_ANNOTATION: "subblock",
        keys.SLICE_SIZE_ANNOTATION: "2",
        marks.JOB_INDEX_KEY: str(rank),
    }
    create_pod(cluster.api(), namespace, name, template(8, annotations=annotations))


def four_run(pods: Pods) -> bool:
    return [pod["status"]["phase"] for pod in pods] == ["Running"] * 4


def subblocks(pods: Pods) -> list[str]:
    """The subblock of each rank; nodes are called node-b<block>-s<subblock>-h<host>."""
    by_rank = sorted(pods, key=lambda pod: int(pod["metadata"]["annotations"][marks.JOB_INDEX_KEY]))
    return [re.sub(r"-h\d+$", "", pod["spec"]["nodeName"]) for pod in by_rank]


@pytest.mark.promise("R59")
def test_a_gang_runs_in_slices_and_a_pod_that_is_recreated_returns_to_its_own(
    two_subblocks: Cluster, namespace: str
) -> None:
    for rank in range(4):
        create(two_subblocks, namespace, rank, f"p{rank}")
    first = subblocks(sweep(two_subblocks, namespace, Settings(), four_run, "the gang to run"))
    assert first[0] == first[1] != first[2] == first[3], "three of four would fit into one subblock"
    delete(two_subblocks.api(), f"/api/v1/namespaces/{namespace}/pods/p2")
    create(two_subblocks, namespace, 2, "p2-again")
    assert subblocks(sweep(two_subblocks, namespace, Settings(), four_run, "all to run again")) == first
