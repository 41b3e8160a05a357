"""What is remembered of gangs from pass to pass: it only saves work, and losing it delays."""

from collections.abc import Callable, Iterable

from webhook.sweeper.decide.completion import Completion
from webhook.sweeper.decide.rounds import Failure, Memory, Round
from webhook.sweeper.observe.gangs import GangKey, PodGang


class Memories:
    """Of each gang that is there, what it has found so far."""

    def __init__(self, completion: Completion, clock: Callable[[], float]) -> None:
        self._completion = completion
        self._clock = clock
        self._memories: dict[GangKey, Memory] = {}

    def keep_only(self, keys: Iterable[GangKey]) -> None:
        """Forget gangs that are gone."""
        self._memories = {key: self._memories.get(key) or Memory() for key in keys}

    def of(self, key: GangKey) -> Memory:
        """What is known of a gang, to be changed in place."""
        return self._memories[key]

    def failure(self, gang: PodGang, avoid: frozenset[str], now: Round) -> Failure:
        """What is to be remembered if the gang finds no place now."""
        return Failure(self._completion.members(gang), avoid, now.ground.usage_version, self._clock())
