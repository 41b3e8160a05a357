"""A cloud's metadata server: short texts over plain HTTP on a link-local address, each with a deadline."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import urllib3

from labeler.facts import Facts, SourceError
from labeler.sources import OptionError, Options

CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 5.0
MOST_BYTES: Final = 64 * 1024
_SHOWN: Final = 200

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
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=2, retries=False)

    def get(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        longer_seconds: float = 0.0,
    ) -> MetadataAnswer | None:
        """The text at a path, stripped; None where there is none (404).

        longer_seconds: how much later than usual the answer may come. Raises SourceError for everything
        else: no answer, too late, another status, no readable text.
        """
        url = self._url + path
        seconds = self._answer_seconds + longer_seconds
        deadline = time.monotonic() + seconds
        try:
            response = self._pool.request(
                method,
                url,
                headers=self._headers | dict(headers or {}),
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds),
                redirect=False,
                preload_content=False,
            )
            try:
                body = _read(response, url, deadline)
            finally:
                response.close()  # not reused: a connection costs nothing here, a half-read one a puzzle
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise SourceError(f"{url}: no answer: {error}") from error
        if response.status == 404:
            return None
        if response.status != 200:
            raise SourceError(f"{url}: HTTP {response.status} {response.reason or ''}".rstrip())
        return MetadataAnswer(
            _text(body, url), {key.lower(): value for key, value in response.headers.items()}
        )


class Gathering:
    """Facts that are asked for one by one: one that fails takes no other with it."""

    def __init__(self) -> None:
        self._problems: dict[str, None] = {}

    def attempt(self, ask: Callable[[], T]) -> T | None:
        """What ask returns, None if it raises SourceError."""
        try:
            return ask()
        except SourceError as error:
            self._problems[str(error)] = None
            return None

    def texts(
        self, server: MetadataServer, paths: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The texts at these paths by key, without those that there are not."""
        answers = {key: self.attempt(partial(server.get, path, headers)) for key, path in paths.items()}
        return {key: answer.text for key, answer in answers.items() if answer is not None and answer.text}

    def result(self, facts: Facts) -> Facts:
        """The facts themselves. Raises SourceError with them if something failed."""
        if self._problems:
            raise SourceError("; ".join(self._problems), facts)
        return facts


def parse_object(text: str, what: str) -> Mapping[str, Any]:
    """A JSON object. Raises SourceError that shows a text which is none."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SourceError(f"{what} is no JSON: {text[:_SHOWN]!r}: {error}") from error
    if not isinstance(document, Mapping):
        raise SourceError(f"{what} is no JSON object: {text[:_SHOWN]!r}")
    return document


def text_fields(document: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, str]:
    """Fields of a document that are texts and not empty, by the keys that they are to have here."""
    found = {key: document.get(field) for key, field in keys.items()}
    return {key: value for key, value in found.items() if isinstance(value, str) and value}


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


def _read(response: urllib3.BaseHTTPResponse, url: str, deadline: float) -> bytes:
    body = b""
    while chunk := response.read1(4096):
        body += chunk
        if len(body) > MOST_BYTES:
            raise SourceError(f"{url}: the answer is longer than {MOST_BYTES} bytes")
        if time.monotonic() > deadline:
            raise SourceError(f"{url}: the answer did not end in time")
    return body


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
    if not isinstance(value, str) or not value.startswith("http://") or value.count("/") > 3:
        raise OptionError(f"source {source}: url must be like {default}, is {value!r}")
    return value
