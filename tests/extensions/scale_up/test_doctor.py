"""What `topogate doctor` says of asking an autoscaler for nodes, by each thing that may be missing."""

from datetime import UTC, datetime
from typing import Any

import pytest

from webhook.configuration.cluster import KEY, NAME, path_of
from webhook.configuration.keys import API_VERSION, KIND
from webhook.extensions.scale_up.provisioning_requests import REQUESTS
from webhook.inquiry.doctor import CHECKS
from webhook.inquiry.findings import State
from webhook.kube.client import ApiError

NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
CLASS = "check-capacity.autoscaling.x-k8s.io"


def request(name: str, created: str, *conditions: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team-a", "name": name, "creationTimestamp": created},
        "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
    }


class Cluster:
    """The boundary to the API server: the configuration, the sweeper's rights, and requests."""

    def __init__(
        self, *items: dict[str, Any], more: str = f"scaleUp: {{provisioningClass: {CLASS}}}"
    ) -> None:
        self.items = list(items)
        self.more = more
        self.is_served = True
        self.refused: tuple[str, str] | None = None

    def json(self, method: str, path: str, *, body: Any = None, **_: Any) -> dict[str, Any]:
        if path == REQUESTS.path:
            if not self.is_served:
                raise ApiError(404, "NotFound", "not there")
            return {"items": self.items}
        if path == path_of():
            text = f"apiVersion: {API_VERSION}\nkind: {KIND}\n{self.more}\n"
            return {"metadata": {"name": NAME}, "data": {KEY: text}}
        asked = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": (asked["verb"], asked["resource"]) != self.refused}}


def finding(cluster: Any) -> tuple[State, str]:
    (finding,) = CHECKS["scale-up"](cluster, NOW)
    return finding.state, f"{finding.sentence} {finding.remedy}"


def test_all_is_well_where_nothing_is_asked_for() -> None:
    assert finding(Cluster(more="")) == (State.WELL, "no nodes are requested: scale-up is off ")


def test_all_is_well_where_an_autoscaler_answers() -> None:
    accepted = request("r", "2026-01-01T00:00:00Z", "Accepted")
    new = request("s", "2026-01-01T00:09:00Z")
    state, sentence = finding(Cluster(accepted, new))
    assert state is State.WELL
    assert f"by the class {CLASS}; requests now: 2" in sentence


@pytest.mark.promise("O131")
def test_that_requests_are_not_served_is_reported() -> None:
    cluster = Cluster()
    cluster.is_served = False
    state, sentence = finding(cluster)
    assert state is State.ILL
    assert "are not served Install the CustomResourceDefinition" in sentence


@pytest.mark.promise("O131")
@pytest.mark.parametrize("right", [("create", "provisioningrequests"), ("watch", "podtemplates")])
def test_a_right_that_is_missing_is_reported(right: tuple[str, str]) -> None:
    cluster = Cluster()
    cluster.refused = right
    state, sentence = finding(cluster)
    assert state is State.ILL
    assert f"the sweeper may not {' '.join(right)} Apply" in sentence


@pytest.mark.promise("O131")
def test_that_nobody_answers_is_reported_after_a_while() -> None:
    state, sentence = finding(Cluster(request("r", "2026-01-01T00:07:59Z")))
    assert state is State.ODD
    assert "requests for nodes that no autoscaler has answered: 1 (team-a/r)" in sentence
    assert "Karpenter serves no ProvisioningRequests" in sentence
