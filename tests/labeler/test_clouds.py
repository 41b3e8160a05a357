"""What the labeler makes of metadata services, played by a real HTTP server, and of a cloud's node labels."""

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from labeler.agent import Agent
from labeler.facts import Facts, SourceError
from labeler.labels import Wanted
from labeler.metadata import MetadataServer
from labeler.publisher import LabelChange
from labeler.sources import Context, OptionError, create_source, known_sources
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


@pytest.mark.promise("O12")
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
def test_what_is_no_answer_is_a_failure_that_names_it(
    google: MetadataService, reply: Reply, sentence: str
) -> None:
    google.set(HOST, reply)
    with pytest.raises(SourceError, match=sentence):
        gce(google).discover()


TOPOLOGY = "/computeMetadata/v1/instance/attributes/physical_host_topology"
PUBLISHED = {"cluster": "c", "block": "b", "subBlock": "s", "host": "h"}


def without(*fields: str) -> dict[str, str]:
    """What the metadata server publishes of a host, but for these."""
    return {key: value for key, value in PUBLISHED.items() if key not in fields}


@pytest.mark.parametrize(
    ("older", "document", "options", "levels"),
    [
        (None, PUBLISHED, {}, ("b", "s", "h")),
        (None, without("subBlock") | {"subblock": "s"}, {}, ("b", "s", "h")),
        (None, without("cluster"), {}, ("b", "s", "h")),
        (None, PUBLISHED, {"from": "cluster"}, ("c", "b", "s", "h")),
        ("/x/y/z", PUBLISHED, {}, ("x", "y", "z")),
        ("/x//z", PUBLISHED, {}, ("b", "s", "h")),
        ("/x/y/z", PUBLISHED, {"from": "cluster"}, ("c", "b", "s", "h")),
        (None, without("host"), {"host": "instance-name"}, ("b", "s", "gke-node-7")),
        (None, PUBLISHED, {"host": "instance-name"}, ("b", "s", "h")),
    ],
    ids=[
        "newer", "in the API's spelling", "a level above is not needed", "four levels", "both",
        "older with a gap", "four levels of both", "no host, by choice its name", "a host is what it is",
    ],
)  # fmt: skip
def test_the_topology_document_is_the_place_where_the_older_attribute_is_not(
    google: MetadataService,
    older: str | None,
    document: Any,
    options: dict[str, Any],
    levels: tuple[str, ...],
) -> None:
    google.set(HOST, older)
    google.set(TOPOLOGY, json.dumps(document))
    assert create_source("gce", {"url": google.url, **options}, NODE).discover().topology == levels


@pytest.mark.promise("O306")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (json.dumps(without("host")), r"has no host, it has .*'block': 'b'"),
        (json.dumps(without("subBlock")), "has no subblock"),
        (json.dumps(PUBLISHED | {"block": 7}), "field block is 7, not a text"),
        (json.dumps(PUBLISHED | {"block": ""}), "has no block"),
        ("[]", r"is no JSON object: '\[\]'"),
        ("b/s/h", "is no JSON: 'b/s/h'"),
    ],
    ids=["host", "subblock", "a number", "an empty text", "a list", "a path"],
)
def test_a_topology_document_with_a_gap_is_shown_and_does_not_cost_the_instances_name(
    google: MetadataService, text: str, sentence: str
) -> None:
    google.set(HOST, None)
    google.set(TOPOLOGY, text)
    agent = Agent({"gce": gce(google)}, Recorder())
    want = agent.discover()
    assert re.search(sentence, agent.failed["gce"])
    assert dict(want.annotations) == {"labeler.topogate.io/gce-instance-name": "gke-node-7"}
    assert (dict(want.labels), set(want.unknown) >= set(place("", "", ""))) == ({}, True)


@pytest.mark.parametrize(
    ("attribute", "reply"),
    [(HOST, "/a//c"), (HOST, Reply(b"", 503)), (HOST, "/a/b/c/d")],
    ids=["a gap", "out of order", "of another depth"],
)
def test_a_place_that_is_not_known_does_not_cost_the_instances_name(
    google: MetadataService, attribute: str, reply: Reply | str
) -> None:
    google.set(attribute, reply)
    agent = Agent({"gce": gce(google)}, Recorder())
    assert dict(agent.discover().annotations) == {"labeler.topogate.io/gce-instance-name": "gke-node-7"}
    assert agent.failed


def test_a_name_that_is_not_known_does_not_cost_the_place(google: MetadataService) -> None:
    google.set(NAME, Reply(b"", 503))
    agent = Agent({"gce": gce(google)}, Recorder())
    assert dict(agent.discover().labels) == place("cluster-a", "rack-b", "host-c")
    assert "HTTP 503" in agent.failed["gce"]


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
    """An output that keeps what it is given, and signals when something comes."""

    def __init__(self) -> None:
        self.published: list[Wanted] = []
        self._news = threading.Condition()

    def publish(self, want: Wanted) -> LabelChange:
        with self._news:
            self.published.append(want)
            self._news.notify_all()
        return LabelChange()

    def wait_for(self, labels: dict[str, str], seconds: float = 90) -> None:
        with self._news:
            came = self._news.wait_for(
                lambda: any(dict(want.labels) == labels for want in self.published), seconds
            )
        assert came, f"the last labels were {self.published[-1:]}"


def place(*levels: str) -> dict[str, str]:
    names = ("cluster", "rack", "host")
    return {f"topology.gke.io/{name}": level for name, level in zip(names, levels, strict=True)}


@pytest.mark.parametrize("newer", [False, True], ids=["physical_host", "physical_host_topology"])
def test_a_migrated_instance_is_labelled_without_waiting_for_the_interval(
    google: MetadataService, newer: bool
) -> None:
    def move(block: str, subblock: str, host: str) -> None:
        document = {"block": block, "subBlock": subblock, "host": host}
        google.set(HOST, None if newer else f"/{block}/{subblock}/{host}")
        google.set(TOPOLOGY, json.dumps(document) if newer else None)

    move("cluster-a", "rack-b", "host-c")
    recorder = Recorder()
    agent = Agent({"gce": gce(google)}, recorder)
    agent.discover()
    loop = threading.Thread(target=agent.run, args=(3600.0,))
    loop.start()
    try:
        recorder.wait_for(place("cluster-a", "rack-b", "host-c"))
        _until_asked(google, "last_etag=")
        move("cluster-a", "rack-x", "host-y")
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


@pytest.mark.promise("O12")
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


OF_THE_POOL = {
    "customerHPCIslandId": "island",
    "customerNetworkBlock": "block",
    "customerLocalBlock": "local",
    "customerHostId": "host",
    "customerGpuMemoryFabric": "fabric",
}
OF_THE_HOST = {"id": "host-id", "networkBlockId": "block-id", "rackId": "rack-id", "buildingId": "b"}


@pytest.mark.parametrize(
    ("projection", "host", "options", "levels"),
    [
        (OF_THE_POOL, None, {}, ("block", "local", "host")),
        (None, {"rdmaTopologyData": OF_THE_POOL}, {}, ("block", "local", "host")),
        (None, OF_THE_HOST, {}, ("block-id", "rack-id", "host-id")),
        (None, {"id": "host-id"}, {}, None),
        (
            OF_THE_POOL, None, {"levels": ["network-block", "gpu-memory-fabric", "host"]},
            ("block", "fabric", "host"),
        ),
        (
            None, OF_THE_HOST, {"levels": ["network-block", "gpu-memory-fabric|local-block", "host"]},
            ("block-id", "rack-id", "host-id"),
        ),
    ],
    ids=[
        "of a dedicated pool", "embedded in the host document", "outside of pools", "in no RDMA network",
        "the memory fabric", "the memory fabric or the rack",
    ],
)  # fmt: skip
def test_oracles_place_is_read_of_either_document(
    oracle: MetadataService,
    projection: Any,
    host: Any,
    options: dict[str, Any],
    levels: tuple[str, ...] | None,
) -> None:
    oracle.set("/opc/v2/host/rdmaTopologyData", json.dumps(projection) if projection else None)
    oracle.set("/opc/v2/host", json.dumps(host) if host else None)
    assert create_source("oci", {"url": oracle.url, **options}, NODE).discover().topology == levels


def test_the_gpu_memory_fabric_is_a_note(oracle: MetadataService) -> None:
    oracle.set("/opc/v2/host/rdmaTopologyData", json.dumps(OF_THE_POOL))
    identity = create_source("oci", {"url": oracle.url}, NODE).discover().identity or {}
    assert identity["labeler.topogate.io/oci-gpu-memory-fabric"] == "fabric"


@pytest.mark.promise("O306")
@pytest.mark.parametrize(
    ("options", "document"),
    [({"from": "hpc-island"}, OF_THE_HOST), ({}, {"rackId": "r"}), ({}, ["rubbish"])],
    ids=["no island outside of pools", "a gap", "a list"],
)
def test_an_oracle_place_with_a_gap_is_shown_and_does_not_cost_the_identity(
    oracle: MetadataService, options: dict[str, Any], document: Any
) -> None:
    oracle.set("/opc/v2/host/rdmaTopologyData", None)
    oracle.set("/opc/v2/host", json.dumps(document))
    with pytest.raises(SourceError, match=r"host document.*\Wr") as failure:
        create_source("oci", {"url": oracle.url, **options}, NODE).discover()
    assert failure.value.facts.identity == {
        "labeler.topogate.io/oci-instance-id": "ocid1.instance.oc1..x",
        "labeler.topogate.io/oci-region": "eu-frankfurt-1",
    }


@pytest.mark.promise("O12")
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


NEBIUS_NOTES = "labeler.topogate.io/nebius-"
OF_NEBIUS = {
    "id": "computeinstance-1",
    "parent_id": "project-2",
    "region": "eu-west1",
    "gpu_cluster_id": "computegpucluster-3",
    "infiniband_fabric": "fabric-4",
    "infiniband_topology_path": ["root", "spine", "leaf"],
    "labels": {"env": "x"},
}


@pytest.fixture
def nebius() -> Iterator[MetadataService]:
    with MetadataService(lambda method, headers: headers.get("Metadata") == "true") as service:
        yield service


@pytest.mark.promise("O12")
@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ({}, ("spine", "leaf", "computeinstance-1")),
        ({"from": "root"}, ("root", "spine", "leaf", "computeinstance-1")),
    ],
    ids=["three levels", "four levels"],
)  # fmt: skip
def test_the_infiniband_path_at_nebius_is_the_place(
    nebius: MetadataService, options: dict[str, Any], levels: tuple[str, ...]
) -> None:
    nebius.set("/v1/instance-data", json.dumps(OF_NEBIUS))
    assert create_source("nebius", {"url": nebius.url, **options}, NODE).discover() == Facts(
        topology=levels,
        identity={
            NEBIUS_NOTES + "instance-id": "computeinstance-1",
            NEBIUS_NOTES + "parent-id": "project-2",
            NEBIUS_NOTES + "region": "eu-west1",
            NEBIUS_NOTES + "gpu-cluster-id": "computegpucluster-3",
            NEBIUS_NOTES + "infiniband-fabric": "fabric-4",
        },
    )


@pytest.mark.parametrize("path", [None, []], ids=["absent", "empty"])
def test_an_instance_at_nebius_outside_a_gpu_cluster_has_no_place(nebius: MetadataService, path: Any) -> None:
    nebius.set("/v1/instance-data", json.dumps(OF_NEBIUS | {"infiniband_topology_path": path}))
    assert create_source("nebius", {"url": nebius.url}, NODE).discover().topology is None


@pytest.mark.promise("O306")
@pytest.mark.parametrize(
    "change",
    [
        {"infiniband_topology_path": ["root", "leaf"]},
        {"infiniband_topology_path": ["a", "b", "c", "d"]},
        {"infiniband_topology_path": ["root", "", "leaf"]},
        {"infiniband_topology_path": "root/spine/leaf"},
    ],
    ids=["two", "four", "a gap", "a text"],
)
def test_an_unknown_path_at_nebius_is_shown_and_does_not_cost_the_identity(
    nebius: MetadataService, change: dict[str, Any]
) -> None:
    nebius.set("/v1/instance-data", json.dumps(OF_NEBIUS | change))
    with pytest.raises(SourceError, match="infiniband_topology_path is not three names") as failure:
        create_source("nebius", {"url": nebius.url}, NODE).discover()
    assert (failure.value.facts.identity or {})[NEBIUS_NOTES + "gpu-cluster-id"] == "computegpucluster-3"


COMPUTE = "/metadata/instance/compute"
OF_AZURE = {
    "vmId": "02aa-11",
    "vmSize": "Standard_ND96isr_H100_v5",
    "location": "eastus",
    "zone": "2",
    "placementGroupId": "f67c-22",
    "vmScaleSetName": "aks-gpu",
    "platformFaultDomain": "0",
    "tagsList": [],
}


@pytest.fixture
def azure() -> Iterator[MetadataService]:
    with MetadataService(lambda method, headers: headers.get("Metadata") == "true") as service:
        service.set(COMPUTE, json.dumps(OF_AZURE))
        yield service


@pytest.mark.promise("O12")
def test_the_placement_group_at_azure_is_the_place_and_the_machine_a_note(azure: MetadataService) -> None:
    notes = "labeler.topogate.io/azure-"
    assert create_source("azure", {"url": azure.url}, NODE).discover() == Facts(
        topology=("eastus-2", "f67c-22", "02aa-11"),
        identity={
            notes + "vm-id": "02aa-11",
            notes + "vm-size": "Standard_ND96isr_H100_v5",
            notes + "region": "eastus",
            notes + "scale-set": "aks-gpu",
            notes + "placement-group-id": "f67c-22",
            notes + "fault-domain": "0",
        },
    )
    assert azure.requests == [("GET", f"{COMPUTE}?api-version=2021-02-01")]


@pytest.mark.parametrize(
    ("change", "levels"),
    [({"zone": ""}, ("eastus", "f67c-22", "02aa-11")), ({"placementGroupId": ""}, None)],
    ids=["a region without zones", "no placement group"],
)
def test_a_machine_at_azure_has_a_place_only_in_a_placement_group(
    azure: MetadataService, change: dict[str, str], levels: tuple[str, ...] | None
) -> None:
    azure.set(COMPUTE, json.dumps(OF_AZURE | change))
    assert create_source("azure", {"url": azure.url}, NODE).discover().topology == levels


def test_a_document_of_azure_without_the_machine_is_shown_and_does_not_cost_the_rest(
    azure: MetadataService,
) -> None:
    azure.set(COMPUTE, json.dumps(OF_AZURE | {"vmId": None}))
    with pytest.raises(SourceError, match=r"has no vmId, it has .*f67c-22") as failure:
        create_source("azure", {"url": azure.url}, NODE).discover()
    assert (failure.value.facts.identity or {})["labeler.topogate.io/azure-region"] == "eastus"


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (None, "no virtual machine of Azure"),
        ("rubbish", "is no JSON: 'rubbish'"),
        (Reply(b"", 400), "HTTP 400"),
    ],
)
def test_what_is_no_answer_of_azure_is_a_failure_that_names_it(
    azure: MetadataService, reply: Reply | str | None, sentence: str
) -> None:
    azure.set(COMPUTE, reply)
    with pytest.raises(SourceError, match=sentence):
        create_source("azure", {"url": azure.url}, NODE).discover()


# --- the cloud's own labels -------------------------------------------------------------------------

LAYERS = [f"topology.k8s.aws/network-node-layer-{number}" for number in (1, 2, 3)]


def from_labels(labels: dict[str, str]) -> Facts:
    context = Context("node", lambda: {"labels": labels})
    return create_source("node-labels", {"topology": LAYERS}, context).discover()


@pytest.mark.promise("O12")
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


LAYER = "topology.k8s.aws/network-node-layer-"
BY_TYPE = [
    f"{LAYER}[-2]",
    f"topology.k8s.aws/ultraserver-id|{LAYER}[-1]",
    "kubernetes.io/hostname",
]


def on_eks(layers: int, **more: str) -> dict[str, str]:
    """The labels of an EKS node whose instance type has so many layers."""
    numbered = {f"{LAYER}{number}": f"nn-{number}" for number in range(1, layers + 1)}
    return numbered | {"kubernetes.io/hostname": "node-1", "topology.kubernetes.io/zone": "z"} | more


def eks_place(labels: dict[str, str]) -> tuple[str, ...] | None:
    context = Context("node", lambda: {"labels": labels})
    return create_source("node-labels", {"topology": BY_TYPE}, context).discover().topology


@pytest.mark.parametrize(
    ("labels", "levels"),
    [
        (on_eks(3), ("nn-2", "nn-3", "node-1")),
        (on_eks(4), ("nn-3", "nn-4", "node-1")),
        (on_eks(4) | {"topology.k8s.aws/ultraserver-id": "us-1"}, ("nn-3", "us-1", "node-1")),
        (on_eks(0), None),
    ],
    ids=["three layers", "four layers", "an UltraServer", "a type without layers"],
)
def test_layers_are_counted_from_the_lowest_and_the_last_level_is_the_node(
    labels: dict[str, str], levels: tuple[str, ...] | None
) -> None:
    assert eks_place(labels) == levels


def test_numbered_labels_with_a_gap_are_a_failure_that_names_those_that_are_there() -> None:
    labels = on_eks(4)
    del labels[f"{LAYER}2"]
    with pytest.raises(SourceError, match=r"network-node-layer-N have a gap: N is 1, 3, 4"):
        eks_place(labels)


def test_too_few_numbered_labels_are_a_failure_that_names_the_level() -> None:
    with pytest.raises(SourceError, match=r"network-node-layer-\[-2\] missing"):
        eks_place(on_eks(1))


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "gcp",
            {},
            f"no source is called 'gcp'; there are {', '.join(known_sources())}",
        ),
        ("gce", {"urls": "x"}, "urls: unknown key; did you mean url?"),
        ("gce", {"from": "rack"}, "must be one of cluster, block"),
        ("gce", {"host": "name"}, "must be published or instance-name"),
        ("oci", {"levels": ["rack"]}, "'rack' is none of hpc-island, network-block"),
        ("oci", {"levels": "host"}, "must be a list of names"),
        ("oci", {"levels": ["host"], "from": "host"}, "give either from or levels"),
        ("nebius", {"from": "rack"}, "must be one of root, spine, leaf, host"),
        ("azure", {"from": "x"}, "from: unknown key; known are url"),
        ("node-labels", {"topology": ["a/b|topology.gke.io/rack"]}, "written by the labeler itself"),
        ("gce", {"url": "https://x"}, "must be like http://metadata.google.internal"),
        ("gce", {"url": 7}, "must be like"),
        ("oci", {"from": "rack"}, "must be one of hpc-island, network-block"),
        ("node-labels", {}, "must list"),
        ("node-labels", {"topology": ["topology.gke.io/rack"]}, "written by the labeler itself"),
        ("file", {}, "must name the facts file"),
        ("udev", {"events": "both"}, "must be kernel or udev"),
        ("udev", {"memory-override-bytes": "16Gi"}, "must be a number of bytes"),
        ("udev", {"ignore-integrated": "yes"}, "must be true or false"),
        ("udev", {"drivers": "nouveau"}, "must be a list of kernel drivers' names"),
        ("udev", {"drivers": ["../x"]}, "must be a list of kernel drivers' names"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(
    name: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        create_source(name, options, NODE)
