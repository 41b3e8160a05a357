"""What the doctor finds on nodes with GPUs."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from webhook.configuration.cluster import KEY, NAME, path_of
from webhook.inquiry.findings import Check, State
from webhook.inquiry.gpu_nodes import broken, card_labels, models, places
from webhook.kube import devices
from webhook.kube.client import Api, ApiError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
XE = "gpu.intel.com/xe"


def node(name: str, labels: dict[str, str], **allocatable: str) -> dict[str, Any]:
    amounts = {f"gpu.intel.com/{resource}": amount for resource, amount in allocatable.items()}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


class Cluster:
    """The boundary to the API server: a configuration, and nodes, with collections that may be refused."""

    def __init__(
        self,
        configuration: dict[str, Any],
        *nodes: dict[str, Any],
        objects: Mapping[str, list[dict[str, Any]]] | None = None,
        status: int = 0,
    ) -> None:
        """objects: those of the collections about devices, by path. status: with which others are refused."""
        self._text = json.dumps(HEAD | configuration)
        self._objects = {"/api/v1/nodes": list(nodes), **(objects or {})}
        self._status = status

    def json(self, method: str, path: str, **_: object) -> dict[str, Any]:
        if path == path_of():
            return {"kind": "ConfigMap", "metadata": {"name": NAME}, "data": {KEY: self._text}}
        if path not in self._objects and self._status:
            raise ApiError(self._status, "refused", path)
        return {"metadata": {}, "items": self._objects.get(path, [])}

    def request(self, method: str, path: str, **_: object) -> bytes:
        return json.dumps(self.json(method, path)).encode()


def finding(*nodes: dict[str, Any]) -> tuple[State, str]:
    (found,) = card_labels(cast(Api, Cluster({}, *nodes)), NOW)
    return found.state, f"{found.sentence} {found.remedy}"


def state_of(check: Check, cluster: Cluster) -> tuple[State, str]:
    (finding,) = check(cast(Api, cluster), NOW)
    return finding.state, finding.sentence


@pytest.mark.promise("O379")
@pytest.mark.parametrize(
    "labels",
    [{"gpu.intel.com/product": "Max_1550"}, {"gpu.intel.com/cards": ""}, {"gpu.intel.com/tiles": "4"}],
    ids=["another label", "no card in it", "tiles alone"],
)
def test_a_node_that_offers_cards_without_their_labels_is_named_with_the_label_and_what_to_run(
    labels: dict[str, str],
) -> None:
    labelled = node("labelled", {"gpu.intel.com/gpu-numbers": "0.1"}, i915="2")
    state, text = finding(labelled, node("bare", labels, xe="8"), node("none", {}))
    assert state is State.ODD
    assert "Intel cards without the label gpu.intel.com/gpu-numbers on 1 node of 2" in text
    assert ": bare Run topogate's labeler there" in text


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (node("none", {}),),
        (node("out of use", {}, xe="0"),),
        (node("old", {"gpu.intel.com/cards": "card0"}, i915="1"),),
        (node("broken", {"gpu.intel.com/tiles": "0"}, xe="8"),),
    ],
    ids=["no node", "no card", "no device", "labels of an old plugin", "cards that are out of use"],
)
def test_all_other_nodes_are_well(nodes: tuple[dict[str, Any], ...]) -> None:
    assert finding(*nodes)[0] is State.WELL


# --- by the configuration -------------------------------------------------------------------------


def gpu_node(
    labels: dict[str, str], resource: str = "nvidia.com/gpu", usable: str = "8", **others: str
) -> dict[str, Any]:
    """A node of 8 GPUs, or of their instances. others: allocatable amounts of NVIDIA's other resources."""
    amounts = {"pods": "110"} | {f"nvidia.com/{name}": amount for name, amount in others.items()}
    status = {"capacity": amounts | {resource: "8"}, "allocatable": amounts | {resource: usable}}
    return {"metadata": {"name": "n0", "uid": "u0", "labels": labels}, "status": status}


def in_clique(name: str) -> dict[str, Any]:
    """A ResourceSlice of the node, of one GPU in an NVLink domain."""
    gpu = {"name": "gpu-0", "attributes": {"cliqueID": {"string": name}}}
    spec = {
        "driver": "gpu.nvidia.com", "nodeName": "n0", "devices": [gpu],
        "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
    }  # fmt: skip
    return {"metadata": {"name": "n0-gpus"}, "spec": spec}


HEAD = {"apiVersion": "topogate.io/v1beta1", "kind": "Configuration"}


BLOCKS = {"topology": {"levels": {"block": "example.com/block"}}}
CLIQUES = {"topology": {"levels": {"clique": "device:gpu.nvidia.com/cliqueID"}}}
GKE = {f"topology.gke.io/{level}": "a" for level in ("cluster", "rack", "host")}


@pytest.mark.promise("O310")
@pytest.mark.parametrize(
    ("configuration", "labels", "has_place"),
    [
        ({}, GKE, True),
        ({}, {"example.com/block": "a"}, False),
        (BLOCKS, {"example.com/block": "a"}, True),
        (BLOCKS, GKE, False),
        (CLIQUES, {}, True),
    ],
    ids=["the usual levels", "labels of no level", "levels of its own", "labels of other levels", "devices"],
)
def test_topology_labels_are_those_of_the_configured_levels(
    configuration: dict[str, Any], labels: dict[str, str], has_place: bool
) -> None:
    cluster = Cluster(configuration, gpu_node(labels), objects={devices.SLICES: [in_clique("c7")]})
    one = "all 1 GPU nodes have topology labels", "1 of 1 GPU nodes have no topology labels: n0"
    assert state_of(places, cluster) == ((State.WELL, one[0]) if has_place else (State.ODD, one[1]))


def test_who_may_not_read_the_devices_is_not_given_a_finding_about_levels_of_them() -> None:
    with pytest.raises(ApiError) as error:
        state_of(places, Cluster(CLIQUES, gpu_node({}), status=403))
    assert error.value.status == 403


@pytest.mark.promise("O310")
@pytest.mark.parametrize(
    ("resources", "node", "sentence"),
    [
        (None, gpu_node(GKE, "nvidia.com/mig-1g.5gb", gpu="0"), "all 1 GPU nodes have topology labels"),
        (["a.io/npu"], gpu_node(GKE, "a.io/npu"), "all 1 GPU nodes have topology labels"),
        (["a.io/npu"], gpu_node(GKE), "no node has a GPU in its allocatable resources"),
        (None, gpu_node(GKE, usable="0"), "no node has a GPU in its allocatable resources"),
    ],
    ids=["instances of MIG", "another resource", "a resource that does not count", "none that is usable"],
)
def test_a_gpu_node_is_one_that_offers_what_the_configuration_counts(
    resources: list[str] | None, node: dict[str, Any], sentence: str
) -> None:
    configuration = {"gpus": {"resources": resources}} if resources else {}
    assert state_of(places, Cluster(configuration, node))[1] == sentence


@pytest.mark.promise("O310")
def test_a_node_of_which_only_claims_offer_the_gpus_is_a_gpu_node() -> None:
    expression = "device.driver == 'gpu.nvidia.com'"
    gpu_class = {
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
    objects = {devices.SLICES: [in_clique("c7")], devices.CLASSES: [gpu_class]}
    assert state_of(places, Cluster({}, gpu_node(GKE, "a.io/b"), objects=objects))[0] is State.WELL


MODELS = {"models": [{"name": "H100", "labels": {"example.com/gpu": "h100"}}]}


@pytest.mark.promise("O310")
@pytest.mark.parametrize(
    ("configuration", "labels", "state"),
    [
        (MODELS, {"example.com/gpu": "h100"}, State.WELL),
        (MODELS, {"example.com/gpu": "h200"}, State.ODD),
        ({"gpus": {"modelLabel": "example.com/gpu"}}, {"example.com/gpu": "h200"}, State.WELL),
        ({}, {"nvidia.com/gpu.product": "NVIDIA-H100"}, State.WELL),
        ({}, {"gpu.topogate.io/model": "nvidia-fff0"}, State.ODD),
    ],
    ids=["the catalogue's", "no model's", "the configured label", "a usual label", "an id"],
)
def test_a_model_is_also_named_by_the_labels_of_the_catalogue(
    configuration: dict[str, Any], labels: dict[str, str], state: State
) -> None:
    assert state_of(models, Cluster(configuration, gpu_node(labels)))[0] is state


@pytest.mark.promise("O310")
@pytest.mark.parametrize(
    ("resource", "sentence"),
    [
        ("nvidia.com/mig-1g.5gb", "node n0 has 3 of 8 devices of nvidia.com/mig-1g.5gb unusable"),
        ("other.io/gpu", "node n0 has 3 of 8 devices of other.io/gpu unusable"),
        ("a.io/npu", "node n0 has 3 of 8 devices of a.io/npu unusable"),
        ("a.io/disk", "no broken GPU was found by a labeler or a device plugin"),
    ],
)
def test_unhealthy_devices_are_those_of_any_resource_that_is_a_gpu(resource: str, sentence: str) -> None:
    configuration = {"gpus": {"resources": ["nvidia.com/gpu", "nvidia.com/mig-*", "a.io/npu"]}}
    assert state_of(broken, Cluster(configuration, gpu_node({}, resource, "5")))[1] == sentence
