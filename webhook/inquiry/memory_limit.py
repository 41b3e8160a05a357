"""Is the sweeper's memory limit enough for the cluster? The table is in docs/operators/sizing.md."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from labeler.contract import quantities
from webhook.inquiry.findings import SYSTEM, Finding, State, found
from webhook.kube.client import Api

_SWEEPER: Final = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/sweeper"
_MEGA: Final = 1_000_000
_BASE_BYTES: Final = 110 * _MEGA
_NODE_BYTES: Final = 9_000
_POD_BYTES: Final = 2_500
"""Above what was measured: 280 MB for 5,000 nodes and 60,000 pods, 1,082 MB for 65,000 and 210,000."""

_NEAR: Final = 0.8
"""The part of the limit above which to warn."""


def needed(nodes: int, pods: int) -> int:
    """Bytes of memory that a sweeper needs in a cluster of this many nodes and pods."""
    return _BASE_BYTES + _NODE_BYTES * nodes + _POD_BYTES * pods


def examine(api: Api, now: datetime) -> Iterator[Finding]:
    """Whether the sweeper's memory limit is well above what a cluster of this size needs."""
    (container, *_) = api.json("GET", _SWEEPER)["spec"]["template"]["spec"]["containers"]
    written = ((container.get("resources") or {}).get("limits") or {}).get("memory", "")
    nodes, pods = _count(api, "/api/v1/nodes"), _count(api, "/api/v1/pods")
    wanted, size = needed(nodes, pods), f"{nodes:,} nodes and {pods:,} pods"
    if not written:
        yield found(State.WELL, f"the sweeper's memory has no limit; {size} need about {wanted // _MEGA} MB")
    elif wanted > _NEAR * (limit := quantities.parse(written) // 1000):
        yield found(
            State.ODD,
            f"the sweeper may be killed for its memory: {size} need about {wanted // _MEGA} MB, "
            f"and its limit is {written} ({limit // _MEGA} MB)",
            f"Raise the limit of deployment/sweeper in {SYSTEM}, as docs/operators/sizing.md says.",
        )
    else:
        yield found(State.WELL, f"the sweeper's memory limit, {written}, is enough for {size}")


def _count(api: Api, path: str) -> int:
    """How many objects exist, without reading them."""
    body: dict[str, Any] = api.json("GET", path, query={"limit": "1"})
    return len(body["items"]) + int((body.get("metadata") or {}).get("remainingItemCount") or 0)
