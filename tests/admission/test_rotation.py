"""The steps of a rotation as they are written to Secrets and webhook configurations, in memory."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import jsonpatch
import pytest

from webhook.admission import rotation
from webhook.admission.certificates import Waits, issue, split
from webhook.admission.rotation import CONFIGURATIONS, Names, Rotation
from webhook.kube.client import Api, ApiError

NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
WAITS: Final = Waits(timedelta(minutes=5), timedelta(minutes=30))
WEBHOOKS: Final = f"{CONFIGURATIONS}/topogate"
SECRETS: Final = "/api/v1/namespaces/topogate-system/secrets"
SERVED: Final = f"{SECRETS}/topogate-webhook-tls"
ROTATION: Final = ["prepare", "publish", "switch", "drop"]


class Server(Api):
    """Secrets and one webhook configuration, each with a resourceVersion that every write changes."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {
            WEBHOOKS: {"metadata": {"resourceVersion": "1"}, "webhooks": [{"clientConfig": {}}]}
        }
        self.refuses_secrets = self.hides_secrets = False
        self.patches_meanwhile = False
        self.writes: list[tuple[str, str]] = []

    def request(self, method: str, path: str, *, query: Any = None, body: Any = None, **_: Any) -> bytes:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        if self.hides_secrets and path.startswith(SECRETS) and method == "GET":
            raise ApiError(503, "ServiceUnavailable", "etcd is away")
        if method == "GET":
            return json.dumps(self._there(path)).encode()
        if self.refuses_secrets and path.startswith(SECRETS):
            raise ApiError(403, "Forbidden", "cannot update resource")
        written = self._written(method, path, body)
        if query != {"dryRun": "All"}:
            self._store(method, path, written)
        return b"{}"

    def _there(self, path: str) -> Any:
        if path not in self.objects:
            raise ApiError(404, "NotFound", path)
        return self.objects[path]

    def _written(self, method: str, path: str, body: Any) -> Any:
        if method == "POST":
            if path in self.objects:
                raise ApiError(409, "AlreadyExists", path)
            return body
        there = self._there(path)
        if method == "PUT" and body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "written meanwhile")
        if method != "PATCH":
            return body
        if self.patches_meanwhile:
            there = {**there, "metadata": {"resourceVersion": "another"}}
        try:
            return jsonpatch.apply_patch(there, body)
        except jsonpatch.JsonPatchTestFailed as error:
            raise ApiError(422, "Invalid", "written meanwhile") from error

    def _store(self, method: str, path: str, written: Any) -> None:
        self.writes.append((method, path))
        if method == "DELETE":
            del self.objects[path]
            return
        version = str(len(self.writes) + 1)
        self.objects[path] = written | {"metadata": written["metadata"] | {"resourceVersion": version}}

    @property
    def published(self) -> list[bytes]:
        """The authorities that API servers trust."""
        hook = self.objects[WEBHOOKS]["webhooks"][0]
        return split(base64.b64decode(hook["clientConfig"].get("caBundle", "")))

    @property
    def served(self) -> bytes:
        """The authority of the certificate that the webhook is given."""
        return base64.b64decode(self.objects[SERVED]["data"]["ca.crt"])


class Scene:
    """A server, and a clock that sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = Server()
        self.now = NOW
        self.slept: list[float] = []
        monkeypatch.setattr("webhook.admission.rotation.time.sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += timedelta(seconds=seconds)

    def process(self) -> Rotation:
        """A new one: all that is known is on the server."""
        return Rotation(self.server, waits=WAITS, hosts=("webhook",), clock=lambda: self.now)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_the_first_run_issues_and_publishes_and_the_next_finds_nothing_to_do(scene: Scene) -> None:
    assert scene.process().run() == ["issue"]
    assert scene.server.objects[SERVED]["type"] == "kubernetes.io/tls"
    assert scene.server.published == [scene.server.served]
    assert scene.process().run() == []
    assert scene.slept == []


def test_a_run_that_waits_takes_each_step_as_soon_as_it_is_due(scene: Scene) -> None:
    scene.process().run(wait=True)
    assert scene.slept == []
    first = scene.server.served
    assert scene.process().run(force=True, wait=True) == ROTATION
    assert scene.slept == pytest.approx([5 * 60, 30 * 60], abs=0.1)
    assert scene.server.published == [scene.server.served]
    assert scene.server.served != first
    assert scene.server.objects.keys() == {WEBHOOKS, SERVED}


@pytest.mark.promise("O174")
def test_a_rotation_resumes_where_a_killed_one_stopped(scene: Scene) -> None:
    """Each step by another process."""
    scene.process().run()
    actions = [scene.process().step(force=True).action]
    for _ in range(60):
        scene.now += timedelta(minutes=1)
        actions.append(scene.process().step().action)
    assert [action for action in actions if action] == ROTATION


@pytest.mark.promise("O176")
def test_an_expired_certificate_is_replaced_at_once_when_its_secret_can_be_written_again(
    scene: Scene,
) -> None:
    """Until then each attempt says why not, and publishes no authority that nothing is signed by."""
    scene.process().run()
    before = scene.server.served
    scene.now += timedelta(days=91)
    scene.server.refuses_secrets = True
    for _ in range(3):
        with pytest.raises(ApiError, match="cannot update resource"):
            scene.process().run()
    assert (scene.server.published, scene.server.served) == ([before], before)
    scene.server.refuses_secrets = False
    assert scene.process().run() == ["issue"]
    assert scene.server.published == [before, scene.server.served]
    assert scene.server.served != before


def test_a_secret_that_cannot_be_read_is_not_taken_for_one_that_is_missing(scene: Scene) -> None:
    scene.process().run()
    before = list(scene.server.writes)
    scene.server.hides_secrets = True
    with pytest.raises(ApiError, match="etcd is away"):
        scene.process().run()
    assert scene.server.writes == before


def test_a_certificate_for_the_name_that_the_api_server_uses_is_usable(scene: Scene) -> None:
    """As an operator may have written it: for one of the two names that are issued."""
    pair = issue(Names().hosts[:1], now=NOW)
    rotation._Secrets(scene.server, Names()).write("topogate-webhook-tls", pair, {})
    scene.server.objects[WEBHOOKS]["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(
        pair.authority
    ).decode()
    assert Rotation(scene.server, waits=WAITS, clock=lambda: NOW).run() == []


def test_a_secret_that_was_written_meanwhile_is_not_overwritten(scene: Scene) -> None:
    scene.process().run()
    secrets = rotation._Secrets(scene.server, Names())
    read = secrets.read("topogate-webhook-tls")
    assert read.pair is not None
    scene.server.request("PUT", SERVED, body=scene.server.objects[SERVED])
    with pytest.raises(ApiError, match="written meanwhile"):
        secrets.write("topogate-webhook-tls", read.pair, {})


def test_a_configuration_that_was_written_meanwhile_is_not_overwritten(scene: Scene) -> None:
    scene.process().run()
    before = scene.server.published
    scene.server.patches_meanwhile = True
    with pytest.raises(ApiError, match="written meanwhile"):
        scene.process().run(force=True, wait=True)
    assert scene.server.published == before
