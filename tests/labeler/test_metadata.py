"""A metadata server may send any bytes at any speed: that is an error of its source, and of nothing else."""

import gzip
import json
import logging
import math
import re
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.agent import Agent
from labeler.contract import keys
from labeler.exchange import ExchangeError, exchange
from labeler.facts import Facts, Gpu, SourceError
from labeler.labels import Wanted
from labeler.metadata import MetadataServer
from labeler.publisher import LabelChange
from labeler.sources import Context, OptionError, create_source, known_sources
from labeler.sources.gce import pause_after
from labeler.sources.nebius import NebiusSource
from tests.labeler.raw_server import RawServer, Script, document, forever, http, silence

NODE = Context("node")
CLOUDS = ("aws", "azure", "gce", "nebius", "oci")
COMPUTE = "/metadata/instance/compute"
AZURE = {"vmId": "vm-1", "location": "eastus", "placementGroupId": "group-1"}
AMAZON: dict[str, bytes | Script] = {
    "/latest/api/token": http(b"secret"),
    "/latest/meta-data/instance-id": http(b"i-1"),
    "/latest/meta-data/placement/region": http(b"eu"),
}
GOOGLE: dict[str, bytes | Script] = {
    "/computeMetadata/v1/instance/name": http(b"vm-1"),
    "/computeMetadata/v1/instance/attributes/physical_host": http(b"/a/b/c"),
}


@pytest.fixture
def server() -> Iterator[RawServer]:
    with RawServer() as running:
        yield running


class Cards:
    """Another source, which works."""

    def discover(self) -> Facts:
        return Facts(gpus=(Gpu(0, "intel"),))

    def watch(self, *_: object) -> None:
        pass


class Nowhere:
    """An output that takes everything."""

    def publish(self, want: Wanted) -> LabelChange:
        return LabelChange()

    def close(self) -> None:
        pass


def agent_of(cloud: str, server: RawServer) -> Agent:
    return Agent({cloud: create_source(cloud, {"url": server.url}, NODE), "cards": Cards()}, Nowhere())


def zeros(megabytes: int) -> bytes:
    """A body of so many megabytes, compressed to a thousandth."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(1_000_000)) for _ in range(megabytes)) + packer.flush()


CHUNKED = {"Transfer-Encoding": "chunked", "Content-Length": ""}
HEAD = b"HTTP/1.1 200 OK\r\n"

WIRE: dict[str, tuple[bytes | Script, str]] = {
    "nothing": (b"", "without response"),
    "no HTTP": (b"\x00\xff\x1b[31m" * 9, r"\\x1b"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH-2.0"),
    "a status of one digit": (b"HTTP/1.1 9 ok\r\n\r\n", "no answer"),
    "control characters in the status line": (b"HTTP/1.1 500 \x1b[31mred\x00\r\n\r\n", r"HTTP 500 '\\x1b"),
    "a status line without end": (b"HTTP/1.1 500 " + b"x" * 100_000, "status line"),
    "a header without end": (HEAD + b"a: " + b"x" * 100_000, "header line"),
    "6 MB of headers": (HEAD + (b"a: " + b"x" * 60_000 + b"\r\n") * 99 + b"\r\n", "more than 524288 bytes"),
    "a thousand headers": (HEAD + b"a: b\r\n" * 1000 + b"\r\n", "more than 100 headers"),
    "a redirect to another machine": (http(b"", {"Location": "//203.0.113.9"}, "302 Found"), "HTTP 302"),
    "a body shorter than it should be": (http(b'{"vmId"', {"Content-Length": "99"}), "IncompleteRead"),
    "a body longer than is read": (http(b"x" * 70_000), "longer than 65536 bytes"),
    "chunks without end": (forever(b"1\r\na\r\n" * 99, http(b"", CHUNKED)), "longer than 65536 bytes"),
    "chunks that are none": (http(b"zz\r\n", CHUNKED), "no answer"),
    "300 MB in gzip": (http(zeros(300), {"Content-Encoding": "gzip"}), "longer than 65536 bytes"),
    "gzip in gzip": (http(gzip.compress(zeros(9)), {"Content-Encoding": "gzip, gzip"}), "longer than 65536"),
    "gzip that is none": (http(b"plain", {"Content-Encoding": "gzip"}), "failed to decode"),
    "UTF-16": (http("{}".encode("utf-16")), "no text"),
    "Latin-1": (http('{"location": "Zürich"}'.encode("latin-1")), "no text"),
    "control characters": (http(b'{"vmId": "\x00"}'), "no plain text"),
    "lists in lists": (http(b"[" * 60_000), "no JSON"),
    "objects in objects": (http(b'{"a":' * 12_000), "no JSON"),
    "a number of 50,000 digits": (http(b"9" * 50_000), "no JSON"),
    "null": (http(b"null"), "no JSON object"),
    "NaN": (http(b"NaN"), "no JSON object"),
    "a text": (http(b'"x"'), "no JSON object"),
}  # fmt: skip


@pytest.mark.promise("O306")
@pytest.mark.parametrize(("answer", "sentence"), WIRE.values(), ids=WIRE)
def test_what_is_no_answer_costs_neither_the_last_facts_nor_the_other_sources(
    server: RawServer, answer: bytes | Script, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = document(AZURE)
    agent = agent_of("azure", server)
    before = agent.discover()
    server.answer = answer
    with caplog.at_level(logging.WARNING):
        assert [agent.discover(), agent.discover()] == [before, before]
    assert list(agent.failed) == ["azure"]
    assert re.search(sentence, agent.failed["azure"]), agent.failed["azure"]
    (record,) = caplog.records  # one line, once
    assert record.getMessage().isprintable()
    assert len(record.getMessage()) < 1100


@pytest.mark.promise("O306")
@pytest.mark.parametrize(
    "value",
    [7, 1.5, math.nan, math.inf, True, [], {}, [["x"]], "a\nb", "\ud800", "\x7f", "x" * 2000],
    ids=[
        "a number", "a fraction", "NaN", "infinity", "a truth", "a list", "a mapping", "lists",
        "two lines", "half a character", "a control character", "a long text",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["vmId", "location", "vmSize"])
def test_a_field_that_is_no_short_text_costs_neither_the_last_facts_nor_the_other_fields(
    server: RawServer, name: str, value: Any
) -> None:
    server.answer = document(AZURE | {"vmSize": "size-1"})
    agent = agent_of("azure", server)
    before = agent.discover()
    server.answer = document(AZURE | {"vmSize": "size-2", name: value})
    after = agent.discover()
    assert agent.failed["azure"].startswith(f"field {name} ")
    assert after.labels == before.labels
    sizes = after.annotations[keys.LABELER_PREFIX + "azure-vm-size"]
    assert sizes == ("size-1" if name == "vmSize" else "size-2")


@pytest.mark.promise("O306")
@pytest.mark.parametrize("left", [{}, {"region": "eu-2"}, {"location": "westus"}], ids=str)
@pytest.mark.parametrize(("cloud", "path"), [("azure", COMPUTE), ("nebius", "/v1/instance-data")])
def test_a_document_that_is_of_no_machine_costs_none_of_the_last_facts(
    server: RawServer, cloud: str, path: str, left: dict[str, str]
) -> None:
    known = {"id": "i-1", "infiniband_topology_path": ["a", "b", "c"], "region": "eu-1"}
    server.answers[path] = document(AZURE if cloud == "azure" else known)
    agent = agent_of(cloud, server)
    before = agent.discover()
    assert before.labels[keys.PRERELEASE_TOPOLOGY[0]]
    server.answers[path] = document(left)
    after = agent.discover()
    assert after.labels == before.labels
    assert after.annotations.keys() == before.annotations.keys()
    assert re.search(r"has no (vmId|location|id)\b", agent.failed[cloud])


@pytest.mark.parametrize(
    "token", ["sec\nret", "sec\r\nX-Forged: yes", "s\u00e9cret", "s\u4e00cret", "sec\tret"], ids=ascii
)
def test_a_token_that_can_be_no_header_is_an_error_that_does_not_show_it(
    server: RawServer, token: str
) -> None:
    server.answers = dict(AMAZON)
    agent = agent_of("aws", server)
    before = agent.discover()
    server.answers["/latest/api/token"] = http(token.encode())
    assert agent.discover() == before
    assert agent.failed == {"aws": "the metadata service's token can be no header"}


@pytest.mark.parametrize("name", ["a\nb", "x" * 2000])
def test_a_name_that_is_no_short_line_does_not_cost_the_place(server: RawServer, name: str) -> None:
    server.answers = GOOGLE | {"/computeMetadata/v1/instance/name": http(name.encode())}
    agent = agent_of("gce", server)
    assert agent.discover().labels["topology.gke.io/rack"] == "b"
    assert agent.failed["gce"].startswith("the instance's name ")


def test_a_compressed_answer_of_usual_size_is_read(server: RawServer) -> None:
    server.answer = http(gzip.compress(json.dumps(AZURE).encode()), {"Content-Encoding": "gzip"})
    assert create_source("azure", {"url": server.url}, NODE).discover().topology == (
        "eastus",
        "group-1",
        "vm-1",
    )


def test_a_redirect_is_not_followed(server: RawServer) -> None:
    with RawServer() as other:
        other.answer = document(AZURE)
        server.answer = http(b"", {"Location": f"{other.url}{COMPUTE}"}, "307 Temporary Redirect")
        with pytest.raises(SourceError, match="HTTP 307"):
            create_source("azure", {"url": server.url}, NODE).discover()
        assert other.connections == 0


SLOW: dict[str, Script] = {
    "no byte": silence,
    "a status line that drips": forever(b"H", pause=0.02),
    "headers that drip": forever(b"x", HEAD + b"a: ", pause=0.02),
    "whole headers, one after the other": forever(b"", HEAD + b"a: b\r\n", pause=0.02),
    "interim answers without end": forever(b"HTTP/1.1 100 Continue\r\na: b\r\n\r\n" * 99, pause=0.02),
    "a body that drips": forever(b"x", HEAD + b"\r\n", pause=0.02),
    "chunk sizes that drip": forever(b"0", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", pause=0.02),
    "a compressed body that holds nothing": forever(
        b"\x00\x00\x00\xff\xff" * 99, HEAD + b"Content-Encoding: deflate\r\n\r\n\x78\x9c", pause=0.02
    ),
}


@pytest.mark.promise("O306")
@pytest.mark.parametrize("script", SLOW.values(), ids=SLOW)
def test_an_answer_ends_before_its_deadline_whatever_drips(server: RawServer, script: Script) -> None:
    """A drip of any kind would last for minutes. None of the threads outlives it."""
    server.answer = script
    with pytest.raises(SourceError, match=r"no answer: it did not end in time|timed out"):
        MetadataServer(server.url, {}, answer_seconds=0.3).get("/slow")
    running = [each for each in threading.enumerate() if each.name.endswith("/slow")]
    for each in running:
        each.join(60)
    assert not [each for each in running if each.is_alive()]


def test_a_name_that_is_looked_up_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def look_up(*_: object, **__: object) -> list[Any]:
        release.wait(90)
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(SourceError, match=r"http://metadata\.example/a: no answer: it did not end in time"):
        MetadataServer("http://metadata.example", {}, answer_seconds=0.1).get("/a")
    release.set()


@pytest.mark.promise("O306")
def test_all_questions_of_a_look_have_one_deadline(server: RawServer) -> None:
    """An older service of Nebius is asked six times: a silent one is not waited for six times."""
    server.answer = silence
    with pytest.raises(SourceError):
        NebiusSource(MetadataServer(server.url, {}, answer_seconds=0.2)).discover()
    assert 1 <= server.connections <= 3


def test_a_server_that_does_not_wait_for_a_change_is_asked_less_and_less_often() -> None:
    assert [pause_after(quick_answers) for quick_answers in range(5)] == [0, 0, 2, 6, 14]
    assert pause_after(1000) == 62


@pytest.mark.parametrize("url", ["http://", "http://x:port", "http://[", "http://x:99999", "http://x/a/b"])
def test_a_url_that_names_no_server_is_refused_before_anything_runs(url: str) -> None:
    for cloud in CLOUDS:
        with pytest.raises(OptionError, match="url must be like"):
            create_source(cloud, {"url": url}, NODE)


# --- any bytes --------------------------------------------------------------------------------------

texts = st.text(st.characters(codec=None), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "vmId", "location", "placementGroupId", "zone", "id", "infiniband_topology_path", "cluster", "block",
    "subBlock", "host", "rdmaTopologyData", "customerNetworkBlock", "customerLocalBlock", "customerHostId",
    "networkBlockId", "rackId",
)  # fmt: skip
documents = st.dictionaries(st.sampled_from(FIELDS), values).map(document)
header_lines = st.lists(
    st.sampled_from(
        [
            b"Content-Length: 5",
            b"Content-Length: -1",
            b"Transfer-Encoding: chunked",
            b"Content-Encoding: gzip",
            b"Content-Encoding: deflate, gzip",
            b"Metadata-Flavor: Google",
            b"Location: //x",
            b": y",
            b"\x00",
            b"Content-Type: text/plain; charset=none",
            b"ETag: \xff\xfe",
        ]
    )
    | st.binary(max_size=20),
    max_size=5,
)
status_lines = st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 103 Early Hints", b"HTTP/2"])
wire = st.builds(
    lambda status, lines, body: b"\r\n".join([status, *lines, b"", body]),
    status_lines,
    header_lines,
    st.binary(max_size=100) | documents,
)


@pytest.fixture(scope="module")
def sources() -> Iterator[tuple[RawServer, dict[str, Any]]]:
    with RawServer() as running:
        yield running, {name: create_source(name, {"url": running.url}, NODE) for name in CLOUDS}


@given(answer=st.binary(max_size=200) | wire | documents, cloud=st.sampled_from(CLOUDS))
def test_whatever_bytes_come_the_other_sources_label_the_node(
    sources: tuple[RawServer, dict[str, Any]], answer: bytes, cloud: str
) -> None:
    server, by_name = sources
    server.answer = answer
    agent = Agent({cloud: by_name[cloud], "cards": Cards()}, Nowhere())
    want = agent.discover()
    assert want.labels[keys.GPU_NUMBERS_LABEL] == "0"
    assert all(len(text) <= 4096 for text in want.annotations.values())
    assert "Error(" not in agent.failed.get(cloud, ""), "only a fault that nobody thought of has its class"


def test_every_cloud_is_among_these() -> None:
    assert {*CLOUDS, "file", "node-labels", "udev"} == set(known_sources())


def test_an_exchange_names_what_it_asked() -> None:
    with RawServer() as gone:
        url = gone.url
    with pytest.raises(ExchangeError, match=f"{url}/a: no answer: .*refused"):
        exchange("GET", f"{url}/a", {}, time.monotonic() + 60)
