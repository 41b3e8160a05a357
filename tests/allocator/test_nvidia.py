"""Whole cards that sit close together."""

import os
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.allocator.devices import Inventory
from labeler.allocator.neighbours import closest, common_ancestors
from labeler.allocator.nvlinks import (
    ANSWER_SECONDS,
    LOOK_SECONDS,
    Links,
    NvLinks,
    address_of,
    handles_of,
    links_of,
)
from labeler.allocator.plugin import CardsPlugin
from labeler.allocator.vendors import Places
from labeler.allocator.vendors.nvidia import Nvidia
from tests.allocator.nvidia import ADDRESSES, inform

UNKNOWN = "GPU-????????-????-????-????-????????????"
"""What the driver writes for the UUID of a GPU that has not started."""


@pytest.fixture
def nvidia(tmp_path: Path) -> Nvidia:
    if os.geteuid() != 0:
        pytest.skip("device files are root's to make")
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    for minor, address in enumerate(ADDRESSES):
        root = "pci0000:15" if minor < 2 else "pci0000:95"
        real = tmp_path / "sys/devices" / root / address
        real.mkdir(parents=True)
        (devices / address).symlink_to(real)
        (real / "config").write_bytes(b"\xde\x10" + b"\x00" * 62)
        inform(tmp_path, address, minor)
        os.mknod(tmp_path / f"dev/nvidia{minor}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(tmp_path / "dev/nvidiactl", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return Nvidia(Places(tmp_path / "sys", tmp_path / "dev", tmp_path / "proc"), NvLinks(None))


def test_cards_are_listed_by_uuid_with_their_files(nvidia: Nvidia) -> None:
    cards = nvidia.cards()
    assert [(card.label, card.nodes, card.pci_address) for card in cards] == [
        (f"GPU-{minor}-x", (f"/dev/nvidia{minor}",), address) for minor, address in enumerate(ADDRESSES)
    ]
    assert not any(card.problem for card in cards)


def test_a_card_whose_device_file_is_gone_is_unhealthy(nvidia: Nvidia, tmp_path: Path) -> None:
    (tmp_path / "dev/nvidia1").unlink()
    assert ["nvidia1 cannot be looked at" in card.problem for card in nvidia.cards()] == [
        False, True, False, False,
    ]  # fmt: skip


def faults(nvidia: Nvidia) -> dict[str, str]:
    return {card.label: card.problem for card in nvidia.cards() if card.problem}


def test_cards_that_have_not_started_are_listed_one_by_one_by_their_pci_address(
    nvidia: Nvidia, tmp_path: Path
) -> None:
    for minor in (1, 3):
        inform(tmp_path, ADDRESSES[minor], minor, UNKNOWN)
    assert [card.label for card in nvidia.cards()] == ["GPU-0-x", ADDRESSES[1], "GPU-2-x", ADDRESSES[3]]
    assert faults(nvidia).keys() == {ADDRESSES[1], ADDRESSES[3]}
    assert all("does not know its UUID" in fault for fault in faults(nvidia).values())


@pytest.mark.promise("O49")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "its driver tells nothing of it"),
        ("Model: \t\t Unknown\nDevice Minor: \t 1\n", "its driver does not know its UUID"),
        ("GPU UUID: \t GPU-1-x\nGPU Excluded:\t No\n", "its driver does not tell its device file"),
    ],
    ids=["nothing", "no UUID", "no minor"],
)
def test_a_card_of_which_its_driver_reports_too_little_is_unhealthy_and_not_hidden(
    nvidia: Nvidia, tmp_path: Path, text: str, fault: str
) -> None:
    (tmp_path / "proc/driver/nvidia/gpus" / ADDRESSES[1] / "information").write_text(text)
    (reported,) = faults(nvidia).values()
    assert fault in reported
    assert len(nvidia.cards()) == 4


def test_a_card_whose_description_cannot_be_read_is_unhealthy(nvidia: Nvidia, tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia/gpus" / ADDRESSES[1] / "information").unlink()
    assert faults(nvidia) == {ADDRESSES[1]: "its driver tells nothing of it"}


@pytest.mark.promise("O49")
def test_a_card_that_its_driver_excludes_is_unhealthy(nvidia: Nvidia, tmp_path: Path) -> None:
    inform(tmp_path, ADDRESSES[1], 1, excluded="Yes")
    assert faults(nvidia) == {"GPU-1-x": "its driver was told to exclude it"}


@pytest.mark.promise("O49")
def test_a_card_that_fell_off_its_bus_is_unhealthy_though_its_driver_holds_it(
    nvidia: Nvidia, tmp_path: Path
) -> None:
    (tmp_path / "sys/bus/pci/devices" / ADDRESSES[1] / "config").write_bytes(b"\xff" * 64)
    assert faults(nvidia) == {"GPU-1-x": "it does not answer on its bus"}


@pytest.mark.promise("O49")
def test_a_card_that_is_split_into_mig_instances_is_not_handed_out_whole(
    nvidia: Nvidia, tmp_path: Path
) -> None:
    (tmp_path / "proc/driver/nvidia/capabilities/gpu1/mig/gi3").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/capabilities/gpu2/mig").mkdir(parents=True)
    assert faults(nvidia).keys() == {"GPU-1-x"}


@pytest.mark.promise("O300")
@pytest.mark.parametrize("part", ["sriov_numvfs", "physfn", "mdev_supported_types"])
def test_a_card_for_virtual_machines_is_left_out_here_as_in_the_labels(
    nvidia: Nvidia, tmp_path: Path, part: str
) -> None:
    device = tmp_path / "sys/bus/pci/devices" / ADDRESSES[1]
    (device / "vendor").write_text("0x10de\n")
    if part == "sriov_numvfs":
        (device / part).write_text("4\n")
    else:
        (device / part).mkdir()
    assert [card.pci_address for card in nvidia.cards()] == [ADDRESSES[0], *ADDRESSES[2:]]


@pytest.mark.promise("O49")
def test_a_card_with_the_minor_of_one_that_is_gone_is_listed_beside_it(
    nvidia: Nvidia, tmp_path: Path
) -> None:
    inventory = Inventory(nvidia.cards)
    inventory.look()
    shutil.rmtree(tmp_path / "proc/driver/nvidia/gpus" / ADDRESSES[0])
    inform(tmp_path, ADDRESSES[1], 0, "GPU-1-x")
    inventory.look()
    plugin = CardsPlugin("nvidia.com/gpu", nvidia, inventory, None, 1)
    assert {device.ID: device.health for device in plugin.devices()} == {
        "GPU-0-x-0": "Unhealthy", "GPU-1-x-0": "Healthy", "GPU-2-x-0": "Healthy", "GPU-3-x-0": "Healthy",
    }  # fmt: skip
    assert plugin.prefer(["GPU-1-x-0", "GPU-2-x-0"], [], 1) == ["GPU-1-x-0"]
    assert list(plugin.allocate(["GPU-1-x-0"]).nodes) == ["/dev/nvidia0", "/dev/nvidiactl"]


def test_a_card_that_starts_is_listed_by_its_name_alone_and_keeps_it(nvidia: Nvidia, tmp_path: Path) -> None:
    inform(tmp_path, ADDRESSES[1], 1, UNKNOWN)
    inventory = Inventory(nvidia.cards)
    inventory.look()
    assert ADDRESSES[1] in {card.label for card in inventory.cards()}
    inform(tmp_path, ADDRESSES[1], 1)
    inventory.look()
    assert [card.label for card in inventory.cards()] == [f"GPU-{minor}-x" for minor in range(4)]
    inform(tmp_path, ADDRESSES[1], 1, UNKNOWN)
    inventory.look()
    assert [card.label for card in inventory.cards() if card.problem] == ["GPU-1-x"]
    assert len(inventory.cards()) == 4


def test_of_two_cards_that_were_in_one_place_the_one_that_is_there_keeps_its_name(
    nvidia: Nvidia, tmp_path: Path
) -> None:
    inventory = Inventory(nvidia.cards)
    for uuid in ("GPU-old", "GPU-new", UNKNOWN):
        inform(tmp_path, ADDRESSES[0], 0, uuid)
        inventory.look()
    problems = {card.label: card.problem for card in inventory.cards()}
    assert problems["GPU-old"] == "it is gone"
    assert "does not know its UUID" in problems["GPU-new"]


def test_cards_below_one_processor_are_chosen_together(nvidia: Nvidia) -> None:
    cards = nvidia.cards()
    free = [f"GPU-{minor}-x-0" for minor in (0, 2, 3)]
    assert nvidia.default(cards, free, [], 2, {}) == ["GPU-2-x-0", "GPU-3-x-0"]
    assert nvidia.default(cards, free, ["GPU-0-x-0"], 2, {})[0] == "GPU-0-x-0"


def test_one_card_is_taken_from_where_it_parts_no_neighbours(nvidia: Nvidia) -> None:
    cards = nvidia.cards()
    free = [f"GPU-{minor}-x-0" for minor in (0, 2, 3)]
    assert nvidia.default(cards, free, [], 1, {}) == ["GPU-0-x-0"]


@pytest.mark.promise("O36")
def test_a_container_gets_its_cards_what_all_share_and_their_names(nvidia: Nvidia) -> None:
    cards = nvidia.cards()
    edits = nvidia.edits({cards[2]: (), cards[3]: ()}, (), None)
    assert edits.nodes == ("/dev/nvidia2", "/dev/nvidia3", "/dev/nvidiactl")
    assert edits.environment == {"NVIDIA_VISIBLE_DEVICES": "GPU-2-x,GPU-3-x"}
    assert nvidia.edits({cards[2]: ()}, (), None, use_cdi=True).cdi == ("nvidia.com/gpu=GPU-2-x",)


class Library:
    """NVML's functions for a machine of four; `remotes`: the other end of each link of each card.

    No card answers while `lost` has its index, and nothing while the library is not open or `is_away`.
    """

    NVML_NVLINK_MAX_LINKS = 4
    NVMLError = RuntimeError

    def __init__(self, *remotes: list[str]) -> None:
        self.remotes = remotes
        self.lost: set[int] = set()
        self.is_away = False
        self.opened = 0

    def nvmlInit(self) -> None:
        if self.is_away:
            raise RuntimeError("driver not loaded")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.remotes)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise RuntimeError("GPU is lost")
        return index

    def nvmlDeviceGetPciInfo(self, index: int) -> Any:
        return SimpleNamespace(busId=f"0000{ADDRESSES[index]}".upper().encode())

    def nvmlDeviceGetNvLinkState(self, index: int, link: int) -> int:
        if link >= len(self.remotes[index]):
            raise RuntimeError("no such link")
        return 1

    def nvmlDeviceGetNvLinkRemotePciInfo(self, index: int, link: int) -> Any:
        return SimpleNamespace(busId=f"0000{self.remotes[index][link]}".upper())


def look(library: Library, gpus: Sequence[str] = ()) -> Links:
    return links_of(library, handles_of(library), gpus)


@pytest.mark.promise("O36")
def test_direct_links_are_counted_once_for_a_pair() -> None:
    a, b, c, _ = ADDRESSES
    assert look(Library([b, b, c], [a, a], [a], [])) == {frozenset((a, b)): 2, frozenset((a, c)): 1}


def test_cards_on_switches_are_joined_with_each_other() -> None:
    switch = "0000:05:00.0"
    links = look(Library([switch] * 4, [switch] * 4, [switch] * 2, []))
    a, b, c, _ = ADDRESSES
    assert links == {frozenset((a, b)): 4, frozenset((a, c)): 2, frozenset((b, c)): 2}


def test_a_gpu_that_is_lost_hides_no_links_and_is_no_switch() -> None:
    a, b, c, d = ADDRESSES
    library = Library([b, d], [a, d], [d], [a, b, c])
    library.lost = {3}
    links = look(library, ADDRESSES)
    assert links[frozenset((a, b))] == 1
    assert frozenset((a, c)) not in links


@pytest.fixture
def clock() -> list[float]:
    """The time, in the first place."""
    return [0.0]


def test_links_that_come_up_late_are_seen_within_a_minute(clock: list[float]) -> None:
    a, b, *_ = ADDRESSES
    library = Library([], [], [], [])
    links = NvLinks(library, lambda: clock[0])
    assert links.now(ADDRESSES) == {}
    library.remotes = ([b], [a], [], [])
    clock[0] = LOOK_SECONDS
    assert links.now(ADDRESSES) == {frozenset((a, b)): 1}
    assert LOOK_SECONDS <= 60
    assert library.opened == 0


def test_a_look_that_fails_is_repeated_at_the_next_question(clock: list[float]) -> None:
    a, b, *_ = ADDRESSES
    library = Library([b], [a], [], [])
    library.is_away = True
    links = NvLinks(library, lambda: clock[0])
    assert links.now(ADDRESSES) == {}
    library.is_away = False
    assert links.now(ADDRESSES) == {frozenset((a, b)): 1}


def test_links_stay_known_while_the_library_does_not_answer(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    a, b, *_ = ADDRESSES
    library = Library([b], [a], [], [])
    links = NvLinks(library, lambda: clock[0])
    links.now(ADDRESSES)
    library.is_away = True
    for clock[0] in (LOOK_SECONDS, 2 * LOOK_SECONDS):
        assert links.now(ADDRESSES) == {frozenset((a, b)): 1}
    assert caplog.text.count("driver not loaded") == 1


class StuckLibrary(Library):
    """Does not answer until it may, as a driver in trouble."""

    def __init__(self, *remotes: list[str]) -> None:
        super().__init__(*remotes)
        self.asked = 0
        self.may_answer = threading.Event()

    def nvmlInit(self) -> None:
        self.asked += 1
        self.may_answer.wait()
        super().nvmlInit()


@pytest.mark.promise("O36")
def test_a_library_that_does_not_answer_holds_up_no_pod(caplog: pytest.LogCaptureFixture) -> None:
    a, b, *_ = ADDRESSES
    library = StuckLibrary([b], [a], [], [])
    links = NvLinks(library, answer_seconds=0.01)
    assert ANSWER_SECONDS <= 3
    assert [links.now(ADDRESSES) for _ in range(3)] == [{}] * 3
    assert library.asked == 1, "a second look would hang as well"
    assert caplog.text.count("does not answer within 0.01 s") == 1
    library.may_answer.set()
    deadline = time.monotonic() + 90
    while not links.now(ADDRESSES):
        assert time.monotonic() < deadline
    assert links.now(ADDRESSES) == {frozenset((a, b)): 1}


def test_a_gpu_that_the_library_does_not_see_is_named_once(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    library = Library([], [], [], [])
    library.lost = {1}
    links = NvLinks(library, lambda: clock[0])
    for clock[0] in (0.0, LOOK_SECONDS):
        links.now(ADDRESSES)
    assert caplog.text.count(f"does not see {ADDRESSES[1]}, so") == 1


def test_cards_that_are_linked_are_chosen_before_neighbours_on_the_bus(
    tmp_path: Path, nvidia: Nvidia
) -> None:
    a, _, c, _ = ADDRESSES
    linked = Nvidia(
        Places(tmp_path / "sys", tmp_path / "dev", tmp_path / "proc"),
        NvLinks(Library([c], [], [a], [])),
    )
    free = [f"GPU-{minor}-x-0" for minor in range(3)]
    assert linked.default(linked.cards(), free, [], 2, {}) == ["GPU-0-x-0", "GPU-2-x-0"]
    assert nvidia.default(nvidia.cards(), free, [], 2, {}) == ["GPU-0-x-0", "GPU-1-x-0"]


def test_without_nvidias_driver_its_real_library_leaves_the_choice_to_the_bus(nvidia: Nvidia) -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert NvLinks(pynvml).now(ADDRESSES) == {}
    else:
        pytest.skip("this machine has NVIDIA's driver")


def test_addresses_are_written_as_the_kernel_writes_them() -> None:
    assert address_of(b"00000000:3A:00.0") == "0000:3a:00.0"
    assert address_of("00010000:3A:00.0") == "10000:3a:00.0"


def test_common_ancestors_are_counted_from_the_root() -> None:
    assert common_ancestors(("a", "b", "c"), ("a", "b", "d", "c")) == 2
    assert common_ancestors(("a",), ("b", "a")) == 0


@pytest.mark.promise("O36")
@given(
    st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 2), min_size=1),
    st.integers(0, 7),
    st.data(),
)
def test_no_other_set_is_closer_and_of_equal_ones_none_leaves_the_others_closer(
    places: dict[str, int], size: int, data: st.DataObject
) -> None:
    must = data.draw(st.sets(st.sampled_from(sorted(places)), max_size=2))

    def close(a: str, b: str) -> int:
        return 5 if places[a] == places[b] else 1

    def together(cards: tuple[str, ...]) -> int:
        # An own count: within each place every pair is close, across places it is not.
        pairs = len(cards) * (len(cards) - 1) // 2
        near = sum(n * (n - 1) // 2 for n in Counter(places[card] for card in cards).values())
        return 5 * near + (pairs - near)

    chosen = closest(places, must, size, close)
    assert must <= set(chosen) <= set(places)
    assert len(chosen) == min(max(size, len(must)), len(places))
    others = [other for other in combinations(sorted(places), len(chosen)) if must <= set(other)]

    def value(cards: tuple[str, ...]) -> tuple[int, int]:
        return together(cards), together(tuple(places.keys() - must - set(cards)))

    assert value(tuple(chosen)) == max(map(value, others))
    assert chosen == list(min(other for other in others if value(other) == value(tuple(chosen))))
