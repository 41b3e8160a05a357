"""An object that decoders cannot read hides no other: nested deeper than their stack, or no valid Unicode."""

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.decoding import Reader
from webhook.kube.depth import readable, shallow
from webhook.tasks.task_objects import Task

DEEPEST: Final = 9_900
"""About what the API server takes."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def nested(levels: int, *, mappings: bool = True) -> bytes:
    """A GPUTask whose template has so many levels."""
    opening, closing = (b'{"a":', b"}") if mappings else (b"[", b"]")
    deep = opening * levels + b"1" + closing * levels
    return b'{"metadata":{"name":"odd","namespace":"t"},"spec":{"template":{"spec":' + deep + b"}}}"


def cut(value: Any, levels: int) -> Any:
    """The claim, by recursion."""
    if not isinstance(value, list | dict):
        return value
    if levels == 0:
        return None
    if isinstance(value, list):
        return [cut(each, levels - 1) for each in value]
    return {key: cut(each, levels - 1) for key, each in value.items()}


@given(JSON, st.integers(0, 5), st.booleans())
def test_what_is_below_the_levels_is_null_and_the_rest_as_it_was(
    value: Any, levels: int, is_ascii: bool
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    assert json.loads(shallow(text, levels)) == cut(value, levels)


@pytest.mark.promise("O252")
@pytest.mark.parametrize("mappings", [True, False])
@pytest.mark.parametrize("levels", [900, 997, 1000, DEEPEST])
def test_an_object_of_very_many_levels_hides_no_other_in_a_list(levels: int, mappings: bool) -> None:
    good = b'{"metadata":{"name":"good","namespace":"t"},"spec":{"gpu":"h100"}}'
    body = b'{"metadata":{},"items":[' + nested(levels, mappings=mappings) + b"," + good + b"]}"
    items, _ = Reader("/gputasks", Task).page(body)
    assert [key for _, key, _ in items] == ["t/odd", "t/good"]


@pytest.mark.parametrize("levels", [900, 995, 997, 998, 1000, DEEPEST])
def test_an_object_of_very_many_levels_ends_no_watch(levels: int) -> None:
    reader = Reader("/gputasks", Task)
    event = reader.event(b'{"type":"ADDED","object":' + nested(levels) + b"}")
    item, key, why = reader.object(event.object)
    assert (key, why, reader.version(event.object)) == ("t/odd", "", "")
    assert item is not None
    assert msgspec.json.encode(item)


MALFORMED: Final = [
    rb"\ud800", rb"\udc00", rb"\uDBFF\u0041", rb"\ud800\ud800\udc00", rb"\\ud800\ud801",
    b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x98",
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_an_object_without_valid_unicode_hides_no_other_in_a_list_and_ends_no_watch(text: bytes) -> None:
    """The API server stores the parameters of a ResourceClaim as a client has written them."""
    inner = b'{"k":"%s","%s":1}' % (text, text)
    good, malformed = (
        b'{"metadata":{"name":"%s","namespace":"t"},"spec":{"template":%s}}' % each
        for each in ((b"good", b"{}"), (b"odd", inner))
    )
    reader = Reader("/gputasks", Task)
    items, _ = reader.page(b'{"metadata":{},"items":[' + malformed + b"," + good + b"]}")
    assert [key for _, key, _ in items] == ["t/odd", "t/good"]
    event = reader.event(b'{"type":"ADDED","object":' + malformed + b"}")
    item, key, why = reader.object(event.object)
    assert (item is not None, key, why) == (True, "t/odd", "")


@given(st.lists(st.text() | st.characters(categories=["Cs"])).map("".join), st.booleans())
def test_only_what_is_no_character_is_replaced(value: str, is_ascii: bool) -> None:
    text = json.dumps([value], ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    (found,) = msgspec.json.decode(readable(text))
    joined = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if is_ascii else value
    assert [each for each in found if each != "\ufffd"] == [
        each for each in joined if each != "\ufffd" and not "\ud800" <= each <= "\udfff"
    ]
