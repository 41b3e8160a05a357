"""The latest few answers to questions that many viewers ask alike."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class Kept(Generic[Q, A]):
    """At most so many answers; the oldest go first. Safe for use by many threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._answers: OrderedDict[Q, A] = OrderedDict()

    def get(self, question: Q) -> A | None:
        """The answer, if it is kept."""
        with self._lock:
            return self._answers.get(question)

    def put(self, question: Q, answer: A) -> None:
        """Keep an answer."""
        with self._lock:
            self._answers[question] = answer
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
