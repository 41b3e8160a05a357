"""A cloud's metadata server: short texts over plain HTTP on a link-local address, each before a deadline.

What it sends is not believed to be anything: whatever it is, it ends in a fact or in a SourceError.
"""

import json
import math
import reprlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from labeler.exchange import SHOWN, ExchangeError, exchange, shown
from labeler.facts import Facts, SourceError
from labeler.sources import OptionError, Options

ANSWER_SECONDS: Final = 5.0
_ANSWERS_OF_A_LOOK: Final = 2
"""A look asks for up to six texts, and takes no longer than so many answers that are as slow as may be."""
LONGEST_FACT: Final = 1024
"""Characters. Clouds' identifiers have up to 255; a Node's annotations have 256 KiB in all."""

T = TypeVar("T")


@dataclass(frozen=True)
class MetadataAnswer:
    """A text and the headers that came with it, keys in lower case."""

    text: str
    headers: Mapping[str, str] = field(default_factory=dict)


class MetadataServer:
    """One server. Never through a proxy: whatever a proxy reached would be another machine's metadata."""

    def __init__(self, url: str, headers: Mapping[str, str], answer_seconds: float = ANSWER_SECONDS) -> None:
        """url: without a path; headers: those that the cloud demands; answer_seconds: until the last byte."""
        self._url = url.rstrip("/")
        self._headers = dict(headers)
        self._answer_seconds = answer_seconds

    def look(self) -> "Look":
        """Begin to ask for several facts."""
        return Look(self, time.monotonic() + _ANSWERS_OF_A_LOOK * self._answer_seconds)

    def get(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        longer_seconds: float = 0.0,
        deadline: float = math.inf,
    ) -> MetadataAnswer | None:
        """The text at a path, stripped; None where there is none (404).

        longer_seconds: how much later than usual the answer may come; deadline: never later than this. Raises
        SourceError for everything else: no answer, too late, another status, no readable text.
        """
        url = self._url + path
        within = time.monotonic() + self._answer_seconds + longer_seconds
        try:
            answer = exchange(method, url, self._headers | dict(headers or {}), min(within, deadline))
        except ExchangeError as error:
            raise SourceError(str(error)) from error
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise SourceError(f"{url}: HTTP {answer.status} {shown(answer.reason)}".rstrip())
        return MetadataAnswer(_text(answer.body, url), answer.headers)


class Look:
    """Facts that are asked for one by one before one deadline: one that fails takes no other with it."""

    def __init__(self, server: MetadataServer, deadline: float) -> None:
        """deadline: of the monotonic clock, in seconds."""
        self._server = server
        self._deadline = deadline
        self._problems: dict[str, None] = {}

    def get(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> MetadataAnswer | None:
        """The text at a path as MetadataServer.get has it. Raises SourceError."""
        return self._server.get(path, headers, method, deadline=self._deadline)

    def attempt(self, ask: Callable[[], T]) -> T | None:
        """What ask returns, None if it raises SourceError."""
        try:
            return ask()
        except SourceError as error:
            self._problems[str(error)] = None
            return None

    def texts(self, paths: Mapping[str, str], headers: Mapping[str, str] | None = None) -> dict[str, str]:
        """The facts at these paths by key, without those that there are not."""
        found = {key: self.attempt(partial(self._fact, path, headers)) for key, path in paths.items()}
        return {key: text for key, text in found.items() if text}

    def fields(self, document: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
        """The facts in these fields of a document by key, without those that there are not."""
        found = {key: self.attempt(partial(text_field, document, name)) for key, name in names.items()}
        return {key: text for key, text in found.items() if text}

    def result(self, facts: Facts) -> Facts:
        """The facts themselves. Raises SourceError with them if something failed."""
        if self._problems:
            raise SourceError("; ".join(self._problems), facts)
        return facts

    def _fact(self, path: str, headers: Mapping[str, str] | None) -> str:
        answer = self.get(path, headers)
        return checked_fact(answer.text, path) if answer is not None else ""


def parse_object(text: str, what: str) -> Mapping[str, Any]:
    """A JSON object. Raises SourceError that shows a text which is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # nested too deeply
        raise SourceError(f"{what} is no JSON: {text[:SHOWN]!r}: {error}") from error
    if not isinstance(document, Mapping):
        raise SourceError(f"{what} is no JSON object: {text[:SHOWN]!r}")
    return document


def text_field(document: Mapping[str, Any], name: str) -> str:
    """A field's text, "" where there is none. Raises SourceError for a value of another type."""
    value = document.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise SourceError(f"field {name} is {reprlib.repr(value)}, not a text")
    return checked_fact(value, f"field {name}")


def text_fields(document: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """Fields of a document that are not empty, by the keys that they are to have here. Raises SourceError."""
    found = {key: text_field(document, name) for key, name in names.items()}
    return {key: value for key, value in found.items() if value}


def checked_fact(text: str, what: str) -> str:
    """A short text of one line itself. Raises SourceError for any other one."""
    if len(text) > LONGEST_FACT:
        raise SourceError(f"{what} has {len(text)} characters, and at most {LONGEST_FACT} are believed")
    if not text.isprintable():
        raise SourceError(f"{what} is no plain text: {shown(text)}")
    return text


def complete_place(place: Mapping[str, str], levels: tuple[str, ...], what: str) -> tuple[str, ...]:
    """A place's values at these levels. Raises SourceError that names the level without one, and shows all.

    A level may name several with "|" between: the first that has a value counts.
    """
    values = []
    for level in levels:
        value = next((place[name] for name in level.split("|") if place.get(name)), None)
        if value is None:
            raise SourceError(f"{what} has no {level}, it has {dict(place)}")
        values.append(value)
    return tuple(values)


def _text(body: bytes, url: str) -> str:
    try:
        text = body.decode().strip()
    except UnicodeDecodeError as error:
        raise SourceError(f"{url}: the answer is no text: {body[:40]!r}") from error
    if not all(character.isprintable() or character in "\r\n\t" for character in text):
        raise SourceError(f"{url}: the answer is no plain text: {text[:40]!r}")
    return text


def url_option(source: str, options: Options, default: str) -> str:
    """The option ``url``. Raises OptionError for anything but http://host[:port]."""
    value = options.get("url", default)
    if not isinstance(value, str) or not _is_server(value):
        raise OptionError(f"source {source}: url must be like {default}, is {value!r}")
    return value


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.hostname) and parts.port != 0 and url.count("/") <= 3
    except ValueError:
        return False
