"""The kind of docs/contributing/behaviour.md as it stands there."""

import re
import sys
from types import ModuleType
from typing import Any

import msgspec
import pytest

from hack.local.build import ROOT
from webhook.workloads.kinds import Workload

PAGE = ROOT / "docs/contributing/behaviour.md"


@pytest.fixture
def workload(monkeypatch: pytest.MonkeyPatch) -> Workload[Any]:
    """The row of the page, with the struct and the function of its example."""
    code, row = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    runs = ModuleType("runs")
    monkeypatch.setitem(sys.modules, "runs", runs)
    exec(code, vars(runs))
    made = eval(row, {"Workload": Workload, "runs": runs})
    assert isinstance(made, Workload)
    return made


def test_the_example_creates_its_workers_once_its_coordinator_runs(workload: Workload[Any]) -> None:
    owner = {"metadata": {"name": "x"}, "spec": {"workers": 3, "minWorkers": 2}}
    pods = workload.pods(msgspec.convert(owner, workload.struct))
    assert (pods.size, pods.minimum, pods.is_staged) == (4, 3, True)
    stages = [(each.name, each.stage, list(each.ranks)) for each in pods.sets]
    assert stages == [("x-coordinator", 0, [(0,)]), ("x-worker", 1, [(1,), (2,), (3,)])]
