"""An API server that answers each patch of a pod as a test says."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from webhook.kube.client import Api


class Answers(Api):
    """An API server of which each PATCH of a pod is answered by `patch`, and each GET from `there`."""

    def __init__(self, patch: Callable[[str], None], there: Mapping[str, dict[str, Any]]) -> None:
        self.patched: list[str] = []
        self._patch = patch
        self._there = there

    def request(self, method: str, path: str, **_: Any) -> bytes:
        name = path.rpartition("/")[2]
        if method == "GET":
            return msgspec.json.encode(self._there[name])
        self.patched.append(name)
        self._patch(name)
        return b"{}"


class Never:
    """An event that does not come, and that is waited for in no time."""

    def is_set(self) -> bool:
        return False

    def wait(self, _seconds: float) -> bool:
        return False
