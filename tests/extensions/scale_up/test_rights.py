"""With the component the sweeper makes and removes its own requests; nobody puts another shape there."""

from typing import Any

import pytest

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import create_namespace
from webhook.extensions.scale_up.provisioning_requests import GROUP_VERSION
from webhook.kube.client import JSON_PATCH, Api, ApiError

SWEEPER = "system:serviceaccount:topogate-system:sweeper"
TENANT = "tenant"
KINDS = {
    "podtemplates": "/api/v1/namespaces/{}/podtemplates",
    "provisioningrequests": f"/apis/{GROUP_VERSION}/namespaces/{{}}/provisioningrequests",
}
BODIES: dict[str, dict[str, Any]] = {
    "podtemplates": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}},
    "provisioningrequests": {
        "apiVersion": GROUP_VERSION,
        "kind": "ProvisioningRequest",
        "spec": {
            "provisioningClassName": "c",
            "podSets": [{"count": 1, "podTemplateRef": {"name": "t"}}],
        },
    },
}
CHANGES = {
    "podtemplates": {"op": "replace", "path": "/template/spec/containers/0/image", "value": "y"},
    "provisioningrequests": {"op": "add", "path": "/spec/parameters", "value": {"a": "b"}},
}
DROPS = {"op": "remove", "path": "/metadata/labels"}


@pytest.fixture(scope="module")
def guarded(served: Cluster) -> tuple[Cluster, str]:
    """The component's rights, and a namespace whose tenant may do all with both kinds."""
    api = served.api()
    served.kubectl("create", "namespace", "topogate-system")
    served.kubectl("create", "serviceaccount", "sweeper", "-n", "topogate-system")
    served.kubectl("apply", "-f", str(ROOT / "manifests" / "components" / "scale-up" / "rights.yaml"))
    name = create_namespace(served)
    rights = ["create", "role", TENANT, "-n", name, "--verb=*"]
    served.kubectl(*rights, "--resource=podtemplates,provisioningrequests.autoscaling.x-k8s.io")
    served.kubectl("create", "rolebinding", TENANT, "-n", name, f"--role={TENANT}", f"--user={TENANT}")
    path = KINDS["podtemplates"].format(name)

    def is_guarded() -> bool:
        try:
            make(api.acting_as(TENANT), "podtemplates", path, "probe", ours=True, dry=True)
        except ApiError as error:
            return "only the topogate sweeper" in str(error)
        return False

    served.wait_for("the policy to be enforced", is_guarded)
    return served, name


def make(api: Api, kind: str, path: str, name: str, *, ours: bool, dry: bool = False) -> None:
    labels = {keys.SCALE_UP_LABEL: name} if ours else {}
    body = {**BODIES[kind], "metadata": {"name": name, "labels": labels}}
    api.request("POST", path, body=body, query={"dryRun": "All"} if dry else {})


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, guarded: tuple[Cluster, str]) -> tuple[Cluster, str, str]:
    """A cluster, a kind of object, and where these live."""
    cluster, namespace = guarded
    return cluster, request.param, KINDS[request.param].format(namespace)


@pytest.mark.promise("S17")
def test_the_sweeper_makes_and_removes_its_own(place: tuple[Cluster, str, str]) -> None:
    cluster, kind, path = place
    sweeper = cluster.api().acting_as(SWEEPER)
    make(sweeper, kind, path, "own", ours=True)
    sweeper.request("DELETE", f"{path}/own")


@pytest.mark.promise("O113", "S17")
def test_the_sweeper_makes_no_other(place: tuple[Cluster, str, str]) -> None:
    cluster, kind, path = place
    with pytest.raises(ApiError, match=f"only objects with the label {keys.SCALE_UP_LABEL}"):
        make(cluster.api().acting_as(SWEEPER), kind, path, "other", ours=False)


@pytest.mark.promise("S17")
def test_the_sweeper_removes_no_other(place: tuple[Cluster, str, str]) -> None:
    cluster, kind, path = place
    make(cluster.api().acting_as(TENANT), kind, path, "others", ours=False)
    with pytest.raises(ApiError, match=f"only objects with the label {keys.SCALE_UP_LABEL}"):
        cluster.api().acting_as(SWEEPER).request("DELETE", f"{path}/others")


@pytest.mark.promise("S17")
def test_the_sweeper_changes_none(place: tuple[Cluster, str, str]) -> None:
    cluster, kind, path = place
    sweeper = cluster.api().acting_as(SWEEPER)
    make(sweeper, kind, path, "fixed", ours=True)
    with pytest.raises(ApiError, match="cannot patch"):
        sweeper.request("PATCH", f"{path}/fixed", body=[CHANGES[kind]], content_type=JSON_PATCH)


@pytest.mark.promise("S17")
def test_a_tenant_makes_none_that_could_be_the_sweepers(place: tuple[Cluster, str, str]) -> None:
    cluster, kind, path = place
    with pytest.raises(ApiError, match="only the topogate sweeper"):
        make(cluster.api().acting_as(TENANT), kind, path, "forged", ours=True)


@pytest.mark.promise("S17")
@pytest.mark.parametrize("what", ["the shape", "the label"])
def test_a_tenant_changes_nothing_of_the_sweepers(place: tuple[Cluster, str, str], what: str) -> None:
    cluster, kind, path = place
    name = f"kept-{what[4:]}"
    make(cluster.api().acting_as(SWEEPER), kind, path, name, ours=True)
    change = CHANGES[kind] if what == "the shape" else DROPS
    with pytest.raises(ApiError, match="only the topogate sweeper"):
        cluster.api().acting_as(TENANT).request(
            "PATCH", f"{path}/{name}", body=[change], content_type=JSON_PATCH
        )


def test_a_tenant_may_delete_what_was_asked_for(place: tuple[Cluster, str, str]) -> None:
    cluster, kind, path = place
    make(cluster.api().acting_as(SWEEPER), kind, path, "unwanted", ours=True)
    cluster.api().acting_as(TENANT).request("DELETE", f"{path}/unwanted")


@pytest.mark.promise("O113")
def test_without_the_component_the_sweeper_may_do_none_of_it(place: tuple[Cluster, str, str]) -> None:
    text = (ROOT / "manifests" / "base" / "sweeper.yaml").read_text()
    assert place[1] not in text
