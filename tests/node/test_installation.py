"""topogate as its manifests install it on a real node: its images, pods, Service and restrictions."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack.images import build
from hack.local import devices, node
from hack.local.cluster import Cluster
from hack.local.devices import PlayedCard
from hack.local.install import LABELER, SYSTEM, WEBHOOKS
from hack.local.install_real import RealInstallation
from labeler.contract import keys, quantities
from labeler.contract.label_codecs import decode_cards
from tests.node.conftest import clean_real, look_inside, pods_of
from tests.support import create_namespace, delete_namespace, wait_for_pods

CARDS = [PlayedCard(0), PlayedCard(1)]
OPTED_IN = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}


@pytest.fixture(scope="module")
def installed(real_control_plane: Cluster) -> Iterator[Cluster]:
    """The default overlay, applied and ready, on a node with two cards; it stays for those who add to it."""
    clean_real(real_control_plane)
    devices.plug(real_control_plane.namespaces, CARDS)
    installation = RealInstallation(real_control_plane)
    installation.apply()
    installation.wait()
    yield real_control_plane
    devices.unplug(real_control_plane.namespaces, CARDS)


@pytest.mark.promise("S52")
def test_every_program_runs_as_restricted_as_its_manifest_requires(installed: Cluster) -> None:
    pods = pods_of(installed, SYSTEM) + pods_of(installed, LABELER)
    components = {pod["metadata"]["labels"].get("app.kubernetes.io/component", "labeler") for pod in pods}
    assert {"webhook", "sweeper", "certs", "labeler"} <= components
    for pod in pods:
        name = pod["metadata"]["name"]
        assert pod["spec"]["nodeName"] == node.NAME
        (status,) = pod["status"]["containerStatuses"]
        assert (status["ready"], status["restartCount"]) == (True, 0), name
        seen = look_inside(installed, pod)
        wanted = pod["spec"]["securityContext"]["runAsUser"]
        assert (seen["user"], seen["capabilities"], seen["no_new_privileges"]) == (wanted, 0, 1), name
        assert (seen["seccomp"], seen["written"]) == (2, False), name
        limit = pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        assert seen["megabytes"] * 2**20 * 1000 < quantities.parse(limit), name


def test_every_program_prints_its_version_in_its_container_and_in_its_log(installed: Cluster) -> None:
    version = build.PROJECT["version"]
    for namespace, component in ((SYSTEM, "webhook"), (SYSTEM, "sweeper"), (LABELER, "labeler")):
        program = f"topogate-{component}"
        pods = [pod["metadata"]["name"] for pod in pods_of(installed, namespace)]
        (pod, *_) = (name for name in pods if name.startswith(component))
        output = installed.kubectl("exec", "-n", namespace, pod, "--", program, "--version").stdout
        assert output == f"{program} {version}\n"
        first = installed.kubectl("logs", "-n", namespace, pod).stdout.splitlines()[0]
        assert program in first
        assert version in first


def test_the_namespace_takes_no_pod_that_may_more_than_ours(installed: Cluster) -> None:
    refused = installed.kubectl("run", "x", "-n", SYSTEM, "--image=x", "--dry-run=server", check=False)
    assert refused.returncode != 0
    assert 'violates PodSecurity "restricted' in refused.stderr


def test_the_labeler_sees_the_nodes_cards_in_its_container_and_labels_the_node(installed: Cluster) -> None:
    (pod,) = pods_of(installed, LABELER)
    assert look_inside(installed, pod)["cards"] == ["card0", "card1", "renderD128", "renderD129"]
    labels = installed.api().json("GET", f"/api/v1/nodes/{node.NAME}")["metadata"]["labels"]
    assert decode_cards(labels) == (0, 1)


def test_the_api_server_reaches_the_webhook_through_its_service(installed: Cluster) -> None:
    client = installed.api().json("GET", WEBHOOKS)["webhooks"][0]["clientConfig"]
    assert client["service"]["name"] == "webhook"
    assert client["caBundle"]
    namespace = create_namespace(installed, OPTED_IN)
    body = {
        "metadata": {"name": "gpu"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    made = installed.api().json("POST", path, body=body, query={"dryRun": "All"})
    assert [gate["name"] for gate in made["spec"]["schedulingGates"]] == [keys.GATE]


def test_a_gang_runs_in_containers_while_the_leading_sweeper_is_killed(installed: Cluster) -> None:
    namespace = create_namespace(installed, OPTED_IN)
    offer_gpus(installed)
    kill_leader(installed)
    container = {
        "name": "c",
        "image": "topogate.local/busybox:1",
        "imagePullPolicy": "Never",
        "command": ["sleep", "1000"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    template = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    installed.api().request(
        "POST",
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        body={
            "metadata": {"name": "train"},
            "spec": {
                "completionMode": "Indexed",
                "completions": 4,
                "parallelism": 4,
                "template": {"spec": template},
            },
        },
    )

    def all_run(pods: list[dict[str, Any]]) -> bool:
        return [pod["status"]["phase"] for pod in pods] == ["Running"] * 4

    pods = wait_for_pods(installed, namespace, all_run, "the gang to run", seconds=120)
    for pod in pods:
        name = pod["metadata"]["name"]
        output = installed.kubectl("exec", "-n", namespace, name, "--", "cat", "/proc/1/cmdline").stdout
        assert output == "sleep\0" + "1000\0"
        affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = affinity["nodeSelectorTerms"]
        assert term["matchFields"][0]["values"] == [node.NAME]
    delete_namespace(installed, namespace)


def offer_gpus(cluster: Cluster) -> None:
    """What a device plugin and a labeler of topology would say; the kubelet keeps what others write."""
    gpus = {"nvidia.com/gpu": "4"}
    patch = json.dumps({"status": {"capacity": gpus, "allocatable": gpus}})
    cluster.kubectl("patch", "node", node.NAME, "--subresource=status", "--type=merge", "-p", patch)
    places = [f"{key}={place}" for key, place in zip(keys.PRERELEASE_TOPOLOGY, "bsh", strict=True)]
    cluster.kubectl("label", "node", node.NAME, *places)


def kill_leader(cluster: Cluster) -> None:
    """SIGKILL the sweeper that leads, inside its container."""
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/topogate-sweeper"
    holder = str(cluster.api().json("GET", lease)["spec"]["holderIdentity"])
    (pod,) = (each for each in pods_of(cluster, SYSTEM) if holder.startswith(each["metadata"]["name"]))
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    cluster.namespaces.run(
        "ctr",
        "--address",
        node.SOCKET,
        "--namespace",
        "k8s.io",
        "tasks",
        "kill",
        "--signal",
        "SIGKILL",
        container,
    )
