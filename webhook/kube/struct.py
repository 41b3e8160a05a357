"""What every struct of a Kubernetes object has in common, and the two maps that most of them hold."""

import msgspec

Labels = dict[str, str]
Quantities = dict[str, str | int | float]
"""Resource name -> Kubernetes quantity as written ("500m", "8", 8)."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """Base of all of these: frozen, camelCase on the wire, never part of a reference cycle."""
