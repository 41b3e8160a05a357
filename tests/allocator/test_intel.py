"""The cards as the kernel shows them, in a folder instead of /sys and /dev."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from labeler.allocator.devices import Inventory
from labeler.allocator.vendors import Places
from labeler.allocator.vendors.intel import Intel
from tests.allocator.machine import MachineCard, plug, unplug

needs_root = pytest.mark.skipif("__import__('os').geteuid() != 0", reason="device files are root's to make")
pytestmark = needs_root

CARD = MachineCard(1, tiles=2, bus=0x3A)


@pytest.fixture
def intel(tmp_path: Path) -> Intel:
    plug(tmp_path, CARD)
    return Intel(Places(tmp_path / "sys", tmp_path / "dev"))


def pci(folder: Path) -> Path:
    return folder / "sys/devices/pci0000:00/0000:3a:00.0"


def test_a_card_has_its_files_tiles_address_and_resource(intel: Intel) -> None:
    (card,) = intel.cards()
    assert card.number == 1
    assert card.resource == "gpu.intel.com/i915"
    assert set(card.nodes) == CARD.nodes
    assert card.pci_address == "0000:3a:00.0"
    assert card.tiles == 2
    assert card.problem == ""


def test_cards_are_found_in_order_of_their_numbers_and_by_driver(intel: Intel, tmp_path: Path) -> None:
    plug(tmp_path, MachineCard(10, tiles=1, bus=1, driver="xe"))
    plug(tmp_path, MachineCard(2, tiles=1, bus=2))
    assert [(card.number, card.resource.rpartition("/")[2]) for card in intel.cards()] == [
        (1, "i915"),
        (2, "i915"),
        (10, "xe"),
    ]


def test_paths_by_pci_address_are_shown_where_they_are(intel: Intel, tmp_path: Path) -> None:
    folder = tmp_path / "dev/dri/by-path"
    folder.mkdir()
    (folder / "pci-0000:3a:00.0-render").symlink_to("../renderD129")
    assert intel.cards()[0].links == ("/dev/dri/by-path/pci-0000:3a:00.0-render",)


@pytest.mark.parametrize(
    ("file", "text"), [("vendor", "0x10de"), ("sriov_numvfs", "2")], ids=["another vendor", "SR-IOV parent"]
)
def test_what_is_no_card_for_containers_is_left_out(
    intel: Intel, tmp_path: Path, file: str, text: str
) -> None:
    (pci(tmp_path) / file).write_text(text)
    assert intel.cards() == ()


def test_a_card_whose_tiles_cannot_be_counted_is_unhealthy_and_hides_no_other(
    intel: Intel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for a card of one tile, it would be handed out without a mask for the tiles of a plan."""
    plug(tmp_path, MachineCard(2, tiles=2, bus=2))
    lists = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder.name == "gt" and folder.parent.name == "card2":
            raise OSError(errno.EMFILE, "Too many open files")
        return lists(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert {card.number: card.problem for card in intel.cards()} == {
        1: "",
        2: "its tiles cannot be counted: Too many open files",
    }


def test_a_gpu_of_the_processor_can_be_left_out_as_the_labeler_can(intel: Intel, tmp_path: Path) -> None:
    plug(tmp_path, MachineCard(0, tiles=1, bus=0))
    assert [card.number for card in intel.cards()] == [0, 1]
    without = Intel(Places(tmp_path / "sys", tmp_path / "dev", ignore_integrated=True))
    assert [card.number for card in without.cards()] == [1]


def test_the_media_part_of_a_gpu_of_the_processor_is_no_tile_here_as_in_the_labels(
    intel: Intel, tmp_path: Path
) -> None:
    plug(tmp_path, MachineCard(0, tiles=2, bus=0))
    assert [(card.number, card.tiles) for card in intel.cards()] == [(0, 1), (1, 2)]


def test_a_discrete_card_on_the_processors_bus_stays_when_others_are_left_out(
    intel: Intel, tmp_path: Path
) -> None:
    plug(tmp_path, MachineCard(0, tiles=1, bus=0))
    (tmp_path / "sys/devices/pci0000:00/0000:00:00.0/device").write_text("0x56c0\n")
    without = Intel(Places(tmp_path / "sys", tmp_path / "dev", ignore_integrated=True))
    assert [card.number for card in without.cards()] == [0, 1]


def test_an_unreadable_card_hides_no_other(intel: Intel, tmp_path: Path) -> None:
    plug(tmp_path, MachineCard(2, tiles=1, bus=2))
    (pci(tmp_path) / "vendor").unlink()
    assert [card.number for card in intel.cards()] == [2]


def test_a_card_whose_files_cannot_be_listed_is_unhealthy_and_not_hidden(
    intel: Intel, tmp_path: Path
) -> None:
    (pci(tmp_path) / "drm").rename(pci(tmp_path) / "elsewhere")
    (tmp_path / "sys/class/drm/card1").unlink()
    (tmp_path / "sys/class/drm/card1").symlink_to(pci(tmp_path) / "elsewhere/card1")
    assert [(card.number, card.problem) for card in intel.cards()] == [
        (1, "its device files cannot be listed")
    ]


@pytest.mark.promise("O49")
def test_a_card_without_its_device_file_is_unhealthy(intel: Intel, tmp_path: Path) -> None:
    (tmp_path / "dev/dri/renderD129").unlink()
    assert "renderD129 cannot be looked at: No such file" in intel.cards()[0].problem


def test_a_file_that_is_no_device_is_no_card_to_open(intel: Intel, tmp_path: Path) -> None:
    (tmp_path / "dev/dri/card1").unlink()
    (tmp_path / "dev/dri/card1").touch()
    assert intel.cards()[0].problem == "card1 is no device file"


@pytest.mark.promise("O49")
def test_a_card_that_fell_off_its_bus_is_unhealthy_unless_it_sleeps(intel: Intel, tmp_path: Path) -> None:
    (pci(tmp_path) / "config").write_bytes(b"\xff" * 64)
    assert intel.cards()[0].problem == "it does not answer on its bus"
    (pci(tmp_path) / "power").mkdir()
    (pci(tmp_path) / "power/runtime_status").write_text("suspended\n")
    assert intel.cards()[0].problem == ""


def test_no_more_is_read_from_a_card_than_its_ids(intel: Intel, tmp_path: Path) -> None:
    config = pci(tmp_path) / "config"
    config.unlink(missing_ok=True)
    os.mkfifo(config)
    end = os.open(config, os.O_RDWR | os.O_NONBLOCK)
    os.write(end, b"\x86\x80" + bytes(62))
    assert intel.cards()[0].problem == ""
    assert len(os.read(end, 4096)) == 60
    os.close(end)


def test_a_card_that_is_removed_stays_listed_as_unhealthy_until_it_is_back(
    intel: Intel, tmp_path: Path
) -> None:
    inventory = Inventory(intel.cards)
    inventory.look()
    unplug(tmp_path, CARD)
    inventory.look()
    assert inventory.cards()[0].problem == "it is gone"
    for path in (tmp_path / "sys/class/drm").iterdir():
        path.unlink()
    (tmp_path / "sys/class/drm/card1").symlink_to(pci(tmp_path) / "drm/card1")
    inventory.look()
    assert "cannot be looked at" in inventory.cards()[0].problem


@pytest.mark.promise("O49")
def test_a_card_that_its_driver_gave_up_is_unhealthy_until_it_is_bound_again(intel: Intel) -> None:
    inventory = Inventory(intel.cards)
    path = "/sys/devices/pci0000:00/0000:3a:00.0/drm/card1"
    inventory.wedged.update(path, "change", "rebind,bus-reset")
    inventory.look()
    assert inventory.cards()[0].problem == "its driver gave it up; to recover: rebind,bus-reset"
    inventory.wedged.update(f"{path}/card1-DP-1", "add", None)
    inventory.look()
    assert inventory.cards()[0].problem == "its driver gave it up; to recover: rebind,bus-reset"
    inventory.wedged.update(path, "add", None)
    inventory.look()
    assert inventory.cards()[0].problem == ""


def test_a_card_that_was_reset_and_works_stays_healthy(intel: Intel) -> None:
    inventory = Inventory(intel.cards)
    inventory.wedged.update("/sys/devices/pci0000:00/0000:3a:00.0/drm/card1", "change", "none")
    inventory.look()
    assert inventory.cards()[0].problem == ""
