"""Selects the annotations of an object that topogate reads, and limits their length. Pure.

A pod may have 256 KiB of annotations, and its author may write anything into them.
"""

import hashlib
from typing import Final

from labeler.contract import keys
from webhook.kube import sharing
from webhook.workloads import marks

NUMBERS: Final = frozenset(
    {
        keys.GANG_SIZE_ANNOTATION,
        keys.GANG_MIN_SIZE_ANNOTATION,
        keys.MOVABLE_ANNOTATION,
        keys.MOVABLE_AFTER_ANNOTATION,
    }
)
"""Annotations with a number, a duration or a word."""

SHORT: Final = marks.ALL | {
    marks.CONSUMED_REQUEST,
    keys.INJECT_ANNOTATION,
    *keys.REQUEST_ANNOTATIONS,
    *NUMBERS,
    *keys.CARD_REQUESTS,
    keys.GAS_TIMESTAMP_ANNOTATION,
    keys.INITIAL_EVENTS_END,
    keys.MIRROR_POD_ANNOTATION,
}
"""Annotations with a name, a number or a short list. Annotations in none of these sets are dropped."""

LONG: Final = frozenset({keys.GAS_CARDS_ANNOTATION, keys.GAS_TILES_ANNOTATION})
"""Annotations that grow with the containers of a pod and the cards of a node."""

OF_NODES: Final = frozenset(
    {
        keys.OFFERED_CARDS_ANNOTATION,
        keys.UNPLANNED_CARDS_ANNOTATION,
        keys.IDENTIFIES_PODS_ANNOTATION,
        keys.RESET_FAILURES_ANNOTATION,
        keys.RESET_FAILURES_V01,
    }
)
"""Annotations that are read from Nodes alone. They grow with a node's cards and pods; tenants cannot write
them."""

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
"""Annotations whose whole value is needed to place a pod as its author intends."""

NAME_ANNOTATION: Final = 256
"""Characters read of other controllers' annotations: names of objects (at most 253) and numbers."""

SHORT_ANNOTATION: Final = 1024
"""Characters read of a request to topogate: the name of a gang, a list of cards or containers."""

LONG_ANNOTATION: Final = 15 * 1024
"""Characters read of an allocation: 16 cards with 2 tiles each in 50 containers take 12,000."""

_NAMED: Final = SHORT | OF_NODES

MOST_UNKNOWN: Final = 4
"""Unknown keys with topogate's prefix that the author is warned of; their values are dropped."""

WORD: Final = 5
"""Characters read of Volcano's mode: "soft" and "hard" have 4, and a fifth shows that it is neither."""

OTHER_ANNOTATIONS: Final[dict[str, str]] = {"": ""}
"""Represents annotations that are all dropped: adding one is another JSON patch (RFC 6902) if there are
any."""

_TOO_LONG: Final = "(too long: "


def node_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """The annotations that are read from a Node, including those read from any object.

    A reset of failures under its name in v0.1 is there under both names, unless the Node has the present one.
    """
    own = {key: annotations[key] for key in sorted(OF_NODES & annotations.keys())}
    if keys.RESET_FAILURES_V01 in own:
        own.setdefault(keys.RESET_FAILURES_ANNOTATION, own[keys.RESET_FAILURES_V01])
    read = {key: value for key, value in own.items() if len(value) <= LONG_ANNOTATION}
    rest = read_annotations(annotations)
    return {**rest, **read} if rest is not OTHER_ANNOTATIONS else read or rest


def read_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """The annotations that are read, and a few others without values, for a warning to the author.

    A value that is too long is replaced by a substitute that is_too_long recognizes. Different values have
    different substitutes.
    """
    read = {}
    for key, value in annotations.items():
        most = most_characters(key)
        if most:
            read[sharing.text(key)] = value if len(value) <= most else _substitute(value, most)
    read |= _keys_to_warn_of(annotations)
    return read or (OTHER_ANNOTATIONS if annotations else annotations)


def _keys_to_warn_of(annotations: dict[str, str]) -> dict[str, str]:
    """Requests to other schedulers, and a few unknown keys with topogate's prefix, without values."""
    foreign = marks.TOPOLOGY_REQUESTS.keys() & annotations.keys()
    unknown = sorted(key for key in annotations if key.startswith(keys.TOPOGATE_PREFIX) and key not in _NAMED)
    warned_of = {sharing.text(key): "" for key in (*sorted(foreign), *unknown[:MOST_UNKNOWN])}
    if marks.VOLCANO_TOPOLOGY_MODE in warned_of:
        warned_of[marks.VOLCANO_TOPOLOGY_MODE] = annotations[marks.VOLCANO_TOPOLOGY_MODE][:WORD]
    return warned_of


def most_characters(key: str) -> int:
    """How many characters of the annotation with this key are read, 0 for one that is not read."""
    if key in LONG:
        return LONG_ANNOTATION
    if key not in SHORT:
        return 0
    if key in NUMBERS:
        return NAME_ANNOTATION
    return SHORT_ANNOTATION if key.startswith(("gas-", "topogate.io/")) else NAME_ANNOTATION


def is_too_long(value: str) -> bool:
    """Whether this value is the substitute for one that was too long."""
    return value.startswith(_TOO_LONG)


def _substitute(value: str, most: int) -> str:
    digest = hashlib.sha256(value.encode()).hexdigest()[:16]
    return f"{_TOO_LONG}{len(value)} of at most {most} characters; {digest})"
