"""A Node in memory."""

from typing import Any

from labeler.api import NodeApiError


class PlayedNode:
    """A Node in memory, in the place of the API server, with a writer of its own."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.annotations: dict[str, str] = {}
        self.managed: list[dict[str, Any]] = []
        self.events: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.uid = ""
        self.takes_events = True

    def metadata(self) -> dict[str, Any]:
        return {
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "managedFields": self.managed,
            **({"uid": self.uid} if self.uid else {}),
        }

    def patch(self, body: dict[str, Any], subresource: str = "") -> None:
        self.bodies.append(body)
        self.labels |= body["metadata"].get("labels", {})
        self.annotations |= body["metadata"].get("annotations", {})

    def warn(self, reason: str, text: str) -> None:
        if not self.takes_events:
            raise NodeApiError(403, "no Events")
        self.events.append((reason, text))
