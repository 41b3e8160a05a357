"""topogate at work on the control plane of the tests, as its manifests say."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation, facts_of, system_node
from hack.local.nodes import SimulatedNode
from tests.support import register_nodes


@contextmanager
def installed_for(
    cluster: Cluster, grid: Sequence[SimulatedNode], components: tuple[str, ...] = ()
) -> Iterator[Installation]:
    """topogate with the facts of these nodes, which the caller registers and labels."""
    installation = Installation(cluster, components=components)
    register_nodes(cluster, [system_node()], labelled=False)
    installation.apply(facts_of(grid))
    try:
        installation.start()
        yield installation
    finally:
        installation.stop()


@contextmanager
def installed_on(cluster: Cluster, shape: nodes.Shape) -> Iterator[Installation]:
    """topogate on nodes of this shape, each labelled by its labeler."""
    grid = nodes.grid(shape)
    with installed_for(cluster, grid) as installation:
        register_nodes(cluster, grid, labelled=False)
        installation.label(grid)
        yield installation
