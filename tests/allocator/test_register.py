"""Registered with the kubelet through whatever happens to either, and never beside another plugin."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from labeler.allocator.devices import Inventory
from labeler.allocator.listing import ListingError, PodResources
from labeler.allocator.metrics import CONFLICT
from labeler.allocator.monitoring import MonitoringPlugin
from labeler.allocator.plugin_server import serve
from labeler.allocator.register import (
    COMPETITOR_SECONDS,
    LISTEN_SECONDS,
    LOOK_SECONDS,
    LockedError,
    Registration,
    lock,
    register,
    remove_leftovers,
)
from labeler.allocator.values import LocalCard
from labeler.allocator.vendors import Places
from labeler.allocator.vendors.intel import Intel
from labeler.allocator.wire import deviceplugin_pb2 as plugin_wire
from labeler.allocator.wire import podresources_pb2 as wire
from tests.allocator.conftest import Kubelet

I915 = "gpu.intel.com/i915"
MONITORING = f"{I915}_monitoring"
OTHER_PLUGIN = "gpu.intel.com-i915_monitoring.sock"


class Site:
    """One plugin with its registration, turned by hand on a clock of its own."""

    def __init__(self, kubelet: Kubelet) -> None:
        self.cards: tuple[LocalCard, ...] = (LocalCard(0, I915, ()),)
        self.inventory = Inventory(lambda: self.cards)
        self.inventory.look()
        self.plugin = MonitoringPlugin(MONITORING, I915, Intel(Places()), self.inventory)
        self.resources = PodResources(kubelet.folder / "pod-resources" / "kubelet.sock")
        self.registration = Registration(self.plugin, kubelet.plugins, self.resources, (OTHER_PLUGIN,))
        self.now = 100.0

    def tick(self, seconds: float = 0.5) -> None:
        self.now += seconds
        self.registration.poll(self.now)

    def tick_until_listed(self, kubelet: Kubelet, lists: int) -> None:
        deadline = time.monotonic() + 90
        while len(kubelet.lists) < lists and time.monotonic() < deadline:
            self.tick()
            time.sleep(0.05)
        kubelet.wait_for_devices(lists)

    def wait_until_forgotten(self, kubelet: Kubelet, *, is_listened_to: bool = False) -> None:
        """Until the kubelet's book is empty: either end of a stream hears of its end for itself."""
        deadline = time.monotonic() + 90
        while kubelet.offers[MONITORING][1] or self.plugin.is_listened_to != is_listened_to:
            assert time.monotonic() < deadline, (kubelet.offers, self.plugin.is_listened_to)
            time.sleep(0.01)

    def close(self) -> None:
        self.registration.close()
        self.resources.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A played kubelet answers, however late; that it was stopped is known at once."""
    for attribute, name in (("listing", "CALL_SECONDS"), ("register", "REGISTER_SECONDS")):
        monkeypatch.setattr(f"labeler.allocator.{attribute}.{name}", 90.0)


@pytest.fixture
def site(kubelet: Kubelet) -> Iterator[Site]:
    made = Site(kubelet)
    yield made
    made.close()


def wait_for_an_answer(resources: PodResources) -> None:
    """Until the connection to a kubelet that was restarted stands again."""
    deadline = time.monotonic() + 90
    while True:
        try:
            resources.healthy(MONITORING)
            return
        except ListingError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def healthy(resource: str, *devices: str) -> wire.AllocatableResourcesResponse:
    listed = [wire.ContainerDevices(resource_name=resource, device_ids=[each]) for each in devices]
    return wire.AllocatableResourcesResponse(devices=listed)


def test_the_kubelet_learns_the_resource_and_its_devices(kubelet: Kubelet, site: Site) -> None:
    site.tick()
    assert kubelet.wait_for_devices(1) == {"all": "Healthy"}
    (request,) = kubelet.registered
    assert (request.version, request.resource_name) == ("v1beta1", MONITORING)
    assert site.registration.problem == ""


def test_what_is_registered_is_not_registered_again(kubelet: Kubelet, site: Site) -> None:
    site.tick()
    kubelet.wait_for_devices(1)
    for _ in range(20):
        site.tick(5)
    assert len(kubelet.registered) == 1


def test_while_it_is_registered_the_kubelets_book_is_looked_at_every_few_seconds_alone(
    kubelet: Kubelet, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.tick()
    kubelet.wait_for_devices(1)
    looks: list[float] = []

    def book(_: str) -> frozenset[str]:
        looks.append(site.now)
        return frozenset({"all"})

    monkeypatch.setattr(site.resources, "healthy", book)
    for _ in range(100):
        site.tick(0.2)
    assert 3 <= len(looks) <= 5


@pytest.mark.promise("O49")
def test_without_cards_nothing_is_offered_until_one_comes(kubelet: Kubelet, site: Site) -> None:
    other = Site(kubelet)
    other.inventory = Inventory(lambda: other.cards)
    other.cards = ()
    other.plugin = MonitoringPlugin(MONITORING, I915, Intel(Places()), other.inventory)
    other.registration = Registration(other.plugin, kubelet.plugins, other.resources)
    other.inventory.look()
    other.tick()
    assert not kubelet.registered
    assert other.registration.problem == ""
    other.cards = (LocalCard(0, I915, ()),)
    other.inventory.look()
    other.tick()
    kubelet.wait_for_devices(1)
    other.close()


@pytest.mark.promise("O44")
def test_after_the_kubelets_restart_it_is_registered_again_on_a_new_socket(
    kubelet: Kubelet, site: Site
) -> None:
    site.tick()
    kubelet.wait_for_devices(1)
    kubelet.stop()
    kubelet.start()
    site.tick_until_listed(kubelet, 2)
    first, *_, last = (request.endpoint for request in kubelet.registered)
    assert first != last
    assert not (kubelet.plugins / first).exists()


def test_a_stream_that_breaks_off_is_started_again_at_the_next_tick(kubelet: Kubelet, site: Site) -> None:
    site.tick()
    kubelet.wait_for_devices(1)
    kubelet.streams.pop().close()  # the kubelet lives, its sockets stay
    site.wait_until_forgotten(kubelet)
    site.tick()
    kubelet.wait_for_devices(2)
    assert len(kubelet.registered) == 2


def test_a_kubelet_that_is_registered_with_is_given_time_to_list(kubelet: Kubelet, site: Site) -> None:
    """Also one that has listened before: else each look would register once more."""
    site.tick()
    kubelet.wait_for_devices(1)
    kubelet.is_deaf = True
    kubelet.streams.pop().close()
    site.wait_until_forgotten(kubelet)
    for _ in range(5):
        site.tick()
    assert len(kubelet.registered) == 2
    site.tick(LISTEN_SECONDS)
    assert len(kubelet.registered) == 3


def test_a_kubelet_that_is_away_or_refuses_is_asked_again(kubelet: Kubelet, site: Site) -> None:
    kubelet.refuses = True
    site.tick()
    assert "does not take the registration: UNKNOWN: no" in site.registration.problem
    kubelet.stop()
    site.tick()
    assert site.registration.problem
    kubelet.refuses = False
    kubelet.start()
    site.tick_until_listed(kubelet, 1)
    assert site.registration.problem == ""


@pytest.mark.promise("O35")
def test_a_resource_that_another_plugin_offers_is_left_to_it(kubelet: Kubelet, site: Site) -> None:
    kubelet.allocatable = healthy(MONITORING, "all")
    for _ in range(30):
        site.tick(1)
    assert not kubelet.registered
    assert "a plugin with 1 devices offers" in site.registration.problem
    kubelet.allocatable = healthy("example.com/other", "all")
    site.tick_until_listed(kubelet, 1)


def test_own_devices_of_before_a_restart_are_no_other_plugins_once_the_kubelet_drops_them(
    kubelet: Kubelet, site: Site
) -> None:
    kubelet.allocatable = healthy(MONITORING, "all")
    site.tick()
    assert not kubelet.registered
    pause = site.registration.pause(site.now)
    assert pause < LOOK_SECONDS, "it drops them within milliseconds"
    kubelet.allocatable = healthy(MONITORING)
    site.tick(pause)
    kubelet.wait_for_devices(1)
    assert site.registration.pause(site.now) == LOOK_SECONDS


@pytest.mark.parametrize("file_stays", [True, False])
def test_a_kubelet_that_did_not_answer_meanwhile_makes_no_other_plugin_of_old_devices(
    kubelet: Kubelet, site: Site, file_stays: bool
) -> None:
    """How long the devices of others stay is counted again: they may be our own, of before a restart."""
    CONFLICT.labels(MONITORING).set(0)
    kubelet.allocatable = healthy(MONITORING, "all")
    site.tick()
    kubelet.stop()
    if file_stays:
        (kubelet.plugins / "kubelet.sock").touch()
    site.tick(COMPETITOR_SECONDS)
    (kubelet.plugins / "kubelet.sock").unlink(missing_ok=True)
    kubelet.start()
    wait_for_an_answer(site.resources)
    site.tick()
    assert CONFLICT.labels(MONITORING)._value.get() == 0
    site.tick(COMPETITOR_SECONDS)
    assert CONFLICT.labels(MONITORING)._value.get() == 1


@pytest.mark.promise("O35")
def test_the_vendors_plugin_is_known_by_its_socket_before_it_is_registered(
    kubelet: Kubelet, site: Site
) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(kubelet.plugins / OTHER_PLUGIN))
        listening.listen()
        site.tick()
        assert not kubelet.registered
        assert OTHER_PLUGIN in site.registration.problem
    site.tick()  # its file is left behind, and nobody answers on it
    kubelet.wait_for_devices(1)


def test_a_plugin_that_takes_the_resource_over_is_reported(kubelet: Kubelet, site: Site) -> None:
    site.tick()
    kubelet.wait_for_devices(1)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(kubelet.plugins / OTHER_PLUGIN))
        listening.listen()
        site.tick(10)
        assert f"{OTHER_PLUGIN} took {MONITORING} over" in site.registration.problem
    site.tick(10)
    assert site.registration.problem == ""


class OtherPlugin(MonitoringPlugin):
    """Another plugin of the resource, under a socket's name that nobody knows."""

    def __init__(self, site: Site, *devices: str) -> None:
        super().__init__(MONITORING, I915, Intel(Places()), site.inventory)
        self._ids = devices

    def devices(self) -> list[plugin_wire.Device]:
        return [plugin_wire.Device(ID=each, health="Healthy") for each in self._ids]


@pytest.mark.parametrize("devices", [("all",), ("other", "another")])
def test_after_a_second_plugin_has_come_and_gone_the_resource_is_ours_again(
    kubelet: Kubelet, site: Site, devices: tuple[str, ...]
) -> None:
    site.tick()
    kubelet.wait_for_devices(1)
    competitor = OtherPlugin(site, *devices)
    serving = serve(competitor, kubelet.plugins / "rival.sock")
    register(kubelet.plugins / "kubelet.sock", "rival.sock", competitor)
    kubelet.wait_for_devices(2)
    for _ in range(3):
        site.tick(6)
    taken = "took" in site.registration.problem
    assert taken == (devices != ("all",))  # with our own devices it cannot be distinguished from us
    serving.stop()
    site.wait_until_forgotten(kubelet, is_listened_to=True)
    site.tick_until_listed(kubelet, 3)  # a look may fail, or a stream end late, on a busy machine
    assert site.registration.problem == ""
    assert kubelet.offers[MONITORING][0] == kubelet.registered[-1].endpoint != "rival.sock"


@pytest.mark.promise("O44")
def test_a_kubelets_restart_right_after_a_look_at_other_plugins_is_not_waited_out(
    kubelet: Kubelet, site: Site
) -> None:
    site.tick()
    kubelet.wait_for_devices(1)
    site.tick(10)
    kubelet.stop()
    kubelet.start()
    site.wait_until_forgotten(kubelet)
    wait_for_an_answer(site.resources)
    site.tick(0.5)
    kubelet.wait_for_devices(2)


def test_a_health_change_is_sent_at_once(kubelet: Kubelet, site: Site) -> None:
    site.tick()
    kubelet.wait_for_devices(1)
    site.cards = (LocalCard(0, I915, (), problem="it does not answer on its bus"),)
    site.inventory.look()
    assert kubelet.wait_for_devices(2) == {"all": "Unhealthy"}


def test_two_allocators_of_one_vendor_never_serve_one_node(tmp_path: Path) -> None:
    with lock(tmp_path, "intel"), pytest.raises(LockedError, match="another allocator holds"):
        lock(tmp_path, "intel")
    lock(tmp_path, "intel").close()


def test_allocators_of_two_vendors_serve_one_node(tmp_path: Path) -> None:
    with lock(tmp_path, "intel"), lock(tmp_path, "nvidia"):
        pass


def test_what_a_killed_allocator_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    untouched = {"nvidia-gpu.sock", "topogate-intel.lock", "topogate-nvidia-gpu-1.sock"}
    for name in ("topogate-intel-i915-1.sock", *untouched):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path, "intel")
    assert {path.name for path in tmp_path.iterdir()} == untouched


def test_the_kubelets_list_is_read_by_pod_container_and_resource(kubelet: Kubelet, site: Site) -> None:
    def devices(resource: str, *ids: str) -> list[wire.ContainerDevices]:
        return [wire.ContainerDevices(resource_name=resource, device_ids=[each]) for each in ids]

    containers = [
        wire.ContainerResources(name="a", devices=devices(I915, "card0-0", "card1-3")),
        wire.ContainerResources(name="b"),
    ]
    pods = [wire.PodResources(name="p", namespace="ns", containers=containers)]
    kubelet.pods = wire.ListPodResourcesResponse(pod_resources=pods)
    assert site.resources.now() == {("ns", "p"): {"a": {I915: ("card0-0", "card1-3")}, "b": {}}}


@pytest.mark.parametrize(
    ("words", "expected"),
    [('pod "-" in namespace "-" not found', True), ("PodResources API Get method disabled", False)],
)
def test_an_old_kubelet_is_known_by_what_it_cannot_do(
    kubelet: Kubelet, site: Site, words: str, expected: bool
) -> None:
    kubelet.get_error = words
    assert site.resources.lists_the_living_alone() is expected


def test_a_kubelet_that_does_not_answer_is_named_with_its_socket(kubelet: Kubelet, site: Site) -> None:
    kubelet.stop()
    with pytest.raises(ListingError, match=r"pod-resources/kubelet\.sock does not answer"):
        site.resources.now()
