"""A played NVIDIA driver: it writes into /proc what the driver 580.159.04 wrote of a real H100 SXM5."""

from pathlib import Path

ADDRESSES = ["0000:18:00.0", "0000:2a:00.0", "0000:98:00.0", "0000:aa:00.0"]
"""Two cards below one processor, two below the other."""

INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 41
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.da.00.0c
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t {address}
Device Minor: \t {minor}
GPU Firmware: \t 580.159.04
GPU Excluded:\t {excluded}
"""
"""All that it wrote, byte for byte, but for what differs between cards."""


def inform(folder: Path, address: str, minor: int, uuid: str | None = None, excluded: str = "No") -> Path:
    """Write what the driver reports of a GPU below folder/proc; returns the file."""
    file = folder / "proc/driver/nvidia/gpus" / address / "information"
    file.parent.mkdir(parents=True, exist_ok=True)
    name = f"GPU-{minor}-x" if uuid is None else uuid
    file.write_text(INFORMATION.format(uuid=name, address=address, minor=minor, excluded=excluded))
    return file
