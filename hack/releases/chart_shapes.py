"""The shapes of the files in the chart's values: which types and keys each field may have.

The programs refuse a file of another shape, and do not start. Helm has no schema for the content of a text,
so a template compares it with its shape (topogate.shape in checks.tpl). That of the policy comes from the
table of its fields.
"""

import copy
import re
from collections.abc import Mapping
from typing import Any, Final

from webhook.policy.reference import FIELDS

Shape = dict[str, Any]

_NUMBERS: Final = ("float64", "int64", "int")
"""The kinds of numbers in Helm's templates."""


def _of(what: str, *kinds: str, **more: Any) -> Shape:
    return {"what": what, "kinds": list(kinds), **more}


_TEXT: Final = _of("text", "string")
_TEXTS: Final = _of("a list", "slice", each=_TEXT)
_TYPES: Final[Mapping[str, Shape]] = {
    "a list": _of("a list", "slice"),
    "a mapping by namespace": _of("a mapping", "map"),
    "true or false": _of("true or false", "bool"),
    "true, false, or DeviceClass names or patterns": _of(
        "true, false or a list", "bool", "slice", each=_TEXT
    ),
    "node labels": _of("a mapping", "map", each=_TEXT),
    **dict.fromkeys(
        ("resource names or patterns", "texts", "namespace names", "level names", "schedulers' names"), _TEXTS
    ),
    **dict.fromkeys(
        ("numbers by account or pattern", "numbers by model"),
        _of("a mapping", "map", each=_of("a number", *_NUMBERS)),
    ),
}
"""By a field's type in words; a field of another type is a text."""


def labeler_shape() -> Shape:
    """The shape of the labeler's configuration, see labeler.config."""
    number = _of("a number", *_NUMBERS)
    keys = {
        "sources": _of("a list", "slice", each=_of("a name, or one name with options", "string", "map")),
        "levels": _TEXTS,
        "interval": number,
        "pci-group-level": number,
        "feature-file": _TEXT,
    }
    return _of("a mapping", "map", keys=keys, required=["sources"])


def policy_shape() -> Shape:
    """The shape of the policy."""
    root: Shape = _of("a mapping", "map", keys={}, required=[])
    for field in FIELDS:
        *above, name = field.name.replace("[]", ".EACH").split(".")
        parent = root
        for part in above:
            parent = _mapping_below(parent, part)
        shape = copy.deepcopy(_TYPES.get(field.what, _TEXT))
        if field.what == "a mapping":
            shape = _of("a mapping", "map", keys={}, required=[])
        if words := re.findall("`([^`]*)`", field.what):
            shape |= {"what": field.what.replace("`", ""), "words": words}
        parent["keys"][name] = shape
        parent["required"] += (
            [name] if field.meaning.endswith("required") or "required;" in field.meaning else []
        )
    return root


def _mapping_below(parent: Shape, part: str) -> Shape:
    """The mapping of a field, or of each of its items, where its name is in capitals."""
    found: Shape = (
        parent.setdefault("each", _of("a mapping", "map", keys={}, required=[]))
        if part.isupper()
        else parent["keys"][part]
    )
    return found
