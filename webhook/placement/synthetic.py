"""Synthetic resources: rules about pods that may not share a node, counted like any other resource."""

from typing import Final

WHOLE: Final = 1_000_000
"""All that a node has of a synthetic resource: more than the pods of any node, each taking 1 of it."""


def is_synthetic(resource: str) -> bool:
    """Whether the resource stands for such a rule: its name has a blank, which no node's own resource has."""
    return " " in resource
