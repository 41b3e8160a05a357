"""What went wrong in the first topology scheduler for GKE, in gangs, commits and operation, defect by defect.

Source: gke-topology-scheduler/schedule-daemon.py of GoogleCloudPlatform/container-engine-accelerators.
Its defects in capacity, filters and search are in tests/placement; what only shows in a cluster is in
test_defects_at_work.py.
"""

import copy
import http.client
from collections.abc import Callable, Mapping
from typing import Any

import jsonpatch
import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, gather_all, job_pod, no_size, pod_json
from webhook.inquiry.reading import ClusterReading
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.planned import PlannedPod
from webhook.placement import Assignment, Snapshot, place
from webhook.probes import serve
from webhook.sweeper.apply import patches
from webhook.sweeper.apply.release import Outcome, Releaser
from webhook.sweeper.decide.question import question
from webhook.sweeper.main import _parser, _settings
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.gangs import GangKey, OwnerSays, gather, key_of
from webhook.sweeper.observe.pins import is_gated
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.settings import Settings
from webhook.workloads import marks

GPU = "nvidia.com/gpu"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, **labels: str) -> Node:
    raw = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {GPU: "8", "pods": "110"}}}
    return msgspec.convert(raw, Node)


# --- 1-7: which pods belong together -----------------------------------------------------------------


def test_1_pods_listed_in_any_order_make_one_gang_each() -> None:
    gangs = gather_all(job_pod(0, "a"), job_pod(0, "b"), job_pod(1, "a"), job_pod(1, "b"))
    assert [(gang.key.name, len(gang.pods)) for gang in gangs] == [("a", 2), ("b", 2)]


def test_2_jobs_of_one_name_in_two_namespaces_are_two_gangs() -> None:
    gangs = gather_all(job_pod(0, namespace="x"), job_pod(0, namespace="y"))
    assert [gang.key.namespace for gang in gangs] == ["x", "y"]


def test_3_the_jobs_of_a_jobset_are_one_gang() -> None:
    pods = []
    for job in ("leader", "workers"):
        labels = {
            marks.JOB_NAME_LABEL: f"set-{job}",
            "batch.kubernetes.io/controller-uid": job,
            "jobset.sigs.k8s.io/jobset-name": "set",
            "jobset.sigs.k8s.io/jobset-uid": "set-uid",
        }
        pods.append(decode(pod_json(f"{job}-0", metadata={"labels": labels})))
    (gang,) = gather_all(*pods)
    assert gang.key == GangKey("ns", "JobSet", "set", "set-uid")


@pytest.mark.parametrize("annotation", marks.GANG_SIZE_KEYS)
def test_4_a_gang_waits_for_the_number_of_pods_that_is_told_not_for_those_seen(annotation: str) -> None:
    (told,) = gather_all(job_pod(0, annotations={annotation: "8"}))
    assert told.size == 8


def test_4_a_gangs_controller_tells_its_size() -> None:
    (told,) = gather([job_pod(0)], [], lambda _: OwnerSays(8))
    assert told.size == 8


def test_4_pods_that_come_late_are_placed_in_relation_to_their_siblings() -> None:
    (gang,) = gather([job_pod(1)], [job_pod(0)], no_size)
    asked = question(
        gang, gang.gated, {"ns-train-0": "n1"}, is_ours=lambda pod: pod.metadata.uid == "ns-train-0"
    ).gang
    assert [(anchor.node, anchor.rank) for anchor in asked.anchors] == [("n1", 0)]


def test_5_a_mix_of_ranked_and_unranked_pods_is_said_and_placed_without_ranks() -> None:
    unranked = job_pod(
        1, labels={marks.JOB_NAME_LABEL: "train", "batch.kubernetes.io/controller-uid": "ns-train"}
    )
    (gang,) = gather_all(job_pod(0), unranked)
    assert gang.ranks == {}
    assert gang.problems == ("1 of 2 pods have no rank; placed without ranks",)


def test_6_a_gated_pod_without_labels_or_annotations_is_read_like_any_other() -> None:
    bare = pod_json("bare")
    assert not bare["metadata"].keys() & {"labels", "annotations", "ownerReferences"}
    assert key_of(decode(bare)).kind == "Pod"


def test_7_pods_that_nothing_joins_are_gangs_of_one() -> None:
    gangs = gather_all(decode(pod_json("a")), decode(pod_json("b")))
    assert [(gang.key.kind, gang.key.name, gang.size) for gang in gangs] == [("Pod", "a", 1), ("Pod", "b", 1)]


# --- 24-29: commits ------------------------------------------------------------------------------------


def released(pod: dict[str, Any], node_name: str = "n1") -> dict[str, Any]:
    """The pod after its release."""
    after: dict[str, Any] = jsonpatch.apply_patch(
        copy.deepcopy(pod), patches.release_patch(decode(pod), node_name, {})
    )
    return after


def test_24_what_the_author_wrote_of_affinity_stays() -> None:
    wish = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity: dict[str, Any] = {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [wish]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": copy.deepcopy(wish)}
            ],
        },
        "podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]},
    }
    after = released(pod_json(affinity=affinity))["spec"]["affinity"]
    (term,) = after["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchExpressions"] == wish["matchExpressions"]
    assert term["matchFields"][0]["values"] == ["n1"]
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    assert after["nodeAffinity"][preferred] == affinity["nodeAffinity"][preferred]
    assert after["podAntiAffinity"] == affinity["podAntiAffinity"]


def test_25_a_pod_is_pinned_to_its_nodes_name_whatever_the_hostname_label_says() -> None:
    pod = job_pod(0)
    snapshotter = Snapshotter(
        ClusterReading((pod,), {"n1": node("n1", **{keys.HOSTNAME_LABEL: "other"})}, {}, no_size), Settings()
    )
    (gang,) = gather_all(pod)
    found = place(question(gang, [pod], {}).gang, snapshotter.snapshot(snapshotter.view()))
    assert isinstance(found, Assignment)
    after = released(pod_json(), found.nodes[pod.metadata.uid])
    (term,) = after["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


class Answers(Api):
    """An API server of which each PATCH of a pod is answered by `patch`, and each GET from `there`."""

    def __init__(self, patch: Callable[[str], None], there: Mapping[str, dict[str, Any]]) -> None:
        self.patched: list[str] = []
        self._patch = patch
        self._there = there

    def request(self, method: str, path: str, **_: Any) -> bytes:
        name = path.rpartition("/")[2]
        if method == "GET":
            return msgspec.json.encode(self._there[name])
        self.patched.append(name)
        self._patch(name)
        return b"{}"


class Never:
    """An event that does not come, and that is waited for in no time."""

    def is_set(self) -> bool:
        return False

    def wait(self, _seconds: float) -> bool:
        return False


def outcomes(api: Api, *pods: dict[str, Any]) -> dict[str, Outcome]:
    """What becomes of pods that are planned on n1."""
    pairs = [
        (decode(pod), PlannedPod(name=pod["metadata"]["name"], uid=pod["metadata"]["uid"], node="n1"))
        for pod in pods
    ]
    releaser = Releaser(api, Never(), lambda: True)  # type: ignore[arg-type]
    try:
        return {each.planned.name: each.outcome for each in releaser.release(pairs)}
    finally:
        releaser.close()


def test_26_a_pod_that_somebody_else_has_written_meanwhile_is_read_again_and_released() -> None:
    newer = pod_json("a", metadata={"annotations": {"written": "meanwhile"}})
    tries: list[str] = []

    def conflict_once(name: str) -> None:
        tries.append(name)
        if len(tries) == 1:
            raise ApiError(409, "Conflict", "the object has been modified")

    assert outcomes(Answers(conflict_once, {"a": newer}), pod_json("a")) == {"a": Outcome.RELEASED}
    assert len(tries) == 2


def test_26_a_pod_of_which_somebody_else_wrote_what_we_do_not_keep_is_released_as_well() -> None:
    seen = pod_json("a", metadata={"resourceVersion": "1", "annotations": {"theirs": "then"}})
    newer = pod_json("a", metadata={"resourceVersion": "2", "annotations": {"theirs": "now"}})
    tries: list[str] = []

    def conflict_once(name: str) -> None:
        tries.append(name)
        if len(tries) == 1:
            raise ApiError(409, "Conflict", "the object has been modified")

    assert outcomes(Answers(conflict_once, {"a": newer}), seen) == {"a": Outcome.RELEASED}


def refuse(*names: str) -> Callable[[str], None]:
    def patch(name: str) -> None:
        if name in names:
            raise ApiError(422, "Invalid", "the server rejected our request")

    return patch


def test_27_a_pod_that_has_no_gates_any_more_is_no_error_and_stops_nobody() -> None:
    free = pod_json("a")
    del free["spec"]["schedulingGates"]
    assert not is_gated(decode(free))
    api = Answers(refuse("a"), {"a": free})
    assert outcomes(api, pod_json("a"), pod_json("b")) == {"a": Outcome.GONE, "b": Outcome.RELEASED}


def test_28_a_pod_in_the_middle_that_is_refused_leaves_none_of_the_others_unreleased() -> None:
    pods = [pod_json(name) for name in "abc"]
    api = Answers(refuse("b"), {"b": pods[1]})
    assert outcomes(api, *pods) == {"a": Outcome.RELEASED, "b": Outcome.REFUSED, "c": Outcome.RELEASED}


def test_28_what_is_planned_and_not_released_is_there_for_the_next_pass() -> None:
    waiting = job_pod(1)
    view = Snapshotter(_planned(waiting), Settings()).view()
    assert view.planned[waiting.metadata.uid].node == "n1"


def _planned(*pods: Pod) -> ClusterReading:
    """A cluster of n1 and n2 in which these pods are planned on n1."""
    entries = [PlannedPod(name=pod.metadata.name, uid=pod.metadata.uid, node="n1") for pod in pods]
    placement = Placement(metadata=Metadata(namespace="ns", name="p"), spec=PlacementSpec(pods=entries))
    return ClusterReading(pods, {name: node(name) for name in ("n1", "n2")}, {"ns/p": placement}, no_size)


@pytest.mark.parametrize(
    ("spec", "taken"),
    [({}, {"n1": 0, "n2": 0}), ({"nodeName": "n2"}, {"n1": 0, "n2": 8})],
    ids=["waiting for the scheduler", "bound elsewhere"],
)
def test_29_a_pod_whose_gate_somebody_else_removed_takes_no_room_where_it_was_planned(
    spec: dict[str, Any], taken: dict[str, int]
) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {GPU: "8"}}}
    free = decode(pod_json("a", schedulingGates=[], containers=[container], **spec))
    snapshotter = Snapshotter(_planned(free), Settings())
    assert used(snapshotter.snapshot(snapshotter.view())) == taken


def used(snapshot: Snapshot) -> dict[str, int]:
    return {name: 8 - state.free[GPU] for name, state in snapshot.nodes.items()}


# --- 31, 33, 34, 36: operation ----------------------------------------------------------------------------


def test_31_an_ignored_namespace_is_left_alone() -> None:
    pods = (job_pod(0, namespace="theirs"), job_pod(0, namespace="ours"))
    settings = _settings(_parser().parse_args(["--ignored-namespace", "theirs"]))
    view = Snapshotter(ClusterReading(pods, {}, {}, no_size), settings).view()
    assert [pod.metadata.namespace for pod in view.gated] == ["ours"]


@pytest.mark.parametrize(
    "arguments",
    [["--ignored-namespace", "a", "b"], ["--ignored-namespace", "a", "--ignored-namespace", "b"]],
    ids=["one flag", "the flag again"],
)
def test_31_several_namespaces_may_be_ignored(arguments: list[str]) -> None:
    assert _settings(_parser().parse_args(arguments)).ignored_namespaces == {"a", "b"}


def test_31_the_interval_is_a_number_of_seconds() -> None:
    assert _settings(_parser().parse_args(["--interval", "1.5"])).interval_seconds == 1.5


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/metrics", 200, "topogate_leader 0.0"),
        ("/healthz", 200, "ok"),
        ("/readyz", 503, "not complete"),
        ("/", 404, "there are"),
    ],
)
def test_33_how_it_is_can_be_asked(path: str, status: int, words: str) -> None:
    checks = {"/healthz": lambda: "", "/readyz": lambda: "the copy of the cluster is not complete yet"}
    server = serve("127.0.0.1", 0, Metrics().registry, lambda: None, checks)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == status
        assert words in answer.read().decode()
        connection.close()
    finally:
        server.shutdown()
        server.server_close()


def test_34_gangs_come_by_priority_then_by_age() -> None:
    old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    pods = []
    for name, created, priority in (("young", new, 0), ("aged", old, 0), ("urgent", new, 100)):
        pods.append(decode(pod_json(name, metadata={"creationTimestamp": created}, priority=priority)))
    assert [gang.key.name for gang in gather_all(*pods)] == ["urgent", "aged", "young"]


def test_36_a_pod_that_is_being_deleted_is_no_member_of_its_gang() -> None:
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "uid": "leaving"}
    (gang,) = gather([job_pod(0), job_pod(1, **leaving)], [job_pod(2, **leaving)], no_size)
    assert [pod.metadata.name for pod in gang.pods] == ["train-0"]


def test_36_a_pod_that_is_being_deleted_takes_room_until_it_is_gone() -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {GPU: "8"}}}
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    leaving = decode(
        pod_json("a", schedulingGates=[], containers=[container], nodeName="n1", metadata=metadata)
    )
    snapshotter = Snapshotter(ClusterReading((leaving,), {"n1": node("n1")}, {}, no_size), Settings())
    assert used(snapshotter.snapshot(snapshotter.view())) == {"n1": 8}
