"""Of the annotations of an object those that topogate reads, and only to a length that makes sense. Pure.

A pod may have 256 KiB of them, and its author alone chooses what they say.
"""

import hashlib
from typing import Final

from labeler.contract import keys
from webhook.kube import sharing
from webhook.workloads import marks

SHORT: Final = marks.ALL | {
    keys.INJECT_ANNOTATION,
    *keys.WISH_ANNOTATIONS,
    keys.GAS_TIMESTAMP_ANNOTATION,
    keys.GAS_ALLOW_ANNOTATION,
    keys.GAS_DENY_ANNOTATION,
    keys.GAS_SAME_GPU_ANNOTATION,
    keys.GAS_XELINK_ANNOTATION,
    keys.GAS_SINGLE_NUMA_ANNOTATION,
    keys.INITIAL_EVENTS_END,
    keys.MIRROR_POD_ANNOTATION,
}
"""Those of a name, a number or a short list. What is in neither of these sets is not kept in memory."""

LONG: Final = frozenset({keys.GAS_CARDS_ANNOTATION, keys.GAS_TILES_ANNOTATION})
"""Those that grow with the containers of a pod and the cards of a node."""

OF_NODES: Final = frozenset(
    {
        keys.OFFERED_CARDS_ANNOTATION,
        keys.UNPLANNED_CARDS_ANNOTATION,
        keys.IDENTIFIES_PODS_ANNOTATION,
        keys.FORGIVE_FAILURES_ANNOTATION,
    }
)
"""Those that are read of Nodes alone: they grow with a node's cards and pods, and no tenant writes them."""

NEVER_SHORTENED: Final = marks.GANG_KEYS | {
    keys.GANG_ANNOTATION,
    keys.REQUIRED_TOPOLOGY_ANNOTATION,
    keys.PREFERRED_TOPOLOGY_ANNOTATION,
    keys.SLICE_TOPOLOGY_ANNOTATION,
    keys.SLICE_SIZE_ANNOTATION,
    keys.SPREAD_TOPOLOGY_ANNOTATION,
    keys.GAS_ALLOW_ANNOTATION,
    keys.GAS_DENY_ANNOTATION,
    keys.GAS_SAME_GPU_ANNOTATION,
}
"""Those without whose value a pod cannot be placed as its author meant it."""

NAME_ANNOTATION: Final = 256
"""Characters that are read of what other controllers write: names of objects, which have 253, and numbers."""

SHORT_ANNOTATION: Final = 1024
"""Characters that are read of a wish to us: the name of a gang, a list of cards or containers."""

LONG_ANNOTATION: Final = 15 * 1024
"""Characters that are read of an allocation: 16 cards with 2 tiles each in 50 containers take 12,000."""

_NAMED: Final = SHORT | OF_NODES

MOST_UNKNOWN: Final = 4
"""Keys under our own name that mean nothing, of which the author is warned; their values are dropped."""

WORD: Final = 5
"""Characters that are read of Volcano's mode: "soft", "hard", or one more, which is neither."""

OTHER_ANNOTATIONS: Final[dict[str, str]] = {"": ""}
"""Stands for annotations of which none is read: that there are any decides how one is added (RFC 6902)."""

_TOO_LONG: Final = "(too long: "


def node_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """Those that are read of a Node, and those of any object."""
    own = {key: annotations[key] for key in sorted(OF_NODES & annotations.keys())}
    read = {key: value for key, value in own.items() if len(value) <= LONG_ANNOTATION}
    rest = read_annotations(annotations)
    return {**rest, **read} if rest is not OTHER_ANNOTATIONS else read or rest


def read_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """Those that are read, and a few keys of which the author is warned that they are not.

    In the place of one that is too long stands what is_too_long knows again.

    Two different values do not get the same substitute.
    """
    read = {}
    for key, value in annotations.items():
        most = most_characters(key)
        if most:
            read[sharing.text(key)] = value if len(value) <= most else _substitute(value, most)
    read |= _keys_to_warn_of(annotations)
    return read or (OTHER_ANNOTATIONS if annotations else annotations)


def _keys_to_warn_of(annotations: dict[str, str]) -> dict[str, str]:
    """Requests in other schedulers' words, and a few unknown keys under our own name; no values."""
    foreign = marks.TOPOLOGY_REQUESTS.keys() & annotations.keys()
    unknown = sorted(key for key in annotations if key.startswith(keys.TOPOGATE_PREFIX) and key not in _NAMED)
    warned_of = {sharing.text(key): "" for key in (*sorted(foreign), *unknown[:MOST_UNKNOWN])}
    if marks.VOLCANO_TOPOLOGY_MODE in warned_of:
        warned_of[marks.VOLCANO_TOPOLOGY_MODE] = annotations[marks.VOLCANO_TOPOLOGY_MODE][:WORD]
    return warned_of


def most_characters(key: str) -> int:
    """How much is read of the annotation with this key, 0 for one that is not read."""
    if key in LONG:
        return LONG_ANNOTATION
    if key not in SHORT:
        return 0
    return SHORT_ANNOTATION if key.startswith(("gas-", "topogate.io/")) else NAME_ANNOTATION


def is_too_long(value: str) -> bool:
    """Whether this stands for an annotation that was too long to be read."""
    return value.startswith(_TOO_LONG)


def _substitute(value: str, most: int) -> str:
    digest = hashlib.sha256(value.encode()).hexdigest()[:16]
    return f"{_TOO_LONG}{len(value)} of at most {most} characters; {digest})"
