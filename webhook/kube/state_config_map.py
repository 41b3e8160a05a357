"""A ConfigMap with the state of one program; the installation creates it.

A write carries the version of the last read, so the API server refuses it if another client wrote meanwhile.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.kube.client import MERGE_PATCH, Api

NAMESPACE: Final = "topogate-system"


def path_of(name: str) -> str:
    """The path of one of topogate's ConfigMaps."""
    return f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"


class StateConfigMap:
    """One ConfigMap. version: of the last read or write, "" if unknown."""

    def __init__(self, api: Api, path: str, **options: Any) -> None:
        """options: for each request, such as timeout_seconds."""
        self._api = api
        self._path = path
        self._options = options
        self.version = ""

    def read(self) -> dict[str, str]:
        """Its data. Raises ApiError."""
        body = self._api.json("GET", self._path, **self._options)
        self.version = str(body["metadata"]["resourceVersion"])
        return body.get("data") or {}

    def write(self, data: Mapping[str, str]) -> None:
        """Change these keys of its data. Raises ApiError; status 409 if another client wrote meanwhile."""
        body = {"metadata": {"resourceVersion": self.version}, "data": data}
        answer = self._api.json("PATCH", self._path, body=body, content_type=MERGE_PATCH, **self._options)
        self.version = str(answer["metadata"]["resourceVersion"])
