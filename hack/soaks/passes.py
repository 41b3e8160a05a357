"""What came of the sweepers' passes: their steps end in time whatever waits, and none has a defect."""

import re
import urllib.request
from collections import Counter
from collections.abc import Iterable
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from hack.local.kubelet import Program
from hack.soaks.sweepers import LogLine

LONGEST_SECONDS: Final = 30
"""A bound of the histogram. A step takes less whatever waits, also where the API server is away meanwhile."""

_DEFECT: Final = re.compile(r"^\S+ ERROR webhook\.(?:sweeper|extensions)\S* (\w+_failed\b.*)")
"""A line of a log: the sweeper has gone on without a step, an extension or a gang."""


def defects(lines: Iterable[LogLine]) -> list[str]:
    """The defects that sweepers have logged, as sentences that begin with the time."""
    return [
        f"{line.at} {line.of} logged a defect: {found[1]}"
        for line in lines
        if (found := _DEFECT.search(line.text)) is not None
    ]


def long_steps(sweepers: Iterable[Program], excused: int = 0) -> list[str]:
    """Which steps took longer, since each of these was last started.

    excused: so many may have, as the API server was away for long: a busy machine starts it slowly.
    """
    found = [fault for program in sweepers for fault in over(_durations(program), program.log.stem)]
    return found if sum(int(fault.split()[0]) for fault in found) > excused else []


def over(durations: Metric, program: str) -> list[str]:
    """Which phases of the histogram have gone beyond the bound, as sentences."""
    within, all_of = Counter[str](), Counter[str]()
    for sample in durations.samples:
        if sample.name.endswith("_count"):
            all_of[sample.labels["phase"]] = int(sample.value)
        elif float(sample.labels.get("le", 0)) == LONGEST_SECONDS:
            within[sample.labels["phase"]] = int(sample.value)
    return [
        f"{count} times {program} took more than {LONGEST_SECONDS} s for {phase}"
        for phase, count in (all_of - within).items()
    ]


def _durations(program: Program) -> Metric:
    port = program.more[program.more.index("--metrics-port") + 1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return next(each for each in families if each.name == "topogate_pass_seconds")
