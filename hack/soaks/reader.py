"""Reads collections by list and watch, over restarts of the API server, for what judges them."""

import json
import threading
from collections.abc import Iterator
from typing import Any, Final

from hack.soaks.ledger import Ledger
from webhook.kube.client import Api, ApiError

PODS: Final = "/api/v1/pods"
PLACEMENTS: Final = "/apis/topogate.io/v1alpha1/placements"
WATCHED: Final = (PLACEMENTS, PODS)
"""All that a ledger judges."""

Json = dict[str, Any]


class CollectionReader(threading.Thread):
    """Passes on every version of each object of one collection. Override `on_version` and `on_list`."""

    def __init__(self, api: Api, path: str, watch_seconds: int = 600) -> None:
        """watch_seconds: how long one watch lasts, and so at most the thread once it is to stop.

        faults: why it has ended by itself, if it has.
        """
        super().__init__(name=f"reader {path}", daemon=True)
        self._api, self._path, self._seconds = api, path, watch_seconds
        self.stopping = threading.Event()
        self.lists = 0
        self.faults: list[str] = []

    def on_version(self, kind: str, item: Json, *, in_order: bool) -> None:
        """An object as it is now. kind: of the event. in_order: by a watch, not by a list after a gap."""

    def on_list(self, items: list[Json]) -> None:
        """All objects that there are, before they are passed on one by one."""

    def run(self) -> None:
        """List, watch, and list again when the history has gone."""
        try:
            self._read()
        except Exception as error:  # else nothing more of it would be judged, and that found well
            self.faults.append(f"of {self._path} nothing more was judged: {error!r}")
            raise

    def _read(self) -> None:
        version = ""
        while not self.stopping.is_set():
            try:
                version = version or self._list()
                for line in self._lines(version):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self.on_version(event["type"], event["object"], in_order=True)
            except ApiError as error:
                version = "" if error.status == 410 else version
                self.stopping.wait(0.2)

    def _lines(self, version: str) -> Iterator[bytes]:
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(self._seconds)}
        return self._api.lines(self._path, query=query, timeout_seconds=self._seconds + 5)

    def _list(self) -> str:
        answer = self._api.json("GET", self._path)
        self.lists += 1
        self.on_list(answer["items"])
        for item in answer["items"]:
            self.on_version("ADDED", item, in_order=False)
        return str(answer["metadata"]["resourceVersion"])


class LedgerReader(CollectionReader):
    """Reports what it reads to a ledger."""

    def __init__(self, api: Api, path: str, ledger: Ledger, watch_seconds: int = 600) -> None:
        """As CollectionReader. path: one of WATCHED."""
        super().__init__(api, path, watch_seconds)
        self._ledger = ledger

    def on_list(self, items: list[Json]) -> None:
        """What is not among them is gone."""
        if self._path == PODS:
            self._ledger.keep_only(items)

    def on_version(self, kind: str, item: Json, *, in_order: bool) -> None:
        """A version of a pod or plan."""
        note = self._ledger.pod if self._path == PODS else self._ledger.plan
        note(kind, item, in_order=in_order)
