"""What viewers see who may not list everything: that something is there, and no names."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec
import pytest
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import create_namespace
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.preemptions import member, plan
from tests.ui.scenes import (
    bound_pod,
    cluster_of,
    gpu_container,
    page_of,
    running_job,
    scene_of,
    waiting_job,
    with_gpus,
)
from tests.ui.viewers import MINE, Granted
from webhook.admission import worker
from webhook.extensions.fair_order.account_use import NAME as ACCOUNT_USE
from webhook.extensions.fair_order.account_use import encode
from webhook.kube.access import UserInfo
from webhook.kube.client import Api
from webhook.kube.disruption_budgets import PodDisruptionBudget
from webhook.kube.placements import Placement
from webhook.policy.fair import FairOrder
from webhook.policy.values import Policy
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.observe.membership import key_of
from webhook.ui import viewer_access as access_room
from webhook.ui.pages import MOST_STREAMS_A_VIEWER
from webhook.ui.redact import HIDDEN, Rights, gangs_for, node_for
from webhook.ui.rights import BELIEVED_SECONDS, UNKNOWN_TOKENS_A_SECOND, Answers, Gatekeeper
from webhook.ui.viewer_access import SESSION_SECONDS, ClusterAccess, CurrentViewer, NoViewerError, Proxy
from webhook.workloads import marks

FIRST = "node-b0-s0-h00"


def pages(rights: Rights) -> FlaskClient:
    """A page over the tenants `mine` and `theirs`, each with a waiting Job and a bound pod."""
    pods = [
        *waiting_job(2, job="my-job", namespace="mine"),
        *waiting_job(9, job="their-job", namespace="theirs"),
        bound_pod("my-pod", FIRST, 4, "mine"),
        bound_pod("their-pod", FIRST, 4, "theirs"),
    ]
    return page_of(scene_of(cluster_of(pods)), Granted(rights))


@pytest.mark.promise("R196")
def test_gangs_of_others_are_only_counted() -> None:
    body = json.loads(pages(MINE).get("/api/picture").data)
    assert [row["name"] for row in body["gangs"]] == ["my-job"]
    assert body["hiddenGangs"] == 1


@pytest.mark.promise("R196")
def test_pods_of_others_are_gpus_without_a_name() -> None:
    body = json.loads(pages(MINE).get("/api/nodes?domain=1/b0/s0").data)
    tile = next(each for each in body["nodes"] if each["name"] == FIRST)
    assert tile["used"] == 8
    assert [(pod["namespace"], pod["name"], pod["gpus"]) for pod in tile["pods"]] == [
        ("mine", "my-pod", 4),
        (HIDDEN, HIDDEN, 4),
    ]


@pytest.mark.promise("R196")
@pytest.mark.parametrize(
    "path",
    ["/api/picture", "/api/nodes", "/api/history", "/api/gang?id=theirs/job-their-job"],
    ids=["picture", "nodes", "history", "gang"],
)
def test_no_answer_names_anything_of_others(path: str) -> None:
    text = pages(MINE).get(path).text
    assert "their-" not in text
    assert '"theirs"' not in text


def test_the_explanation_of_a_gang_does_not_name_victims_of_others() -> None:
    pods = [
        *waiting_job(8, job="my-job", namespace="mine"),
        bound_pod("their-pod", FIRST, 8, "theirs"),
    ]
    page = page_of(scene_of(cluster_of(pods)), Granted(MINE), size=8)
    gang = json.loads(page.get("/api/picture").data)["gangs"][0]["id"]
    text = page.get(f"/api/gang?id={gang}").text
    assert "it fits when 1 other pod ends" in text
    assert "their" not in text.replace("their own", "")


def of_mine_and_others(what: str) -> tuple[FlaskClient, str]:
    """A page on which the gang of `mine` waits for one of `zebra`, and what it then prints."""
    other, its_plan = running_job("zebra-job", FIRST, "zebra", annotations={keys.MOVABLE_ANNOTATION: "true"})
    budgets = Budgets()
    if what == "moved gangs":
        fixed, fixed_plan = running_job("zebra-fixed", "node-b1-s0-h00", "zebra")
        levels = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
        asking = waiting_job(4, job="my-job", namespace="mine", annotations=levels)
        plans = {each.key: each for each in (its_plan, fixed_plan)}
        scene = scene_of(cluster_of([*asking, other, fixed], plans))
        return page_of(scene, Granted(MINE), size=4), f"It would fit if 1 gang, 1 pod, moved: {HIDDEN}"
    if what == "fair order":
        asking = waiting_job(9, job="my-job", namespace="mine")
        used = {"mine": {"": 3600.0}, "zebra": {"": 60.0}}
        record = {ACCOUNT_USE: {"use": encode(used, time.time(), FairOrder())}}
        position = "fair order: mine has used 98% of the recent GPU time"
        status = {"state": "Waiting", "fairOrder": position}
        own = {"metadata": {"namespace": "mine"}, "spec": {"gang": "Job/my-job"}, "status": status}
        plans = {its_plan.key: its_plan, key_of(asking[0]).placement_key: msgspec.convert(own, Placement)}
        others = waiting_job(9, job="zebra-waits", namespace="zebra")
        scene = scene_of(cluster_of([*asking, *others, other], plans))
        policy = Policy(fair_order=FairOrder())
        return page_of(scene, Granted(MINE), 9, records=record, policy=policy), "mine has used 98%"
    asking = [with_gpus(member("my-job", 0, namespace="mine", priority=100))]
    group = {"pods": [other.metadata.uid], "whole": True}
    name, there = key_of(asking[0]).placement_name, {asking[0].metadata.uid: FIRST}
    key, own_plan = plan(name, there, "mine", preempts=True, victims=[group])
    expected = f"waits for the eviction of {HIDDEN} (1 pod)"
    if what == "budgets":
        budget: dict[str, Any] = {
            "metadata": {"name": "zebra-budget", "namespace": "zebra", "uid": "b"},
            "spec": {"selector": {}},
            "status": {"disruptionsAllowed": 0},
        }
        budgets = Budgets([msgspec.convert(budget, PodDisruptionBudget)])
        expected = "not yet: a PodDisruptionBudget protects them"
    scene = scene_of(cluster_of([*asking, other], {key: own_plan, its_plan.key: its_plan}))
    return page_of(scene, Granted(MINE), size=1, budgets=budgets), expected


@pytest.mark.promise("R196")
@pytest.mark.parametrize("what", ["victims", "budgets", "moved gangs", "fair order"])
def test_no_answer_names_the_account_that_a_gang_waits_for(what: str) -> None:
    page, expected = of_mine_and_others(what)
    gang = json.loads(page.get("/api/picture").data)["gangs"][0]["id"]
    explained = page.get(f"/api/gang?id={gang}").text
    assert expected in explained
    asked = page.post("/api/what-if", json={"gang": gang, "size": 9}).text
    others = (page.get(f"/api/{path}").text for path in ("picture", "nodes", "history"))
    assert all("zebra" not in text for text in (explained, asked, *others))


def test_a_gang_of_others_that_holds_nodes_has_no_name() -> None:
    status = {"state": "Waiting", "reservedNodes": [FIRST]}
    body = {"metadata": {"namespace": "theirs"}, "spec": {"gang": "Job/their-job"}, "status": status}
    pods = waiting_job(9, job="my-job", namespace="mine")
    scene = scene_of(cluster_of(pods, {"theirs/p": msgspec.convert(body, Placement)}))
    text = page_of(scene, Granted(MINE)).get(f"/api/gang?id={scene.gangs[0].id}").text
    assert f"Nodes reserved for other gangs: 1 for {HIDDEN}." in text
    assert "their-" not in text


def test_a_namespace_without_a_gang_is_asked_about_as_well() -> None:
    asked: list[str] = []

    class Noting(Granted):
        def seen(self, viewer: UserInfo, namespaces: Iterable[str]) -> CurrentViewer:
            asked.extend(sorted(namespaces))
            return super().seen(viewer, namespaces)

    pods = [*waiting_job(1, namespace="with-gang"), bound_pod("p", FIRST, 4, "without-gang")]
    page_of(scene_of(cluster_of(pods)), Noting(MINE)).get("/api/nodes")
    assert asked == ["with-gang", "without-gang"]


def test_who_may_not_list_nodes_sees_domains_alone() -> None:
    page = pages(Rights(frozenset({"mine"}), nodes=False))
    assert page.get("/api/nodes").status_code == 403
    assert page.get("/api/picture").status_code == 200
    manifest = '{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}'
    assert json.loads(page.post("/api/what-if", json={"manifest": manifest}).data)["places"] == {}


def test_who_may_not_list_nodes_does_not_see_where_a_gang_would_be_placed() -> None:
    for nodes, visible in ((True, 2), (False, 0)):
        page = pages(Rights(frozenset({"mine"}), nodes=nodes))
        gang = json.loads(page.get("/api/picture").data)["gangs"][0]["id"]
        assert len(json.loads(page.get(f"/api/gang?id={gang}").data)["nodes"]) == visible


def probing(rule: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any) -> str:
    """A Job of as many pods as there are nodes, with a rule about other pods."""
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    template = {
        "metadata": {"labels": {"app": "probe"}, "annotations": annotations or {}},
        "spec": {"containers": [gpu_container(1) | spec], "affinity": anti},
    }
    job = {"parallelism": 8, "template": template}
    return json.dumps({"kind": "Job", "metadata": {"name": "probe", "namespace": "mine"}, "spec": job})


OVER_NODES = {"topologyKey": "kubernetes.io/hostname"}
OVER_BLOCKS = {"topologyKey": keys.PRERELEASE_TOPOLOGY[0]}
SECRET_LABEL = {"matchLabels": {"app": "secret"}}
PORT = {"containerPort": 9, "hostPort": 9}
PROBES = {
    "a label in their namespace": probing(
        {**OVER_NODES, "namespaces": ["theirs"], "labelSelector": SECRET_LABEL}
    ),
    "a label anywhere": probing({**OVER_NODES, "namespaceSelector": {}, "labelSelector": SECRET_LABEL}),
    "anything of theirs": probing({**OVER_NODES, "namespaces": ["theirs"], "labelSelector": {}}),
    "no such label": probing(
        {
            **OVER_NODES,
            "namespaceSelector": {},
            "labelSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
        }
    ),
    "a port": probing({**OVER_NODES, "labelSelector": {"matchLabels": {"no": "one"}}}, ports=[PORT]),
    "a domain of its own": probing(
        {**OVER_BLOCKS, "namespaceSelector": {}, "labelSelector": SECRET_LABEL},
        {marks.JOBSET_EXCLUSIVE: OVER_BLOCKS["topologyKey"]},
    ),
    "their own rule": probing({**OVER_NODES, "labelSelector": {"matchLabels": {"no": "one"}}}),
}


@pytest.mark.promise("S36")
@pytest.mark.parametrize("probe", PROBES)
def test_what_if_does_not_reveal_by_rules_between_pods_what_runs_in_hidden_namespaces(probe: str) -> None:
    rule = {**OVER_NODES, "namespaces": ["mine"], "labelSelector": {"matchLabels": {"app": "probe"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    body = {
        **pod_json("their-pod", nodeName=FIRST, schedulingGates=[], affinity=anti),
        "status": {"phase": "Running"},
    }
    body["spec"]["containers"] = [gpu_container(1) | {"ports": [PORT]}]
    body["metadata"] |= {"namespace": "theirs", "labels": {"app": "secret", marks.EXCLUSIVE_LABELS[0]: "k"}}
    answers = []
    for there in ([decode(body)], [bound_pod("other", FIRST, 1, "theirs")]):
        page = page_of(scene_of(cluster_of(there)), Granted(MINE))
        answers.append(json.loads(page.post("/api/what-if", json={"manifest": PROBES[probe]}).data))
    assert answers[0] == answers[1]
    assert any("left out" in note for note in answers[0]["notes"])


def test_rules_of_the_manifest_s_own_pods_hold_in_what_if_though_their_namespace_is_hidden() -> None:
    apart = probing({**OVER_NODES, "labelSelector": {"matchLabels": {"app": "probe"}}})
    page = page_of(scene_of(cluster_of([])), Granted(Rights(frozenset())))
    places = json.loads(page.post("/api/what-if", json={"manifest": apart}).data)["places"]
    assert len(set(places.values())) == 8


@pytest.mark.promise("R196")
@given(allowed=st.frozensets(st.sampled_from(["a", "b", "c"])))
def test_a_name_is_shown_exactly_where_its_namespace_may_be_listed(allowed: frozenset[str]) -> None:
    pods = [bound_pod(f"pod-{name}", FIRST, 2, name) for name in ("a", "b", "c")]
    scene = scene_of(cluster_of([*pods, *waiting_job(1, namespace="b")]))
    tile = node_for(scene.picture.nodes[FIRST], Rights(allowed))
    assert {pod.namespace for pod in tile.pods} - {HIDDEN} == allowed
    assert sum(pod.gpus for pod in tile.pods) == 6
    rows, hidden = gangs_for(scene.gangs, Rights(allowed))
    assert (len(rows), hidden) == ((1, 0) if "b" in allowed else (0, 1))


@pytest.mark.promise("S21")
def test_an_answer_counts_for_its_time_and_is_then_asked_for_again() -> None:
    now, asked = [0.0], []

    def ask() -> int:
        asked.append(1)
        return len(asked)

    answers = Answers(clock=lambda: now[0])
    assert (answers.get("q", ask), answers.get("q", ask)) == (1, 1)
    now[0] = BELIEVED_SECONDS
    assert answers.get("q", ask) == 2


class Counted:
    """An API server that accepts tokens that begin with "good", allows everything."""

    def __init__(self) -> None:
        self.reviews = 0
        self.asked: list[tuple[str, str]] = []

    def json(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        if path.endswith("tokenreviews"):
            self.reviews += 1
            name = body["spec"]["token"]
            return {"status": {"authenticated": name.startswith("good"), "user": {"username": name}}}
        if path.endswith("subjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            self.asked.append((asked["resource"], asked.get("namespace", "")))
            return {"status": {"allowed": True}}
        return {"items": []}


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def asked_by(api: Counted, clock: Callable[[], float] = lambda: 0.0) -> ClusterAccess:
    return ClusterAccess(Gatekeeper(cast(Api, api), clock=clock), clock=clock)


def test_a_look_asks_of_no_more_namespaces_than_it_needs() -> None:
    api = Counted()
    pods = [*waiting_job(1, namespace="ns-0"), *(bound_pod("p", FIRST, 0, f"ns-{n}") for n in range(900))]
    page = page_of(scene_of(cluster_of(pods)), asked_by(api))
    bearer = {"Authorization": "Bearer good"}
    gang = json.loads(page.get("/api/picture", headers=bearer).data)["gangs"][0]["id"]
    assert api.asked == [("nodes", ""), ("pods", "")]
    page.get(f"/api/gang?id={gang}", headers=bearer)
    assert api.asked[2:] == [("events", "ns-0")]


@pytest.mark.promise("S43")
def test_invented_tokens_are_reviewed_so_often_and_keep_no_known_one_out() -> None:
    now, api = [0.0], Counted()
    page = page_of(scene_of(cluster_of([])), asked_by(api, lambda: now[0]))

    def look(token: str) -> int:
        return page.get("/api/picture", headers={"Authorization": f"Bearer {token}"}).status_code

    assert look("good") == 200
    answers = Counter(look(f"bad-{number}") for number in range(5_000))
    assert set(answers) == {401, 429}
    assert api.reviews <= UNKNOWN_TOKENS_A_SECOND
    now[0] = BELIEVED_SECONDS - 0.01
    for number in range(5_000):
        look(f"worse-{number}")
    before = api.reviews
    assert (look("good"), api.reviews) == (200, before), "it is still believed"
    now[0] = BELIEVED_SECONDS
    assert (look("good"), api.reviews) == (200, before + 1), "and asked about again at once"


@pytest.mark.promise("S21")
def test_a_session_that_has_ended_leaves_no_token_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(access_room, "TIDY_SECONDS", 0.01)
    access = asked_by(Counted(), lambda: now[0])
    page = page_of(scene_of(cluster_of([])), access)
    assert page.post("/login", data={"token": "good"}).status_code == 302
    assert (page.get("/api/picture").status_code, access.sessions) == (200, 1)
    now[0] = SESSION_SECONDS
    wait_until(lambda: not access.sessions, "the token to be forgotten though nobody looks")
    assert page.get("/api/picture").status_code == 401
    assert page.post("/login", data={"token": "good"}).status_code == 302
    now[0] *= 2
    wait_until(lambda: not access.sessions, "the next one too")


@pytest.mark.promise("S43")
def test_one_viewer_takes_no_more_than_a_share_of_the_streams() -> None:
    page = page_of(scene_of(cluster_of([])), asked_by(Counted()))

    def streams(token: str) -> list[Any]:
        header = {"Authorization": f"Bearer {token}"}
        return [
            page.get("/api/changes", headers=header, buffered=False) for _ in range(MOST_STREAMS_A_VIEWER + 1)
        ]

    first = streams("good-1")
    assert [each.status_code for each in first] == [200] * MOST_STREAMS_A_VIEWER + [503]
    assert [each.status_code for each in streams("good-2")][:1] == [200]
    first[0].close()
    assert (
        page.get("/api/changes", headers={"Authorization": "Bearer good-1"}, buffered=False).status_code
        == 200
    )


def test_a_stream_ends_with_its_viewer_s_session(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(access_room, "TIDY_SECONDS", 0.01)
    access = asked_by(Counted(), lambda: now[0])
    page = page_of(scene_of(cluster_of([])), access)
    page.post("/login", data={"token": "good"})
    stream = iter(page.get("/api/changes", buffered=False).response)
    assert next(stream) in ("data: 1\n\n", b"data: 1\n\n")
    now[0] = SESSION_SECONDS
    assert list(stream) == []
    wait_until(lambda: not access.sessions, "its token to be forgotten")


class Scoped:
    """An API server that limits a token by what its review says of it besides user and groups."""

    def json(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        if path.endswith("tokenreviews"):
            user = {"username": "ann", "groups": ["dev"], "uid": "1"}
            if body["spec"]["token"] == "other uid":
                user["uid"] = "2"
            scopes = [] if body["spec"]["token"] == "scoped" else ["user:full"]
            extra = {"scopes.example.com": scopes, "other": ["x"]}
            return {"status": {"authenticated": True, "user": {**user, "extra": extra}}}
        asked = body["spec"]
        is_allowed = asked["uid"] == "1" and asked["extra"] == {
            "scopes.example.com": ["user:full"],
            "other": ["x"],
        }
        return {"status": {"allowed": is_allowed}}


@pytest.mark.promise("R196")
@pytest.mark.parametrize("others", [["scoped", "other uid"], ["other uid", "scoped"]])
def test_a_token_shows_no_more_than_it_may_list_although_another_of_its_user_may(others: list[str]) -> None:
    gatekeeper = Gatekeeper(cast(Api, Scoped()))

    def rights(token: str) -> Rights:
        viewer = gatekeeper.viewer(token)
        assert viewer is not None
        return gatekeeper.rights(viewer, ["mine"])

    assert rights("full") == Rights(None, nodes=True)
    assert [rights(each) for each in others] == [Rights(frozenset(), nodes=False)] * 2


@pytest.mark.promise("R196")
def test_the_api_server_decides_who_a_token_is_and_what_it_may_list(cluster: Cluster) -> None:
    api = cluster.api()
    mine, theirs = create_namespace(cluster), create_namespace(cluster)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}}
    api.request("POST", f"/api/v1/namespaces/{mine}/serviceaccounts", body=account)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": mine}],
    }
    api.request("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{mine}/rolebindings", body=role)
    token = api.json(
        "POST",
        f"/api/v1/namespaces/{mine}/serviceaccounts/viewer/token",
        body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )["status"]["token"]
    gatekeeper = Gatekeeper(api)
    viewer = gatekeeper.viewer(token)
    assert viewer is not None
    assert viewer.user == f"system:serviceaccount:{mine}:viewer"
    assert gatekeeper.rights(viewer, [mine, theirs]) == Rights(frozenset({mine}), nodes=False)
    assert gatekeeper.viewer("forged") is None


@pytest.mark.promise("S41")
@pytest.mark.parametrize(
    ("proxy", "headers", "user"),
    [
        (Proxy("X-User", "X-Groups"), {"X-User": "ann", "X-Groups": "a,b"}, UserInfo("ann", ("a", "b"))),
        (Proxy("X-User"), {"X-User": "ann", "X-Groups": "a,b"}, UserInfo("ann")),
        (Proxy("X-User"), {"X-Other": "ann"}, None),
        (Proxy("X-User"), {"Authorization": "Bearer good"}, None),
        (None, {"X-User": "ann"}, None),
        (None, {"Authorization": "Bearer good"}, UserInfo("good")),
    ],
    ids=["named", "no groups are believed", "not named", "a token beside it", "no proxy", "a token"],
)
def test_a_header_names_the_viewer_where_a_proxy_is_believed_and_nowhere_else(
    proxy: Proxy | None, headers: dict[str, str], user: UserInfo | None
) -> None:
    access = ClusterAccess(Gatekeeper(cast(Api, Counted()), clock=lambda: 0.0), proxy)
    with Flask("page").test_request_context(headers=headers):
        if user is None:
            with pytest.raises(NoViewerError):
                access.viewer()
        else:
            found = access.viewer()
            assert (found.user, set(found.groups) - {"system:authenticated"}) == (user.user, {*user.groups})


@pytest.mark.promise("S21", "S43")
def test_the_bounds_are_those_of_the_trust_model() -> None:
    text = " ".join((ROOT / "SECURITY.md").read_text().split())
    assert access_room.TIDY_SECONDS == 60, "a minute"
    for visible, bound in (
        (r"keeps them in memory alone, for (\d+) hours and a minute", SESSION_SECONDS / 3600),
        (r"is asked about at most (\d+) tokens a second", UNKNOWN_TOKENS_A_SECOND),
        (r"A viewer has at most (\d+) live pages", MOST_STREAMS_A_VIEWER),
        (r"A client has (\d+) s for its first byte", worker.FIRST_BYTE_SECONDS),
        (r"first byte, and (\d+) s from there for the whole request", worker.REQUEST_SECONDS),
    ):
        (found,) = re.findall(visible, text)
        assert float(found) == bound, visible
    assert "An answer counts for a minute." in text
    assert BELIEVED_SECONDS == 60
