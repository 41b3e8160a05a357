"""Nodes and the storage of their pods."""

from tests.scheduling.shelf import Shelf
from tests.sweeper.cluster import Nodes
from webhook.scheduling.storage import Storage


class WithStorage(Nodes):
    """A cluster with the storage of a shelf."""

    shelf: Shelf

    def storage(self, is_wanted: bool) -> Storage | None:  # type: ignore[override]
        return self.shelf.storage if is_wanted else None
