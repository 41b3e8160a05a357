"""The shape of the labeler's file in the chart's values: which types and keys each field may have.

The labeler refuses a file of another shape, and does not start. Helm has no schema for the content of a text,
so a template compares it with its shape (topogate.shape in checks.tpl).
"""

from typing import Any, Final

Shape = dict[str, Any]

_NUMBERS: Final = ("float64", "int64", "int")
"""The kinds of numbers in Helm's templates."""


def _of(what: str, *kinds: str, **more: Any) -> Shape:
    return {"what": what, "kinds": list(kinds), **more}


_TEXT: Final = _of("text", "string")
_TEXTS: Final = _of("a list", "slice", each=_TEXT)


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
