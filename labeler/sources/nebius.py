"""Who a Nebius instance is: its id, its parent's and its region, as annotations, from its metadata."""

from collections.abc import Callable
from threading import Event
from typing import Final

from labeler.contract.keys import LABELER_PREFIX
from labeler.facts import Facts
from labeler.metadata import MetadataServer, url_option
from labeler.sources import Context, Options, check_options

URL: Final = "http://metadata.nebius.internal"
_IDENTITY: Final = {
    LABELER_PREFIX + "nebius-instance-id": "/v1/instance-data/id",
    LABELER_PREFIX + "nebius-parent-id": "/v1/instance-data/parent_id",
    LABELER_PREFIX + "nebius-region": "/v1/instance-data/region",
}


def create(options: Options, context: Context) -> "NebiusSource":
    """Source with the option ``url``, for tests."""
    check_options("nebius", options, ("url",))
    return NebiusSource(MetadataServer(url_option("nebius", options, URL), {"Metadata": "true"}))


class NebiusSource:
    """This instance's identity."""

    def __init__(self, server: MetadataServer) -> None:
        self._server = server

    def discover(self) -> Facts:
        """What the service does not know is left out. Raises SourceError where it gives no answer."""
        answers = {key: self._server.get(path) for key, path in _IDENTITY.items()}
        return Facts(identity={key: answer.text for key, answer in answers.items() if answer and answer.text})

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """An instance's identity never changes."""
