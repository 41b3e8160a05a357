"""Decodes the bytes of lists and watches into objects.

An object that does not fit its struct must not hide the others: it is reported by name with the reason, and
the caller decides. Placements are read without the fields that do not fit, since any client may have edited
them. If an object has no readable name either, the whole answer is an error.
"""

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from labeler.contract import keys
from webhook.kube.client import ApiError
from webhook.kube.depth import readable
from webhook.kube.leniency import without_unreadable
from webhook.kube.objects import ListMetadata, Metadata, ObjectList
from webhook.kube.struct import Struct

_GONE: Final = 410
_json_decoder: Final = msgspec.json.Decoder()

logger = logging.getLogger(__name__)


class HasMetadata(Protocol):
    """Any Kubernetes object."""

    @property
    def metadata(self) -> Metadata:
        """Its metadata."""


T = TypeVar("T", bound=HasMetadata)
D = TypeVar("D")
Read = tuple[T | None, str, str]
"""An object or None, its key, and why it is None."""


class Event(Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class _Envelope(Struct, frozen=True):
    metadata: Metadata = Metadata()
    code: int = 0
    reason: str = ""
    message: str = ""


class ExpiredError(Exception):
    """The version to watch from is older than the API server's history."""


class Reader(Generic[T]):
    """Decodes the answers about one collection."""

    def __init__(self, path: str, struct: type[T]) -> None:
        """path is for messages; struct has the fields that are kept of an object.

        If it has a true class attribute `leaves_out_unreadable`, objects are read without unreadable fields.
        """
        self._path = path
        self._struct = struct
        self._event_decoder = msgspec.json.Decoder(Event)
        self._object_decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(struct)
        self._list_decoder = msgspec.json.Decoder(ObjectList[struct])  # type: ignore[valid-type]
        self._raw_list_decoder = msgspec.json.Decoder(ObjectList[msgspec.Raw])
        self._envelope_decoder = msgspec.json.Decoder(_Envelope)

    def event(self, line: bytes) -> Event:
        """One line of a watch. Raises ExpiredError or ApiError for an ERROR event, and DecodeError."""
        event = decoded(self._event_decoder, line)
        if event.type == "ERROR":
            status = decoded(self._envelope_decoder, event.object)
            if status.code == _GONE:
                raise ExpiredError
            raise ApiError(status.code, status.reason, f"watch of {self._path}: {status.message}")
        return event

    def object(self, raw: msgspec.Raw) -> Read[T]:
        """One object. Raises DecodeError if even its name is unreadable."""
        try:
            item = decoded(self._object_decoder, raw)
            return item, key_of(item), ""
        except msgspec.ValidationError as error:
            key = key_of(decoded(self._envelope_decoder, raw))
            if getattr(self._struct, "leaves_out_unreadable", False):
                with contextlib.suppress(msgspec.DecodeError):
                    item, left_out = without_unreadable(decoded(_json_decoder, raw), self._struct)
                    _report_left_out(self._path, key, ", ".join(left_out))
                    return item, key, ""
            logger.error("undecodable path=%s object=%s error=%r", self._path, key, str(error))
            return None, key, str(error)

    def page(self, body: bytes) -> tuple[Iterator[Read[T]], ListMetadata]:
        """One page of a list. Raises DecodeError."""
        try:
            page = decoded(self._list_decoder, body)
            return ((item, key_of(item), "") for item in page.items), page.metadata
        except msgspec.ValidationError:  # decode them one by one, to find the unreadable ones
            raw = decoded(self._raw_list_decoder, body)
            return (self.object(each) for each in raw.items), raw.metadata

    def version(self, raw: msgspec.Raw) -> str:
        """The resourceVersion of a bookmark or of an unreadable object."""
        return decoded(self._envelope_decoder, raw).metadata.resource_version

    def is_end_of_list(self, raw: msgspec.Raw) -> bool:
        """Whether a bookmark ends a streaming list (KEP-3157)."""
        return keys.INITIAL_EVENTS_END in decoded(self._envelope_decoder, raw).metadata.annotations


@functools.lru_cache(maxsize=4096)
def _report_left_out(path: str, key: str, fields: str) -> None:
    """Once for each object and its fields."""
    logger.warning("unreadable_fields path=%s object=%s left_out=%s", path, key, fields)


def decoded(decoder: msgspec.json.Decoder[D], text: bytes | msgspec.Raw) -> D:
    """A decoded document, made readable if it has too many levels or no valid Unicode. Raises DecodeError."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raise
    except (RecursionError, UnicodeDecodeError, msgspec.DecodeError):
        return decoder.decode(readable(bytes(text)))


def key_of(item: HasMetadata) -> str:
    """ "namespace/name", or "name" for a cluster-scoped object."""
    metadata = item.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
