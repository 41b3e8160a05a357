"""Values derived from other objects, cached for as long as they are derived from the very same ones.

An object of the API server that has changed is another object here, and values derived from it are invalid.
So a comparison of identities decides whether a value is still valid. Losing a cached value only costs time.
"""

from collections.abc import Callable, Mapping
from operator import is_
from typing import Generic, TypeVar, TypeVarTuple

K = TypeVar("K")
V = TypeVar("V")
Ts = TypeVarTuple("Ts")


class IdentityCache(Generic[K, V]):
    """Values by key, each with the objects that it is made of; of one key, or of all of mappings."""

    def __init__(self) -> None:
        self._known: dict[K, tuple[V, tuple[object, ...]]] = {}
        self._used: dict[K, tuple[V, tuple[object, ...]]] = {}
        self._sources: tuple[Mapping[K, object], ...] = ()
        self._values: Mapping[K, V] = {}

    def get(self, key: K, make: Callable[[*Ts], V], *made_of: *Ts) -> V:
        """The value of a key, made of these objects unless it is known. Raises what `make` raises."""
        found = self.find(key, *made_of)
        return found if found is not None else self.keep(key, make(*made_of), *made_of)

    def find(self, key: K, *made_of: object) -> V | None:
        """The value of a key, None if none is known that is made of these objects."""
        entry = self._used.get(key) or self._known.get(key)
        if entry is None or len(entry[1]) != len(made_of) or not all(map(is_, entry[1], made_of)):
            return None
        self._used[key] = entry
        return entry[0]

    def keep(self, key: K, value: V, *made_of: object) -> V:
        """From now on the key has this value, for as long as it is made of these objects."""
        self._used[key] = value, made_of
        return value

    def end_pass(self, count: int = 0) -> None:
        """Forget what was not asked for since the last round.

        count: of the keys that there are, of which only some are asked for in a round; then they are
        forgotten once most of what is known is of others.
        """
        if len(self._known) <= 2 * count:
            self._known |= self._used
            self._used = {}
        else:
            self._known, self._used = self._used, {}

    def of_all(self, make: Callable[[K], V | None], *sources: Mapping[K, object]) -> Mapping[K, V]:
        """By key, what `make` makes of it, None for nothing; the very same mapping where nothing has changed.

        What was handed out before stays as it was. Raises what `make` raises.
        """
        before = self._sources or ({},) * len(sources)
        changed = set[K]().union(*map(changed_keys, before, sources))
        if changed:
            made = dict(self._values)
            for key in changed:
                if (value := make(key)) is None:
                    made.pop(key, None)
                else:
                    made[key] = value
            self._values = made
        self._sources = sources
        return self._values


def changed_keys(before: Mapping[K, object], now: Mapping[K, object]) -> set[K]:
    """The keys for which two mappings do not hold the very same object."""
    if before is now:
        return set()
    changed = {key for key, value in now.items() if before.get(key) is not value}
    return changed | (before.keys() - now.keys())
