"""Levels of the topology that stand for an attribute of devices."""

import pytest

from tests.devices.bodies import DRIVER, gpu, slice_of, supply
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import parse
from webhook.devices.attribute_levels import attribute_keys
from webhook.kube.devices import ResourceSlice
from webhook.placement.topology import Topology

KEY = f"device:{DRIVER}/cliqueID"
TOPOLOGY = Topology((("example.com/block", KEY),), ("block", "clique"))


def labels(*slices: ResourceSlice) -> tuple[dict[str, str], list[str]]:
    found, problems = supply(*slices).labels("n", {}, attribute_keys(TOPOLOGY))
    return dict(found), problems


def test_the_attributes_of_a_topology_are_found() -> None:
    assert attribute_keys(TOPOLOGY) == (KEY,)
    assert attribute_keys(Topology()) == ()


@pytest.mark.promise("R144")
@pytest.mark.parametrize(
    ("value", "label"), [("a.1", "a.1"), (7, "7"), (True, "true")], ids=["text", "number", "truth"]
)
def test_a_node_is_in_the_domain_that_its_devices_name(value: str | int, label: str) -> None:
    devices = [gpu("g0", cliqueID=value), gpu("g1", cliqueID=value), gpu("nic")]
    assert labels(slice_of("n", devices)) == ({KEY: label}, [])


def test_an_attribute_of_another_domain_is_another() -> None:
    assert labels(slice_of("n", [gpu("g0", **{"example.org/cliqueID": "a"})])) == ({}, [])
    assert labels(slice_of("n", [gpu("g0", **{KEY.removeprefix("device:"): "a"})])) == ({KEY: "a"}, [])


@pytest.mark.promise("R144")
def test_a_node_whose_devices_disagree_is_in_no_domain_and_that_is_logged() -> None:
    found, problems = labels(slice_of("n", [gpu(f"g{n}", cliqueID=f"c{n}") for n in range(4)]))
    assert found == {}
    assert problems == [
        f'devices of node n differ in {DRIVER}/cliqueID: "c0" (g0) and "c1" (g1) and 2 others'
    ]


def test_a_node_stays_where_it_was_while_its_driver_publishes_again() -> None:
    supplied = supply(slice_of("n", [gpu("g0", cliqueID="a")]))
    unchanged: dict[str, str] = {}
    assert supplied.labels("n", unchanged, (KEY,))[0] == {KEY: "a"}
    pool = {"name": "n", "generation": 2, "resourceSliceCount": 2}
    supplied.update([slice_of("n", [gpu("g0", cliqueID="b")], pool=pool)], supplied.classes, {}, {})
    assert supplied.labels("n", unchanged, (KEY,))[0] == {KEY: "a"}


HEAD = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"


@pytest.mark.parametrize("wrong", ["device:cliqueID", "device:/x", "device:gpu.example.com/"])
def test_what_names_no_attribute_is_reported(wrong: str) -> None:
    text = f"{HEAD}topology: {{levels: {{block: example.com/block, clique: '{wrong}'}}}}\n"
    with pytest.raises(ConfigurationError, match="or an attribute of devices as device:"):
        parse(text)


@pytest.mark.promise("R144", "O21")
def test_a_level_may_be_read_from_devices() -> None:
    text = f"{HEAD}topology: {{levels: {{block: example.com/block, clique: '{KEY}'}}}}\n"
    assert parse(text).settings.topology == TOPOLOGY
