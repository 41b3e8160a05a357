"""Who looks, and what that person may list, as the API server itself answers it.

On a laptop the page is the kubeconfig's user and shows what that user can list. In a cluster each viewer
brings a bearer token, or, only where configured, a proxy in front names the user in a header.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.kube.client import Api
from webhook.ui.redact import Rights

BELIEVED_SECONDS: Final = 60.0
"""How long an answer of the API server counts; a right that is taken away is gone after this."""

MOST_ANSWERS: Final = 20_000
MOST_NAMESPACES: Final = 500
"""Asked about for one viewer; names in further namespaces stay hidden."""


@dataclass(frozen=True)
class Viewer:
    """A user as the API server knows users."""

    user: str
    groups: tuple[str, ...] = ()


class Answers:
    """Answers by question, for BELIEVED_SECONDS, at most MOST_ANSWERS of them. Safe for many threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[object, tuple[float, Any]] = OrderedDict()

    def get(self, question: object, ask: Callable[[], Any]) -> Any:
        """The answer, asked for if it is not known or too old. What `ask` raises is not remembered."""
        now = self._clock()
        with self._lock:
            known = self._known.get(question)
        if known is not None and now - known[0] < BELIEVED_SECONDS:
            return known[1]
        answer = ask()
        with self._lock:
            self._known[question] = (now, answer)
            self._known.move_to_end(question)
            while len(self._known) > MOST_ANSWERS:
                self._known.popitem(last=False)
        return answer


class Gatekeeper:
    """Turns tokens into viewers, and viewers into rights."""

    def __init__(self, api: Api, answers: Answers | None = None) -> None:
        """api: may create TokenReviews and SubjectAccessReviews."""
        self._api = api
        self._answers = answers or Answers()

    def viewer(self, token: str) -> Viewer | None:
        """Whose token it is; None for one that the API server does not accept. Raises ApiError."""
        found: Viewer | None = self._answers.get(_digest(token), lambda: self._review(token))
        return found

    def rights(self, viewer: Viewer, namespaces: Iterable[str]) -> Rights:
        """What the viewer may list, as far as these namespaces go. Raises ApiError."""
        nodes = self._may(viewer, "nodes", "")
        if self._may(viewer, "pods", ""):
            return Rights(None, nodes)
        asked = sorted(set(namespaces))[:MOST_NAMESPACES]
        return Rights(frozenset(name for name in asked if self._may(viewer, "pods", name)), nodes)

    def may_see(self, viewer: Viewer, resource: str, namespace: str) -> bool:
        """Whether the viewer may list a core resource of a namespace. Raises ApiError."""
        return self._may(viewer, resource, namespace)

    def _may(self, viewer: Viewer, resource: str, namespace: str) -> bool:
        question = (viewer, resource, namespace)
        return bool(self._answers.get(question, lambda: self._ask(viewer, resource, namespace)))

    def _review(self, token: str) -> Viewer | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = self._api.json("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body)
        status: Mapping[str, Any] = answer.get("status") or {}
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        return Viewer(str(user.get("username", "")), tuple(user.get("groups") or ()))

    def _ask(self, viewer: Viewer, resource: str, namespace: str) -> bool:
        attributes = {"verb": "list", "resource": resource, "version": "v1"}
        if namespace:
            attributes["namespace"] = namespace
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": viewer.user,
                "groups": list(viewer.groups),
                "resourceAttributes": attributes,
            },
        }
        answer = self._api.json("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
        return bool((answer.get("status") or {}).get("allowed"))


def _digest(token: str) -> str:
    """What stands for a token among the answers, so that none is kept."""
    return hashlib.sha256(token.encode()).hexdigest()
