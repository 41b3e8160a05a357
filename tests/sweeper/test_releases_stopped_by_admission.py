"""On the real API server: what is known of a release that a foreign webhook stops."""

import json
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pytest

from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from labeler.contract import keys
from tests.admission.harness import WEBHOOKS
from tests.admission.neighbour import Neighbour
from tests.sweeper.at_work import create_pod, template
from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.kube.objects import Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.apply.release import LOST_SECONDS, Outcome, Release, Releaser

HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextmanager
def hooked(cluster: Cluster, namespace: str, port: int) -> Iterator[None]:
    """A webhook at that port is asked about changes of the namespace's pods."""
    api = cluster.api()
    hook = {
        "name": "stops.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
        ],
        "namespaceSelector": {"matchLabels": {keys.NAMESPACE_NAME_LABEL: namespace}},
        "timeoutSeconds": 30,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    api.request("POST", HOOKS, body={"metadata": {"name": namespace}, "webhooks": [hook]})
    try:
        cluster.wait_for("the webhook to be asked", lambda: _is_stopped(api, namespace))
        yield
    finally:
        api.request("DELETE", f"{HOOKS}/{namespace}")


def _is_stopped(api: Api, namespace: str) -> bool:
    dry = {"dryRun": "All", "timeout": "1s"}
    path, body = f"/api/v1/namespaces/{namespace}/pods/p", {"metadata": {"labels": {"a": "b"}}}
    try:
        api.request("PATCH", path, query=dry, body=body, content_type=MERGE_PATCH)
    except ApiError:
        return True
    return False


def released(cluster: Cluster, namespace: str, port: int) -> Release:
    """What becomes of a release where a webhook at that port is asked."""
    api = cluster.api()
    create_pod(api, namespace, "p", template(0))
    pod = msgspec.json.decode(api.request("GET", f"/api/v1/namespaces/{namespace}/pods/p"), type=Pod)
    releaser = Releaser(api, threading.Event(), lambda: True)
    try:
        with hooked(cluster, namespace, port):
            (release,) = releaser.release([(pod, PlannedPod("p", pod.metadata.uid, "n0"))])
            (look,) = releaser.read_back([(pod, release.planned)])
    finally:
        releaser.close()
    assert (look.outcome, look.answer) == (Outcome.FAILED, ""), "the pod is found gated"
    return release


def test_of_a_release_that_a_broken_webhook_stops_it_is_known_that_it_was_not_written(
    cluster: Cluster, namespace: str
) -> None:
    release = released(cluster, namespace, free_port())
    assert (release.outcome, release.status, release.unconfirmed_seconds) == (Outcome.FAILED, 500, 0.0)


def test_a_release_that_a_webhook_holds_up_is_unconfirmed_for_a_while(
    cluster: Cluster, namespace: str
) -> None:
    """The API server ends it in its time, with an answer or by closing the connection."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        release = released(cluster, namespace, silent.getsockname()[1])
    assert (release.outcome, release.status in (0, 500, 504)) == (Outcome.FAILED, True), release.detail
    assert 0 < release.unconfirmed_seconds <= LOST_SECONDS
    assert "timed out" not in release.detail, "we have given up before it"


@contextmanager
def answered_by(cluster: Cluster, namespace: str, answer: dict[str, Any]) -> Iterator[Pod]:
    """A gated pod, of whose changes a webhook of its namespace answers so."""

    class Webhook(Neighbour):
        def answer(self, review: dict[str, Any]) -> bytes:
            response = {"uid": review["request"]["uid"], **answer}
            return json.dumps(
                {k: review[k] for k in ("apiVersion", "kind")} | {"response": response}
            ).encode()

    api, server = cluster.api(), Webhook()
    create_pod(api, namespace, "p", template(0))
    pod = msgspec.json.decode(api.request("GET", f"/api/v1/namespaces/{namespace}/pods/p"), type=Pod)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
    hook = {
        "name": "answers.example.com",
        "clientConfig": {"url": server.url, "caBundle": b64encode(server.pair.authority).decode()},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {keys.NAMESPACE_NAME_LABEL: namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    api.request("POST", WEBHOOKS, body={"metadata": {"name": namespace}, "webhooks": [hook]})

    def is_asked() -> bool:
        _is_stopped(api, namespace)
        return server.calls > 0

    try:
        cluster.wait_for("the webhook to be asked", is_asked)
        yield pod
    finally:
        api.request("DELETE", f"{WEBHOOKS}/{namespace}")
        server.close()


@pytest.mark.parametrize("status", [404, 422])
def test_a_release_that_a_webhook_denies_is_refused_and_known_not_to_be_written_whatever_the_message(
    cluster: Cluster, namespace: str, status: int
) -> None:
    """Not gone, nor in doubt: it is there, and others may have its turn."""
    denial = {"allowed": False, "status": {"code": status, "message": "so it says"}}
    with answered_by(cluster, namespace, denial) as pod:
        releaser = Releaser(cluster.api(), threading.Event(), lambda: True)
        (release,) = releaser.release([(pod, PlannedPod("p", pod.metadata.uid, "n0"))])
        releaser.close()
    assert release.outcome in (Outcome.REFUSED, Outcome.FAILED)
    assert (release.unconfirmed_seconds, "so it says" in release.detail) == (0.0, True), release.detail


def test_a_release_that_a_webhook_undoes_is_answered_as_done_and_found_gated(
    cluster: Cluster, namespace: str
) -> None:
    gates = [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": keys.GATE}]}]
    patch = b64encode(json.dumps(gates).encode()).decode()
    undoing = {"allowed": True, "patchType": "JSONPatch", "patch": patch}
    with answered_by(cluster, namespace, undoing) as pod:
        releaser = Releaser(cluster.api(), threading.Event(), lambda: True)
        pair = (pod, PlannedPod("p", pod.metadata.uid, "n0"))
        (release,), (look,) = releaser.release([pair]), releaser.read_back([pair])
        releaser.close()
    assert (release.outcome, look.outcome, look.answer) == (Outcome.RELEASED, Outcome.FAILED, "")


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (ApiError(409, "Conflict", "PATCH /p: the object has been modified"), True),
        (ApiError(429, "TooManyRequests", "PATCH /p: too many requests"), True),
        (ApiError(503, "", 'PATCH /p: admission webhook "w.x" denied the request: not now'), True),
        (ApiError(504, "Timeout", "PATCH /p: request did not complete within requested timeout"), False),
        (ApiError(500, "", 'PATCH /p: etcdserver: request timed out: failed calling webhook "w"'), False),
        (ApiError(502, "Bad Gateway", "PATCH /p: <html>"), False),
        (ApiError(408, "Timeout", "PATCH /p: <html>"), False),
        (ApiError(408, "Timeout", 'PATCH /p: admission webhook "w.x" denied the request: too late'), True),
        (ApiError(0, "Unreachable", "PATCH /p: got no answer"), False),
        (ApiError(0, "Unreachable", "PATCH /p: got no answer", is_sent=False), True),
    ],
    ids=lambda value: str(value)[:60],
)
def test_only_what_was_stopped_before_it_was_written_is_known_to_be_unwritten(
    error: ApiError, known: bool
) -> None:
    assert error.is_unwritten is known


def test_a_server_that_is_not_there_was_sent_nothing(cluster: Cluster) -> None:
    api = Api.connect(cluster.kubeconfig, user_agent="test")
    api._host = f"https://127.0.0.1:{free_port()}"
    with pytest.raises(ApiError) as refused:
        api.request("GET", "/version")
    assert refused.value.is_unwritten
