"""Clusters for a sweeper that works in the process of a test: nodes of 8 GPUs, and Placements."""

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import install_definitions, register_nodes, wait_for_nodes
from tests.sweeper.at_work import create_priority_classes


@pytest.fixture
def definitions(cluster: Cluster) -> Cluster:
    """A cluster with the Placement resource and without anything else of topogate."""
    install_definitions(cluster)
    return cluster


@pytest.fixture
def two_nodes(definitions: Cluster) -> Cluster:
    """Two labelled nodes, and PriorityClasses."""
    register_nodes(definitions, nodes.grid(nodes.Shape(nodes=2, blocks=1, subblocks=1)))
    create_priority_classes(definitions)
    return definitions


@pytest.fixture
def misnamed_nodes(definitions: Cluster) -> Cluster:
    """Two labelled nodes whose names and hostname labels differ, as on some clouds."""
    grid = nodes.grid(nodes.Shape(nodes=2, blocks=1, subblocks=1))
    for node in grid:
        labels = {**node.topology_labels, keys.HOSTNAME_LABEL: f"host-of-{node.name}"}
        definitions.api().request("POST", "/api/v1/nodes", body=node.manifest(labels))
    wait_for_nodes(definitions, grid)
    return definitions


@pytest.fixture
def three_nodes(definitions: Cluster) -> Cluster:
    """Three labelled nodes."""
    register_nodes(definitions, nodes.grid(nodes.Shape(nodes=3, blocks=1, subblocks=1)))
    return definitions


@pytest.fixture
def two_subblocks(definitions: Cluster) -> Cluster:
    """Three labelled nodes in each of two subblocks."""
    register_nodes(definitions, nodes.grid(nodes.Shape(nodes=6, blocks=1, subblocks=2)))
    return definitions
