"""What `topogate doctor` says of asking an autoscaler for nodes, by each thing that may be missing."""

from datetime import UTC, datetime
from typing import Any

import pytest

from webhook.extensions.scale_up.provisioning import REQUESTS
from webhook.inquiry.doctor import CHECKS
from webhook.inquiry.findings import State
from webhook.kube.client import ApiError

NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
CLASS = "check-capacity.autoscaling.x-k8s.io"
FILE = f"scale_up: {{provisioning_class: {CLASS}}}"


def request(name: str, created: str, *conditions: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team-a", "name": name, "creationTimestamp": created},
        "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
    }


class Cluster:
    """The boundary to the API server: the sweeper's Deployment and settings, its rights, and requests."""

    def __init__(self, *items: dict[str, Any], args: tuple[str, ...] = (f"--scale-up={CLASS}",)) -> None:
        self.items = list(items)
        self.args = args
        self.file = ""
        self.is_served = True
        self.refused: tuple[str, str] | None = None

    def json(self, method: str, path: str, *, body: Any = None, **_: Any) -> dict[str, Any]:
        if path == REQUESTS.path:
            if not self.is_served:
                raise ApiError(404, "NotFound", "not there")
            return {"items": self.items}
        if path.endswith("/deployments/sweeper"):
            mounts = [{"name": "settings", "mountPath": "/etc/topogate"}]
            container = {"args": list(self.args), "volumeMounts": mounts}
            volumes = [{"name": "settings", "configMap": {"name": "own"}}]
            return {"spec": {"template": {"spec": {"containers": [container], "volumes": volumes}}}}
        if path.endswith("/configmaps/own"):
            return {"data": {"sweeper.yaml": self.file}}
        asked = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": (asked["verb"], asked["resource"]) != self.refused}}


def finding(cluster: Any) -> tuple[State, str]:
    (finding,) = CHECKS["scale-up"](cluster, NOW)
    return finding.state, f"{finding.sentence} {finding.remedy}"


def test_all_is_well_where_nothing_is_asked_for() -> None:
    assert finding(Cluster(args=())) == (State.WELL, "no nodes are asked for: scale-up is off ")


def test_all_is_well_where_an_autoscaler_answers() -> None:
    accepted = request("r", "2026-01-01T00:00:00Z", "Accepted")
    new = request("s", "2026-01-01T00:09:00Z")
    state, sentence = finding(Cluster(accepted, new))
    assert state is State.WELL
    assert f"by the class {CLASS}; requests now: 2" in sentence


def test_the_settings_file_counts_as_well() -> None:
    cluster = Cluster(args=("--config=/etc/topogate/sweeper.yaml",))
    cluster.file = FILE
    assert f"by the class {CLASS}; requests now: 0" in finding(cluster)[1]
    cluster.is_served = False
    assert finding(cluster)[0] is State.ILL
    cluster.file = "interval_seconds: 30"
    assert finding(cluster)[0] is State.WELL


def test_flags_come_before_the_file_and_wrong_ones_are_left_out() -> None:
    cluster = Cluster(args=("--config=/etc/topogate/sweeper.yaml", "--scale-up=one", "--scale-up-pods=none"))
    cluster.file = FILE
    assert "by the class one; requests now: 0" in finding(cluster)[1]
    cluster.args = ("--config=/etc/topogate/sweeper.yaml", "--scale-up=")
    assert finding(cluster)[0] is State.WELL
    assert "scale-up is off" in finding(cluster)[1]


def test_that_requests_are_not_served_is_reported() -> None:
    cluster = Cluster()
    cluster.is_served = False
    state, sentence = finding(cluster)
    assert state is State.ILL
    assert "are not served Install the CustomResourceDefinition" in sentence


@pytest.mark.parametrize("right", [("create", "provisioningrequests"), ("watch", "podtemplates")])
def test_a_right_that_is_missing_is_reported(right: tuple[str, str]) -> None:
    cluster = Cluster()
    cluster.refused = right
    state, sentence = finding(cluster)
    assert state is State.ILL
    assert f"the sweeper may not {' '.join(right)} Apply" in sentence


def test_that_nobody_answers_is_reported_after_a_while() -> None:
    state, sentence = finding(Cluster(request("r", "2026-01-01T00:07:59Z")))
    assert state is State.ODD
    assert "requests for nodes that no autoscaler has answered: 1 (team-a/r)" in sentence
    assert "Karpenter serves no ProvisioningRequests" in sentence
