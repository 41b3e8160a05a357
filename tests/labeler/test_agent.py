"""The loop: sources that fail alone, outputs that fail for a time, and probes that report it."""

import contextlib
import gzip
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from labeler import agent as agent_module
from labeler.agent import Agent
from labeler.api import NodeApi, NodeApiError
from labeler.contract import keys
from labeler.facts import Facts, Gpu
from labeler.health import MOST_CONNECTIONS, Health, serve
from labeler.labels import Wanted
from labeler.publisher import LabelChange
from tests.labeler.metadata_server import MetadataService, Reply
from tests.labeler.reported import Reported

PLACE = Facts(topology=("c", "r", "h"))
CARD = Facts(gpus=(Gpu(0, "intel"),))
GPUS = (keys.INTEL_PREFIX, keys.GPU_PREFIX)


class Recorder:
    """An output that takes what it gets, or raises what the test wants."""

    def __init__(self) -> None:
        self.wanted: list[Wanted] = []
        self.errors: list[Exception] = []

    def publish(self, want: Wanted) -> LabelChange:
        self.wanted.append(want)
        if self.errors:
            raise self.errors.pop(0)
        return LabelChange()


def test_a_source_that_fails_does_not_silence_the_others() -> None:
    agent = Agent({"bad": Reported(None), "good": Reported(CARD)}, Recorder())
    want = agent.discover()
    assert want.labels[keys.GPU_NUMBERS_LABEL] == "0"
    assert dict(agent.failed) == {"bad": "out of order"}


def test_a_fault_in_a_source_is_logged_once_and_does_not_silence_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Faulty(Reported):
        def discover(self) -> Facts:
            raise KeyError("nobody thought of it")

    agent = Agent({"bad": Faulty(None), "good": Reported(CARD)}, Recorder())
    assert [agent.discover().labels[keys.GPU_NUMBERS_LABEL] for _ in range(2)] == ["0", "0"]
    assert dict(agent.failed) == {"bad": "KeyError('nobody thought of it')"}
    assert [record.levelname for record in caplog.records if "bad" in record.getMessage()] == ["WARNING"]


def test_what_nobody_reported_is_unknown_only_while_a_source_has_never_answered() -> None:
    bad = Reported(None)
    agent = Agent({"bad": bad, "good": Reported(CARD)}, Recorder())
    assert set(agent.discover().unknown) == {*keys.PRERELEASE_TOPOLOGY, keys.LABELER_PREFIX}
    bad.word = Facts()
    assert agent.discover().unknown == ()
    bad.word = None
    assert agent.discover().unknown == ()


def test_facts_that_come_with_a_failure_count_and_earlier_ones_stay() -> None:
    source = Reported(None, partial=CARD)
    agent = Agent({"half": source}, Recorder())
    want = agent.discover()
    assert want.labels[keys.GPU_NUMBERS_LABEL] == "0"
    assert set(want.unknown) == {*keys.PRERELEASE_TOPOLOGY, keys.LABELER_PREFIX}
    source.word = PLACE
    assert agent.discover().labels["topology.gke.io/rack"] == "r"
    source.word = None
    want = agent.discover()
    assert want.labels["topology.gke.io/rack"] == "r"
    assert (want.labels[keys.GPU_NUMBERS_LABEL], want.unknown) == ("0", ())


@pytest.mark.promise("O11")
def test_the_earlier_source_wins_and_the_later_one_fills_in() -> None:
    first, second = Reported(PLACE), Reported(Facts(topology=("x", "y", "z"), gpus=CARD.gpus))
    labels = Agent({"first": first, "second": second}, Recorder()).discover().labels
    assert labels["topology.gke.io/rack"] == "r"
    assert labels[keys.GPU_NUMBERS_LABEL] == "0"


def test_a_failure_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent({"bad": Reported(None)}, Recorder())
    agent.discover()
    agent.discover()
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def running(agent: Agent, heartbeat: Callable[[str], None] = lambda _: None) -> threading.Thread:
    thread = threading.Thread(target=agent.run, args=(3600.0, heartbeat))
    thread.start()
    return thread


def until(condition: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_an_output_that_is_away_is_tried_again_until_it_takes_the_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_module, "FIRST_RETRY_SECONDS", 0.01)
    recorder, problems = Recorder(), list[str]()
    answers = [(0, "away"), (403, "forbidden"), (404, "no node")]
    recorder.errors = [*(NodeApiError(status, text) for status, text in answers), OSError("disk")]
    agent = Agent({"a": Reported(PLACE)}, recorder)
    thread = running(agent, heartbeat=problems.append)
    until(lambda: "" in problems)
    agent.stop()
    thread.join(90)
    assert problems == ["away", "forbidden", "no node", "disk", ""]
    assert not thread.is_alive()


class Pauses(threading.Event):
    """Waiting takes no time and is noted. It comes so many times, each within an eighth of a second."""

    def __init__(self, comes: int = 0) -> None:
        super().__init__()
        self.comes = comes
        self.seconds: list[float] = []
        self.now = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0)
        self.comes -= 1
        self.now += min(0.125, timeout or 0) if self.comes >= 0 else timeout or 0
        return self.comes >= 0


def test_the_server_is_given_the_time_that_it_asks_for() -> None:
    recorder, pauses = Recorder(), Pauses()
    recorder.errors = [NodeApiError(429, "busy", retry_after=7)]
    agent = Agent({"a": Reported(PLACE)}, recorder)
    agent._wake = pauses
    agent.run(3600.0, lambda problem: None if problem else agent.stop())
    assert len(recorder.wanted) == 2
    assert 7 <= pauses.seconds[0] <= 10.5


@pytest.mark.parametrize(("events", "looks"), [(1, 2), (5, 2), (180, 21)], ids=["one", "a few", "a storm"])
def test_a_storm_of_events_is_a_few_looks(monkeypatch: pytest.MonkeyPatch, events: int, looks: int) -> None:
    """They come eight times a second: a look follows the last one, or waits for a second at most."""
    recorder, pauses = Recorder(), Pauses(comes=events)
    agent = Agent({"a": Reported(PLACE)}, recorder)
    agent._wake = pauses
    monkeypatch.setattr("labeler.agent.time.monotonic", lambda: pauses.now)
    agent.run(3600.0, lambda _: agent.stop() if pauses.comes <= 0 else None)
    assert len(recorder.wanted) == looks


def test_a_change_is_published_without_waiting_for_the_interval() -> None:
    source, recorder = Reported(PLACE), Recorder()
    agent = Agent({"a": source}, recorder)
    thread = running(agent)
    until(lambda: source.changed is not None and recorder.wanted)
    source.word = CARD
    assert source.changed is not None
    source.changed()
    until(lambda: keys.CARDS_LABEL in recorder.wanted[-1].labels)
    agent.stop()
    thread.join(90)


# --- the API server, played badly ------------------------------------------------------------------


def node_api(service: MetadataService, token: Path) -> NodeApi:
    token.write_text("secret\n")
    return NodeApi(service.url, token, None, "n1")


@pytest.mark.parametrize(
    ("reply", "status", "sentence", "transient"),
    [
        (Reply(b'{"message": "nodes n1 not found"}', 404), 404, "HTTP 404: nodes n1 not found", False),
        (Reply(b"<html>bad gateway</html>", 502), 502, "HTTP 502: <html>bad gateway", True),
        (Reply(b'["x"]', 500), 500, 'HTTP 500: ["x"]', True),
        (Reply(b"", 429, {"Retry-After": "7"}), 429, "HTTP 429", True),
        (Reply(b'{"a":' * 50_000, 500), 500, 'HTTP 500: {"a":', True),
        (Reply(b"not json"), 0, "not JSON", True),
        (Reply(b"[" * 100_000), 0, "not JSON", True),
        (Reply(gzip.compress(bytes(11_000_000)), headers={"Content-Encoding": "gzip"}), 0, "more than", True),
        (Reply(b"[]"), 0, "no Kubernetes object", True),
        (Reply(b'{"metadata": 5}'), 0, "metadata is 5", True),
        (Reply(b"", 302, {"Location": "http://127.0.0.1:9/"}), 302, "HTTP 302", False),
    ],
    ids=[
        "no node",
        "proxy's page",
        "odd error",
        "busy",
        "odd and deep",
        "no JSON",
        "a deep one",
        "a compressed one",
        "a list",
        "no metadata",
        "redirect",
    ],
)
def test_an_answer_that_is_no_node_is_an_error_that_names_it(
    tmp_path: Path, reply: Reply, status: int, sentence: str, transient: bool
) -> None:
    with MetadataService() as service:
        service.set("/api/v1/nodes/n1", reply)
        with pytest.raises(NodeApiError) as error:
            node_api(service, tmp_path / "token").metadata()
    assert (error.value.status, error.value.is_transient) == (status, transient)
    assert sentence in str(error.value)
    assert error.value.retry_after == (7.0 if status == 429 else None)


@pytest.mark.promise("O324")
@pytest.mark.parametrize(
    ("asked", "believed"),
    [("0", 0.0), ("3600", 30.0), ("9" * 20, 30.0), ("²", None), ("-1", None), ("soon", None)],
)
def test_no_longer_wait_is_taken_over_from_a_server_than_thirty_seconds(
    tmp_path: Path, asked: str, believed: float | None
) -> None:
    with MetadataService() as service:
        service.set("/api/v1/nodes/n1", Reply(b"", 429, {"Retry-After": asked}))
        with pytest.raises(NodeApiError) as error:
            node_api(service, tmp_path / "token").metadata()
    assert error.value.retry_after == believed


def test_a_token_is_read_again_after_a_minute_and_at_once_when_it_is_refused(tmp_path: Path) -> None:
    seen: list[str] = []
    now = 0.0

    def demand(method: str, headers: Mapping[str, str]) -> bool:
        seen.append(headers["Authorization"])
        return True

    token = tmp_path / "token"
    with MetadataService(demand) as service:
        service.set("/api/v1/nodes/n1", Reply(b'{"metadata": {}}'))
        token.write_text("first")
        api = NodeApi(service.url, token, None, "n1", clock=lambda: now)
        api.metadata()
        token.write_text("second")
        api.metadata()
        now = 61.0
        api.metadata()
        assert seen == ["Bearer first", "Bearer first", "Bearer second"]
        token.write_text("third")
        service.set("/api/v1/nodes/n1", Reply(b"", 401))
        with pytest.raises(NodeApiError, match="HTTP 401"):
            api.metadata()
        assert seen[3:] == ["Bearer second", "Bearer third"]


def test_a_token_that_can_be_no_header_is_an_error_that_does_not_show_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sec\nret")
    with pytest.raises(NodeApiError, match=f"token file {tmp_path / 'token'} does not hold one line of text"):
        NodeApi("http://127.0.0.1:1", tmp_path / "token", None, "n1").metadata()


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NodeApiError, match=f"token file {tmp_path / 'none'} cannot be read"):
        NodeApi("http://127.0.0.1:1", tmp_path / "none", None, "n1").metadata()


# --- probes ---------------------------------------------------------------------------------------


def probe(port: int, path: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_distinguish_a_labeler_that_works_one_that_cannot_and_one_that_hangs() -> None:
    now = 0.0
    health = Health(longest_pause_seconds=100, clock=lambda: now)
    server = serve(health, 0, "127.0.0.1")
    try:
        port = server.server_port
        assert probe(port, "/readyz") == (503, "nothing published yet")
        assert probe(port, "/healthz") == (200, "ok")
        health.heartbeat()
        assert probe(port, "/readyz") == (200, "ok")
        health.heartbeat("the API server is away")
        assert probe(port, "/readyz") == (503, "the API server is away")
        assert probe(port, "/healthz") == (200, "ok")
        now = 101.0
        assert probe(port, "/healthz") == (503, "the loop has stood still for 101 s")
        assert probe(port, "/metrics")[0] == 404
    finally:
        server.shutdown()
        server.server_close()


def test_a_probe_is_answered_whoever_else_holds_connections() -> None:
    health = Health(longest_pause_seconds=100)
    health.heartbeat()
    server = serve(health, 0, "127.0.0.1")
    port = int(server.server_address[1])
    with contextlib.ExitStack() as stack:
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        for _ in range(3 * MOST_CONNECTIONS):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            slow.sendall(b"GET /hea")
        assert probe(port, "/healthz") == (200, "ok")
        assert threading.active_count() < 2 * MOST_CONNECTIONS
