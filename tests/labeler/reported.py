"""A source of facts for tests of what comes after the sources."""

import threading
from collections.abc import Callable

from labeler.facts import Facts, SourceError


class Reported:
    """A source that says what the test wants; None is a failure, with the partial facts if there are any."""

    def __init__(self, word: Facts | None, partial: Facts | None = None) -> None:
        self.word = word
        self.partial = partial
        self.changed: Callable[[], None] | None = None

    def discover(self) -> Facts:
        if self.word is None:
            raise SourceError("out of order", self.partial)
        return self.word

    def watch(self, changed: Callable[[], None], stop: threading.Event) -> None:
        self.changed = changed
        stop.wait()
