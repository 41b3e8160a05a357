"""The page's answers, from a fixed scene."""

import json
import time
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest
from flask.testing import FlaskClient

from hack.local import nodes
from labeler.contract import annotations, keys
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.preemptions import plan
from tests.ui.scenes import (
    COUNTING,
    SETTINGS,
    bound_pod,
    cluster_of,
    gpu_container,
    page_of,
    scene_of,
    waiting_job,
)
from webhook.configuration.settings import Settings
from webhook.extensions.node_health.avoided_nodes import NAME, encoded
from webhook.extensions.node_health.failing_nodes import FailureState, GangFailure
from webhook.inquiry.explanation import explain
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.sweeper.observe.membership import LostOwner, key_of
from webhook.ui import pages
from webhook.ui.answer_cache import AnswerCache
from webhook.ui.detail import detail
from webhook.ui.gang_rows import GangRow
from webhook.ui.live import Artist
from webhook.ui.viewer_access import COOKIE, LaptopAccess
from webhook.workloads.native_gangs import POD_GROUPS

FIRST = "node-b0-s0-h00"
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: new}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]
"""


@pytest.fixture
def page() -> FlaskClient:
    """A page over a Job of two that waits, and one bound pod."""
    return page_of(scene_of(cluster_of([*waiting_job(2), bound_pod("a", FIRST)])), size=2)


def only_gang(page: FlaskClient) -> str:
    return str(page.get("/api/picture").json["gangs"][0]["id"])  # type: ignore[index]


def test_every_answer_forbids_inline_script_and_foreign_sources(page: FlaskClient) -> None:
    for path in ("/", "/static/main.js", "/api/picture", "/api/no-such"):
        with page.get(path) as answer:
            policy = answer.headers["Content-Security-Policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy


def test_the_page_itself_has_no_inline_script_or_style(page: FlaskClient) -> None:
    with page.get("/") as answer:
        text = answer.get_data(as_text=True)
    assert "<style" not in text
    assert "style=" not in text
    assert text.count("<script") == text.count('<script type="module" src="/static/') == 1


def test_the_picture_counts_nodes_and_lists_gangs(page: FlaskClient) -> None:
    body: Any = page.get("/api/picture").json
    assert body["nodes"] == 8
    assert [(row["name"], row["waiting"]) for row in body["gangs"]] == [("train", 2)]


def test_nodes_come_one_domain_at_a_time(page: FlaskClient) -> None:
    body: Any = page.get("/api/nodes?domain=1/b1/s0").json
    assert [tile["name"] for tile in body["nodes"]] == ["node-b1-s0-h00", "node-b1-s0-h01"]


def test_a_domain_whose_name_is_a_prefix_of_another_does_not_bring_its_nodes(page: FlaskClient) -> None:
    assert page.get("/api/nodes?domain=1/b").json == {"version": 1, "nodes": [], "left": 0}


@pytest.mark.promise("R235")
def test_what_is_more_than_one_answer_holds_is_left_out_and_counted(
    page: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_NODES", 3)
    body: Any = page.get("/api/nodes?domain=1/b1").json
    assert (len(body["nodes"]), body["left"]) == (3, 1)


def test_of_the_history_only_what_is_newer_is_sent_to_who_has_the_rest(page: FlaskClient) -> None:
    (first,) = cast(Any, page.get("/api/history").json)["samples"]
    assert cast(Any, page.get(f"/api/history?since={first['at']}").json)["samples"] == []
    assert cast(Any, page.get(f"/api/history?since={first['at'] - 1}").json)["samples"] == [first]
    assert page.get("/api/history?since=yesterday").status_code == 400


def test_many_who_look_at_one_gang_cost_as_much_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(row: GangRow, *more: Any) -> Any:
        asked.append(row.id)
        return detail(row, *more)

    monkeypatch.setattr(pages, "detail", counted)
    page = page_of(scene_of(cluster_of(waiting_job(2))))
    gang = only_gang(page)
    assert page.get(f"/api/gang?id={gang}").data == page.get(f"/api/gang?id={gang}").data
    assert asked == [gang]


def test_two_pages_on_one_laptop_do_not_log_each_other_out() -> None:
    scene = scene_of(cluster_of([]))
    first, second = (page_of(scene, LaptopAccess("me", secret)) for secret in ("one", "two"))
    jar: dict[str, str] = {}
    for page, secret, port in ((first, "one", 8090), (second, "two", 8091)):
        answer = page.get(f"/?secret={secret}", base_url=f"http://127.0.0.1:{port}")
        name, _, value = answer.headers["Set-Cookie"].partition(";")[0].partition("=")
        jar[name] = value
    sent = {"Cookie": "; ".join(f"{name}={value}" for name, value in jar.items())}
    for page, port in ((first, 8090), (second, 8091)):
        assert page.get("/api/picture", base_url=f"http://127.0.0.1:{port}", headers=sent).status_code == 200


def test_only_so_many_answers_are_cached_and_those_of_the_latest_version_alone() -> None:
    cache: AnswerCache[int, str] = AnswerCache(2)
    for number in range(3):
        cache.put(7, number, str(number))
    assert [cache.get(7, number) for number in range(3)] == [None, "1", "2"]
    cache.put(6, 1, "late")
    assert (cache.get(6, 1), cache.get(7, 1)) == (None, "1")
    cache.put(8, 1, "new")
    assert [cache.get(8, number) for number in (1, 2)] == ["new", None]


@pytest.mark.promise("R191")
def test_a_gang_is_explained_in_the_sentences_of_topogate_explain() -> None:
    cluster = cluster_of([*waiting_job(9), bound_pod("a", FIRST)], size=9)
    page = page_of(scene_of(cluster), size=9)
    body: Any = page.get(f"/api/gang?id={only_gang(page)}").json
    assert body["sentences"] == list(explain(cluster, "ns", "train-0", Settings()))
    assert any("capacity for 7 of 9" in line for line in body["sentences"])


def test_a_gang_whose_controller_is_deleted_is_explained_in_the_sentences_of_topogate_explain() -> None:
    lost = LostOwner("its controller Job/train is deleted, so its pods are neither placed nor released")
    cluster = replace(cluster_of(waiting_job(2), size=2), read_lost_owners=lambda pods: lambda _: lost)
    scene = Artist(cluster, SETTINGS, COUNTING, owners=lambda: lambda _: lost).scene()
    page = page_of(scene, size=2)
    body: Any = page.get(f"/api/gang?id={only_gang(page)}").json
    assert body["sentences"] == list(explain(cluster, "ns", "train-0", Settings()))
    assert f"Now: {lost.sentence}" in body["sentences"]


def test_a_gang_of_a_pod_group_is_explained_in_the_sentences_of_topogate_explain() -> None:
    pods = [
        msgspec.structs.replace(
            pod, spec=msgspec.structs.replace(pod.spec, scheduling_group={"podGroupName": "g"})
        )
        for pod in waiting_job(2)
    ]
    owners: dict[str, Any] = {POD_GROUPS: {}}
    cluster = replace(cluster_of(pods, size=2), read_owners=owners.get)
    page = page_of(scene_of(cluster), size=2, owners=owners)
    body: Any = page.get(f"/api/gang?id={only_gang(page)}").json
    assert body["sentences"] == list(explain(cluster, "ns", "train-0", Settings()))
    assert any("PodGroup g is missing" in line for line in body["sentences"])


def test_a_gang_that_fits_is_shown_where_it_would_be_placed(page: FlaskClient) -> None:
    body: Any = page.get(f"/api/gang?id={only_gang(page)}").json
    assert len(body["nodes"]) == 2
    assert body["best"] == "1 block, 1 subblock, 2 hosts, 2 nodes"


def test_the_domain_that_came_closest_is_named_by_its_id() -> None:
    pods = waiting_job(5, annotations={"topogate.io/required-topology": "block"})
    page = page_of(scene_of(cluster_of([*pods, bound_pod("a", FIRST)])), size=5)
    body: Any = page.get(f"/api/gang?id={only_gang(page)}").json
    assert body["nearest"] == "1/b1"


def test_a_gang_that_is_not_there_is_404_with_a_sentence(page: FlaskClient) -> None:
    answer = page.get("/api/gang?id=ns/none")
    assert answer.status_code == 404
    assert "no such gang" in answer.json["error"]  # type: ignore[index]


def test_what_if_places_a_manifest_and_writes_nothing(page: FlaskClient) -> None:
    body: Any = page.post("/api/what-if", json={"manifest": JOB}).json
    assert body["fits"]
    assert len(set(body["places"].values())) == 2
    assert FIRST not in body["places"].values()


def test_what_if_avoids_failing_nodes_as_the_sweeper_does(page: FlaskClient) -> None:
    body: Any = page.post("/api/what-if", json={"manifest": JOB}).json
    at, node = int(time.time()), min(body["places"].values())
    failures = tuple(
        GangFailure(
            "default", f"default/Job/lost-{number}", at - 60, at - 30, 30, "OOM", 1, "{}", (("uid", node),),
            FailureState.PROVEN,
        )
        for number in range(3)
    )  # fmt: skip
    avoiding = page_of(
        scene_of(cluster_of([bound_pod("a", FIRST)])), records={NAME: {"failures": encoded(failures)}}
    )
    there: Any = avoiding.post("/api/what-if", json={"manifest": JOB}).json
    assert there["fits"]
    assert node not in there["places"].values()


def card_pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A pod that asks for one Intel GPU."""
    container = {"name": "c", "image": "x", "resources": {"requests": {keys.I915: "1"}}}
    return pod_json(name, containers=[container], metadata=metadata)


def waits_for_its_scheduler(node: str, seconds: float) -> tuple[Pod, Placement]:
    """A pod that was released to a node so long ago, and its Placement."""
    released_ns = time.time_ns() - int(seconds * 1e9)
    cards = annotations.encode_allocation([(annotations.SlotCard(0),)], released_ns)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    body = card_pod("stuck", annotations=cards)
    body["spec"] |= {
        "schedulingGates": [],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        },
    }
    body["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    pod = decode(body)
    _, plan_of_pod = plan(key_of(pod).placement_name, {pod.metadata.uid: node})
    return pod, plan_of_pod


@pytest.mark.parametrize(("seconds", "is_avoided"), [(0.0, False), (600.0, True)])
def test_what_if_avoids_a_node_where_a_released_pod_is_not_bound(seconds: float, is_avoided: bool) -> None:
    """Its cards come late, as the sweeper knows. Without that, the node that is used already is the best."""
    cards = {keys.CARDS_LABEL: "card0.card1", keys.GPU_NUMBERS_LABEL: "0.1"}
    grid = nodes.grid(nodes.Shape(nodes=2, blocks=1, subblocks=1, intel=2))
    manifests = [node.manifest({**node.topology_labels, **cards}) for node in grid]
    first = grid[0].name
    pod, its_plan = waits_for_its_scheduler(first, seconds)
    cluster = replace(
        cluster_of([pod], {its_plan.key: its_plan}),
        nodes={each["metadata"]["name"]: msgspec.convert(each, Node) for each in manifests},
    )
    asked = {"manifest": json.dumps({"apiVersion": "v1", "kind": "Pod", **card_pod("p")})}
    body: Any = page_of(scene_of(cluster)).post("/api/what-if", json=asked).json
    assert body["fits"]
    assert (first not in body["places"].values()) is is_avoided


@pytest.mark.promise("R193")
def test_what_if_can_change_the_size_of_a_waiting_gang(page: FlaskClient) -> None:
    body: Any = page.post("/api/what-if", json={"gang": only_gang(page), "size": 8}).json
    assert not body["fits"]
    assert "capacity for 7 of 8" in body["sentence"]


@pytest.mark.promise("R193")
def test_what_if_can_change_the_level_of_a_waiting_gang(page: FlaskClient) -> None:
    question = {"gang": only_gang(page), "size": 5, "level": "block"}
    body: Any = page.post("/api/what-if", json=question).json
    assert "do not fit into one block" in body["sentence"]


def launched(workers: int) -> list[Pod]:
    """An MPIJob that waits: a launcher on CPUs, and workers of 8 GPUs."""
    made = []
    for index in range(-1, workers):
        role = "worker" if index >= 0 else "launcher"
        labels = {"training.kubeflow.org/job-name": "mpi", "training.kubeflow.org/job-role": role}
        if index >= 0:
            labels |= {"training.kubeflow.org/replica-type": role}
            labels |= {"training.kubeflow.org/replica-index": str(index)}
        resources = gpu_container(8) if index >= 0 else {"name": "c", "resources": {"requests": {"cpu": "1"}}}
        made.append(decode(pod_json(f"{role}-{index}", metadata={"labels": labels}, containers=[resources])))
    return made


def test_what_if_asks_about_the_gang_that_is_named_among_several() -> None:
    page = page_of(scene_of(cluster_of([*waiting_job(2), *launched(1)])))
    rows = cast(Any, page.get("/api/picture").json)["gangs"]
    answers: Any = {row["name"]: page.post("/api/what-if", json={"gang": row["id"]}).json for row in rows}
    places = {name: set(answer["places"]) for name, answer in answers.items()}
    assert places == {"train": {"train-0", "train-1"}, "mpi": {"worker-0", "launcher--1"}}


def test_what_if_counts_no_launcher_on_cpus_and_places_it_beside_its_workers() -> None:
    page = page_of(scene_of(cluster_of(launched(2))), size=3)
    for size, fits in ((2, True), (4, True), (8, True), (9, False)):
        body: Any = page.post("/api/what-if", json={"gang": only_gang(page), "size": size}).json
        assert body["fits"] is fits
        assert len(body["places"]) == (size + 1 if fits else 0)
        if fits:
            assert f"{size} pods on" in body["sentence"]
            assert "1 CPU-only near them" in body["sentence"]
            assert body["places"]["launcher--1"] in body["places"].values()


def test_what_if_holds_each_part_of_a_manifest_to_its_own_level(page: FlaskClient) -> None:
    def part(name: str, count: int, level: str) -> dict[str, Any]:
        annotations = {"topogate.io/required-topology": level}
        pod = {"metadata": {"annotations": annotations}, "spec": {"containers": [gpu_container(8)]}}
        return {"name": name, "template": {"spec": {"parallelism": count, "template": pod}}}

    jobs = [part("a", 2, "subblock"), part("b", 3, "block")]
    manifest = json.dumps({"kind": "JobSet", "metadata": {"name": "t"}, "spec": {"replicatedJobs": jobs}})
    body: Any = page.post("/api/what-if", json={"manifest": manifest}).json
    places = body["places"]
    assert len({places[f"t-a-0-{index}"][:10] for index in range(2)}) == 1
    assert len({places[f"t-b-0-{index}"][:7] for index in range(3)}) == 1


def test_what_if_keeps_each_slice_of_a_manifest_together(page: FlaskClient) -> None:
    annotations = {"topogate.io/slice-topology": "subblock", "topogate.io/slice-size": "2"}
    pod = {"metadata": {"annotations": annotations}, "spec": {"containers": [gpu_container(8)]}}
    spec = {"completions": 6, "parallelism": 6, "completionMode": "Indexed", "template": pod}
    manifest = json.dumps({"kind": "Job", "metadata": {"name": "t"}, "spec": spec})
    body: Any = page.post("/api/what-if", json={"manifest": manifest}).json
    assert body["fits"], body["sentence"]
    places = [body["places"][f"t-{index}"][:10] for index in range(6)]
    assert all(places[index] == places[index + 1] for index in (0, 2, 4))


@pytest.mark.parametrize(
    ("groups", "fits", "expected"),
    [
        (2, True, "It fits, 2 groups, each by itself: 3 pods on 1 block"),
        (3, False, "1 of 3 groups have no place. Gang served-2 cannot be placed: 3 pods do not fit"),
    ],
)
def test_what_if_places_each_group_of_a_leader_worker_set_by_itself(
    page: FlaskClient, groups: int, fits: bool, expected: str
) -> None:
    template = {"spec": {"containers": [gpu_container(8)]}}
    spec = {"replicas": groups, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template}}
    manifest = json.dumps({"kind": "LeaderWorkerSet", "metadata": {"name": "served"}, "spec": spec})
    body: Any = page.post("/api/what-if", json={"manifest": manifest}).json
    assert body["fits"] is fits
    assert expected in body["sentence"]
    nodes = body["places"].values()
    assert len(set(nodes)) == len(nodes) == 6


def test_what_if_applies_rules_on_other_pods(page: FlaskClient) -> None:
    spread = {"maxSkew": 1, "topologyKey": keys.PRERELEASE_TOPOLOGY[0], "whenUnsatisfiable": "DoNotSchedule"}
    pod = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "containers": [gpu_container(8)],
            "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"app": "x"}}}],
        },
    }
    manifest = {"kind": "Job", "metadata": {"name": "t"}, "spec": {"parallelism": 4, "template": pod}}
    body: Any = page.post("/api/what-if", json={"manifest": json.dumps(manifest)}).json
    assert sorted(node[:7] for node in body["places"].values()) == ["node-b0"] * 2 + ["node-b1"] * 2


@pytest.mark.promise("R193")
def test_what_if_can_change_the_model_of_a_waiting_gang() -> None:
    """It asks for a model by its nodeSelector, and is tried on another."""
    pods = [
        msgspec.structs.replace(
            pod, spec=msgspec.structs.replace(pod.spec, node_selector={"nvidia.com/gpu.product": "B200"})
        )
        for pod in waiting_job(1)
    ]
    cluster = cluster_of(pods, size=1)
    cluster.nodes[FIRST].metadata.labels["nvidia.com/gpu.product"] = "H100"
    page = page_of(scene_of(cluster), size=1)
    body: Any = page.post("/api/what-if", json={"gang": only_gang(page)}).json
    assert not body["fits"]
    body = page.post("/api/what-if", json={"gang": only_gang(page), "model": "H100"}).json
    assert list(body["places"].values()) == [FIRST]
    answer = page.post("/api/what-if", json={"gang": only_gang(page), "model": "none"})
    assert answer.status_code == 400
    assert "no node has GPUs of the model" in answer.json["error"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"manifest": "a: ["}, "neither YAML nor JSON"),
        ({"manifest": "kind: ConfigMap\nmetadata: {name: x}"}, "describes no pods"),
        ({"manifest": JOB, "level": "galaxy"}, "galaxy"),
        ({"manifest": JOB, "size": 0}, "between 1 and"),
        ({"manifest": JOB.replace(": 2\n", ": 99999999\n")}, "more than"),
        ({"gang": "ns/none"}, "no waiting gang has that name"),
        ({"nonsense": 1}, "cannot be read"),
        ({"manifest": "x" * 300_000}, "longer than"),
    ],
    ids=["no YAML", "no pods", "no level", "no size", "too many", "no gang", "no field", "too long"],
)  # fmt: skip
def test_a_question_that_cannot_be_meant_is_answered_by_a_sentence(
    page: FlaskClient, body: dict[str, Any], expected: str
) -> None:
    answer = page.post("/api/what-if", json=body)
    assert answer.status_code == 400
    assert expected in answer.json["error"]  # type: ignore[index]


def test_a_short_text_that_stands_for_a_huge_document_is_refused(page: FlaskClient) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    answer = page.post("/api/what-if", json={"manifest": "kind: Pod\n" + "\n".join(lines)})
    assert answer.status_code == 400
    assert "values" in answer.json["error"]  # type: ignore[index]


def test_before_the_first_reading_the_page_names_what_it_waits_for() -> None:
    answer = page_of(None).get("/api/picture")
    assert answer.status_code == 503
    assert "pods" in answer.json["error"]  # type: ignore[index]
    assert page_of(None).get("/readyz").status_code == 503


@pytest.mark.promise("S42")
def test_nobody_reads_without_the_secret() -> None:
    page = page_of(scene_of(cluster_of([])), LaptopAccess("me", "other"))
    for path in ("/api/picture", "/api/nodes", "/api/gang?id=x", "/api/history", "/api/changes"):
        assert page.get(path).status_code == 401
    assert page.post("/api/what-if", json={"manifest": JOB}).status_code == 401


@pytest.mark.promise("S42")
def test_the_address_with_the_secret_becomes_a_cookie_and_leaves_the_address_bar() -> None:
    page = page_of(scene_of(cluster_of([])), LaptopAccess("me", "other"))
    answer = page.get("/?secret=other")
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/"
    assert f"{COOKIE}=other; HttpOnly; Path=/; SameSite=Strict" in answer.headers["Set-Cookie"]


@pytest.mark.promise("S42")
def test_a_wrong_secret_gives_no_cookie() -> None:
    page = page_of(scene_of(cluster_of([])), LaptopAccess("me", "other"))
    assert "Set-Cookie" not in page.get("/?secret=wrong").headers


@pytest.mark.promise("S42")
def test_a_host_that_only_resolves_to_loopback_is_refused(page: FlaskClient) -> None:
    assert page.get("/api/picture", headers={"Host": "evil.example"}).status_code == 403


def test_changes_are_sent_as_server_sent_events(page: FlaskClient) -> None:
    answer = page.get("/api/changes", buffered=False)
    assert answer.content_type.startswith("text/event-stream")
    assert next(iter(answer.response)) in (b"data: 1\n\n", "data: 1\n\n")
    answer.close()
