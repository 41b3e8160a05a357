"""Fixtures for all tests: a real control plane, made once a run and clean for each test.

Tests that ask for one of its fixtures carry the marker `cluster`; --no-cluster leaves them out and
the summary says so. Those of the real node (tests/node) carry `node` as well.
"""

import gc
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hack.local import native_gangs
from hack.local.build import kubernetes_version
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests import selection
from tests.support import clean, create_namespace, delete, delete_namespace, exists
from tests.workers import FilesInOrder, as_many_as_fit, begin_apart, order_for_workers

NEEDS_CLUSTER = ("control_plane", "own_cluster", "cluster", "module_cluster", "namespace", "opted_in")
NEEDS_NATIVE_GANGS = ("native_control_plane", "native_cluster", "native_jobs_cluster")
NEEDS_NODE = ("real_control_plane", "real_cluster")
THREAD_ENDS_SECONDS = 60.0

# gRPC's handlers of fork() may end a child before it becomes a program: its channels are closed by then.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
# The control planes of tests collect garbage less often: a quarter less CPU for a third of a GB more memory.
os.environ.setdefault("GOGC", "400")
# With one thread of Go at a time none looks for work on the other core in vain: a sixth less CPU.
os.environ.setdefault("GOMAXPROCS", "1")
# How long an example takes is not what a test claims; the first in a fresh clone makes tables of Unicode.
settings.register_profile("topogate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("topogate")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-cluster", action="store_true", help="leave out what needs the local control plane")
    parser.addoption("--all", action="store_true", help="run the tests marked when_changed too")
    parser.addoption(
        "--changed", action="store_true", help="run those marked when_changed whose files have changed"
    )


def pytest_configure(config: pytest.Config) -> None:
    named = {config.rootpath / each.partition("::")[0] for each in config.args}
    config.stash[_FILES] = {path for path in named if path.is_file()}
    config.stash[_RUNS_CHANGED] = config.getoption("--changed") or named != {config.rootpath / "tests"}
    begin_apart(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """What is collected stays to the end: Python's collector looks through it neither now nor later.

    Among the rest it looks a tenth as often as by default. It took a tenth of the CPU of tests that compute.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(7_000)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures.intersection(NEEDS_CLUSTER + NEEDS_NODE + NEEDS_NATIVE_GANGS):
            item.add_marker("cluster")
        if fixtures.intersection(NEEDS_NATIVE_GANGS):
            item.add_marker(pytest.mark.kubernetes(f"1.{native_gangs.FIRST_MINOR}"))
        if fixtures.intersection(NEEDS_NODE):
            item.add_marker("node")
        for needed in item.iter_markers("kubernetes"):
            if _minor(kubernetes_version()) < _minor(needed.args[0]):
                reason = f"NOT RUN: needs Kubernetes {needed.args[0]}, and this is {kubernetes_version()}"
                item.add_marker(pytest.mark.skip(reason=reason))
    _leave_out(config, items)
    if hasattr(config, "workerinput"):
        order_for_workers(items)


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove the tests that this run is not for, and note how many there are of each kind."""
    runs_all, files, changed = config.getoption("--all"), config.stash[_FILES], frozenset[str]()
    if config.stash[_RUNS_CHANGED] and any(
        selection.is_long(each) and each.path not in files for each in items
    ):
        changed = selection.changed_files(config.rootpath)
    reasons: dict[str, list[pytest.Item]] = {_NO_CLUSTER: [], _NOT_CHANGED: []}
    for item in items:
        if config.getoption("--no-cluster") and item.get_closest_marker("cluster"):
            reasons[_NO_CLUSTER].append(item)
        elif not runs_all and item.path not in files and selection.leaves_out(item, changed):
            reasons[_NOT_CHANGED].append(item)
    numbers = config.stash[_LEFT_OUT] = {reason: len(tests) for reason, tests in reasons.items()}
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = numbers
    left_out = [item for tests in reasons.values() for item in tests]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _minor(version: str) -> int:
    return int(version.split(".")[1])


_NO_CLUSTER = "NOT RUN because of --no-cluster: {} tests that need the local control plane"
_NOT_CHANGED = "NOT RUN: {} tests that only some files can break; hack/test --all runs them"
_LEFT_OUT = pytest.StashKey[dict[str, int]]()
_RUNS_CHANGED = pytest.StashKey[bool]()
_FILES = pytest.StashKey[set[Path]]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker of xdist has left out the same tests, and passes on their number for the summary."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for reason, number in config.stash.get(_LEFT_OUT, {}).items():
        if number:
            terminalreporter.write_line(reason.format(number), yellow=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return as_many_as_fit()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesInOrder:
    return FilesInOrder(config, log)


@pytest.fixture(scope="module", autouse=True)
def what_was_collected_is_not_looked_through() -> None:
    """A sweeper that ran in this process and ended may have thawed it, see webhook.sweeper.process."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def no_thread_outlives_its_module() -> Iterator[None]:
    """A watch that no test stopped runs on through the tests that follow, and fails in them."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + THREAD_ENDS_SECONDS
    assert [
        thread for thread in threading.enumerate() if thread not in before and _lives(thread, deadline)
    ] == []


def _lives(thread: threading.Thread, deadline: float) -> bool:
    if "process_request_thread" in thread.name:  # of a server of socketserver: it ends with its client
        return False
    thread.join(max(0.0, deadline - time.monotonic()))
    return thread.is_alive()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[Any]:
    """Programs that a test runs in its own process set up logging: to a stream that ends with the test."""
    log = logging.getLogger()
    handlers, level = log.handlers[:], log.level
    try:
        return (yield)
    finally:
        log.handlers[:] = handlers
        log.setLevel(level)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane for the whole run. It dies with the test process, however that ends."""
    yield from _control_plane(tmp_path_factory.mktemp("control-plane") / "cluster")


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A control plane for one test alone, which restarts parts of it or fills it."""
    yield from _control_plane(tmp_path / "cluster")


@pytest.fixture(scope="session")
def native_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One whose kube-scheduler binds the pods of a PodGroup as one, for the whole run."""
    yield from _control_plane(tmp_path_factory.mktemp("native") / "cluster", native_gangs="pods")


@pytest.fixture
def native_cluster(native_control_plane: Cluster) -> Cluster:
    """The same without what other tests have left."""
    clean(native_control_plane)
    return native_control_plane


@pytest.fixture(scope="module")
def native_jobs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One whose Job controller makes PodGroups as well (WorkloadWithJob), for a module."""
    yield from _control_plane(tmp_path_factory.mktemp("native-jobs") / "cluster", native_gangs="jobs")


def _control_plane(folder: Path, native_gangs: str = "") -> Iterator[Cluster]:
    cluster = Cluster.up(folder, tied=True, native_gangs=native_gangs)
    try:
        if cluster.programs.missing:
            pytest.skip(f"{cluster.programs.origin} has no {', '.join(cluster.programs.missing)}")
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def _left_clean(control_plane: Cluster) -> Iterator[None]:
    yield
    clean(control_plane)


@pytest.fixture
def cluster(control_plane: Cluster, _left_clean: None) -> Cluster:
    """The control plane without nodes, namespaces, webhooks or policies of other tests.

    It is cleaned before each test, and once more after the last of a module.
    """
    clean(control_plane)
    return control_plane


@pytest.fixture(scope="module")
def module_cluster(control_plane: Cluster) -> Iterator[Cluster]:
    """The same, cleaned once a module: for tables of tests over one installation."""
    clean(control_plane)
    yield control_plane
    clean(control_plane)


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """A fresh namespace whose default ServiceAccount is there, so that pods can be made in it."""
    name = create_namespace(control_plane)
    yield name
    control_plane.api().request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def opted_in(control_plane: Cluster) -> Iterator[str]:
    """A fresh namespace that is labelled for topogate; whether topogate is there is the module's affair."""
    name = create_namespace(control_plane, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    yield name
    delete_namespace(control_plane, name)


@pytest.fixture
def defined(cluster: Cluster) -> Iterator[list[str]]:
    """Paths of the CustomResourceDefinitions that a test installs, which are gone after it."""
    made: list[str] = []
    yield made
    api = cluster.api()
    for path in made:
        delete(api, path)
    for path in made:
        cluster.wait_for(f"the end of {path}", lambda path=path: not exists(api, path))  # type: ignore[misc]
