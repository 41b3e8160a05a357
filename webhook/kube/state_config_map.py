"""A ConfigMap of the installation in which one program keeps something: nobody here makes it.

It is written only as it was read: where somebody else has written since, the API server refuses.
"""

from collections.abc import Mapping
from typing import Any, Final

from webhook.kube.client import MERGE_PATCH, Api

NAMESPACE: Final = "topogate-system"


def path_of(name: str) -> str:
    """The address of a ConfigMap of topogate's."""
    return f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"


class StateConfigMap:
    """One ConfigMap. version: that of what was read or written last, "" where it is not known."""

    def __init__(self, api: Api, path: str, **options: Any) -> None:
        """options: of each request, as timeout_seconds."""
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
        """Change these of its data. Raises ApiError; status 409 where somebody else has written since."""
        body = {"metadata": {"resourceVersion": self.version}, "data": data}
        answer = self._api.json("PATCH", self._path, body=body, content_type=MERGE_PATCH, **self._options)
        self.version = str(answer["metadata"]["resourceVersion"])
