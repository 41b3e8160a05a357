"""topogate at work on the control plane of the tests, as its manifests say."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation, facts_of, system_node
from hack.local.nodes import SimulatedNode
from tests.support import register_nodes
from webhook.kube.client import MERGE_PATCH

POLICY: Final = "/api/v1/namespaces/topogate-system/configmaps/topogate-policy"


@contextmanager
def installed_for(
    cluster: Cluster,
    grid: Sequence[SimulatedNode],
    components: tuple[str, ...] = (),
    *,
    base: str = "base",
    policy: str = "",
) -> Iterator[Installation]:
    """topogate with the facts of these nodes, which the caller registers and labels.

    base: the manifests below `manifests`. policy: lines that are added to the shipped policy.
    """
    installation = Installation(cluster, base=base, components=components)
    register_nodes(cluster, [system_node()], labelled=False)
    installation.apply(facts_of(grid))
    if policy:
        text = f"{installation.api.json('GET', POLICY)['data']['policy.yaml']}\n{policy}\n"
        body = {"data": {"policy.yaml": text}}
        installation.api.request("PATCH", POLICY, body=body, content_type=MERGE_PATCH)
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
    policy: str = "",
) -> Iterator[Installation]:
    """topogate on nodes of this shape, each labelled by its labeler."""
    grid = nodes.grid(shape)
    with installed_for(cluster, grid, components, base=base, policy=policy) as installation:
        register_nodes(cluster, grid, labelled=False)
        installation.label(grid)
        yield installation
