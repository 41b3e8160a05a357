"""Divides a bounded number of rules among namespaces, so that none takes the share of another. Pure."""

from collections.abc import Mapping, Sequence

Names = Sequence[str]


def lumps(wanted: Mapping[str, Names], most: int, lump: str) -> dict[str, str]:
    """The lump of each name that has no rule of its own; {} if all names fit.

    wanted: the names of each namespace, the most important first; namespaces may share a name. A lump counts
    as one rule and belongs to one namespace. If there are more namespaces than lumps, several share the last
    one. Namespaces with few names are served first and get all; the others share the rest evenly.
    """
    if len(set[str]().union(*wanted.values())) <= most:
        return {}
    order = sorted(wanted, key=lambda namespace: (len(wanted[namespace]), namespace))
    left = most if len(order) <= most else most - 1
    exact: set[str] = set()
    found: dict[str, str] = {}
    for position, namespace in enumerate(order):
        names = [name for name in dict.fromkeys(wanted[namespace]) if name not in exact]
        share = left // (len(order) - position)
        if len(names) > share:
            own = lump_of(lump, namespace) if share else lump
            found.update((name, own) for name in names[max(0, share - 1) :] if name not in found)
            names = names[: max(0, share - 1)]
            left -= share - len(names)
        exact.update(names)
        left -= len(names)
    return {name: own for name, own in found.items() if name not in exact}


def lump_of(lump: str, namespace: str) -> str:
    """The name of a namespace's lump."""
    return f"{lump} in namespace {namespace}"
