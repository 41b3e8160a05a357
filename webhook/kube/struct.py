"""The base of all structs of Kubernetes objects, and two common types of maps."""

import msgspec

Labels = dict[str, str]
Quantities = dict[str, str | int | float]
"""Resource name -> Kubernetes quantity as in the object ("500m", "8", 8)."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """Base of these structs: frozen, camelCase on the wire, never part of a reference cycle."""
