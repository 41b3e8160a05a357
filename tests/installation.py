"""topogate at work on the control plane of the tests, as its manifests say."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation, facts_of, system_node
from hack.local.nodes import SimulatedNode
from tests.support import register_nodes
from webhook.configuration.cluster import KEY, path_of
from webhook.kube.client import MERGE_PATCH


@contextmanager
def installed_for(
    cluster: Cluster,
    grid: Sequence[SimulatedNode],
    components: tuple[str, ...] = (),
    *,
    base: str = "base",
    more: str = "",
) -> Iterator[Installation]:
    """topogate with the facts of these nodes, which the caller registers and labels.

    base: the manifests below `manifests`. more: lines that are added to the shipped configuration.
    """
    installation = Installation(cluster, base=base, components=components)
    register_nodes(cluster, [system_node()], labelled=False)
    installation.apply(facts_of(grid))
    if more:
        text = f"{installation.api.json('GET', path_of())['data'][KEY]}\n{more}\n"
        body = {"data": {KEY: text}}
        installation.api.request("PATCH", path_of(), body=body, content_type=MERGE_PATCH)
    try:
        installation.start()
        yield installation
    finally:
        installation.stop()


@contextmanager
def installed_on(
    cluster: Cluster,
    shape: nodes.Shape,
    components: tuple[str, ...] = (),
    *,
    base: str = "base",
    more: str = "",
) -> Iterator[Installation]:
    """topogate on nodes of this shape, each labelled by its labeler."""
    grid = nodes.grid(shape)
    with installed_for(cluster, grid, components, base=base, more=more) as installation:
        register_nodes(cluster, grid, labelled=False)
        installation.label(grid)
        yield installation
