"""The place of a Google Compute Engine instance, from its metadata server.

``instance/attributes/physical_host_topology`` is a JSON object with ``cluster``, ``block``, ``subBlock``
and ``host``; ``instance/attributes/physical_host``, which is older, reads ``/block/subblock/host``.
Instances outside of a placement have neither, and hosts may be left out of the first. With Workload
Identity, GKE hides attributes from pods: the labeler then needs the host's network.
https://cloud.google.com/compute/docs/instances/view-instance-topology
"""

import logging
import time
from collections.abc import Callable
from threading import Event
from typing import Final
from urllib.parse import quote

from labeler.contract.keys import LABELER_PREFIX
from labeler.facts import Facts, SourceError
from labeler.metadata import (
    Look,
    MetadataAnswer,
    MetadataServer,
    checked_fact,
    complete_place,
    parse_object,
    text_fields,
    url_option,
)
from labeler.sources import Context, OptionError, Options

log: Final = logging.getLogger(__name__)

URL: Final = "http://metadata.google.internal"
INSTANCE_NAME_ANNOTATION: Final = LABELER_PREFIX + "gce-instance-name"
LEVELS: Final = ("cluster", "block", "subblock", "host")
_INSTANCE: Final = "/computeMetadata/v1/instance"
_PHYSICAL_HOST: Final = _INSTANCE + "/attributes/physical_host"
_TOPOLOGY: Final = _INSTANCE + "/attributes/physical_host_topology"
_FIELDS: Final = {"cluster": "cluster", "block": "block", "host": "host"}
_SUBBLOCK_FIELDS: Final = ("subBlock", "subblock")
"""The first as the metadata server's documentation shows it, the second as the API names it."""
_FLAVOR: Final = {"Metadata-Flavor": "Google"}
_WAIT_SECONDS: Final = 60
_RETRY_SECONDS: Final = 10.0
_QUICK_SECONDS: Final = 1.0
_MOST_DOUBLINGS: Final = 6

OPTIONS: Final = ("from", "host", "url")


def create(options: Options, context: Context) -> "GceSource":
    """Source with the options ``from`` (a level to begin at), ``host`` and, for tests, ``url``."""
    top = options.get("from", "block")
    if top not in LEVELS[:2]:
        raise OptionError(f"source gce: from must be one of {', '.join(LEVELS[:2])}, is {top!r}")
    host = options.get("host", "published")
    if host not in ("published", "instance-name"):
        raise OptionError(f"source gce: host must be published or instance-name, is {host!r}")
    server = MetadataServer(url_option("gce", options, URL), _FLAVOR)
    return GceSource(server, LEVELS[LEVELS.index(str(top)) :], host == "instance-name")


class GceSource:
    """This instance's physical host, and its name as an annotation."""

    def __init__(
        self, server: MetadataServer, levels: tuple[str, ...] = LEVELS[1:], name_is_host: bool = False
    ) -> None:
        """levels: of LEVELS, from the top. name_is_host: its name stands for a host that is not published."""
        self._server = server
        self._levels = levels
        self._name_is_host = name_is_host
        self._watched = _PHYSICAL_HOST

    def discover(self) -> Facts:
        """No place where the attributes are absent or empty. Raises SourceError where that is not known."""
        look = self._server.look()
        name = look.attempt(lambda: self._name(look)) or ""
        identity = {INSTANCE_NAME_ANNOTATION: name} if name else {}
        place = look.attempt(lambda: self._place(look, name))
        return look.result(Facts(topology=place, identity=identity))

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """Ask the server to answer when the attribute changes: a live migration moves the instance."""
        etag, quick_answers = "", 0
        while not stop.is_set():
            asked_at = time.monotonic()
            now = self._next_etag(etag)
            if now not in ("", etag):
                changed()  # also at first: it may have changed since discover asked
            etag = now
            is_quick = time.monotonic() - asked_at < _QUICK_SECONDS
            quick_answers = quick_answers + 1 if is_quick else 0
            stop.wait(pause_after(quick_answers) if now else _RETRY_SECONDS)

    def _next_etag(self, etag: str) -> str:
        """The attribute's tag once it is another one or time is up; "" where that cannot be learned."""
        path = f"{self._watched}?wait_for_change=true&timeout_sec={_WAIT_SECONDS}"
        path += f"&last_etag={quote(etag)}" if etag else ""
        try:
            answer = _of_google(self._server.get(path, longer_seconds=_WAIT_SECONDS))
        except SourceError as error:
            log.debug("waiting for a change: %s", error)
            return ""
        return answer.headers.get("etag", "") if answer is not None else ""

    def _name(self, look: Look) -> str:
        answer = _of_google(look.get(_INSTANCE + "/name"))
        return checked_fact(answer.text, "the instance's name") if answer is not None else ""

    def _place(self, look: Look, name: str) -> tuple[str, ...] | None:
        """The older attribute where it has all levels, else the newer one."""
        fault: SourceError | None = None
        older = _of_google(look.get(_PHYSICAL_HOST)) if "cluster" not in self._levels else None
        if older is not None and older.text:
            self._watched = _PHYSICAL_HOST
            try:
                return physical_host(older.text)
            except SourceError as error:
                fault = error
        newer = _of_google(look.get(_TOPOLOGY))
        if newer is not None and newer.text:
            self._watched = _TOPOLOGY
            return self._from_document(newer.text, name)
        if fault is not None:
            raise fault
        log.debug("no physical host: this instance has no compact placement")
        return None

    def _from_document(self, text: str, name: str) -> tuple[str, ...]:
        document = parse_object(text, "physical_host_topology")
        place = text_fields(document, _FIELDS)
        for field in _SUBBLOCK_FIELDS:
            place |= text_fields(document, {"subblock": field})
        if self._name_is_host and name:
            place.setdefault("host", name)
        return complete_place(place, self._levels, "physical_host_topology")


def pause_after(quick_answers: int) -> float:
    """Seconds until a change is asked for again, after so many answers in a row that did not wait for one.

    The first answer comes at once by the rules. A server that never waits would be asked without end.
    """
    return max(0.0, 2.0 ** min(quick_answers, _MOST_DOUBLINGS) - 2)


def _of_google(answer: MetadataAnswer | None) -> MetadataAnswer | None:
    """The answer itself. Raises SourceError if another server gave it."""
    if answer is not None and answer.headers.get("metadata-flavor") != "Google":
        raise SourceError("the answer is not Google's (no header Metadata-Flavor: Google)")
    return answer


def physical_host(text: str) -> tuple[str, ...]:
    """The levels of a path such as ``/block/subblock/host``. Raises SourceError for another shape."""
    levels = tuple(text.split("/")[1:])
    if not text.startswith("/") or not all(levels) or any(character.isspace() for character in text):
        raise SourceError(f"physical_host is {text[:100]!r}, not a path such as /cluster/rack/host")
    return tuple(checked_fact(level, "a level of physical_host") for level in levels)
