"""When writes are tried again, as the writes of one step need it."""

from dataclasses import dataclass
from typing import NamedTuple

from webhook.kube.client import ApiError
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.backoff import Deferral, Deferrals, Key


def answered(error: ApiError) -> str:
    """What people are told that the API server answered."""
    return f"the API server answered {error.status}: {error}" if error.status else f"no answer: {error}"


class Retry(NamedTuple):
    """A write that has failed. seconds: after which a pass is due for it. stays: whether it fails again."""

    deferred: tuple[Key, Deferral]
    seconds: float
    stays: bool


@dataclass(frozen=True)
class Retries:
    """What was deferred when the step began. Safe for use by many threads: what fails now is in Done."""

    surroundings: Pass
    deferrals: Deferrals

    def seconds_left(self, key: Key) -> float:
        """How much longer a write is not to be tried; 0 if it may be."""
        return self.deferrals.seconds_left(key, self.surroundings.clock())

    def again(self, key: Key) -> Retry:
        """It has failed: no wait is longer than a pass happens that often whatever is heard."""
        longest, now = self.surroundings.settings.interval_seconds, self.surroundings.clock()
        deferral = Deferral.after(self.deferrals.by_key.get(key), now, longest)
        return Retry((key, deferral), deferral.until - now, deferral.is_repeated(longest))
