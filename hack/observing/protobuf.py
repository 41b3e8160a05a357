"""What the API server's protobuf form of a few requests holds, written field by field.

A body is "k8s", a zero byte and a runtime.Unknown: 1 the type, 2 the object (k8s.io/apimachinery); the
numbers of an object's fields are those of k8s.io/api/core/v1/generated.proto.
"""

from collections.abc import Callable, Iterator
from typing import Final

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
METADATA_ONLY: Final = f"{CONTENT_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_MAGIC: Final = b"k8s\x00"
_OBJECT, _SPEC, _AFFINITY, _GATES = 2, 2, 18, 38


def binding(name: str, uid: str, node: str) -> bytes:
    """A Binding of a pod."""
    metadata = _text(1, name) + _text(5, uid)
    target = _text(1, "Node") + _text(3, node) + _text(5, "v1")
    kind = _text(1, "v1") + _text(2, "Binding")
    return _MAGIC + _bytes(1, kind) + _bytes(_OBJECT, _bytes(1, metadata) + _bytes(2, target))


def ungated(pod: bytes, node: str = "") -> bytes:
    """A pod without its gates, pinned to a node where one is given.

    pod: as the API server answers it, without affinity.
    """
    terms = _text(1, "metadata.name") + _text(2, "In") + _text(3, node)
    # Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, and its matchFields
    pin = _bytes(_AFFINITY, _bytes(1, _bytes(1, _bytes(1, _bytes(2, terms))))) if node else b""

    def spec(found: bytes) -> bytes:
        return b"".join(whole for number, _, whole in _fields(found) if number != _GATES) + pin

    return _MAGIC + _with(pod[len(_MAGIC) :], _OBJECT, lambda raw: _with(raw, _SPEC, spec))


def _with(message: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """A message of which one field is changed."""
    return b"".join(
        _bytes(number, change(value)) if each == number else whole for each, value, whole in _fields(message)
    )


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, value (of those with a length) and all bytes of each field. Raises ValueError."""
    at = 0
    while at < len(message):
        begin = at
        tag, at = _read(message, at)
        value = b""
        match tag & 7:
            case 0:
                _, at = _read(message, at)
            case 1:
                at += 8
            case 2:
                size, at = _read(message, at)
                value, at = message[at : at + size], at + size
            case 5:
                at += 4
            case kind:
                raise ValueError(f"wire type {kind}")
        yield tag >> 3, value, message[begin:at]


def _read(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())
