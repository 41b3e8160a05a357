"""A pytest plugin: a test of a cluster that fails is run once more, by itself, after all others.

Controllers and schedulers of a loaded machine are late now and then. If such a test passes when it is run
alone, in a process and with a control plane of its own, it is named as flaky, and the run passes. More than
MOST_RETRIED of them are no bad luck: the run fails, and none is run again. Tests without a cluster never are.

A flaky test is on record until its file changes, in `flaky.json` in topogate's cache folder. The run that
finds it there for the MOST_RUNSth time fails, whether the test passes or not.

`hack/test` loads it for whole runs. Where tests were chosen, the first failure is what one wants to see.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pytest

from hack.local.build import cache_folder

MOST_RETRIED: Final = 3
MOST_RUNS: Final = 10
MARKERS: Final = ("cluster", "node")
_RETRIED: Final = ("retried", True)
"""The property of a report that its test is one of a cluster: xdist's workers hand it on."""


@dataclass
class Retries:
    """What became of the tests that were run again, and sentences for the last lines of the run."""

    flaky: list[pytest.TestReport] = field(default_factory=list)
    """First failures of tests that passed then."""
    failed_again: dict[str, str] = field(default_factory=dict)
    """What pytest printed about the others, by their node ids."""
    sentences: list[str] = field(default_factory=list)


class _Flaky(msgspec.Struct, frozen=True):
    digest: str
    """Of the test's file when it was flaky."""
    runs: int = 0
    """How many runs there have been since."""


class _Record(msgspec.Struct, frozen=True):
    tests: dict[str, _Flaky] = {}


_RETRIES: Final = pytest.StashKey[Retries]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note in the report whether the test needs a cluster: its keywords also hold the names of folders."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if any(item.get_closest_marker(name) for name in MARKERS):
        report.user_properties.append(_RETRIED)
    return report  # type: ignore[return-value]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Run failed tests of a cluster again. By now xdist's workers and their control planes have ended."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    finished = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    stopped = session.shouldfail or session.shouldstop or not finished
    if reporter is None or stopped or hasattr(config, "workerinput"):
        return
    retries = config.stash[_RETRIES] = Retries()
    _retry(session, reporter, retries)
    unmended = _record([report.nodeid for report in retries.flaky], config.rootpath)
    retries.sentences.extend(unmended)
    if unmended:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _retry(session: pytest.Session, reporter: pytest.TerminalReporter, retries: Retries) -> None:
    """Run failed tests of a cluster again, unless they are too many."""
    config, failures = session.config, _first_failures(reporter)
    if not failures:
        return
    if len(failures) > MOST_RETRIED:
        retries.sentences.append(
            f"{len(failures)} tests of a cluster failed. None was run again: "
            f"more than {MOST_RETRIED} such failures are not taken for bad luck."
        )
        return
    reporter.line("")
    for failure in failures:
        reporter.write_line(f"Running {failure.nodeid} once more, by itself ...")
        output = _output_of_failure(failure.nodeid, config.rootpath)
        if output is None:
            retries.flaky.append(failure)
            retries.sentences.append(
                f"FLAKY {failure.nodeid}: passed when it was run again, but failed first: {_message(failure)}"
            )
        else:
            retries.failed_again[failure.nodeid] = output
    _count_as_passed(reporter, retries.flaky)
    if "failed" not in reporter.stats and "error" not in reporter.stats:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Iterator[None]:
    """Print what failed of flaky tests, how others failed again, and at the very end a line for each."""
    yield
    retries = config.stash.get(_RETRIES, Retries())
    for report in retries.flaky:
        terminalreporter.section(f"failed first: {report.nodeid}")
        terminalreporter.line(report.longreprtext)
        for title, text in report.sections:
            terminalreporter.line(f"{title}:\n{text}")
    for nodeid, output in retries.failed_again.items():
        terminalreporter.section(f"failed again: {nodeid}")
        terminalreporter.line(output)
    for sentence in retries.sentences:
        terminalreporter.line(sentence, yellow=True)


def _record(flaky: Sequence[str], root: Path) -> list[str]:
    """Note flaky tests, and count this run for those noted before.

    Returns a sentence for each that has been noted for too long. A test whose file has changed counts as
    mended.
    """
    path = cache_folder() / "flaky.json"
    record = _Record()
    if path.exists():
        record = msgspec.json.decode(path.read_bytes(), type=_Record)
    noted = {}
    for nodeid, entry in record.tests.items():
        if entry.digest == _digest(nodeid, root):
            noted[nodeid] = msgspec.structs.replace(entry, runs=entry.runs + 1)
    for nodeid in flaky:
        noted.setdefault(nodeid, _Flaky(_digest(nodeid, root)))
    if noted != record.tests:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(_Record(noted))))
    return [
        f"UNMENDED {nodeid}: flaky {entry.runs} runs ago, and its file is still the same. "
        "Change the test so that it cannot race."
        for nodeid, entry in noted.items()
        if entry.runs >= MOST_RUNS
    ]


def _digest(nodeid: str, root: Path) -> str:
    """The digest of a test's file; empty where it is gone."""
    path = root / nodeid.partition("::")[0]
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _first_failures(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    """The first failed report of each test of a cluster."""
    found: dict[str, pytest.TestReport] = {}
    for report in (*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())):
        if _RETRIED in map(tuple, getattr(report, "user_properties", ())):  # xdist makes lists of tuples
            found.setdefault(report.nodeid, report)
    return list(found.values())


def _output_of_failure(nodeid: str, root: Path) -> str | None:
    """Run one test in a process of its own. None if it passes, else what pytest printed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", nodeid]
    result = subprocess.run(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    closing = result.stdout.rstrip().rpartition("\n")[2]
    passed = result.returncode == 0 and re.search(r"\b1 passed\b", closing)  # and was not skipped
    return None if passed else result.stdout


def _message(report: pytest.TestReport) -> str:
    """The first line of what a failed test says."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    return str(text).strip().partition("\n")[0]


def _count_as_passed(reporter: pytest.TerminalReporter, flaky: list[pytest.TestReport]) -> None:
    """In pytest's closing line: they are passed, and named beside that; nothing of them is failed."""
    if not flaky:
        return
    nodeids = {report.nodeid for report in flaky}
    for key in ("failed", "error", "passed"):
        remaining = [report for report in reporter.stats.pop(key, ()) if report.nodeid not in nodeids]
        if key == "passed":
            remaining += flaky
        if remaining:
            reporter.stats[key] = remaining
    reporter.stats["flaky"] = flaky
