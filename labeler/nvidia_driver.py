"""What NVIDIA's driver reports of a GPU in /proc; it makes no device in sysfs.

``driver/nvidia/gpus/ADDRESS/information`` has lines "Model: NVIDIA H100 80GB HBM3", "GPU Excluded: No";
``driver/nvidia/capabilities/gpuMINOR/mig`` has a folder for each MIG instance. Both are the kernel's own and
visible in every container. https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from labeler.pci import count, entries

_GPUS: Final = Path("driver/nvidia/gpus")
_LINE: Final = re.compile(r"^([A-Za-z ]+):[ \t]*(\S.*?)\s*$", re.MULTILINE)
_INSTANCE: Final = re.compile(r"gi[0-9]+")


def information(proc: Path, address: str) -> Mapping[str, str]:
    """What the driver reports of the GPU at a PCI address; {} where it reports nothing."""
    path = proc / _GPUS / address / "information"
    try:
        return dict(_LINE.findall(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}


def reports(proc: Path) -> dict[str, Mapping[str, str]]:
    """What the driver reports of each of its GPUs, by PCI address."""
    return {entry.name: information(proc, entry.name) for entry in entries(proc / _GPUS)}


def uuid(information: Mapping[str, str]) -> str:
    """The name by which its libraries know a GPU; "" while the driver does not know it.

    It writes question marks then, or no line. Data centre GPUs have it when the driver takes them, others
    when they are first used (RmGetGpuUuidRaw in the driver's source). One that does not start never has it.
    """
    value = information.get("GPU UUID", "")
    return "" if "?" in value else value


def driver_problem(information: Mapping[str, str]) -> str:
    """Why a GPU must not be used, by what its driver reports of it; "" if it may be."""
    return "its driver was told to exclude it" if information.get("GPU Excluded") == "Yes" else ""


def start_problem(reports: Mapping[str, Mapping[str, str]], address: str) -> str:
    """Why a GPU has not started; "" while no GPU of the node has, for then nobody may have used one yet."""
    has_failed = address in reports and not uuid(reports[address]) and any(map(uuid, reports.values()))
    return "its driver does not know its UUID, and does know that of another GPU here" if has_failed else ""


def has_mig_instances(proc: Path, information: Mapping[str, str]) -> bool:
    """Whether a GPU is split into MIG instances, which NVIDIA's own plugin hands out."""
    folder = proc / "driver" / "nvidia" / "capabilities" / f"gpu{information.get('Device Minor', '')}" / "mig"
    return count(folder, _INSTANCE) > 0
