"""How the tests are shared out when several workers run them: whole files, long ones first.

Each worker has a control plane of its own. A file stays with one worker, since its tests share what they
install; so do the folders of the real node, whose images and kubelet are made once, and the files of native
gangs, whose control plane is a second one.
"""

import os
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

NATIVE: Final = (
    "tests/cli/test_drain.py",
    "tests/cluster/test_bind.py",
    "tests/cluster/test_native_gangs.py",
    "tests/cluster/test_strict_groups.py",
    "tests/extensions/test_bind_at_work.py",
    "tests/workloads/test_owners.py",
)
"""Files with tests on `native_control_plane`, of which one worker has one."""

TOGETHER: Final = {"tests/node": 0, "tests/images": 0} | dict.fromkeys(NATIVE, 1)
"""Folders and files that one worker runs as a whole, and the number of their scope."""

LONGEST: Final = frozenset(
    {
        "tests/cluster/test_upgrade.py",
        "tests/tasks/test_at_work.py",
        "tests/tasks/test_crash.py",
        "tests/tasks/test_unchanged.py",
    }
)
"""Files that would keep one worker busy after all others have ended: of minutes, or in the last folders."""

WAITING: Final = frozenset({"tests/ui/test_slow_viewers.py"})
"""Files without a cluster that wait most of their time all the same: for slow clients."""

CLUSTERS_END: Final = 0.9
"""The share of the files that compute before which the last file that waits is taken."""

WORKER_BYTES: Final = 3 * 2**30
"""What a worker takes: itself, its control plane, and what its tests start."""


def as_many_as_fit() -> int:
    """Two workers a core, since tests of a cluster wait half of their time; fewer where memory is short."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(2 * (os.cpu_count() or 1), memory // WORKER_BYTES))


class FilesInOrder(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker the next file, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        path = _file(nodeid)
        together = TOGETHER.get(path, TOGETHER.get(_folder(path)))
        return path if together is None else f"together {together}"


def begin_apart(config: pytest.Config) -> None:
    """Have each worker of a whole run begin its collection with other folders than the others.

    In a fresh clone, most of a collection is spent on compiling modules. Workers that begin apart find most
    of them compiled by others. The tests run in one order all the same, see order_for_workers.
    """
    worker = getattr(config, "workerinput", None)
    root = config.rootpath / "tests"
    if worker is None or [config.rootpath / each for each in config.args] != [root]:
        return
    sizes = {
        str(folder): sum(path.stat().st_size for path in folder.rglob("*.py"))
        for folder in sorted(root.iterdir())
        if any(folder.rglob("test_*.py"))
    }
    number = int(worker["workerid"].removeprefix("gw"))
    config.args[:] = begun_at(sizes, number / worker["workercount"])


def begun_at(sizes: Mapping[str, int], share: float) -> list[str]:
    """The names in order, from the one that has about this share of all before it on; then the others."""
    *before, total = accumulate(sizes.values(), initial=0)
    names = list(sizes)
    first = min(range(len(names)), key=lambda number: abs(before[number] - share * total))
    return names[first:] + names[:first]


def places_of_files(needs_cluster: Mapping[str, bool]) -> dict[str, float]:
    """Where each file stands in the order of a run, by its path; what is lower comes first.

    needs_cluster: in the order of the collection, whether a file has tests of a cluster. Those wait half of
    their time, as WAITING do, and the others compute, so both kinds are mixed all along. LONGEST come first
    and computing files last: they are short, so that all workers end together.
    """
    places: dict[str, float] = {}
    for waits, end in ((True, CLUSTERS_END), (False, 1.0)):
        files = [file for file, needs in needs_cluster.items() if (needs or file in WAITING) is waits]
        places |= {file: end * (number + 1) / len(files) for number, file in enumerate(files)}
    first = LONGEST | TOGETHER.keys()
    return places | {file: 0.0 for file in places if not first.isdisjoint((file, _folder(file)))}


def order_for_workers(items: list[pytest.Item]) -> None:
    """Put whole files into the order in which workers take them; within a file the order stays.

    It is the same whatever the order of the files was.
    """
    needs_cluster: dict[str, bool] = {}
    for item in items:
        file = _file(item.nodeid)
        needs_cluster[file] = needs_cluster.get(file, False) or bool(item.get_closest_marker("cluster"))
    places = places_of_files(dict(sorted(needs_cluster.items())))
    items.sort(key=lambda item: (places[_file(item.nodeid)], _file(item.nodeid)))


def _file(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def _folder(file: str) -> str:
    return file.rsplit("/", 1)[0]
