"""An API server that takes Placements or refuses them."""

from typing import Any

import msgspec

from webhook.kube.client import Api
from webhook.kube.placements import Placement


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
