"""A cache of answers for all viewers, valid for one version of the scene."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class AnswerCache(Generic[Q, A]):
    """A bounded number of answers about the latest version. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._version = -1
        self._answers: OrderedDict[Q, A] = OrderedDict()

    def get(self, version: int, question: Q) -> A | None:
        """The cached answer, None if there is none."""
        with self._lock:
            return self._answers.get(question) if version == self._version else None

    def put(self, version: int, question: Q, answer: A) -> None:
        """Add an answer; the oldest one is dropped if there are too many."""
        with self._lock:
            if version > self._version:
                self._version = version
                self._answers.clear()
            if version == self._version:
                self._answers[question] = answer
                if len(self._answers) > self._most:
                    self._answers.popitem(last=False)
