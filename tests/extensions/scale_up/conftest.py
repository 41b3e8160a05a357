"""A real API server that serves ProvisioningRequests and Placements; the autoscaler is a stand-in."""

from collections.abc import Iterator

import pytest

from hack.local.cluster import Cluster
from tests.definitions import wait_gone, wait_served
from tests.extensions.scale_up import autoscaler
from tests.support import delete, install_definitions


@pytest.fixture(scope="module")
def served(module_cluster: Cluster) -> Iterator[Cluster]:
    """The definitions, no nodes, and nobody who answers a request."""
    install_definitions(module_cluster)
    path = autoscaler.define(module_cluster.api())
    wait_served(module_cluster, "autoscaling.x-k8s.io/v1", "ProvisioningRequest")
    yield module_cluster
    delete(module_cluster.api(), path)
    wait_gone(module_cluster, path)


@pytest.fixture
def empty(served: Cluster) -> Iterator[Cluster]:
    """The same; nodes that a test brings go with it."""
    yield served
    served.api().request("DELETE", "/api/v1/nodes")
