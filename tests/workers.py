"""How the tests are shared out when several workers run them: whole files, what takes longest first.

Each worker has a control plane of its own. A file stays with one worker, since its tests share what they
install; so do the folders of the real node, whose images and kubelet are made once.
"""

import os
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = {"tests/node": 0, "tests/images": 0}
"""Folders that one worker runs as a whole, and the number of their scope."""


WORKER_BYTES: Final = 3 * 2**30
"""What a worker takes: itself, its control plane, and what its tests start."""


def as_many_as_fit() -> int:
    """Two workers a core, since tests of a cluster wait half of their time; fewer where memory is short."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(2 * (os.cpu_count() or 1), memory // WORKER_BYTES))


class FilesInOrder(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker the next file, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        together = TOGETHER.get(path.rsplit("/", 1)[0])
        return path if together is None else f"together {together}"


def heaviest_first(item: pytest.Item) -> int:
    """The key by which tests are ordered: what is short at the end, so that all workers end together."""
    if item.nodeid.startswith(tuple(f"{folder}/" for folder in TOGETHER)):
        return 0
    return 1 if item.get_closest_marker("cluster") else 2
