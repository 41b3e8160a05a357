"""A played NVIDIA driver for the allocator's tests."""

from pathlib import Path

ADDRESSES = ["0000:18:00.0", "0000:2a:00.0", "0000:98:00.0", "0000:aa:00.0"]
"""Two cards below one processor, two below the other."""


def inform(folder: Path, address: str, minor: int, uuid: str | None = None, excluded: str = "No") -> Path:
    """Write what the driver tells of a GPU; returns the file."""
    file = folder / "proc/driver/nvidia/gpus" / address / "information"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid or f'GPU-{minor}-x'}\nBus Location: \t {address}\n"
        f"Device Minor: \t {minor}\nGPU Excluded:\t {excluded}\n"
    )
    return file
