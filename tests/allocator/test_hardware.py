"""The command for a machine with real NVIDIA GPUs, on played files of the driver and of PCI."""

import json
import os
import stat
from pathlib import Path

import pytest

from hack import hardware
from labeler.allocator.vendors import Places
from tests.allocator.nvidia import ADDRESSES, inform

H100 = "0x2330"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Four GPUs, two below each of two processors, whose driver is loaded."""
    if os.geteuid() != 0:
        pytest.skip("device files are root's to make")
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    for minor, address in enumerate(ADDRESSES):
        real = tmp_path / "sys/devices" / ("pci0000:15" if minor < 2 else "pci0000:95") / address
        real.mkdir(parents=True)
        (devices / address).symlink_to(real)
        (real / "config").write_bytes(b"\xde\x10" + b"\x00" * 62)
        for name, text in (("vendor", "0x10de"), ("device", H100), ("class", "0x030200"), ("numa_node", "0")):
            (real / name).write_text(f"{text}\n")
        inform(tmp_path, address, minor)
        os.mknod(tmp_path / f"dev/nvidia{minor}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return tmp_path


def places(machine: Path) -> Places:
    return Places(machine / "sys", machine / "dev", machine / "proc")


def test_it_names_each_gpu_beside_what_the_driver_reports(machine: Path) -> None:
    found = hardware.report(places(machine), None)
    assert [gpu["address"] for gpu in found["gpus"]] == ADDRESSES
    assert {gpu["driver's name"] for gpu in found["gpus"]} == {"NVIDIA H100 80GB HBM3"}
    assert all(gpu["name in labels"].startswith("H100") for gpu in found["gpus"])


def test_it_names_the_cards_that_the_allocator_would_choose(machine: Path) -> None:
    chosen = hardware.report(places(machine), None)["chosen"]
    assert chosen["2"] in ([0, 1], [2, 3])
    assert chosen["4"] == [0, 1, 2, 3]


def test_a_card_that_the_driver_does_not_hold_or_that_is_ill_is_a_fault(machine: Path) -> None:
    (machine / "proc/driver/nvidia/gpus" / ADDRESSES[3] / "information").unlink()
    (machine / "proc/driver/nvidia/gpus" / ADDRESSES[3]).rmdir()
    (machine / "dev/nvidia0").unlink()
    faults = " ".join(hardware.report(places(machine), None)["faults"])
    assert f"{ADDRESSES[3]}: the driver holds no such GPU" in faults
    assert f"{ADDRESSES[0]}: its device file /dev/nvidia0" in faults


def test_no_serial_number_or_uuid_is_in_the_report(machine: Path) -> None:
    (machine / "dev/nvidia0").unlink()
    assert "GPU-0-x" not in json.dumps(hardware.report(places(machine), None))


def test_the_command_prints_the_report_and_what_to_do_with_it(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = hardware.main([f"--{name}={machine / name}" for name in ("sys", "dev", "proc")])
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["gpus"]) == 4
    assert "send the JSON above back" in printed.err
    assert status == ("FAULT: " in printed.err), "the labels are those of the machine that tests it"


def test_a_machine_without_a_gpu_is_reported_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = hardware.main([f"--{name}={tmp_path}" for name in ("sys", "dev", "proc")])
    assert status == 2
    assert "no NVIDIA GPU is on this machine's PCI bus" in capsys.readouterr().err
