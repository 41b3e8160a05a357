"""What `topogate doctor` says where Kueue chooses nodes as well."""

from datetime import UTC, datetime
from typing import Any

import pytest

from webhook.inquiry.findings import State
from webhook.inquiry.kueue_topology import examine
from webhook.kube.client import ApiError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Cluster:
    """The boundary to an API server: it serves Kueue in one version, or not at all."""

    def __init__(self, version: str, *names: str) -> None:
        self.version, self.names = version, names

    def json(self, method: str, path: str) -> dict[str, Any]:
        if self.version and path == "/apis/kueue.x-k8s.io":
            return {"preferredVersion": {"version": self.version}}
        if self.version and path == f"/apis/kueue.x-k8s.io/{self.version}/topologies":
            return {"items": [{"metadata": {"name": name}} for name in self.names]}
        raise ApiError(404, "NotFound", "the server could not find the requested resource")


def test_who_plans_what_is_reported_where_kueue_has_a_topology() -> None:
    cluster: Any = Cluster("v1beta2", "zones", "racks")
    (finding,) = examine(cluster, NOW)
    assert finding.state is State.WELL
    assert "by its topologies (racks, zones)" in finding.sentence
    assert "gate kueue.x-k8s.io/topology alone are left to it" in finding.sentence


@pytest.mark.parametrize("version", ["", "v1beta2"], ids=["no Kueue", "Kueue without a Topology"])
def test_kueue_without_a_topology_chooses_no_nodes(version: str) -> None:
    cluster: Any = Cluster(version)
    (finding,) = examine(cluster, NOW)
    assert (finding.state, finding.sentence) == (State.WELL, "Kueue has no Topology, so it chooses no nodes")
