"""What extensions add to nodes and pods, for questions of users."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from webhook.configuration.settings import Settings
from webhook.extensions.known import resource_extensions
from webhook.inquiry.cluster_state import ClusterReading
from webhook.sweeper.extension import HookInput, ReadCollections, with_resources
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.sweeper.observe.watches import WatchedCollection


class ResourceAdder:
    """Calls the extensions that add resources, whether they are on or not, and keeps their memory.

    An extension adds nothing while a collection that it needs cannot be read.
    """

    def __init__(self, settings: Settings, read: ReadCollections) -> None:
        self._settings = settings
        self._read = read
        self._memories: dict[str, Any] = {}

    def completed(self, view: View) -> View:
        """The view with what extensions add."""
        for extension in resource_extensions():
            asked = _NotedReads(self._read)
            memory = self._memories.get(extension.name, extension.memory)
            given = HookInput(view, self._settings, read=asked.read)
            added, self._memories[extension.name] = extension.add_resources(given, memory)
            if not asked.missing:
                view = with_resources(view, added)
        return view


class _NotedReads:
    """Record which collections could not be read."""

    def __init__(self, read: ReadCollections) -> None:
        self._read = read
        self.missing = set[Hashable]()

    def read(self, collections: Sequence[WatchedCollection[Any]]) -> Mapping[Hashable, Mapping[str, Any]]:
        found = self._read(collections)
        self.missing |= set(collections) - found.keys()
        return found


def view_of(snapshotter: Snapshotter, cluster: ClusterReading, settings: Settings) -> View:
    """The view of one reading of the cluster, with what extensions add."""
    return ResourceAdder(settings, cluster.read_collections).completed(snapshotter.view())
