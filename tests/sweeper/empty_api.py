"""An API server without objects."""

from typing import Any

from webhook.kube.client import Api, ApiError, Stream


class Empty(Api):
    """An API server that has nothing."""

    def __init__(self) -> None:
        pass

    def request(self, method: str, path: str, **_: Any) -> bytes:
        raise ApiError(404, "NotFound", f"{method} {path}: there is none")

    def stream(self, path: str, **_: Any) -> Stream:
        raise ApiError(404, "NotFound", f"GET {path}: there is none")
