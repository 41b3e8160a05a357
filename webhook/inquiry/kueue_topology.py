"""Which pods Kueue's topology-aware scheduling places, where it is installed as well."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from webhook.inquiry.findings import Finding, State, found, some
from webhook.kube.client import Api, ApiError
from webhook.workloads import marks

_GROUP: Final = "/apis/kueue.x-k8s.io"


def examine(api: Api, now: datetime) -> Iterator[Finding]:
    """Which topologies Kueue plans by: topogate leaves pods that it plans alone."""
    names = _topologies(api)
    if not names:
        yield found(State.WELL, "Kueue has no Topology, so it chooses no nodes")
        return
    yield found(
        State.WELL,
        f"Kueue chooses nodes by its topologies ({some(names)}): pods that it starts with the gate "
        f"{marks.KUEUE_TOPOLOGY_GATE} alone are left to it, neither gated nor placed by topogate",
    )


def _topologies(api: Api) -> list[str]:
    """Names of Kueue's Topology objects; none where it is not installed. Raises ApiError."""
    try:
        version = api.json("GET", _GROUP)["preferredVersion"]["version"]
        listed = api.json("GET", f"{_GROUP}/{version}/topologies")["items"]
    except ApiError as error:
        if error.status != 404:
            raise
        return []
    return sorted(each["metadata"]["name"] for each in listed)
