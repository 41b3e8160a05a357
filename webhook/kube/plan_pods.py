"""The pods of a plan: readable one by one, or packed if they are many.

A plan is one object, so that one write makes it durable. etcd accepts 1.5 MB, which is about 5,000 pods with
cards one by one. The packed form is a JSON object with a list for each field of the pods, in gzip and base64
(`base64 -d | zcat` shows it). 20,000 pods with cards take 0.9 to 1.2 MB, mostly for uids and the random ends
of names. Equal pods give equal text.
"""

import binascii
import gzip
import zlib
from typing import Final

import msgspec

from webhook.kube.struct import Struct

PLAIN_PODS: Final = 2000
"""The most pods of a plan that are written one by one."""
UNPACKED_BYTES: Final = 24 << 20
"""The most JSON that is unpacked: a short text may expand to gigabytes. 20,000 pods take a quarter of it."""
MOST_PODS: Final = 100_000
"""The most pods that are unpacked: in memory, an empty one takes many times its text."""
_COMMAS: Final = 10
"""The most commas that one pod takes, with its cards."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class PlannedPod(Struct, frozen=True, omit_defaults=True):
    """One pod of the plan.

    annotations: as they will be written on it; they assign its cards and its position in the release queue.
    node: "" if kube-scheduler chooses it, after it refused our choices. node_hash: of the node when it was
    chosen, see node_hashes in observe.plans; "" in plans of v0.1.
    """

    name: str
    uid: str
    node: str
    rank: int | None = None
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_hash: str = ""


class _Columns(Struct, frozen=True):
    """A list for each field of the pods: similar values are adjacent and compress well."""

    name: list[str]
    uid: list[str]
    node: list[str]
    rank: list[int | None]
    annotations: list[dict[str, str]]
    node_hash: list[str] = msgspec.field(default_factory=list)


_decoder: Final = msgspec.json.Decoder(_Columns)


def pack(pods: list[PlannedPod]) -> str:
    """The packed text of these pods."""
    columns = _Columns(*([getattr(pod, name) for pod in pods] for name in _Columns.__struct_fields__))
    # Level 9 saves 1 % and takes twice as long. mtime=0: equal plans give equal text.
    body = gzip.compress(msgspec.json.encode(columns), 6, mtime=0)
    return binascii.b2a_base64(body, newline=False).decode()


def unpack(text: str) -> list[PlannedPod]:
    """The pods of a packed text.

    Raises ValueError, whose message says what is wrong, for any other text or if it expands to too much.
    """
    inflater = zlib.decompressobj(_GZIP)
    try:
        body = inflater.decompress(binascii.a2b_base64(text.encode(), strict_mode=True), UNPACKED_BYTES)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"packed: not gzip in base64: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise ValueError(f"packed: not one gzip stream of at most {UNPACKED_BYTES:,} bytes")
    if body.count(b",") > MOST_PODS * _COMMAS:
        raise ValueError(f"packed: more values than {MOST_PODS:,} pods have")
    columns = _decoder.decode(body)
    hashes = columns.node_hash or [""] * len(columns.name)
    rows = zip(
        columns.name, columns.uid, columns.node, columns.rank, columns.annotations, hashes, strict=True
    )  # ValueError if the lists differ in length
    return [PlannedPod(*row) for row in rows]
