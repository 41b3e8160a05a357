"""What viewers see who may not list everything: that something is there, and no names."""

import json
from collections.abc import Iterable

import msgspec
import pytest
from flask import Response
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from hack.local.cluster import Cluster
from tests.support import create_namespace
from tests.ui.scenes import bound_pod, cluster_of, page_of, scene_of, waiting_job
from webhook.kube.placements import Placement
from webhook.ui.access import CurrentViewer
from webhook.ui.redact import HIDDEN, Rights, gangs_for, node_for
from webhook.ui.rights import BELIEVED_SECONDS, Answers, Gatekeeper, Viewer

FIRST = "node-b0-s0-h00"


class Granted:
    """A viewer with given rights."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    def refusal(self) -> Response | None:
        return None

    def viewer(self) -> Viewer:
        return Viewer("somebody")

    def seen(self, viewer: Viewer, namespaces: Iterable[str]) -> CurrentViewer:
        return CurrentViewer(viewer.user, self._rights, frozenset())

    def login(self, token: str) -> Response:
        return Response(status=404)


def pages(rights: Rights) -> FlaskClient:
    """A page over the tenants `mine` and `theirs`, each with a waiting Job and a bound pod."""
    pods = [
        *waiting_job(2, job="my-job", namespace="mine"),
        *waiting_job(9, job="their-job", namespace="theirs"),
        bound_pod("my-pod", FIRST, 4, "mine"),
        bound_pod("their-pod", FIRST, 4, "theirs"),
    ]
    return page_of(scene_of(cluster_of(pods)), Granted(rights))


MINE = Rights(frozenset({"mine"}))


def test_gangs_of_others_are_only_counted() -> None:
    body = json.loads(pages(MINE).get("/api/picture").data)
    assert [row["name"] for row in body["gangs"]] == ["my-job"]
    assert body["hiddenGangs"] == 1


def test_pods_of_others_are_gpus_without_a_name() -> None:
    body = json.loads(pages(MINE).get("/api/nodes?domain=1/b0/s0").data)
    tile = next(each for each in body["nodes"] if each["name"] == FIRST)
    assert tile["used"] == 8
    assert [(pod["namespace"], pod["name"], pod["gpus"]) for pod in tile["pods"]] == [
        ("mine", "my-pod", 4),
        (HIDDEN, HIDDEN, 4),
    ]


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
    assert "it fits when 1 other pods end" in text
    assert "their" not in text.replace("their own", "")


def test_a_gang_of_others_that_holds_nodes_has_no_name() -> None:
    status = {"state": "Waiting", "held": [FIRST]}
    body = {"metadata": {"namespace": "theirs"}, "spec": {"gang": "Job/their-job"}, "status": status}
    pods = waiting_job(9, job="my-job", namespace="mine")
    scene = scene_of(cluster_of(pods, {"theirs/p": msgspec.convert(body, Placement)}))
    text = page_of(scene, Granted(MINE)).get(f"/api/gang?id={scene.gangs[0].id}").text
    assert f"Nodes that other gangs hold: 1 for {HIDDEN}." in text
    assert "their-" not in text


def test_a_namespace_without_a_gang_is_asked_about_as_well() -> None:
    asked: list[str] = []

    class Noting(Granted):
        def seen(self, viewer: Viewer, namespaces: Iterable[str]) -> CurrentViewer:
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


@given(allowed=st.frozensets(st.sampled_from(["a", "b", "c"])))
def test_a_name_is_shown_exactly_where_its_namespace_may_be_listed(allowed: frozenset[str]) -> None:
    pods = [bound_pod(f"pod-{name}", FIRST, 2, name) for name in ("a", "b", "c")]
    scene = scene_of(cluster_of([*pods, *waiting_job(1, namespace="b")]))
    tile = node_for(scene.picture.nodes[FIRST], Rights(allowed))
    assert {pod.namespace for pod in tile.pods} - {HIDDEN} == allowed
    assert sum(pod.gpus for pod in tile.pods) == 6
    rows, hidden = gangs_for(scene.gangs, Rights(allowed))
    assert (len(rows), hidden) == ((1, 0) if "b" in allowed else (0, 1))


def test_an_answer_counts_for_its_time_and_is_then_asked_for_again() -> None:
    now, asked = [0.0], []

    def ask() -> int:
        asked.append(1)
        return len(asked)

    answers = Answers(clock=lambda: now[0])
    assert (answers.get("q", ask), answers.get("q", ask)) == (1, 1)
    now[0] = BELIEVED_SECONDS
    assert answers.get("q", ask) == 2


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
