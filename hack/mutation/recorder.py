"""A pytest plugin that notes which functions each test calls, and how long it takes.

What a fixture calls counts for all tests of its file: it may be made for the first and used by the others.
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

OUTPUT: Final = "TOPOGATE_CALLS"
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_called: set[tuple[str, int]] = set()
_of_files: dict[str, set[tuple[str, int]]] = defaultdict(set)
_of_tests: dict[str, set[tuple[str, int]]] = {}
_seconds: dict[str, float] = defaultdict(float)


def _note(frame: FrameType, event: str, _: object) -> None:
    if event == "call":
        code = frame.f_code
        if code.co_filename.startswith(_ROOT) and "/tests/" not in code.co_filename:
            _called.add((code.co_filename[len(_ROOT) + 1 :], code.co_firstlineno))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[Any]:
    """Begin to note calls."""
    _called.clear()
    threading.setprofile(_note)
    sys.setprofile(_note)
    began = time.monotonic()
    try:
        return (yield)
    finally:
        _seconds[item.nodeid] += time.monotonic() - began
        _of_files[item.nodeid.partition("::")[0]].update(_called)
        _called.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """Note the calls of the test itself."""
    began = time.monotonic()
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        _seconds[item.nodeid] += time.monotonic() - began
        _of_tests[item.nodeid] = set(_called)


def pytest_sessionfinish() -> None:
    """Write, for each function, its tests with their seconds."""
    tests: dict[str, dict[str, float]] = defaultdict(dict)
    for nodeid, called in _of_tests.items():
        for path, line in called | _of_files[nodeid.partition("::")[0]]:
            tests[f"{path}:{line}"][nodeid] = _seconds[nodeid]
    Path(os.environ[OUTPUT]).write_text(json.dumps(tests))
