"""Who a Nebius instance is and where, from its metadata service.

``/v1/instance-data`` is a JSON object. ``infiniband_topology_path`` lists the three switches above an
instance of a GPU cluster, from the root down to the leaf; the instance itself is the host. The document is
of the time when the instance started. https://docs.nebius.com/compute/virtual-machines/instance-metadata
"""

import reprlib
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any, Final

from labeler.contract.keys import LABELER_PREFIX
from labeler.facts import Facts, SourceError
from labeler.metadata import MetadataServer, checked_fact, parse_object, url_option
from labeler.sources import Context, OptionError, Options

URL: Final = "http://metadata.nebius.internal"
LEVELS: Final = ("root", "spine", "leaf", "host")
_DOCUMENT: Final = "/v1/instance-data"
_PATH: Final = "infiniband_topology_path"
_IDENTITY: Final = {
    LABELER_PREFIX + "nebius-instance-id": "id",
    LABELER_PREFIX + "nebius-parent-id": "parent_id",
    LABELER_PREFIX + "nebius-region": "region",
    LABELER_PREFIX + "nebius-gpu-cluster-id": "gpu_cluster_id",
    LABELER_PREFIX + "nebius-infiniband-fabric": "infiniband_fabric",
}

OPTIONS: Final = ("from", "url")


def create(options: Options, context: Context) -> "NebiusSource":
    """Source with the options ``from`` (a level to begin at), and ``url`` for tests."""
    top = options.get("from", "spine")
    if top not in LEVELS:
        raise OptionError(f"source nebius: from must be one of {', '.join(LEVELS)}, is {top!r}")
    server = MetadataServer(url_option("nebius", options, URL), {"Metadata": "true"})
    return NebiusSource(server, LEVELS.index(str(top)))


class NebiusSource:
    """This instance's identity, and its place where it is in a GPU cluster."""

    def __init__(self, server: MetadataServer, first_level: int = 1) -> None:
        """first_level: the position in LEVELS at which the place begins."""
        self._server = server
        self._first_level = first_level

    def discover(self) -> Facts:
        """What the service does not know is left out. Raises SourceError where it gives no answer."""
        look = self._server.look()
        answer = look.attempt(lambda: look.get(_DOCUMENT))
        if answer is None:  # an older service has single texts alone
            paths = {key: f"{_DOCUMENT}/{field}" for key, field in _IDENTITY.items()}
            return look.result(Facts(identity=look.texts(paths)))
        document = parse_object(answer.text, _DOCUMENT)
        place = look.attempt(lambda: self._place(document))
        return look.result(Facts(topology=place, identity=look.fields(document, _IDENTITY)))

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """What the service knows of an instance changes at its start alone."""

    def _place(self, document: Mapping[str, Any]) -> tuple[str, ...] | None:
        path, instance = document.get(_PATH), document.get("id")
        if not instance:
            raise SourceError(
                f"{_DOCUMENT} has no id, so it is no instance's: {reprlib.repr(dict(document))}"
            )
        if not path:
            return None
        switches = path if isinstance(path, list) else []
        place = (*switches, instance)
        if len(place) != len(LEVELS) or not all(isinstance(name, str) and name for name in place):
            raise SourceError(
                f"{_PATH} is not three names of switches: {reprlib.repr(path)} of {reprlib.repr(instance)}"
            )
        return tuple(checked_fact(name, _PATH) for name in place[self._first_level :])
