"""What `topogate doctor` says of GPUs by claims, by each thing that may be missing."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from tests.admission.harness import shipped_configuration
from webhook.configuration.cluster import KEY, NAME, path_of
from webhook.inquiry.claims_check import examine
from webhook.inquiry.findings import State
from webhook.kube import devices
from webhook.kube.client import ApiError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONFIGURATION = yaml.safe_load(shipped_configuration())


@dataclass
class Cluster:
    """The boundary to an API server.

    claims: gpus.deviceClasses. classes: names of the DeviceClasses, None if they are not served.
    refused: what the sweeper may not do.
    """

    claims: tuple[str, ...] = ("*",)
    classes: tuple[str, ...] | None = ("gpu.nvidia.com", "mig.nvidia.com")
    image: str = "registry:5000/topogate-dra:1.0"
    refused: tuple[str, str] | None = None

    def json(self, method: str, path: str, *, body: Any = None, **_: Any) -> dict[str, Any]:
        if path == path_of():
            text = json.dumps(CONFIGURATION | {"gpus": {"deviceClasses": self.claims}})
            return {"metadata": {"name": NAME}, "data": {KEY: text}}
        if path == devices.CLASSES:
            if self.classes is None:
                raise ApiError(404, "NotFound", "the server could not find the requested resource")
            return {"items": [{"metadata": {"name": name}} for name in self.classes]}
        if path.endswith("/deployments/sweeper"):
            return {"spec": {"template": {"spec": {"containers": [{"image": self.image}]}}}}
        asked = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": (asked["verb"], asked["resource"]) != self.refused}}


def findings(cluster: Any) -> list[tuple[State, str]]:
    return [(each.state, f"{each.sentence} {each.remedy}") for each in examine(cluster, NOW)]


def test_all_is_well_where_no_claim_makes_a_gpu_pod() -> None:
    ((state, sentence),) = findings(Cluster(claims=(), classes=None, image="topogate"))
    assert state is State.WELL
    assert "gpus.deviceClasses: []" in sentence


@pytest.mark.parametrize("claims", [("*",), ("gpu.nvidia.com",), ("*gpu*",)], ids=str)
def test_all_is_well_where_claims_are_placed(claims: tuple[str, ...]) -> None:
    ((state, sentence),) = findings(Cluster(claims))
    assert state is State.WELL
    assert "gpu.nvidia.com" in sentence


@pytest.mark.promise("R248")
@pytest.mark.parametrize(
    ("played", "state", "sentence", "remedy"),
    [
        (Cluster(classes=None), State.ILL, "resource.k8s.io/v1 is not served", "Kubernetes 1.34"),
        (
            Cluster(refused=("watch", "resourceslices")),
            State.ILL,
            "the sweeper may not watch resourceslices",
            "Apply manifests",
        ),
        (Cluster(image="r:5000/topogate:1.0"), State.ODD, "r:5000/topogate:1.0 evaluates no", "topogate-dra"),
        (Cluster(image="topogate@sha256:0"), State.ODD, "evaluates no CEL selectors", "topogate-dra"),
        (Cluster(classes=()), State.ODD, "there is no DeviceClass", "Install a DRA driver"),
        (Cluster(("gpu.amd.com",)), State.ODD, "no DeviceClass matches gpu.amd.com", "Correct"),
    ],
    ids=[
        "no DeviceClasses are served",
        "a right is missing",
        "the image lacks CEL",
        "the same by its digest",
        "no driver is installed",
        "the configuration names another class",
    ],
)
def test_what_is_missing_is_reported_with_what_to_do(
    played: Cluster, state: State, sentence: str, remedy: str
) -> None:
    ((found, text),) = findings(played)
    assert found is state
    assert sentence in text
    assert remedy in text
