"""What a running sweeper tells of itself: its log, its metrics and its memory."""

import re
import urllib.request
from pathlib import Path


def phases(log: Path) -> list[str]:
    """Of the last life in a log: the lines that tell when what was done."""
    lines = log.read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if "started server=" in line]
    words = ("started ", "leader_began", "synced ", "placed ")
    return [line for line in lines[starts[-1] if starts else 0 :] if any(word in line for word in words)]


def pass_seconds(port: int) -> dict[str, tuple[float, int]]:
    """Of each phase: seconds in all, and how often."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'^topogate_pass_seconds_(sum|count)\{phase="(\w+)"\} (\S+)$', text, re.MULTILINE)
    values = {(kind, phase): float(value) for kind, phase, value in found}
    return {
        phase: (values["sum", phase], int(values["count", phase])) for kind, phase in values if kind == "sum"
    }


def memory(pid: int) -> tuple[float, float]:
    """Resident and highest resident memory of a process in MB (10^6 bytes)."""
    status = Path(f"/proc/{pid}/status").read_text()
    values = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE))
    return int(values["VmRSS"]) * 1024 / 1e6, int(values["VmHWM"]) * 1024 / 1e6
