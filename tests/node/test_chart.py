"""topogate as its Helm chart installs it on a real node: images, pods, Service, and then its removal."""

import subprocess
from collections.abc import Iterator

import pytest

from hack.local import images
from hack.local.cluster import Cluster
from hack.local.go_programs import HELM
from hack.local.install import LABELER, SYSTEM
from hack.local.install_real import RealInstallation
from hack.releases.chart import CHART
from labeler.contract import keys
from tests.node.conftest import clean_real, pods_of
from tests.support import create_namespace, delete_namespace

pytestmark = pytest.mark.when_changed("hack/images", "hack/releases", "manifests")


def run(cluster: Cluster, *arguments: str) -> None:
    """Helm, in the node's namespaces as every client of that cluster is."""
    command = [str(HELM.build()), *arguments, f"--kubeconfig={cluster.kubeconfig}", "--namespace=kube-system"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def installed(real_control_plane: Cluster) -> Iterator[Cluster]:
    cluster = real_control_plane
    clean_real(cluster)
    images.load(cluster)
    names = {"topogate": "topogate", "labeler": "topogate-labeler"}
    sets = [f"--set=images.{value}={images.name_of(target)}" for value, target in names.items()]
    run(cluster, "install", "topogate", str(CHART), *sets)
    RealInstallation(cluster).wait()
    yield cluster
    clean_real(cluster)


@pytest.mark.promise("O344")
def test_every_pod_of_the_chart_is_ready(installed: Cluster) -> None:
    pods = pods_of(installed, SYSTEM) + pods_of(installed, LABELER)
    components = {pod["metadata"]["labels"].get("app.kubernetes.io/component", "labeler") for pod in pods}
    assert components == {"webhook", "sweeper", "certs", "tasks", "labeler"}
    assert all(status["ready"] for pod in pods for status in pod["status"]["containerStatuses"])


@pytest.mark.promise("O344")
def test_the_webhook_of_the_chart_gates_a_pod(installed: Cluster) -> None:
    namespace = create_namespace(installed, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    body = {"metadata": {"name": "gpu"}, "spec": {"containers": [container]}}
    path = f"/api/v1/namespaces/{namespace}/pods"

    def is_gated() -> bool:
        made = installed.api().json("POST", path, body=body, query={"dryRun": "All"})
        return [gate["name"] for gate in made["spec"].get("schedulingGates", [])] == [keys.GATE]

    installed.wait_for("a pod to be gated", is_gated)
    delete_namespace(installed, namespace)


@pytest.mark.promise("O344")
@pytest.mark.promise("O210")
def test_helm_test_finds_nothing_wrong(installed: Cluster) -> None:
    try:
        run(installed, "test", "topogate")
    finally:
        print(installed.kubectl("logs", "-n", SYSTEM, "topogate-doctor").stdout)


@pytest.mark.promise("O344")
def test_removing_the_release_leaves_only_the_definitions(installed: Cluster) -> None:
    run(installed, "uninstall", "topogate", "--wait")
    left = installed.kubectl("get", "clusterroles,validatingadmissionpolicies,crds", "-o", "name").stdout
    definition = "customresourcedefinition.apiextensions.k8s.io/"
    assert {each for each in left.split() if "topogate" in each or "falldio" in each} == {
        f"{definition}placements.topogate.io",
        f"{definition}gputasks.falldio.com",
    }
