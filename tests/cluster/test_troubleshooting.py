"""Each symptom of the page on troubleshooting, made on a real control plane: users see what the page says."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.local import nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.cluster.typed import typed as typed_in
from tests.definitions import define, wait_served
from tests.installation import installed_on
from tests.support import create_namespace, delete, exists, wait_for_pods
from tests.sweeper.at_work import create_job, create_pod
from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.workloads import marks

PAGE: Final = ROOT / "docs" / "users" / "waiting.md"
SHAPE: Final = nodes.Shape(nodes=8, blocks=2, subblocks=2, gpus=8, intel=2)
GPU: Final = "nvidia.com/gpu"
OURS: Final = keys.TOPOGATE_PREFIX
ROW: Final = re.compile(r"^\| (?P<symptom>[^|]+) \| (?P<seen>[^|]+) \| [^|]+ \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Installation]:
    """topogate as its manifests say, on eight labelled nodes."""
    with installed_on(module_cluster, SHAPE) as installation:
        yield installation


@dataclass(frozen=True)
class Place:
    """A namespace that has opted in, and what is read there."""

    installed: Installation
    namespace: str

    @property
    def api(self) -> Api:
        return self.installed.api

    def job(
        self,
        pods: int = 1,
        gpus: int = 8,
        made: int | None = None,
        metadata: dict[str, Any] | None = None,
        **spec: Any,
    ) -> str:
        """Create a Job and wait until so many of its pods are made, all by default; returns the first one."""
        container = {"name": "c", "image": "x", "resources": {"limits": {GPU: gpus}}}
        body = {"metadata": metadata or {}, "spec": {"containers": [container], **spec}}
        create_job(self.api, self.namespace, "train", pods, body)
        count = pods if made is None else made
        there = wait_for_pods(
            self.installed.cluster, self.namespace, lambda found: len(found) == count, "the pods of the Job"
        )
        return str(min(pod["metadata"]["name"] for pod in there))

    def pod(self, namespace: str = "", **annotations: str) -> None:
        create_pod(self.api, namespace or self.namespace, "alone", bare(**annotations))

    def explained(self, pod: str, namespace: str = "") -> str:
        """What `topogate explain` prints of a pod."""
        return typed_in(self.installed.cluster, namespace or self.namespace, "explain", f"pod/{pod}").out

    def warned(self, body: dict[str, Any]) -> str:
        """What kubectl prints when a manifest is applied."""
        made = self.installed.cluster.kubectl(
            "create", "-n", self.namespace, "-f", "-", stdin=yaml.safe_dump(body)
        )
        return str(made.stderr)

    def events(self, reason: str) -> dict[str, str]:
        """Kind of what the sweeper's Events are about -> their notes."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        found: dict[str, str] = {}
        for each in self.api.json("GET", path)["items"]:
            if each["reason"] == reason:
                kind = each["regarding"]["kind"]
                found[kind] = f"{found.get(kind, '')} {each['note']}"
        return found


@pytest.fixture
def place(installed: Installation, opted_in: str) -> Place:
    return Place(installed, opted_in)


def annotated(**values: str) -> dict[str, Any]:
    """Metadata with annotations under our own name."""
    return {"annotations": {OURS + key.replace("_", "-"): value for key, value in values.items()}}


def bare(*gates: str, **annotations: str) -> dict[str, Any]:
    """A GPU pod as kubectl sends it."""
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: 1}}}
    metadata = {"name": "alone", **annotated(**annotations)}
    spec = {"containers": [container], "schedulingGates": [{"name": gate} for gate in gates]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


# --- the causes -------------------------------------------------------------------------------------


def not_gated(place: Place) -> str:
    plain = create_namespace(place.installed.cluster)
    place.pod(plain)
    return place.explained("alone", plain)


def refused(place: Place) -> str:
    output = ""
    for key, value in (("gpu_model", "h1000"), ("priority", "urgent")):
        with pytest.raises(ApiError) as caught:
            place.pod(**{key: value})
        output += str(caught.value)
    return output


def above_the_maximum(place: Place) -> str:
    with maximum(place, "low"), pytest.raises(ApiError) as caught:
        place.pod(priority="high")
    return str(caught.value)


@contextmanager
def maximum(place: Place, tier: str) -> Iterator[None]:
    """A configuration whose maximum of the namespace is that tier, taken up by the webhook."""
    command = place.installed.programs["webhook"].command
    (file,) = (Path(each.partition("=")[2]) for each in command if each.startswith("--config="))
    before = file.read_text()
    document = yaml.safe_load(before)
    document["namespaces"] = {"rules": {place.namespace: {"maximumTier": tier}}}
    file.write_text(yaml.safe_dump(document))
    path, highest = f"/api/v1/namespaces/{place.namespace}/pods", bare(priority="high")

    def is_refused() -> bool:
        try:
            place.api.request("POST", path, query={"dryRun": "All"}, body=highest)
        except ApiError:
            return True
        return False

    try:
        place.installed.cluster.wait_for("the configuration to be taken up", is_refused)
        yield
    finally:
        file.write_text(before)
        place.installed.cluster.wait_for("the configuration of before", lambda: not is_refused())


def no_capacity(place: Place) -> str:
    return place.explained(place.job(7))


def no_model(place: Place) -> str:
    return place.explained(place.job(metadata=annotated(gpu_model="rtx4090")))


def no_label(place: Place) -> str:
    return place.explained(place.job(nodeSelector={"pool": "q"}))


def no_level(place: Place) -> str:
    return place.explained(place.job(metadata=annotated(required_topology="rack")))


def no_topology(place: Place) -> str:
    grid = nodes.grid(SHAPE)
    try:
        for node in grid:
            patch_node(place.api, node.name, {"metadata": {"labels": dict.fromkeys(node.topology_labels)}})
        return place.explained(place.job(metadata=annotated(required_topology="block")))
    finally:
        for node in grid:
            patch_node(place.api, node.name, {"metadata": {"labels": node.topology_labels}})


def too_many_gpus(place: Place) -> str:
    return place.explained(place.job(gpus=9))


def too_large(place: Place) -> str:
    return place.explained(place.job(5, metadata=annotated(required_topology="block")))


def tainted(place: Place) -> str:
    taints = [{"key": "kept", "value": "for-others", "effect": "NoSchedule"}]
    names = [node.name for node in nodes.grid(SHAPE)]
    try:
        for name in names:
            patch_node(place.api, name, {"spec": {"taints": taints}})
        return place.explained(place.job())
    finally:
        for name in names:
            patch_node(place.api, name, {"spec": {"taints": None}})


def patch_node(api: Api, name: str, body: dict[str, Any]) -> None:
    api.request("PATCH", f"/api/v1/nodes/{name}", body=body, content_type=MERGE_PATCH)


def pods_missing(place: Place) -> str:
    path = f"/api/v1/namespaces/{place.namespace}/resourcequotas"
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    place.api.request("POST", path, body=quota)
    place.installed.cluster.wait_for(
        "the quota to be counted", lambda: "used" in place.api.json("GET", f"{path}/few")["status"]
    )
    return place.explained(place.job(4, made=1))


def misspelled(place: Place) -> str:
    return place.warned(bare(gangsize="4"))


def misspelled_in_a_job(place: Place) -> str:
    place.job(metadata=annotated(gangsize="4"))
    place.installed.cluster.wait_for("the Events", lambda: len(place.events("ManifestWarning")) == 2)
    return f"ManifestWarning {place.events('ManifestWarning')['Job']}"


def gang_without_a_size(place: Place) -> str:
    return place.warned(bare(gang="ring"))


def others_request(place: Place) -> str:
    body = bare()
    body["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "cloud.example.com/rack"}
    return place.warned(body)


def kueue_chooses(place: Place) -> str:
    return place.warned(bare(marks.KUEUE_TOPOLOGY_GATE))


def another_gate(place: Place) -> str:
    return place.explained(place.job(schedulingGates=[{"name": marks.KUEUE_ADMISSION_GATE}]))


def only_another_gate(place: Place) -> str:
    body = bare(marks.KUEUE_ADMISSION_GATE)
    del body["spec"]["containers"][0]["resources"]
    create_pod(place.api, place.namespace, "alone", body)
    return place.explained("alone")


def not_bound(place: Place) -> str:
    cluster = place.installed.cluster
    with cluster.paused("kube-scheduler"):
        pod = place.job()
        path = f"/api/v1/namespaces/{place.namespace}/pods/{pod}"
        cluster.wait_for(
            "its release", lambda: not place.api.json("GET", path)["spec"].get("schedulingGates")
        )
        return place.explained(pod)


CAUSES: Final[dict[str, Callable[[Place], str]]] = {
    "A GPU pod has no gate": not_gated,
    "A pod is refused": refused,
    "A pod's priority is refused": above_the_maximum,
    "The GPUs are in use, or look free": no_capacity,
    "The gang waits for a model": no_model,
    "The gang waits for a label": no_label,
    "The gang waits for a level": no_level,
    "The gang waits for nodes in a topology": no_topology,
    "The gang asks for too much of a node": too_many_gpus,
    "The gang is too large for its domain": too_large,
    "Taints exclude nodes": tainted,
    "Pods of the gang are missing": pods_missing,
    "An annotation has no effect": misspelled,
    "An annotation of a Job has no effect": misspelled_in_a_job,
    "Pods of a named gang start one by one": gang_without_a_size,
    "A topology request of another scheduler has no effect": others_request,
    "Kueue places the pod": kueue_chooses,
    "Another gate is on the pod": another_gate,
    "Only another gate is on the pod": only_another_gate,
    "A released pod stays `Pending`": not_bound,
}


def rows() -> dict[str, str]:
    """Symptom -> what the page says that is seen."""
    found = {row["symptom"]: row["seen"] for row in ROW.finditer(PAGE.read_text())}
    return {symptom: seen for symptom, seen in found.items() if symptom != "symptom" and "---" not in symptom}


def test_each_symptom_of_the_page_has_a_cause_that_is_made_here() -> None:
    assert list(rows()) == list(CAUSES)


@pytest.mark.parametrize("symptom", CAUSES)
def test_users_see_what_the_page_describes(place: Place, symptom: str) -> None:
    quoted = re.findall(r'"([^"]+)"', rows()[symptom])
    output = CAUSES[symptom](place)
    parts = [part.strip() for each in quoted for part in each.split("...") if part.strip()]
    assert parts
    assert [part for part in parts if part not in output] == [], output


# --- the gang's Event reaches the author of the manifest ------------------------------------------------


@pytest.mark.promise("O363")
def test_the_owner_of_a_job_sees_the_messages_of_admission_and_of_the_sweeper(place: Place) -> None:
    metadata = annotated(gangsize="4")
    metadata["annotations"]["kai.scheduler/topology-required-placement"] = "rack"
    place.job(gpus=9, metadata=metadata)
    place.installed.cluster.wait_for("its Events", lambda: "Job" in place.events("GangWaits"))
    place.installed.cluster.wait_for("the warning", lambda: "Job" in place.events("ManifestWarning"))
    warned = place.events("ManifestWarning")["Job"]
    assert '"topogate.io/gangsize" has no effect; did you mean topogate.io/gang-size?' in warned
    assert (
        "kai.scheduler/topology-required-placement is not read: write topogate.io/required-topology" in warned
    )
    assert "no node that it may use has more than 8" in place.events("GangWaits")["Job"]


ONE_POD: Final = {"spec": {"parallelism": 1, "completions": 1}}
WORKER: Final = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
OWNERS: Final[dict[str, tuple[str, dict[str, Any], dict[str, str]]]] = {
    # group and version, spec, labels of its pods beside the name
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        {"replicatedJobs": [{"name": "w", "replicas": 1, "template": ONE_POD}]},
        {marks.JOBSET_NAME_LABEL: "set"},
    ),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": WORKER}},
        {marks.LEADER_WORKER_SET_NAME_LABEL: "set", marks.LEADER_WORKER_SET_GROUP_LABEL: "key"},
    ),
    "PodGroup": ("scheduling.x-k8s.io/v1alpha1", {"minMember": 1}, {marks.COSCHEDULING_GROUP_LABEL: "set"}),
}


def wait_read(place: Place, plural: str, labels: dict[str, str]) -> None:
    """Wait until the sweeper reads a kind that was installed while it runs: it looks when a pod names one."""
    body = bare()
    body["metadata"]["labels"] = dict.fromkeys(labels, "other")
    create_pod(place.api, place.namespace, "other", body)
    log = place.installed.programs["sweeper"].log
    place.installed.cluster.wait_for(
        f"{plural} to be read", lambda: f"owner_served resource={plural}." in log.read_text()
    )
    path = f"/api/v1/namespaces/{place.namespace}/pods/other"
    delete(place.api, path)
    place.installed.cluster.wait_for("the pod to go", lambda: not exists(place.api, path))


@pytest.mark.promise("O363")
@pytest.mark.parametrize("kind", OWNERS)
def test_a_name_that_stands_for_a_gang_is_answered_with_its_controller(place: Place, kind: str) -> None:
    served, spec, labels = OWNERS[kind]
    group, _, version = served.partition("/")
    cluster, plural = place.installed.cluster, f"{kind.lower()}s"
    definition = define(cluster, kind, group, version)
    try:
        wait_served(cluster, served, kind)
        path = f"/apis/{served}/namespaces/{place.namespace}/{plural}"
        body = {"apiVersion": served, "kind": kind, "metadata": {"name": "set"}, "spec": spec}
        made = place.api.json("POST", path, body=body)
        wait_read(place, plural, labels)
        if kind == "JobSet":
            labels = {**labels, "jobset.sigs.k8s.io/jobset-uid": made["metadata"]["uid"]}
        place.job(gpus=9, metadata={"labels": labels})
        cluster.wait_for("its Event", lambda: kind in place.events("GangWaits"))
        assert place.events("GangWaits")[kind] == place.events("GangWaits")["Job"]
    finally:
        delete(place.api, definition)


# --- what the command says before anything waits --------------------------------------------------------


def typed(place: Place, *words: str) -> tuple[int, str, str]:
    """Status, output and errors of the command in the namespace, if the words name no other."""
    done = typed_in(place.installed.cluster, place.namespace, *words)
    return done.status, done.out, done.err


CANNOT_BE_MEANT: Final = {
    "run --image x -m h1000": (2, 'no GPU model "h1000"; did you mean H100'),
    "run --image x -p urgent": (2, 'no tier "urgent"; allowed here: low, medium and high'),
    "run --image x --required rack": (2, 'no level "rack"; known: block, subblock, host and node'),
    "run": (2, "nothing to run"),
    "ps -n nosuchns": (1, "there is no namespace nosuchns"),
}
"""Words -> the status of the command, and a part of what it says."""


def test_what_cannot_be_meant_makes_no_task(place: Place) -> None:
    wrong = []
    for words, (status, expected) in CANNOT_BE_MEANT.items():
        ended, out, err = typed(place, *words.split())
        if (ended, out, expected in err) != (status, "", True):
            wrong.append((words, ended, out, err))
    assert wrong == []
    path = f"/apis/falldio.com/v1/namespaces/{place.namespace}/gputasks"
    assert place.api.json("GET", path)["items"] == []


NO_NODE_HAS: Final = {
    "-g 9": "a pod asks for 9 nvidia.com/gpu, and no node that it may use has more than 8",
    "-m mi300x": "no node has GPU model AMD_Instinct_MI300X_OAM (there are: ",
}


def test_what_no_node_has_is_reported_as_the_task_is_made(place: Place) -> None:
    for number, (words, expected) in enumerate(NO_NODE_HAS.items()):
        run = ("run", "--image", "x", *words.split())
        status, out, err = typed(place, *run, "--name", f"t{number}")
        assert (status, out) == (0, f"gputask/t{number} created\n")
        assert f"t{number} must wait: {expected}" in err
        status, out, err = typed(place, *run, "--name", "u", "--dry-run")
        assert (status, err) == (1, "")
        assert expected in out


# --- what `topogate lint --cluster` says in CI ----------------------------------------------------------


def job_file(folder: Path, metadata: dict[str, Any], gpus: int, **spec: Any) -> Path:
    """The Job that `Place.job` creates, as a manifest."""
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: gpus}}}
    template = {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump({**body, "spec": {"template": template}}))
    return file


@pytest.mark.promise("R240")
@pytest.mark.parametrize(
    ("metadata", "gpus", "spec", "expected"),
    [
        (annotated(gpu_model="rtx4090"), 8, {}, "no node has GPU model NVIDIA-GeForce-RTX-4090 (there are: "),
        ({}, 8, {"nodeSelector": {"pool": "q"}}, "no node has the label pool=q (no node has one)"),
        ({}, 9, {}, "a pod asks for 9 nvidia.com/gpu, and no node that it may use has more than 8"),
    ],
    ids=["model", "label", "GPUs"],
)
def test_lint_of_the_cluster_reports_before_what_explain_reports_once_it_waits(
    place: Place, tmp_path: Path, metadata: dict[str, Any], gpus: int, spec: dict[str, Any], expected: str
) -> None:
    file = job_file(tmp_path, metadata, gpus, **spec)
    status, out, err = typed(place, "lint", "--cluster", str(file))
    assert (status, err) == (1, "")
    (line,) = out.splitlines()
    sentence = line.removeprefix(f"{file}: Job/train: ")
    assert sentence.startswith(expected)
    assert typed(place, "lint", str(file)) == (0, "", ""), "without the cluster nothing is wrong with it"
    assert sentence in place.explained(place.job(1, gpus, metadata=metadata, **spec))


def test_lint_of_the_cluster_guesses_the_model_that_was_meant(place: Place, tmp_path: Path) -> None:
    file = job_file(tmp_path, annotated(gpu_model="h1000"), 8)
    status, out, err = typed(place, "lint", "--cluster", str(file))
    assert (status, err) == (1, "")
    assert 'Job/train: topogate.io/gpu-model: no GPU model "h1000"; did you mean H100' in out
