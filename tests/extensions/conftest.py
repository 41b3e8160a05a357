"""The clusters of the sweeper's tests."""

from tests.sweeper.conftest import definitions, two_nodes, two_subblocks

__all__ = ["definitions", "two_nodes", "two_subblocks"]
