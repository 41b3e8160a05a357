"""The preemption view: would the gang fit if pods of lower priority went, and which would have to go?

Victims are units: all pods of one gang that this snapshot shows, or a single pod without a gang. Units are
given up from the lowest priority up, no more priorities than the gang needs; then, on the nodes found, every
unit that need not go is taken back, the most important and largest first. So no victim can be spared (the
set is minimal), but a smaller set on other nodes may exist: choosing the fewest of all is set cover.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from webhook.placement.check import check
from webhook.placement.model import Assignment, Gang, NoFit, Options, Usage
from webhook.placement.place import place
from webhook.placement.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Preemption:
    """An assignment that holds once these pods (Usage.name, sorted) are gone from their nodes."""

    assignment: Assignment
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Unit:
    """What goes together. name: the gang's or the pod's; priority: the highest of its pods."""

    name: str
    priority: int
    pods: frozenset[tuple[str, str]]
    """(node name, pod name)."""


def place_over(
    gang: Gang, priority: int, snapshot: Snapshot, options: Options | None = None
) -> Preemption | NoFit:
    """A place for the gang at the expense of pods of lower priority only; NoFit if even that is too little.

    A gang that fits as it is has no victims. Only pods whose Usage has a name can go.
    """
    units = [unit for unit in _units(snapshot) if unit.priority < priority]
    found = place(gang, snapshot, options)
    for limit in sorted({unit.priority for unit in units}):
        if isinstance(found, Assignment):
            break
        gone = [unit for unit in units if unit.priority <= limit]
        found = place(gang, without(snapshot, gone), options)
        if isinstance(found, Assignment):
            return _sparing(found, gang, snapshot, gone)
    return Preemption(found, ()) if isinstance(found, Assignment) else found


def _sparing(found: Assignment, gang: Gang, snapshot: Snapshot, gone: list[_Unit]) -> Preemption:
    """Take back every unit without which the assignment still holds."""
    used = {placed.node for placed in found.placed}
    needed = [unit for unit in gone if any(node in used for node, _ in unit.pods)]
    for unit in sorted(needed, key=lambda u: (-u.priority, -len(u.pods), u.name)):
        fewer = [other for other in needed if other is not unit]
        if not check(found, gang, without(snapshot, fewer)):
            needed = fewer
    return Preemption(found, tuple(sorted(pod for unit in needed for _, pod in unit.pods)))


def without(snapshot: Snapshot, units: Iterable[_Unit]) -> Snapshot:
    """The snapshot without the pods of these units."""
    pods = {pod for unit in units for pod in unit.pods}
    names = {name for _, name in pods}
    return snapshot.without({node for node, _ in pods}, lambda use: use.name in names)


def _units(snapshot: Snapshot) -> list[_Unit]:
    pods: dict[tuple[str, str], list[tuple[str, Usage]]] = {}
    for name, state in snapshot.nodes.items():
        for use in state.usages:
            if use.name:
                pods.setdefault(("gang", use.gang) if use.gang else ("pod", use.name), []).append((name, use))
    return [_unit(key, members) for key, members in pods.items()]


def _unit(key: tuple[str, str], members: list[tuple[str, Usage]]) -> _Unit:
    return _Unit(
        key[1],
        max(use.priority for _, use in members),
        frozenset((node, use.name) for node, use in members),
    )
