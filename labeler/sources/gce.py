"""The place of a Google Compute Engine instance, from its metadata server.

``instance/attributes/physical_host`` reads ``/cluster/rack/host``; instances without compact placement have
none. With Workload Identity, GKE hides attributes from pods: the labeler then needs the host's network.
https://cloud.google.com/compute/docs/metadata/querying-metadata
"""

import logging
from collections.abc import Callable
from threading import Event
from typing import Final
from urllib.parse import quote

from labeler.contract.keys import LABELER_PREFIX
from labeler.facts import Facts, SourceError
from labeler.metadata import MetadataAnswer, MetadataServer, url_option
from labeler.sources import Context, Options, check_options

log: Final = logging.getLogger(__name__)

URL: Final = "http://metadata.google.internal"
INSTANCE_NAME_ANNOTATION: Final = LABELER_PREFIX + "gce-instance-name"
_INSTANCE: Final = "/computeMetadata/v1/instance"
_PHYSICAL_HOST: Final = _INSTANCE + "/attributes/physical_host"
_FLAVOR: Final = {"Metadata-Flavor": "Google"}
_WAIT_SECONDS: Final = 60
_RETRY_SECONDS: Final = 10.0


def create(options: Options, context: Context) -> "GceSource":
    """Source with the option ``url``, for tests."""
    check_options("gce", options, ("url",))
    return GceSource(MetadataServer(url_option("gce", options, URL), _FLAVOR))


class GceSource:
    """This instance's physical host, and its name as an annotation."""

    def __init__(self, server: MetadataServer) -> None:
        self._server = server

    def discover(self) -> Facts:
        """No place where the attribute is absent or empty. Raises SourceError where that is not known."""
        name = self._ask(_INSTANCE + "/name")
        identity = {INSTANCE_NAME_ANNOTATION: name.text} if name and name.text else {}
        host = self._ask(_PHYSICAL_HOST)
        if host is None or not host.text:
            log.debug("no physical_host: this instance has no compact placement")
            return Facts(identity=identity)
        return Facts(topology=physical_host(host.text), identity=identity)

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """Ask the server to answer when the attribute changes: a live migration moves the instance."""
        etag = ""
        while not stop.is_set():
            try:
                path = f"{_PHYSICAL_HOST}?wait_for_change=true&timeout_sec={_WAIT_SECONDS}"
                path += f"&last_etag={quote(etag)}" if etag else ""
                answer = self._ask(path, _WAIT_SECONDS)
            except SourceError as error:
                log.debug("waiting for a change: %s", error)
                answer = None
            if answer is None:
                stop.wait(_RETRY_SECONDS)  # absent or out of order: the loop's interval looks as well
                continue
            now = answer.headers.get("etag", "")
            if now != etag:
                changed()  # also at first: it may have changed since discover asked
            etag = now
            if not etag:
                stop.wait(_RETRY_SECONDS)

    def _ask(self, path: str, longer_seconds: float = 0.0) -> MetadataAnswer | None:
        answer = self._server.get(path, longer_seconds=longer_seconds)
        if answer is not None and answer.headers.get("metadata-flavor") != "Google":
            raise SourceError(f"{path}: the answer is not Google's (no header Metadata-Flavor: Google)")
        return answer


def physical_host(text: str) -> tuple[str, ...]:
    """The levels of a path such as ``/cluster/rack/host``. Raises SourceError for another shape."""
    levels = tuple(text.split("/")[1:])
    if not text.startswith("/") or not all(levels) or any(character.isspace() for character in text):
        raise SourceError(f"physical_host is {text[:100]!r}, not a path such as /cluster/rack/host")
    return levels
