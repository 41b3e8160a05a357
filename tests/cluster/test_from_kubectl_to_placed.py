"""The whole road on a real control plane: manifests, programs under their own identities, placed gangs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.cluster.jobs import all_run, blocks_of, create_job
from tests.cluster.typed import typed
from tests.installation import installed_on
from tests.support import audited, create_namespace, delete_namespace, wait_for_pods
from webhook.workloads import marks

SHAPE = nodes.Shape(nodes=8, blocks=2, subblocks=2, gpus=8, intel=2)
H100 = "NVIDIA-H100-80GB-HBM3"


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Installation]:
    """topogate as its manifests say, on eight labelled nodes."""
    with installed_on(module_cluster, SHAPE) as installation:
        yield installation


@pytest.mark.promise("R9")
def test_the_labels_that_placement_reads_follow_the_facts(installed: Installation) -> None:
    labels = installed.api.json("GET", "/api/v1/nodes/node-b1-s1-h01")["metadata"]["labels"]
    assert [labels[key] for key in keys.PRERELEASE_TOPOLOGY] == ["b1", "s1", "h01"]
    assert labels[keys.GPU_NUMBERS_LABEL] == "0.1"
    assert labels[keys.CARDS_LABEL] == "card0.card1"


@dataclass(frozen=True)
class Train:
    """A gang of four pods that run."""

    namespace: str
    pods: list[dict[str, Any]]


@pytest.fixture(scope="module")
def train(installed: Installation) -> Iterator[Train]:
    namespace = create_namespace(installed.cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    create_job(installed.api, namespace, "train", 4, {"nvidia.com/gpu": 8})
    yield Train(namespace, wait_for_pods(installed.cluster, namespace, all_run(4), "four running pods"))
    delete_namespace(installed.cluster, namespace)


@pytest.mark.promise("R3")
def test_a_gang_runs_in_one_block_with_consecutive_ranks_on_neighbours(train: Train) -> None:
    assert blocks_of(train.pods) == {"b0"}
    by_rank = sorted(train.pods, key=lambda pod: int(pod["metadata"]["annotations"][marks.JOB_INDEX_KEY]))
    assert [pod["spec"]["nodeName"] for pod in by_rank] == sorted(
        pod["spec"]["nodeName"] for pod in train.pods
    )
    assert all(not pod["spec"].get("schedulingGates") for pod in train.pods)


@pytest.mark.promise("R10")
def test_the_clusters_own_scheduler_binds_each_pod_of_a_gang(installed: Installation, train: Train) -> None:
    def binders() -> dict[str, str]:
        """Pod -> who says that it has bound it."""
        path = f"/apis/events.k8s.io/v1/namespaces/{train.namespace}/events"
        return {
            each["regarding"]["name"]: each["reportingController"]
            for each in installed.api.json("GET", path)["items"]
            if each["reason"] == "Scheduled"
        }

    installed.cluster.wait_for("its Events", lambda: len(binders()) == 4)
    assert binders() == {pod["metadata"]["name"]: "default-scheduler" for pod in train.pods}


@pytest.mark.promise("R10")
@pytest.mark.usefixtures("train")
def test_each_program_is_seen_at_work_under_its_own_identity(installed: Installation) -> None:
    entries = audited(installed.cluster)
    users = {entry["user"].get("username") for entry in entries}  # none where a token was refused
    assert {
        "system:serviceaccount:topogate-system:webhook",
        "system:serviceaccount:topogate-system:sweeper",
        "system:serviceaccount:topogate-labeler:labeler",
    } <= users
    assert any(
        "pods.topogate.io" in value for entry in entries for value in entry.get("annotations", {}).values()
    )


def test_a_placement_is_deleted_when_its_gang_is_gone(installed: Installation, train: Train) -> None:
    """The last of the claims about this gang, which is gone then."""
    path = f"/apis/topogate.io/v1alpha1/namespaces/{train.namespace}/placements"
    assert len(installed.api.json("GET", path)["items"]) == 1
    installed.api.request(
        "DELETE",
        f"/apis/batch/v1/namespaces/{train.namespace}/jobs/train",
        query={"propagationPolicy": "Background"},
    )
    installed.cluster.wait_for("no Placement", lambda: not installed.api.json("GET", path)["items"])


@pytest.mark.promise("R11", "R173")
def test_a_gang_that_does_not_fit_shows_the_reason_and_runs_when_it_fits(
    installed: Installation, opted_in: str
) -> None:
    blocker = {
        "metadata": {"name": "blocker"},
        "spec": {
            "nodeName": "node-b0-s0-h00",
            "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 8}}}],
        },
    }
    other = create_namespace(installed.cluster)
    installed.api.request("POST", f"/api/v1/namespaces/{other}/pods", body=blocker)
    wait_for_pods(installed.cluster, other, all_run(1), "the pod that stands in the way")
    create_job(installed.api, opted_in, "large", 6, {"nvidia.com/gpu": 8})

    def reason() -> str:
        path = f"/apis/topogate.io/v1alpha1/namespaces/{opted_in}/placements"
        found = installed.api.json("GET", path)["items"]
        return found[0].get("status", {}).get("reason", "") if found else ""

    installed.cluster.wait_for("a reason", lambda: bool(reason()))
    assert "5 of 6" in reason()
    pods = installed.api.json("GET", f"/api/v1/namespaces/{opted_in}/pods")["items"]
    assert all(pod["spec"]["schedulingGates"] for pod in pods)
    installed.api.request("DELETE", f"/api/v1/namespaces/{other}/pods/blocker")
    wait_for_pods(installed.cluster, opted_in, all_run(6), "six running pods")


@pytest.mark.promise("R173", "R199")
def test_a_waiting_gang_and_its_reason_are_shown_by_kubectl_by_events_and_by_topogate(
    installed: Installation, opted_in: str
) -> None:
    create_job(installed.api, opted_in, "runs", 1, {"nvidia.com/gpu": 1})
    wait_for_pods(installed.cluster, opted_in, all_run(1), "a gang that runs")
    create_job(installed.api, opted_in, "waits", 9, {"nvidia.com/gpu": 8})
    kubectl = installed.cluster.kubectl

    def rows() -> dict[str, str]:
        """Gang -> its line."""
        lines = kubectl("get", "placements", "--all-namespaces").stdout.splitlines()
        return {line.split()[2]: line for line in lines if line.split()[0] in ("NAMESPACE", opted_in)}

    installed.cluster.wait_for("its reason", lambda: "9 pods do not fit" in rows().get("Job/waits", ""))
    shown = rows()
    assert shown["GANG"].split()[2:] == [
        "GANG",
        "PODS",
        "RELEASED",
        "BOUND",
        "SPREAD",
        "STATE",
        "REASON",
        "AGE",
    ]
    assert "Waiting" in shown["Job/waits"]
    assert shown["Job/runs"].split()[3:6] == ["1", "1", "1"]
    assert "Bound" in shown["Job/runs"]
    placements = installed.api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{opted_in}/placements")
    (reason,) = (
        each["status"]["reason"] for each in placements["items"] if each["spec"]["gang"] == "Job/waits"
    )
    assert reason in shown["Job/waits"]

    def reported() -> dict[str, str]:
        """Kind and name of what an Event of the sweeper is about -> its note."""
        events = installed.api.json("GET", f"/apis/events.k8s.io/v1/namespaces/{opted_in}/events")["items"]
        return {
            f"{each['regarding']['kind']}/{each['regarding']['name']}": each["note"]
            for each in events
            if each["reason"] == "GangWaits"
        }

    installed.cluster.wait_for("the Events", lambda: len(reported()) == 2)
    pods = installed.api.json("GET", f"/api/v1/namespaces/{opted_in}/pods")["items"]
    (first,) = (pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"].startswith("waits-0-"))
    assert reported() == {"Job/waits": reason, f"Pod/{first}": reason}

    gangs = {line.split()[1]: line for line in types(installed, opted_in, "gangs").splitlines()}
    assert reason in gangs["Job/waits"]
    assert gangs["Job/runs"].split()[2:4] == ["Bound", "1/1"]


def types(installed: Installation, namespace: str, *words: str) -> str:
    """What a command of topogate prints, which must succeed."""
    done = typed(installed.cluster, namespace, *words)
    assert done.status == 0, done.err
    return done.out


def gpus_of(installed: Installation, namespace: str) -> dict[str, list[int]]:
    """What `topogate top` says: model -> GPUs, used, free, waited for."""
    _, *rows = (line.split() for line in types(installed, namespace, "top").splitlines())
    return {row[0]: [int(row[-1 - n]) for n in (4, 3, 2, 0)] for row in rows}


@pytest.mark.promise("R150", "R156")
def test_a_task_is_started_paused_restarted_and_stopped_from_the_command_line(
    installed: Installation, opted_in: str
) -> None:
    cluster = installed.cluster
    path = f"/apis/falldio.com/v1/namespaces/{opted_in}/gputasks"

    def phase() -> str:
        return str(installed.api.json("GET", f"{path}/finetune").get("status", {}).get("phase"))

    run = ["run", "--name", "finetune", "--image", "me/train", "-p", "low"]
    run += ["-m", "h100", "-g", "8", "--workers", "2"]
    gpus, used, free, _ = gpus_of(installed, opted_in)[H100]
    assert "gputask/finetune created" in types(installed, opted_in, *run, "--", "python", "train.py")
    cluster.wait_for("it to run", lambda: phase() == "Running")
    first = wait_for_pods(cluster, opted_in, all_run(2), "its two workers")
    assert gpus_of(installed, opted_in)[H100][:3] == [gpus, used + 16, free - 16]
    (line,) = (each for each in types(installed, opted_in, "ps").splitlines() if each.startswith("finetune"))
    assert line.split()[:5] == ["finetune", "2x8", "h100", "low", "Running"]

    assert "suspended" in types(installed, opted_in, "stop", "--suspend", "finetune")
    wait_for_pods(cluster, opted_in, lambda pods: not pods, "its GPUs to be given back")
    assert phase() == "Suspended"
    assert gpus_of(installed, opted_in)[H100][:3] == [gpus, used, free]
    types(installed, opted_in, "restart", "finetune")
    again = wait_for_pods(cluster, opted_in, all_run(2), "its workers to run again")
    types(installed, opted_in, "restart", "finetune")

    def replaced(pods: list[dict[str, Any]]) -> bool:
        return all_run(2)(pods) is True and not uids(pods) & uids(again)

    def uids(pods: list[dict[str, Any]]) -> set[str]:
        return {pod["metadata"]["uid"] for pod in pods}

    third = wait_for_pods(cluster, opted_in, replaced, "it to begin anew")
    assert not uids(third) & uids(first)
    types(installed, opted_in, "stop", "finetune")
    wait_for_pods(cluster, opted_in, lambda pods: not pods, "its workers to be gone")
    assert installed.api.json("GET", path)["items"] == []


@pytest.mark.promise("R156", "R157")
def test_a_rehearsed_task_starts_nothing_and_is_shown_with_its_place_and_who_waits(
    installed: Installation, opted_in: str
) -> None:
    run = ["run", "--dry-run", "--image", "me/train", "-m", "h100", "-g", "8", "--workers"]
    reported = types(installed, opted_in, *run, "2", "--name", "small")
    assert "small would be placed on 1 block, 1 subblock, 2 hosts, 2 nodes:" in reported
    assert re.search(r"^  worker 1: node-\S+$", reported, re.MULTILINE)
    assert "No gang waits." in reported
    create_job(installed.api, opted_in, "waits", 9, {"nvidia.com/gpu": 8})
    waiting = f"/apis/topogate.io/v1alpha1/namespaces/{opted_in}/placements"
    installed.cluster.wait_for("a gang that waits", lambda: bool(installed.api.json("GET", waiting)["items"]))
    assert gpus_of(installed, opted_in)["(any)"][3] == 9 * 8, "are waited for"
    refused = typed(installed.cluster, opted_in, *run, "9", "--name", "large")
    assert refused.status == 1
    assert "large would wait: " in refused.out
    assert re.search(r"^1 gang waits, for \d", refused.out, re.MULTILINE)
    tasks = installed.api.json("GET", f"/apis/falldio.com/v1/namespaces/{opted_in}/gputasks")
    assert tasks["items"] == []


@pytest.mark.promise("R150")
def test_the_commands_for_tasks_work_with_a_job(installed: Installation, opted_in: str) -> None:
    cluster = installed.cluster
    create_job(installed.api, opted_in, "plain", 2, {"nvidia.com/gpu": 8})
    wait_for_pods(cluster, opted_in, all_run(2), "a Job of two pods to run")

    def line() -> list[str]:
        (found,) = (
            each for each in types(installed, opted_in, "ps").splitlines() if each.startswith("plain")
        )
        return found.split()

    cluster.wait_for("the Job to say that they are ready", lambda: "Running" in line())
    assert line()[:2] == ["plain", "2x8"]
    types(installed, opted_in, "stop", "--suspend", "job/plain")
    wait_for_pods(cluster, opted_in, lambda pods: not pods, "its GPUs to be given back")
    types(installed, opted_in, "restart", "job/plain")
    wait_for_pods(cluster, opted_in, all_run(2), "it to run again")
    types(installed, opted_in, "stop", "job/plain")
    wait_for_pods(cluster, opted_in, lambda pods: not pods, "its pods to be gone")
    assert installed.api.json("GET", f"/apis/batch/v1/namespaces/{opted_in}/jobs")["items"] == []
