"""An API server that takes Placements or refuses them, and what is reported to it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from webhook.kube.client import Api
from webhook.kube.placements import Placement
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide.orders import Done, Orders
from webhook.sweeper.decide.retries import RetryTable
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.report import Reporter
from webhook.sweeper.report_memory import ReportMemory


class Answers(Api):
    """An API server that answers each write as the test says: by an error, or by taking it."""

    def __init__(self) -> None:
        self.answer: Exception | None = None
        self.writes: list[str] = []
        self.bodies: list[Any] = []

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.writes.append(f"{method} {path}")
        self.bodies.append(body)
        if self.answer is not None:
            raise self.answer
        metadata = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
        return msgspec.json.encode({"metadata": metadata})


class Copy:
    """Placements as they were written."""

    def __init__(self) -> None:
        self.placements: dict[str, Placement] = {}

    def current_placements(self) -> dict[str, Placement]:
        return self.placements

    def written(self, placement: Placement) -> None:
        pass

    def forgotten(self, placement: Placement) -> None:
        pass


class Reports:
    """The reports of one pass after the other, of which each remembers what those before have reported."""

    def __init__(self, surroundings: Pass) -> None:
        self.reporter = Reporter(surroundings)
        self.memory = ReportMemory()
        self._surroundings, self._table = surroundings, RetryTable()

    def on_result(self, news: Orders | Done) -> None:
        self.memory = self.reporter.on_result(news, self.memory)

    def report(self, view: View, gangs: Sequence[PodGang], **rest: Any) -> bool:
        """Returns whether all was written."""
        retries = Retries(self._surroundings, self._table)
        is_whole, self.memory = self.reporter.report(view, gangs, self.memory, retries, **rest)
        self._table = retries.table
        return is_whole
