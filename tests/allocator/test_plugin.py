"""What a container is started with, over the kubelet's own messages."""

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from labeler.allocator import cdi
from labeler.allocator.devices import Inventory
from labeler.allocator.monitoring import MonitoringPlugin
from labeler.allocator.values import LocalCard, LocalContainer, LocalPod
from labeler.allocator.vendors import Places
from labeler.allocator.vendors.intel import Intel
from labeler.allocator.wire import deviceplugin_pb2 as wire
from tests.allocator.conftest import Kubelet
from tests.allocator.plugins import I915, LINK, MONITORING, XE, Site, asking, card, planned


@pytest.fixture
def site(kubelet: Kubelet, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(kubelet, **getattr(request, "param", {"pod": planned("card1", "card1:gt1")}))
    made.register()
    yield made
    made.registration.close()


@pytest.mark.promise("O33")
def test_the_kubelet_learns_of_every_share_and_that_it_may_ask(kubelet: Kubelet, site: Site) -> None:
    shares = {f"card{number}-{share}" for number in range(3) for share in range(2)}
    assert kubelet.lists[-1] == dict.fromkeys(shares, "Healthy")
    options = kubelet.call("GetDevicePluginOptions", wire.Empty(), wire.DevicePluginOptions)
    assert options.get_preferred_allocation_available
    assert not options.pre_start_required


def test_the_devices_state_no_numa_node() -> None:
    """So that no Topology Manager policy stands in the way."""
    assert [field.name for field in wire.Device.DESCRIPTOR.fields] == ["ID", "health"]


@pytest.mark.promise("O49")
def test_a_card_that_fails_or_is_removed_is_unhealthy_and_the_others_stay(
    kubelet: Kubelet, site: Site
) -> None:
    site.cards[0] = card(0, problem="dead")
    site.inventory.look()
    assert kubelet.wait_for_devices(2) == {
        f"card{number}-{share}": "Unhealthy" if number == 0 else "Healthy"
        for number in range(3)
        for share in range(2)
    }
    del site.cards[1:]
    site.inventory.look()
    assert set(kubelet.wait_for_devices(3).values()) == {"Unhealthy"}


@pytest.mark.promise("O49")
def test_a_new_card_is_listed(kubelet: Kubelet, site: Site) -> None:
    site.cards.append(card(7))
    site.inventory.look()
    assert kubelet.wait_for_devices(2)["card7-1"] == "Healthy"


@pytest.mark.parametrize("why", ["believed", "used", "another kubelet", "another pod"])
def test_a_preferred_answer_is_believed_once_by_the_same_kubelet_and_for_the_same_pod(
    site: Site, why: str
) -> None:
    site.prefer("card1-0")
    if why == "used":
        site.allocate("card1-0")
    if why == "another kubelet":
        site.plugin.forget()
    if why == "another pod":
        site.others = {("ns", "other"): {"c": {I915: ("card0-0",)}}}
    asked = site.asked
    site.allocate("card1-0")
    assert (site.asked > asked) == (why != "believed")


@pytest.mark.parametrize("site", [{"pod": LocalPod("ns", "none", "u0", {}, (asking(1),))}], indirect=True)
def test_the_pod_after_one_that_was_refused_gets_its_own_tiles_of_the_same_devices(site: Site) -> None:
    """On a full node the kubelet asks for the last devices without asking which are preferred."""
    assert site.prefer("card1-0") == ["card1-0"]
    site.pod = planned("card1", "card1:gt1")
    assert dict(site.allocate("card1-0").envs)["ZE_AFFINITY_MASK"] == "1"


@pytest.mark.promise("O44")
def test_a_plugin_is_asked_while_a_call_lasts_and_for_a_moment_after_it(site: Site) -> None:
    assert not site.plugin.is_asked(90)
    during: list[bool] = []
    site.on_asked = lambda: during.append(site.plugin.is_asked(0))
    site.prefer("card1-0")
    assert during == [True]
    assert (site.plugin.is_asked(90), site.plugin.is_asked(0)) == (True, False)


def test_a_container_gets_files_paths_and_mask_of_its_card(site: Site) -> None:
    assert site.prefer("card0-0", "card1-0", "card1-1") == ["card1-0"]
    answer = site.allocate("card1-0")
    assert {spec.container_path: (spec.host_path, spec.permissions) for spec in answer.devices} == {
        path: (path, "rw") for path in ("/dev/dri/card1", "/dev/dri/renderD129")
    }
    assert [(mount.host_path, mount.read_only) for mount in answer.mounts] == [(LINK, True)]
    assert dict(answer.envs) == {
        "ZE_AFFINITY_MASK": "1",
        "ZE_FLAT_DEVICE_HIERARCHY": "FLAT",
        "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
    }


def test_the_answer_of_a_moment_ago_is_not_asked_for_again(site: Site) -> None:
    site.prefer("card1-0")
    asked = site.asked
    site.allocate("card1-0")
    assert site.asked == asked


def test_without_having_been_asked_before_the_devices_are_looked_up(site: Site) -> None:
    assert dict(site.allocate("card1-1").envs)["ZE_AFFINITY_MASK"] == "1"


@pytest.mark.promise("O25")
@pytest.mark.parametrize("before", [(), ("card1-0",)], ids=["unasked", "asked before"])
def test_other_devices_than_planned_are_refused_in_a_sentence(site: Site, before: tuple[str, ...]) -> None:
    if before:
        site.prefer(*before)
    with pytest.raises(grpc.RpcError) as error:
        site.allocate("card0-0")
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    message = error.value.details() or ""
    assert "pod ns/p: the kubelet gives card0-0, but the annotations name card1" in message


def test_a_card_that_failed_in_between_is_refused(site: Site) -> None:
    site.prefer("card1-0")
    site.cards[1] = card(1, problem="it does not answer on its bus")
    site.inventory.look()
    with pytest.raises(grpc.RpcError, match="card1 cannot be handed out: it does not answer on its bus"):
        site.allocate("card1-0")


def test_a_device_of_no_card_is_refused(site: Site) -> None:
    with pytest.raises(grpc.RpcError, match="the annotations name card1"):
        site.allocate("card9-0")


@pytest.mark.parametrize("site", [{"pod": planned("card2", monitoring=1)}], indirect=True)
def test_a_container_that_also_monitors_is_masked_to_its_own_card(site: Site) -> None:
    assert dict(site.allocate("card2-0").envs)["ZE_AFFINITY_MASK"] == "4,5"


def test_a_plan_may_name_cards_of_another_resource_for_another_container(kubelet: Kubelet) -> None:
    containers = (LocalContainer("c", {I915: 1}), LocalContainer("d", {XE: 1}))
    site = Site(kubelet, LocalPod("ns", "p", "uid", {"gas-container-cards": "card1|card5"}, containers))
    site.cards.append(LocalCard(5, XE, ("/dev/dri/card5",), tiles=2))
    site.inventory.look()
    site.register()
    assert site.prefer("card0-0", "card1-0") == ["card1-0"]
    assert [spec.host_path for spec in site.allocate("card1-0").devices] == list(card(1).nodes)
    site.registration.close()


def test_a_monitor_does_not_count_a_card_that_it_is_not_shown(kubelet: Kubelet) -> None:
    site = Site(kubelet, planned("card2", monitoring=1))
    site.cards[0] = card(0, problem="dead")
    site.inventory.look()
    site.register()
    assert dict(site.allocate("card2-0").envs)["ZE_AFFINITY_MASK"] == "2,3"
    site.registration.close()


@pytest.mark.parametrize("site", [{"pod": planned("card1", "card1:gt0", xe=1)}], indirect=True)
def test_tiles_beside_cards_of_another_resource_are_refused(site: Site) -> None:
    with pytest.raises(grpc.RpcError, match=r"asks for gpu\.intel\.com/i915 and gpu\.intel\.com/xe"):
        site.allocate("card1-0")


@pytest.mark.promise("O36")
@pytest.mark.parametrize("site", [{"pod": planned("card1"), "use_cdi": True}], indirect=True)
def test_where_cdi_is_asked_for_a_card_is_named_and_its_files_are_left_to_the_runtime(site: Site) -> None:
    answer = site.allocate("card1-0")
    assert [device.name for device in answer.cdi_devices] == ["topogate.io/gpu=card1"]
    assert not answer.devices
    assert not answer.mounts


@pytest.mark.promise("O36")
def test_the_cdi_file_describes_each_card(tmp_path: Path) -> None:
    assert cdi.keep(tmp_path, [card(1, links=(LINK,))]) == ""
    (file,) = tmp_path.iterdir()
    (device,) = json.loads(file.read_text())["devices"]
    assert device["name"] == "card1"
    assert device["containerEdits"]["deviceNodes"] == [{"path": p} for p in card(1).nodes]
    assert device["containerEdits"]["mounts"][0]["hostPath"] == LINK


@pytest.mark.promise("O240")
def test_a_monitor_sees_every_healthy_card_and_takes_none() -> None:
    inventory = Inventory(lambda: (card(0), card(1, problem="dead")))
    inventory.look()
    plugin = MonitoringPlugin(MONITORING, I915, Intel(Places()), inventory)
    assert [(device.ID, device.health) for device in plugin.devices()] == [("all", "Healthy")]
    assert plugin.allocate(["all"]).nodes == card(0).nodes
    assert not plugin.options().get_preferred_allocation_available


def test_a_folder_that_cannot_be_written_is_named_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    problem = cdi.keep(tmp_path / "file" / "cdi", [card(1)])
    assert f"the cards cannot be described in {tmp_path / 'file' / 'cdi'}" in problem
