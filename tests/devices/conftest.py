"""A control plane with the Placement resource, for tests of pods with claims."""

import pytest

from hack.local.cluster import Cluster
from tests.support import install_definitions


@pytest.fixture
def definitions(cluster: Cluster) -> Cluster:
    """A cluster with the Placement resource and without anything else of topogate."""
    install_definitions(cluster)
    return cluster
