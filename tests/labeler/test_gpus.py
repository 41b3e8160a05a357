"""What counts as a GPU, what its labels say, and which is broken, from trees that umockdev plays to udev."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labeler.contract.keys import GPU_PREFIX, INTEL_PREFIX
from tests.allocator.nvidia import inform
from tests.labeler.devices import WRAPPER, Card, Machine

pytestmark = [
    pytest.mark.umockdev,
    pytest.mark.skipif(WRAPPER is None, reason="umockdev is not installed (Debian: umockdev libumockdev0)"),
]

NVIDIA, AMD, INTEL = "0x10de", "0x1002", "0x8086"
VGA: dict[str, str | None] = {"class": "0x030000"}
DISPLAY: dict[str, str | None] = {"class": "0x038000"}
ACCELERATOR: dict[str, str | None] = {"class": "0x120000"}
LOST = {"config": "FF" * 64}

H100 = Card(0, NVIDIA, "0x2330", "nvidia", drm_card=False)
REAL_H100 = Card(
    0, NVIDIA, "0x2330", "nvidia", "pci0000:00/0000:00:06.0", drm_card=False,
    pci={
        "subsystem_vendor": "0x10de", "subsystem_device": "0x16c1", "revision": "0xa1", "numa_node": "-1",
        "power/runtime_status": "active", "power_state": "D0", "enable": "1",
    },
    binary={
        "config": "DE103023060410A1" "0002030000000000" "0C00000220100000" "0C00000000100000"
        "0C00000020100000" "00000000DE10C116" "0000000040000000" "00000000FF010000"
    },
)  # fmt: skip
"""What Linux 6.18 showed of a real H100 SXM5 in a guest without udevd, under the driver 580.159.04."""
RTX_4090 = Card(1, NVIDIA, "0x2684", "nvidia", pci=VGA, render_node=True)
MI300X = Card(2, AMD, "0x74a1", "amdgpu", pci=ACCELERATOR, render_node=True)
RAPHAEL = Card(
    3, AMD, "0x164e", "amdgpu", "pci0000:00/0000:00:08.1/0000:0c:00.0",
    pci=VGA | {"mem_info_vram_total": str(512 << 20)},
)  # fmt: skip
METEOR_LAKE = Card(
    4, INTEL, "0x7d55", "i915", "pci0000:00/0000:00:02.0", i915_tiles=2, pci=VGA, render_node=True
)
FLEX = Card(5, INTEL, "0x56c0", "i915", "pci0000:00/0000:00:05.0", pci=DISPLAY)
B580 = Card(6, INTEL, "0xe20b", "xe", xe_tiles=1, pci=VGA | {"tile0/physical_vram_size_bytes": str(12 << 30)})


def labels(*cards: Card, **options: Any) -> dict[str, str]:
    """The GPU labels of a machine with these cards, without their prefixes."""
    with Machine(*cards, **options) as machine:
        found = machine.labels()
    return {key.removeprefix(GPU_PREFIX).removeprefix(INTEL_PREFIX): value for key, value in found.items()}


@pytest.mark.promise("O300")
@pytest.mark.parametrize(
    "no_gpu",
    [
        Card(0, "0x15ad", "0x0405", "vmwgfx", render_node=True),
        Card(0, "0x1af4", "0x1050", "virtio-pci", below="virtio0", render_node=True),
        Card(0, "0x1b36", "0x0100", "qxl"),
        Card(0, "0x1234", "0x1111", "bochs-drm"),
        Card(0, "0x1414", "0x5353", "hyperv_drm", render_node=True),
        Card(0, "0x1a03", "0x2000", "ast"),
        Card(0, "0x102b", "0x0536", "mgag200"),
        Card(0, "0x19e5", "0x1711", "hibmc-drm"),
        Card(0, AMD, "0x515e", "radeon", render_node=True),
        Card(0, NVIDIA, "0x20b5", "nouveau", render_node=True),
        Card(0, INTEL, "0xa780", "", below="simple-framebuffer.0"),
        Card(0, NVIDIA, "0x2330", "nvidia", below="simple-framebuffer.0", pci={"class": "0x040300"}),
        Card(0, NVIDIA, "0x2330", "vfio-pci", drm_card=False),
        Card(0, AMD, "0x74a1", "vfio-pci", drm_card=False),
        Card(0, INTEL, "0x0bd5", "", drm_card=False),
    ],
    ids=[
        "VMware", "virtio", "QXL", "QEMU", "Hyper-V", "ASPEED", "Matrox", "Huawei", "a BMC on radeon",
        "nouveau", "the firmware's screen of a GPU without driver", "the firmware's screen of a sound card",
        "NVIDIA given to a guest", "AMD given to a guest", "Intel without driver",
    ],
)  # fmt: skip
def test_what_cannot_compute_is_no_gpu(no_gpu: Card) -> None:
    assert labels(no_gpu) == {}


@pytest.mark.promise("O300")
@pytest.mark.parametrize("gpu", [H100, RTX_4090, MI300X, FLEX, B580], ids=lambda card: card.device)
def test_what_its_vendors_driver_holds_is_a_gpu(gpu: Card) -> None:
    assert labels(gpu)["count"] == "1"


def test_a_real_h100_in_a_guest_is_labelled_as_it_was_there(tmp_path: Path) -> None:
    inform(tmp_path, "0000:00:06.0", 0)
    assert labels(REAL_H100, proc=str(tmp_path / "proc")) == {
        "count": "1", "has.H100-SXM5-80GB": "true", "model": "H100-SXM5-80GB", "vendor.nvidia": "1",
    }  # fmt: skip


def test_each_gpu_of_nvidia_is_asked_about_itself_once_a_look(tmp_path: Path) -> None:
    gpus = [replace(H100, number=number) for number in range(8)]
    for gpu in gpus:
        inform(tmp_path, gpu.pci_path.rpartition("/")[2], gpu.number)
    with Machine(*gpus, proc=str(tmp_path / "proc")) as machine:
        assert machine.labels()["gpu.topogate.io/count"] == "8"
        before = machine.opened()
        machine.gpus()
        after = machine.opened()
    files = [path for path in after if path.endswith("/information")]
    assert [after[path] - before[path] for path in files] == [1] * 8


def test_the_screen_that_the_firmware_left_beside_a_gpu_hides_nothing() -> None:
    screen = Card(9, NVIDIA, "0x2330", "nvidia", H100.pci_path.removeprefix("/devices/"), below="simple.0")
    assert labels(screen)["count"] == "1"


@pytest.mark.promise("O300")
@pytest.mark.parametrize(
    "gpu",
    [
        Card(0, NVIDIA, "0x20b5", "nouveau", render_node=True),
        Card(0, "0x15ad", "0x0405", "vmwgfx", render_node=True),
        Card(0, NVIDIA, "0x2330", "mine", drm_card=False),
        replace(FLEX, driver="vfio-pci", drm_card=False),
    ],
    ids=["of a known vendor", "of a hypervisor", "without a card", "of Intel without a card"],
)
def test_an_operator_adds_drivers_whose_devices_are_gpus(gpu: Card) -> None:
    assert labels(gpu, drivers=["nouveau", "vmwgfx", "mine", "vfio-pci"])["count"] == "1"


# --- integrated GPUs ------------------------------------------------------------------------------


@pytest.mark.promise("O300")
def test_an_integrated_gpu_beside_another_vendors_cards_neither_counts_nor_hides_their_model() -> None:
    found = labels(RAPHAEL, RTX_4090, replace(RTX_4090, number=7))
    assert (found["count"], found["model"]) == ("2", "GeForce-RTX-4090")


@pytest.mark.promise("O300")
@pytest.mark.parametrize(
    ("gpu", "integrated"),
    [
        (RAPHAEL, True),
        (METEOR_LAKE, True),
        (replace(METEOR_LAKE, pci=DISPLAY), True),
        (replace(RAPHAEL, pci=DISPLAY), True),
        (FLEX, False),
        (replace(FLEX, device="0xfff0"), False),
        (replace(FLEX, device="0xfff0", pci=VGA, drm={"lmem_total_bytes": "17179869184"}), False),
        (replace(B580, device="0xfff0", address="pci0000:00/0000:00:03.0"), False),
        (replace(RAPHAEL, device="0xfff0", pci=ACCELERATOR), False),
        (replace(RAPHAEL, device="0xfff0", pci=VGA | {"mem_info_vram_vendor": "hynix"}), False),
        (replace(RAPHAEL, device="0xfff0", pci=VGA | {"mem_info_vram_vendor": "unknown"}), True),
        (replace(MI300X, address="pci0000:00/0000:00:06.0"), False),
        (replace(RTX_4090, address="pci0000:00/0000:00:07.0"), False),
    ],
    ids=[
        "AMD behind a bridge", "Intel", "Intel that is not the first screen",
        "AMD that is not the first screen",
        "a known card in a guest", "a new card in a guest by its class", "by its memory on i915",
        "by its memory on xe", "an AMD accelerator by its class", "an AMD card by its memory's maker",
        "AMD without memory of its own", "MI300X in a guest", "RTX 4090 in a guest",
    ],
)  # fmt: skip
def test_integrated_is_recognised_by_memory_id_and_class_and_not_by_the_bus(
    gpu: Card, integrated: bool
) -> None:
    with Machine(gpu) as machine:
        assert [each["integrated"] for each in machine.gpus()] == [integrated]
    assert (labels(gpu, ignore_integrated=True) == {}) is integrated


# --- tiles and memory ------------------------------------------------------------------------------


def test_the_media_part_of_an_integrated_gpu_is_no_tile() -> None:
    assert labels(METEOR_LAKE)["tiles"] == "1"


def test_the_memory_of_every_tile_counts_on_xe() -> None:
    assert labels(B580)["memory.max"] == str(12 << 30)
    two: dict[str, str | None] = {f"tile{tile}/physical_vram_size_bytes": str(64 << 30) for tile in range(2)}
    assert labels(Card(0, INTEL, "0x0bd5", "xe", xe_tiles=2, pci=two))["memory.max"] == str(128 << 30)


def test_the_configured_memory_is_for_discrete_cards_alone() -> None:
    silent = Card(0, INTEL, "0x56a0", "xe", xe_tiles=1)
    assert labels(METEOR_LAKE, memory_override_bytes=1000)["memory.max"] == "0"
    assert labels(METEOR_LAKE, silent, memory_override_bytes=1000)["memory.max"] == "1000"


# --- broken GPUs -----------------------------------------------------------------------------------


@pytest.mark.promise("O303")
@pytest.mark.parametrize(
    ("gpu", "named"),
    [
        (replace(H100, binary=LOST), "0000:03:00.0: it does not answer on its bus"),
        (replace(RTX_4090, binary=LOST), "0000:04:00.0 (card1): it does not answer on its bus"),
        (replace(MI300X, binary=LOST), "0000:05:00.0 (card2): it does not answer on its bus"),
        (replace(B580, binary=LOST), "0000:09:00.0 (card6): it does not answer on its bus"),
        (replace(MI300X, device_node=False), "it has no device node"),
        (replace(B580, device="rubbish"), "card6: "),
    ],
    ids=["NVIDIA", "NVIDIA with a card", "AMD", "Intel", "without a device node", "unreadable"],
)
def test_a_broken_gpu_is_not_counted_and_is_named_with_its_fault(gpu: Card, named: str) -> None:
    with Machine(gpu, replace(H100, number=20)) as machine:
        found, notes = machine.labels(), machine.annotations()
    assert found["gpu.topogate.io/count"] == "1"
    assert found["gpu.topogate.io/broken"] == "1"
    assert named in notes["labeler.topogate.io/broken-gpus"]


def test_a_gpu_whose_virtual_functions_serve_is_left_out_and_not_broken() -> None:
    assert "broken" not in labels(replace(FLEX, pci={"sriov_numvfs": "2"}), H100)


def virtual(number: int, driver: str, of: Card) -> Card:
    """A virtual function of a card; 10 and more for number."""
    address = f"pci0000:00/0000:00:01.0/0000:{number:02x}:00.4"
    drm = of.vendor != NVIDIA and driver != "vfio-pci"
    of = replace(of, number=number, driver=driver, address=address, drm_card=drm, pci={}, physical=PHYSICAL)
    return replace(of, binary={"config": "FFFFFFFF0604" + "00" * 58})  # the ids of a real one read as ones


PHYSICAL = "0000:03:00.0"
HOST = replace(H100, pci={"sriov_numvfs": "4", "sriov_totalvfs": "20"})
HOST_OF_INTEL = Card(0, INTEL, "0x56c0", "i915", pci={"sriov_numvfs": "2"})
HOST_OF_AMD = replace(MI300X, number=0, driver="gim", drm_card=False, render_node=False, pci=ACCELERATOR)
MEDIATED = Card(
    0, NVIDIA, "0x1eb8", "nvidia", drm_card=False, pci={"mdev_supported_types/nvidia-222/name": "GRID T4-1B"}
)


@pytest.mark.promise("O300")
@pytest.mark.parametrize(
    ("cards", "count"),
    [
        ((HOST, *(virtual(10 + number, "nvidia", HOST) for number in range(4))), None),
        ((HOST, *(virtual(10 + number, "vfio-pci", HOST) for number in range(4))), None),
        ((replace(HOST, driver="vfio-pci"), virtual(10, "nvidia", HOST)), None),
        ((replace(HOST, pci={}), virtual(10, "nvidia", HOST)), "1"),
        ((HOST, virtual(10, "nvidia", HOST), replace(H100, number=20)), "1"),
        ((MEDIATED,), None),
        ((HOST_OF_INTEL, virtual(10, "i915", HOST_OF_INTEL), virtual(11, "i915", HOST_OF_INTEL)), "2"),
        ((HOST_OF_INTEL, virtual(10, "vfio-pci", HOST_OF_INTEL)), None),
        ((HOST_OF_AMD, virtual(10, "vfio-pci", MI300X)), None),
        ((HOST_OF_AMD, virtual(10, "amdgpu", MI300X)), "1"),
    ],
    ids=[
        "vGPU: the driver holds all", "vGPU: virtual functions given to guests",
        "vGPU: the physical function given to a guest", "a virtual function that its host does not report",
        "vGPU beside a whole GPU", "vGPU by mediated devices", "Intel's virtual functions",
        "Intel's given to guests", "AMD's given to guests", "AMD's virtual functions",
    ],
)  # fmt: skip
def test_of_a_gpu_that_is_divided_only_what_containers_can_use_is_counted(
    cards: tuple[Card, ...], count: str | None
) -> None:
    found = labels(*cards)
    assert found.get("count") == count
    assert count is not None or found.keys() <= {"tiles"}
    assert "broken" not in found


def test_a_gpu_that_its_driver_excludes_is_not_counted(tmp_path: Path) -> None:
    inform(tmp_path, "0000:03:00.0", 0, excluded="Yes")
    inform(tmp_path, "0000:04:00.0", 1)
    found = labels(H100, replace(H100, number=1), proc=str(tmp_path / "proc"))
    assert (found["count"], found["broken"]) == ("1", "1")


UNKNOWN = "GPU-????????-????-????-????-????????????"
"""What NVIDIA's driver writes for the UUID of a GPU that has not started."""


@pytest.mark.promise("O303")
@pytest.mark.parametrize("second", [UNKNOWN, ""], ids=["question marks", "an empty line"])
def test_a_gpu_that_does_not_start_beside_one_that_does_is_broken(tmp_path: Path, second: str) -> None:
    inform(tmp_path, "0000:03:00.0", 0)
    inform(tmp_path, "0000:04:00.0", 1, second)
    with Machine(H100, replace(H100, number=1), proc=str(tmp_path / "proc")) as machine:
        found, notes = machine.labels(), machine.annotations()
    assert (found["gpu.topogate.io/count"], found["gpu.topogate.io/broken"]) == ("1", "1")
    assert notes["labeler.topogate.io/broken-gpus"].startswith(
        "0000:04:00.0: its driver does not know its UUID"
    )


def test_gpus_that_nobody_has_used_since_the_start_are_not_broken(tmp_path: Path) -> None:
    for minor in range(2):
        inform(tmp_path, f"0000:0{3 + minor}:00.0", minor, UNKNOWN)
    found = labels(H100, replace(H100, number=1), proc=str(tmp_path / "proc"))
    assert (found["count"], found.get("broken")) == ("2", None)


@pytest.mark.promise("O303")
@pytest.mark.parametrize("gpu", [MI300X, FLEX, B580], ids=["amdgpu", "i915", "xe, as in survivability mode"])
def test_a_gpu_of_which_its_driver_makes_no_card_is_broken(gpu: Card) -> None:
    with Machine(replace(gpu, drm_card=False), H100) as machine:
        found, notes = machine.labels(), machine.annotations()
    assert (found["gpu.topogate.io/count"], found["gpu.topogate.io/broken"]) == ("1", "1")
    reported = notes["labeler.topogate.io/broken-gpus"]
    assert f": its driver {gpu.driver} has made no card of it" in reported
    assert reported.startswith("0000:")


# --- what is there, and not ours ---------------------------------------------------------------------


@pytest.mark.promise("W20")
def test_gpus_that_are_split_by_mig_are_reported(tmp_path: Path) -> None:
    for minor in range(2):
        inform(tmp_path, f"0000:0{3 + minor}:00.0", minor)
    (tmp_path / "proc/driver/nvidia/capabilities/gpu1/mig/gi3/ci0").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig").mkdir(parents=True)
    found = labels(H100, replace(H100, number=1), proc=str(tmp_path / "proc"))
    assert (found["count"], found["mig"]) == ("2", "1")


@pytest.mark.promise("W20")
@pytest.mark.parametrize(
    ("modes", "reported"),
    [(["CPX"] * 2, "CPX"), (["SPX", "CPX"], "mixed"), ([None, None], None)],
    ids=["alike", "not alike", "not told"],
)
def test_the_partition_modes_of_amds_gpus_are_labels(modes: list[str | None], reported: str | None) -> None:
    cards = [
        replace(MI300X, number=number, pci=ACCELERATOR | {"current_compute_partition": mode})
        for number, mode in enumerate(modes)
    ]
    assert labels(*cards).get("compute-partition") == reported


def test_amds_memory_partition_is_a_label_and_its_parts_are_no_further_gpus() -> None:
    whole = replace(MI300X, pci=ACCELERATOR | {"current_memory_partition": "NPS4"})
    part = Card(9, AMD, "0x74a1", "amdgpu", "platform/amdgpu_xcp_0", below="part", pci={"class": None})
    found = labels(whole, part)
    assert (found["memory-partition"], found["count"]) == ("NPS4", "1")


@pytest.mark.promise("W20")
def test_gaudi_is_reported_and_not_counted() -> None:
    cards = [
        Card(number, "0x1da3", "0x1060", "habanalabs", pci=ACCELERATOR, drm_card=False) for number in range(8)
    ]
    assert labels(*cards) == {"accelerator.gaudi3": "8"}
