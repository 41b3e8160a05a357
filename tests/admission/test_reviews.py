"""Which reviews are answered, and which are refused with what status: by the app in this process."""

import json
import logging
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from flask.testing import FlaskClient

from labeler.contract import keys
from tests.admission.alone import app_dependencies, decisions_counted
from tests.admission.harness import gpu_pod
from tests.admission.reviews import review
from webhook.admission import app
from webhook.admission.app import LARGE_BODY_BYTES, LARGEST_BODY_BYTES


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    return app.create_app(app_dependencies(tmp_path)).test_client()


def post(client: FlaskClient, body: Any, content_type: str = "application/json") -> tuple[int, bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post("/mutate", data=data, content_type=content_type)
    return answer.status_code, answer.data


def of_size(size: int) -> bytes:
    """A review of so many bytes."""
    body = json.dumps(review(gpu_pod("a"))).encode()
    return body + b" " * (size - len(body))


WITHOUT_LENGTH = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}


def test_without_a_change_there_is_no_patch_and_no_patch_type(client: FlaskClient) -> None:
    _, body = post(client, review({"metadata": {}, "spec": {"containers": []}}))
    assert set(json.loads(body)["response"]) == {"uid", "allowed"}


@pytest.mark.promise("O7")
@pytest.mark.parametrize(
    "request_fields",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "binding"},
        {"resource": {"group": "apps", "version": "v1", "resource": "pods"}},
        {"resource": {"group": "", "version": "v1", "resource": "services"}},
    ],
    ids=["update", "delete", "subresource", "another group", "another resource"],
)
def test_what_is_no_pod_creation_is_allowed_unchanged(client: FlaskClient, request_fields: Any) -> None:
    status, body = post(client, review(gpu_pod("a"), **request_fields))
    assert (status, json.loads(body)["response"]["allowed"]) == (200, True)
    assert "patch" not in json.loads(body)["response"]


def test_an_object_of_another_kind_need_not_have_the_fields_of_a_pod(client: FlaskClient) -> None:
    other = {"group": "", "version": "v1", "resource": "services"}
    status, body = post(client, review({"metadata": 7, "spec": []}, resource=other))
    assert (status, json.loads(body)["response"]["allowed"]) == (200, True)


def old_version() -> dict[str, Any]:
    return {**review(gpu_pod("a")), "apiVersion": "admission.k8s.io/v1beta1"}


MALFORMED: dict[str, tuple[Any, str]] = {
    "empty": (b"", "truncated"),
    "no json": (b"<xml/>", "malformed"),
    "no object": ([], "Expected `object`"),
    "another kind": ({**review(None), "kind": "Pod"}, "only admission.k8s.io/v1 AdmissionReview"),
    "v1beta1": (old_version(), "check admissionReviewVersions"),
    "no request": ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, "no request.uid"),
    "no uid": (review(gpu_pod("a"), uid=""), "no request.uid"),
    "null object": (review(None), "request.object is not a pod"),
    "annotations a list": (
        review({"metadata": {"annotations": []}, "spec": {}}),
        "request.object is not a pod",
    ),
    "deeply nested": (b'{"apiVersion":' + b"[" * 200_000, "Expected `str`, got `array`"),
    "deeply nested object": (
        json.dumps(review({"x": 1})).replace('{"x": 1}', '{"a":' * 50_000 + "1" + "}" * 50_000).encode(),
        "nested too deeply",
    ),
}


@pytest.mark.promise("S6")
@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_review_is_refused_with_400_and_a_sentence(client: FlaskClient, case: str) -> None:
    body, words = MALFORMED[case]
    status, answer = post(client, body)
    assert status == 400
    assert words in answer.decode()
    assert decisions_counted(client) == {("error", "malformed"): 1}


def test_another_content_type_is_refused_with_415(client: FlaskClient) -> None:
    assert post(client, review(gpu_pod("a")), "application/yaml")[0] == 415


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_may_come_with_parameters_or_capitals(client: FlaskClient, content_type: str) -> None:
    assert post(client, review(gpu_pod("a")), content_type)[0] == 200


@pytest.mark.parametrize(
    ("size", "status"), [(LARGEST_BODY_BYTES - 1, 200), (LARGEST_BODY_BYTES, 413)], ids=["below", "at"]
)
def test_a_body_without_a_length_is_refused_at_the_cap(client: FlaskClient, size: int, status: int) -> None:
    answer = client.post(
        "/mutate", data=of_size(size), content_type="application/json", environ_overrides=WITHOUT_LENGTH
    )
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("size", "environ", "waits"),
    [
        (LARGE_BODY_BYTES, {}, False),
        (LARGE_BODY_BYTES + 1, {}, True),
        (1000, WITHOUT_LENGTH, True),
    ],
    ids=["small", "large", "of no known length"],
)
def test_large_bodies_are_read_one_at_a_time(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, size: int, environ: dict[str, Any], waits: bool
) -> None:
    locks = list[Lock]()

    def alone(lock: Lock) -> AbstractContextManager[None]:
        locks.append(lock)
        return nullcontext()

    monkeypatch.setattr(app, "_alone", alone)
    answer = client.post(
        "/mutate", data=of_size(size), content_type="application/json", environ_overrides=environ
    )
    assert answer.status_code == 200
    assert bool(locks) == waits


def test_a_denial_has_the_status_of_something_forbidden_and_its_reason(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    post(client, review(gpu_pod("a")))
    assert "review uid" not in caplog.text
    _, body = post(client, review(gpu_pod("a", annotations={keys.PRIORITY_ANNOTATION: "no-such-tier"})))
    response = json.loads(body)["response"]
    assert not response["allowed"]
    assert response["status"]["code"] == 403
    assert "no-such-tier" in response["status"]["message"]
    assert decisions_counted(client)["denied", "unknown-tier"] == 1
    assert "outcome=denied reason=unknown-tier" in caplog.text
