"""The overlay strict beside Kubernetes' own gangs: PodGroups of users, and those of binding.mode podgroup."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hack.local import native_gangs
from hack.local.build import ROOT
from hack.local.install import Installation
from labeler.contract import keys
from tests.cluster.native_jobs import CONTAINER, OPTED_IN, bound, installed_on_shape, job
from tests.cluster.typed import run
from tests.support import create_namespace, delete_namespace, wait_for_pods
from webhook.configuration.cluster import KEY, path_of
from webhook.kube.client import ApiError

GROUP: Final = {"podGroupName": "two"}
REFUSAL: Final = "a GPU pod of this namespace must carry the gate"
FAILED_CREATE: Final = "reason=FailedCreate"


@pytest.fixture(scope="module")
def installed(native_control_plane: Any) -> Iterator[Installation]:
    with installed_on_shape(
        native_control_plane, base="overlays/strict", more="binding: {mode: podgroup}"
    ) as installation:
        yield installation


@pytest.fixture
def tenant(installed: Installation) -> Iterator[str]:
    """A namespace that has opted in, with the PodGroup "two" of two pods."""
    name = create_namespace(installed.cluster, OPTED_IN)
    create_group(installed, name)
    yield name
    delete_namespace(installed.cluster, name)


@pytest.fixture
def without_webhook(installed: Installation, tenant: str) -> Iterator[None]:
    """The webhook is away, and the overlay's policy in force."""
    installed.programs["webhook"].stop()
    try:
        installed.cluster.wait_for(
            "a GPU pod to be refused", lambda: bool(refusal(installed, tenant, "probe"))
        )
        yield
    finally:
        start_webhook(installed)


def start_webhook(installed: Installation) -> None:
    installed.programs["webhook"].start()
    namespace = create_namespace(installed.cluster, OPTED_IN)
    installed.cluster.wait_for("the webhook to answer", lambda: not refusal(installed, namespace, "probe"))
    delete_namespace(installed.cluster, namespace)


def create_group(installed: Installation, namespace: str) -> None:
    path = native_gangs.path(installed.api, namespace)
    installed.api.request("POST", path, body=native_gangs.pod_group(installed.api, "two", 2))


def create(installed: Installation, namespace: str, name: str, *, dry: bool = False, **spec: Any) -> None:
    """A GPU pod of the PodGroup "two"."""
    annotations = spec.pop("annotations", {})
    body = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [CONTAINER], "schedulingGroup": GROUP, **spec},
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    installed.api.request("POST", path, body=body, query={"dryRun": "All"} if dry else {})


def refusal(installed: Installation, namespace: str, name: str, **spec: Any) -> str:
    """Why the API server does not take such a pod, "" if it would."""
    try:
        create(installed, namespace, name, dry=True, **spec)
    except ApiError as error:
        return error.message
    return ""


@pytest.mark.usefixtures("without_webhook")
def test_while_the_webhook_is_away_pods_of_a_real_pod_group_are_refused_without_the_gate(
    installed: Installation, tenant: str
) -> None:
    assert REFUSAL in refusal(installed, tenant, "a")
    assert REFUSAL in refusal(installed, tenant, "a", schedulingGates=[{"name": "example.com/theirs"}])
    assert not refusal(installed, tenant, "a", schedulingGates=[{"name": keys.GATE}])
    assert not refusal(installed, tenant, "a", annotations={keys.INJECT_ANNOTATION: keys.INJECT_NO})
    assert not refusal(installed, tenant, "a", containers=[{"name": "c", "image": "x"}])


def test_a_job_gets_its_pods_once_the_webhook_is_back_and_is_bound_as_one(
    installed: Installation, tenant: str
) -> None:
    events = f"/api/v1/namespaces/{tenant}/events"
    installed.programs["webhook"].stop()
    try:
        job(installed.cluster, tenant, 8)

        def is_refused() -> bool:
            items = installed.api.json("GET", events, query={"fieldSelector": FAILED_CREATE})["items"]
            return any(REFUSAL in each["message"] for each in items)

        installed.cluster.wait_for("the Job's pods to be refused", is_refused)
        assert installed.api.json("GET", f"/api/v1/namespaces/{tenant}/pods")["items"] == []
    finally:
        start_webhook(installed)
    pods = wait_for_pods(installed.cluster, tenant, lambda pods: len(bound(pods)) == 8, "all to be bound")
    (name,) = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods}
    group = installed.api.json("GET", f"{native_gangs.path(installed.api, tenant)}/{name}")
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 8}}


@pytest.mark.usefixtures("without_webhook")
def test_an_overlay_rendered_from_a_configuration_that_leaves_pod_groups_refuses_other_gpu_pods_alone(
    installed: Installation, tenant: str, tmp_path: Path
) -> None:
    """Last: the overlay of the other tests is gone with it."""
    text = installed.api.json("GET", path_of())["data"][KEY]
    (tmp_path / KEY).write_text(f"{text}\ngangs: {{native: leave}}\n")
    (tmp_path / "classes.yaml").write_text((ROOT / "manifests/base/priorityclasses.yaml").read_text())
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "gate.yaml").write_text((ROOT / "manifests/overlays/strict/gate-required.yaml").read_text())
    files = [str(tmp_path / KEY), str(tmp_path / "classes.yaml")]
    rendered = run("config", "render", "--into", str(overlay), *files)
    assert rendered.status == 0, rendered.err
    installed.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(overlay / "gate.yaml"))
    installed.cluster.wait_for(
        "pods of the PodGroup to be let through", lambda: not refusal(installed, tenant, "a")
    )
    for name in ("a", "b"):
        create(installed, tenant, name)
    wait_for_pods(installed.cluster, tenant, lambda pods: len(bound(pods)) == 2, "both to be bound")
    assert REFUSAL in refusal(installed, tenant, "c", schedulingGroup=None)
