"""The udev source against devices that umockdev plays to the real pyudev, libudev and kernel interfaces."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from labeler.contract.label_codecs import decode_cards, decode_numa_map, decode_pci_groups
from labeler.sources import Context, udev
from tests.labeler.devices import WRAPPER, Card, Machine

pytestmark = [
    pytest.mark.umockdev,
    pytest.mark.skipif(WRAPPER is None, reason="umockdev is not installed (Debian: umockdev libumockdev0)"),
]

INTEL = "gpu.intel.com/"
OURS = "gpu.topogate.io/"


def intel(labels: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix(INTEL): value for key, value in labels.items() if key.startswith(INTEL)}


def ours(labels: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix(OURS): value for key, value in labels.items() if key.startswith(OURS)}


def card(number: int, *, numa: int | None = None, memory: int | None = None, tiles: int = 1) -> Card:
    return Card(
        number,
        i915_tiles=tiles,
        pci={} if numa is None else {"numa_node": str(numa)},
        drm={} if memory is None else {"lmem_total_bytes": str(memory)},
    )


@pytest.mark.promise("W20")
def test_one_card_is_described_as_the_device_plugin_describes_it() -> None:
    with Machine(card(0, memory=8086)) as machine:
        expected = {
            "millicores": "1000",
            "memory.max": "8086",
            "cards": "card0",
            "gpu-numbers": "0",
            "tiles": "1",
        }
        assert intel(machine.labels()) == expected


def test_two_cards_are_counted_and_placed_on_their_numa_nodes() -> None:
    with Machine(card(0, numa=0, memory=100), card(1, numa=1, memory=100)) as machine:
        assert intel(machine.labels()) == {
            "gpu-numbers": "0.1",
            "cards": "card0.card1",
            "millicores": "2000",
            "memory.max": "200",
            "tiles": "2",
            "numa-gpu-map": "0-0_1-1",
        }
        assert ours(machine.labels()) == {
            "count": "2",
            "vendor.intel": "2",
            "model": "Arc-A770",
            "has.Arc-A770": "true",
        }


@pytest.mark.promise("W19")
def test_eight_two_tile_cards_sum_tiles_and_the_memory_of_every_tile() -> None:
    cards = [card(n, numa=n // 4, memory=64 << 30, tiles=2) for n in range(8)]
    with Machine(*cards) as machine:
        labels = machine.labels()
    assert intel(labels) | {"cards": ""} == {
        "gpu-numbers": "0.1.2.3.4.5.6.7",
        "cards": "",
        "millicores": "8000",
        "memory.max": str(8 * 2 * (64 << 30)),
        "tiles": "16",
        "numa-gpu-map": "0-0.1.2.3_1-4.5.6.7",
    }


def test_tiles_of_the_xe_driver_are_counted_without_their_gts() -> None:
    cards = [Card(n, driver="xe", xe_tiles=2) for n in range(3)]
    with Machine(*cards) as machine:
        assert intel(machine.labels())["tiles"] == "6"
        assert [gpu["driver"] for gpu in machine.gpus()] == ["xe"] * 3


def test_the_xe_driver_reports_no_memory_so_the_configured_amount_counts() -> None:
    with Machine(Card(0, driver="xe", xe_tiles=1), memory_override_bytes=16_000_000_000) as machine:
        assert intel(machine.labels())["memory.max"] == "16000000000"


def test_reserved_memory_is_left_out() -> None:
    with Machine(card(0, memory=8086), memory_reserved_bytes=86) as machine:
        assert intel(machine.labels())["memory.max"] == "8000"


def test_an_amount_of_memory_that_no_card_has_is_left_out_of_the_sum() -> None:
    with Machine(card(0, memory=2**63 - 1), card(1, memory=5)) as machine:
        assert intel(machine.labels())["memory.max"] == "5"


def test_a_machine_without_gpus_gets_no_labels() -> None:
    with Machine() as machine:
        assert machine.labels() == {}


@pytest.mark.promise("W19")
def test_twenty_seven_cards_fill_two_labels_and_all_read_back() -> None:
    with Machine(*[card(n, numa=n % 2) for n in range(27)], pci_group_level=3) as machine:
        labels = machine.labels()
    assert intel(labels)["gpu-numbers"] == "0.1.10.11.12.13.14.15.16.17.18.19.2.20.21.22.23.24.25.26.3.4.5"
    assert intel(labels)["gpu-numbers2"] == "Z.6.7.8.9"
    assert intel(labels)["cards"] == "card0.card1.card10.card11.card12.card13.card14.card15.card16.ca"
    assert decode_cards(labels) == tuple(range(27))
    assert decode_numa_map(labels) == {0: tuple(range(0, 27, 2)), 1: tuple(range(1, 27, 2))}
    assert decode_pci_groups(labels) == tuple((n,) for n in range(27))


@pytest.mark.promise("W20")
def test_intel_beside_another_vendor_keeps_the_kernels_card_numbers() -> None:
    nvidia = Card(0, vendor="0x10de", device="0x20b2", driver="nvidia", pci={"numa_node": "0"})
    with Machine(nvidia, card(1, numa=1)) as machine:
        labels = machine.labels()
    assert intel(labels).items() >= {"gpu-numbers": "1", "numa-gpu-map": "1-1", "millicores": "1000"}.items()
    assert ours(labels) == {
        "count": "2",
        "vendor.intel": "1",
        "vendor.nvidia": "1",
        "has.Arc-A770": "true",
        "has.A100-SXM4-80GB": "true",
    }


def test_another_vendor_alone_gets_no_intel_labels() -> None:
    with Machine(*[Card(n, vendor="0x10de", device="0x2330", driver="nvidia") for n in range(8)]) as machine:
        labels = machine.labels()
    assert intel(labels) == {}
    assert ours(labels).items() >= {"model": "H100-SXM5-80GB", "count": "8"}.items()


def test_nvidia_gpus_are_found_where_their_driver_makes_no_drm_devices() -> None:
    def bare(number: int, **more: str) -> Card:
        return Card(number, "0x10de", "0x2330", more.pop("driver", "nvidia"), pci=dict(more), drm_card=False)

    audio, passed_through = {"class": "0x040300"}, {"driver": "vfio-pci"}
    cards = [bare(0), bare(1), bare(2, **audio), bare(3, **passed_through), bare(4, sriov_numvfs="4")]
    with_drm = Card(5, "0x10de", "0x2330", "nvidia")
    with Machine(*cards, with_drm, card(6)) as machine:
        labels = machine.labels()
    assert ours(labels).items() >= {"vendor.nvidia": "3", "vendor.intel": "1", "count": "4"}.items()
    assert intel(labels)["gpu-numbers"] == "6"


def test_the_screen_of_a_management_controller_is_no_gpu() -> None:
    controller = Card(0, vendor="0x1a03", device="0x2000", driver="ast")
    with Machine(controller, card(1)) as machine:
        assert ours(machine.labels())["count"] == "1"


def test_an_unknown_vendor_that_can_render_is_counted_by_its_ids() -> None:
    with Machine(Card(0, vendor="0xfefe", device="0x0001", driver="new", render_node=True)) as machine:
        assert ours(machine.labels()) == {
            "count": "1",
            "vendor.pci-fefe": "1",
            "model": "pci-fefe-0001",
            "has.pci-fefe-0001": "true",
        }


@pytest.mark.promise("O304")
def test_a_database_renames_no_product_of_the_table_and_its_name_stays_beside_for_a_release() -> None:
    named = Card(0, properties={"ID_MODEL_FROM_DATABASE": "DG2 [Arc A770 16GB]"})
    with Machine(named) as machine:
        labels = ours(machine.labels())
    assert labels["model"] == "Arc-A770"
    assert labels.items() >= {"has.Arc-A770": "true", "has.Arc-A770-16GB": "true"}.items()


def test_the_hardware_database_names_what_the_table_does_not_list() -> None:
    new = Card(0, device="0xfff0", properties={"ID_MODEL_FROM_DATABASE": "New [Arc Z900 Rev. B]"})
    with Machine(new) as machine:
        assert ours(machine.labels())["model"] == "Arc-Z900"


def test_a_physical_function_is_left_out_while_it_has_virtual_ones() -> None:
    physical = Card(0, pci={"sriov_numvfs": "2"})
    with Machine(physical, card(1), card(2)) as machine:
        labels = intel(machine.labels())
        assert (labels["gpu-numbers"], labels["millicores"]) == ("1.2", "2000")
        assert "card0 is left out: it is an SR-IOV physical function with 2 virtual" in machine.complaints


def test_a_physical_function_without_virtual_ones_is_a_card() -> None:
    with Machine(Card(0, pci={"sriov_numvfs": "0"})) as machine:
        assert intel(machine.labels())["gpu-numbers"] == "0"


def test_a_machine_with_physical_functions_alone_reports_that_it_has_no_tiles() -> None:
    with Machine(Card(0, pci={"sriov_numvfs": "1"})) as machine:
        assert machine.labels() == {"gpu.intel.com/tiles": "0"}


def test_a_card_without_a_device_node_is_left_out_with_a_warning() -> None:
    with Machine(Card(0, device_node=False), card(1)) as machine:
        assert intel(machine.labels())["gpu-numbers"] == "1"
        assert "card0 is left out: it has no device node" in machine.complaints


def test_a_card_that_has_fallen_off_the_bus_is_left_out_as_the_allocator_leaves_it_out() -> None:
    dead = Card(0, binary={"config": "FF" * 64})
    with Machine(dead, Card(1, binary={"config": "8680A056" + "00" * 60})) as machine:
        assert intel(machine.labels())["gpu-numbers"] == "1"
        assert "card0 is left out: it does not answer on its bus" in machine.complaints


@pytest.mark.parametrize(
    "broken",
    [
        Card(0, vendor="rubbish"),
        Card(0, device=""),
        Card(0, pci={"vendor": None}),
        Card(0, pci={"device": None}),
    ],
    ids=["vendor garbage", "device empty", "vendor missing", "device missing"],
)
def test_a_card_whose_sysfs_is_broken_never_hides_the_others(broken: Card) -> None:
    with Machine(broken, card(1), card(2)) as machine:
        assert intel(machine.labels())["gpu-numbers"] == "1.2"
        assert "card0 is left out" in machine.complaints


def test_a_complaint_is_made_once_and_not_at_every_look() -> None:
    with Machine(Card(0, vendor="rubbish"), card(1)) as machine:
        for _ in range(3):
            machine.labels()
        assert machine.complaints.count("card0 is left out") == 1


@pytest.mark.parametrize("value", ["-1", "rubbish", "99999"])
def test_a_numa_node_that_is_none_leaves_the_card_out_of_the_map_alone(value: str) -> None:
    with Machine(Card(0, pci={"numa_node": value}), card(1, numa=0)) as machine:
        labels = intel(machine.labels())
    assert (labels["gpu-numbers"], labels["numa-gpu-map"]) == ("0.1", "0-1")


def test_an_integrated_gpu_is_a_card_but_does_not_blur_the_model() -> None:
    integrated = Card(0, device="0x46a6", address="pci0000:00/0000:00:02.0")
    with Machine(integrated, card(1, memory=7)) as machine:
        labels = machine.labels()
    assert intel(labels).items() >= {"gpu-numbers": "0.1", "memory.max": "7"}.items()
    assert ours(labels).items() >= {"model": "Arc-A770", "count": "2", "has.intel-46a6": "true"}.items()


def test_an_integrated_gpu_can_be_ignored() -> None:
    integrated = Card(0, device="0x46a6", address="pci0000:00/0000:00:02.0")
    with Machine(integrated, card(1), ignore_integrated=True) as machine:
        assert intel(machine.labels())["gpu-numbers"] == "1"


def test_the_memory_of_an_integrated_gpu_is_zero_and_that_is_reported() -> None:
    with Machine(Card(0, device="0x46a6", address="pci0000:00/0000:00:02.0")) as machine:
        assert intel(machine.labels())["memory.max"] == "0"


@pytest.mark.parametrize(
    ("level", "groups"),
    [(0, None), (1, "0.1.2"), (2, "0.1_2"), (3, "0_1_2"), (4, "0_1_2"), (5, "0_1_2"), (6, None)],
)
def test_cards_are_grouped_by_as_many_pci_ancestors_as_configured(level: int, groups: str | None) -> None:
    places = ["0000:3a:00.0/0000:3b:00.0", "0000:3a:00.0/0000:3c:00.0", "0000:4a:00.0/0000:4b:00.0"]
    cards = [Card(n, address=f"pci0000:3a/{place}") for n, place in enumerate(places)]
    with Machine(*cards, pci_group_level=level) as machine:
        assert intel(machine.labels()).get("pci-groups") == groups


# --- hot-plug -------------------------------------------------------------------------------------


def next_labels(
    machine: Machine, fits: Callable[[dict[str, str]], bool], seconds: float = 90
) -> dict[str, str]:
    """The first publication that fits. Fails if there is none in time."""
    deadline = time.monotonic() + seconds
    last: dict[str, str] | None = None
    while (left := deadline - time.monotonic()) > 0:
        labels = machine.published(left)
        if labels is not None and fits(labels):
            return labels
        last = labels or last
    raise AssertionError(f"no such labels within {seconds} s; the last were {last}")


@pytest.mark.parametrize("events", ["kernel", "udev"])
def test_a_card_that_is_plugged_in_or_pulled_out_is_labelled_without_waiting_for_the_interval(
    events: str,
) -> None:
    with Machine(card(0), events=events) as machine:
        machine.watch()
        next_labels(machine, lambda labels: decode_cards(labels) == (0,))
        machine.add(card(1))
        next_labels(machine, lambda labels: decode_cards(labels) == (0, 1))
        machine.remove(card(0))
        next_labels(machine, lambda labels: decode_cards(labels) == (1,))
        machine.remove(card(1))
        next_labels(machine, lambda labels: labels == {})


@pytest.mark.promise("O303")
def test_a_card_that_its_driver_gave_up_is_broken() -> None:
    with Machine(card(0)) as machine:
        machine.watch()
        next_labels(machine, lambda labels: decode_cards(labels) == (0,))
        machine.add(replace(card(1), reported={"WEDGED": "rebind,bus-reset"}))
        labels = next_labels(machine, lambda labels: labels.get("gpu.topogate.io/broken") == "1")
    assert decode_cards(labels) == (0,)


def test_what_happens_before_the_monitor_listens_is_seen_once_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It starts beside the first look, on a busy machine long after it; nothing more is heard here."""

    class Silent:
        def filter_by(self, _: str) -> None: ...

        def start(self) -> None: ...

        def poll(self, timeout: float) -> None:
            assert looked.wait(90), "nobody was told to look"
            stop.set()

    looked, stop = threading.Event(), threading.Event()
    monkeypatch.setattr("pyudev.Context", lambda: None)
    monkeypatch.setattr("pyudev.Monitor.from_netlink", lambda *_, **__: Silent())
    udev.create({}, Context("n1")).watch(looked.set, stop)
    assert looked.is_set()
