"""Shares a bounded number of rules out among namespaces: who has many takes none from the others. Pure."""

from collections.abc import Mapping, Sequence

Names = Sequence[str]


def lumps(wanted: Mapping[str, Names], most: int, lump: str) -> dict[str, str]:
    """Which names lie in which lump where there are too many; {} where all fit.

    wanted: each namespace's names, the most important first; a name may be of several. A lump counts as one,
    and is one namespace's, but for the last one, where there are more namespaces than lumps. Those that want
    little come first, so that they get it; the rest is shared evenly.
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
