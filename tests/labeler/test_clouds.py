"""What the labeler makes of metadata services, played by a real HTTP server, and of a cloud's node labels."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from labeler.agent import Agent
from labeler.facts import Facts, SourceError
from labeler.labels import Wanted
from labeler.metadata import MetadataServer
from labeler.publisher import LabelChange
from labeler.sources import Context, OptionError, create_source
from labeler.sources.gce import GceSource
from tests.labeler.metadata_server import GOOGLE, MetadataService, Reply

NAME = "/computeMetadata/v1/instance/name"
HOST = "/computeMetadata/v1/instance/attributes/physical_host"
NODE = Context("node")


@pytest.fixture
def google() -> Iterator[MetadataService]:
    """Answers only who asks as Google demands."""
    with MetadataService(lambda method, headers: headers.get("Metadata-Flavor") == "Google") as service:
        service.set(NAME, "gke-node-7")
        service.set(HOST, "/cluster-a/rack-b/host-c")
        yield service


def gce(service: MetadataService, answer_seconds: float = 5.0) -> GceSource:
    return GceSource(MetadataServer(service.url, GOOGLE, answer_seconds))


def test_the_physical_host_is_the_place_and_the_instance_name_a_note(google: MetadataService) -> None:
    assert create_source("gce", {"url": google.url}, NODE).discover() == Facts(
        topology=("cluster-a", "rack-b", "host-c"),
        identity={"labeler.topogate.io/gce-instance-name": "gke-node-7"},
    )


@pytest.mark.parametrize("reply", [None, Reply(b""), Reply(b"\n")], ids=["absent", "empty", "blank"])
def test_an_instance_without_compact_placement_has_no_place(
    google: MetadataService, reply: Reply | None
) -> None:
    google.set(HOST, reply)
    assert gce(google).discover().topology is None


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (Reply(b"busy", 503), "HTTP 503"),
        (Reply(b"no", 403), "HTTP 403"),
        (Reply(b"", 302, {**GOOGLE, "Location": "http://127.0.0.1:9/"}), "HTTP 302"),
        (Reply(b"/a/b/c", headers={}), "not Google's"),
        (Reply(b"\xff\xfe\x00"), "no text"),
        (Reply(b"/a/b/\x00"), "no plain text"),
        (Reply(b"<html><body>log in</body></html>"), "not a path"),
        (Reply(b"a/b/c"), "not a path"),
        (Reply(b"/a//c"), "not a path"),
        (Reply(b"/a/b/c/"), "not a path"),
        (Reply(b"/"), "not a path"),
        (Reply(b"/a/b/c d"), "not a path"),
        (Reply(b"/" + b"a" * 70_000), "longer than 65536 bytes"),
    ],
    ids=[
        "503", "403", "redirect", "not Google", "bytes", "control characters", "a login page", "no slash",
        "gap", "slash at the end", "slash alone", "space", "too long",
    ],
)  # fmt: skip
def test_what_is_no_answer_is_a_failure_that_says_so(
    google: MetadataService, reply: Reply, sentence: str
) -> None:
    google.set(HOST, reply)
    with pytest.raises(SourceError, match=sentence):
        gce(google).discover()


@pytest.mark.parametrize(
    "reply", [Reply(b"/a/b/c", delay=1.5), Reply(b"/a/b/c", drip=0.2)], ids=["late", "byte by byte"]
)
def test_a_slow_server_is_a_failure_and_not_a_hang(google: MetadataService, reply: Reply) -> None:
    google.set(HOST, reply)
    with pytest.raises(SourceError, match=r"no answer|did not end in time"):
        gce(google, answer_seconds=0.5).discover()


def test_no_server_is_a_failure_that_names_the_address() -> None:
    with MetadataService() as gone:
        url = gone.url
    with pytest.raises(SourceError, match=f"{url}.*no answer"):
        create_source("gce", {"url": url}, NODE).discover()


class Recorder:
    """An output that keeps what it is given, and tells when something comes."""

    def __init__(self) -> None:
        self.published: list[Wanted] = []
        self._news = threading.Condition()

    def publish(self, want: Wanted) -> LabelChange:
        with self._news:
            self.published.append(want)
            self._news.notify_all()
        return LabelChange()

    def close(self) -> None:
        pass

    def wait_for(self, labels: dict[str, str], seconds: float = 90) -> None:
        with self._news:
            came = self._news.wait_for(
                lambda: any(dict(want.labels) == labels for want in self.published), seconds
            )
        assert came, f"the last labels were {self.published[-1:]}"


def place(*levels: str) -> dict[str, str]:
    names = ("cluster", "rack", "host")
    return {f"topology.gke.io/{name}": level for name, level in zip(names, levels, strict=True)}


def test_a_migrated_instance_is_labelled_without_waiting_for_the_interval(
    google: MetadataService,
) -> None:
    recorder = Recorder()
    agent = Agent({"gce": gce(google)}, recorder)
    loop = threading.Thread(target=agent.run, args=(3600.0,))
    loop.start()
    try:
        recorder.wait_for(place("cluster-a", "rack-b", "host-c"))
        _until_asked(google, "last_etag=")
        google.set(HOST, "/cluster-a/rack-x/host-y")
        recorder.wait_for(place("cluster-a", "rack-x", "host-y"))
    finally:
        agent.stop()
        loop.join(90)
    assert not loop.is_alive()


def _until_asked(service: MetadataService, text: str) -> None:
    for _ in range(1800):
        if any(text in path for _, path in service.requests):
            return
        threading.Event().wait(0.05)
    raise AssertionError(f"nobody asked for {text}: {service.requests}")


def test_a_changed_place_is_found_by_asking_again(google: MetadataService) -> None:
    source = gce(google)
    source.discover()
    google.set(HOST, "/a/b/c")
    assert source.discover().topology == ("a", "b", "c")


@pytest.mark.parametrize("text", ["/a/b", "/a/b/c/d", "/a"], ids=["two", "four", "one"])
def test_a_path_of_another_depth_is_the_sources_failure_and_changes_nothing(
    google: MetadataService, text: str
) -> None:
    google.set(HOST, text)
    agent = Agent({"gce": gce(google)}, Recorder())
    want = agent.discover()
    assert "levels" in agent.failed["gce"]
    assert dict(want.labels) == {}
    assert set(want.unknown) >= set(place("", "", ""))


def test_a_source_that_fails_keeps_its_last_word(google: MetadataService) -> None:
    agent = Agent({"gce": gce(google)}, Recorder())
    before = agent.discover()
    google.set(HOST, Reply(b"", 503))
    assert agent.discover() == before
    assert "HTTP 503" in agent.failed["gce"]
    google.set(HOST, None)
    assert dict(agent.discover().labels) == {}


# --- other clouds ---------------------------------------------------------------------------------


@pytest.fixture
def oracle() -> Iterator[MetadataService]:
    with MetadataService(lambda method, headers: headers.get("Authorization") == "Bearer Oracle") as service:
        service.set("/opc/v2/instance/id", "ocid1.instance.oc1..x")
        service.set("/opc/v2/instance/region", "eu-frankfurt-1")
        data = {
            "customerHPCIslandId": "island",
            "customerNetworkBlock": "block",
            "customerLocalBlock": "local",
            "customerHostId": "host",
        }
        service.set("/opc/v2/host/rdmaTopologyData", json.dumps(data))
        yield service


@pytest.mark.parametrize(
    ("options", "levels"),
    [({}, ("block", "local", "host")), ({"from": "hpc-island"}, ("island", "block", "local", "host"))],
    ids=["three levels", "four levels"],
)
def test_oracles_rdma_network_is_the_place(
    oracle: MetadataService, options: dict[str, object], levels: tuple[str, ...]
) -> None:
    assert create_source("oci", {"url": oracle.url, **options}, NODE).discover() == Facts(
        topology=levels,
        identity={
            "labeler.topogate.io/oci-instance-id": "ocid1.instance.oc1..x",
            "labeler.topogate.io/oci-region": "eu-frankfurt-1",
        },
    )


def test_an_oracle_instance_outside_an_rdma_network_has_no_place(oracle: MetadataService) -> None:
    oracle.set("/opc/v2/host/rdmaTopologyData", None)
    assert create_source("oci", {"url": oracle.url}, NODE).discover().topology is None


@pytest.mark.parametrize("text", ["{}", "[]", "rubbish", '{"customerNetworkBlock": null}'])
def test_an_oracle_place_that_is_incomplete_is_a_failure(oracle: MetadataService, text: str) -> None:
    oracle.set("/opc/v2/host/rdmaTopologyData", text)
    with pytest.raises(SourceError, match="rdmaTopologyData"):
        create_source("oci", {"url": oracle.url}, NODE).discover()


def test_amazons_identity_is_read_with_a_token() -> None:
    def demand(method: str, headers: dict[str, str]) -> bool:
        lower = {key.lower(): value for key, value in headers.items()}
        if method == "PUT":
            return "x-aws-ec2-metadata-token-ttl-seconds" in lower
        return lower.get("x-aws-ec2-metadata-token") == "secret"

    with MetadataService(demand) as amazon:
        amazon.set("/latest/api/token", "secret")
        amazon.set("/latest/meta-data/instance-id", "i-0abc")
        amazon.set("/latest/meta-data/placement/region", "eu-central-1")
        source = create_source("aws", {"url": amazon.url}, NODE)
        assert source.discover() == Facts(
            identity={
                "labeler.topogate.io/aws-instance-id": "i-0abc",
                "labeler.topogate.io/aws-region": "eu-central-1",
            }
        )
        amazon.set("/latest/api/token", None)
        with pytest.raises(SourceError, match="no token"):
            source.discover()


def test_the_identity_at_nebius_is_what_its_service_knows() -> None:
    with MetadataService(lambda method, headers: headers.get("Metadata") == "true") as nebius:
        nebius.set("/v1/instance-data/id", "computeinstance-1")
        assert create_source("nebius", {"url": nebius.url}, NODE).discover() == Facts(
            identity={"labeler.topogate.io/nebius-instance-id": "computeinstance-1"}
        )


# --- the cloud's own labels -------------------------------------------------------------------------

LAYERS = [f"topology.k8s.aws/network-node-layer-{number}" for number in (1, 2, 3)]


def from_labels(labels: dict[str, str]) -> Facts:
    context = Context("node", lambda: {"labels": labels})
    return create_source("node-labels", {"topology": LAYERS}, context).discover()


def test_a_clouds_labels_are_the_place_in_the_order_configured() -> None:
    labels = dict(zip(LAYERS, ("nn-1", "nn-2", "nn-3"), strict=True))
    assert from_labels(labels | {"other": "x"}).topology == ("nn-1", "nn-2", "nn-3")


def test_a_node_without_the_clouds_labels_has_no_place() -> None:
    assert from_labels({"other": "x"}).topology is None


@pytest.mark.parametrize("missing", range(3))
def test_a_node_with_some_of_the_clouds_labels_is_a_failure_that_names_the_others(missing: int) -> None:
    labels = dict(zip(LAYERS, ("nn-1", "nn-2", "nn-3"), strict=True))
    del labels[LAYERS[missing]]
    with pytest.raises(SourceError, match=LAYERS[missing]):
        from_labels(labels)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("gcp", {}, "no source is called 'gcp'; there are aws, file, gce, nebius, node-labels, oci, udev"),
        ("gce", {"urls": "x"}, "no option is called 'urls'; it has url"),
        ("gce", {"url": "https://x"}, "must be like http://metadata.google.internal"),
        ("gce", {"url": 7}, "must be like"),
        ("oci", {"from": "rack"}, "must be one of hpc-island, network-block"),
        ("node-labels", {}, "must list"),
        ("node-labels", {"topology": ["topology.gke.io/rack"]}, "written by the labeler itself"),
        ("file", {}, "must name the facts file"),
        ("udev", {"events": "both"}, "must be kernel or udev"),
        ("udev", {"memory-override-bytes": "16Gi"}, "must be a number of bytes"),
        ("udev", {"ignore-integrated": "yes"}, "must be true or false"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(
    name: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        create_source(name, options, NODE)
