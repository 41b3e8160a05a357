"""Viewers and their rights, by TokenReviews and SubjectAccessReviews of the API server.

On a laptop the viewer is the kubeconfig's user, and the page shows what that user can list. In a cluster each
viewer has a bearer token. If configured, a proxy names the user in a header instead.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from webhook.kube.access import UserInfo, may
from webhook.kube.client import Api
from webhook.ui.redact import Rights

BELIEVED_SECONDS: Final = 60.0
"""How long an answer of the API server is cached; a revoked right ends after this time."""

MOST_ANSWERS: Final = 20_000
MOST_TOKENS: Final = 2_000
UNKNOWN_TOKENS_A_SECOND: Final = 20
"""The most checks of tokens that have not been accepted before, for all viewers together."""

MOST_NAMESPACES: Final = 500
"""The most namespaces that are checked for one viewer; names in further namespaces stay hidden."""


class Answers:
    """A bounded cache of answers by question, for BELIEVED_SECONDS. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST_ANSWERS) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[object, tuple[float, Any]] = OrderedDict()

    def get(self, question: object, ask: Callable[[], Any]) -> Any:
        """The cached answer, or a new one by `ask`, whose exceptions are not cached."""
        now = self._clock()
        with self._lock:
            known = self._known.get(question)
        if known is not None and now - known[0] < BELIEVED_SECONDS:
            return known[1]
        answer = ask()
        with self._lock:
            self._known[question] = (now, answer)
            self._known.move_to_end(question)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return answer


class TooManyError(Exception):
    """Too many unknown tokens are being checked; the message says what to do."""


class UnknownTokens:
    """Limits the checks of tokens that the API server has not accepted before.

    Any client that reaches the page can invent tokens. Checks of accepted tokens are never limited.
    Thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._left = float(UNKNOWN_TOKENS_A_SECOND)
        self._at = clock()

    def let_in(self, digest: str) -> None:
        """Count the check of a token. Raises TooManyError."""
        with self._lock:
            if digest in self._known:
                return
            now = self._clock()
            self._left = min(UNKNOWN_TOKENS_A_SECOND, self._left + (now - self._at) * UNKNOWN_TOKENS_A_SECOND)
            self._at = now
            if self._left < 1:
                raise TooManyError("Too many unknown tokens are being checked; try again in a moment.")
            self._left -= 1

    def know(self, digest: str) -> None:
        """Record an accepted token."""
        with self._lock:
            self._known[digest] = None
            self._known.move_to_end(digest)
            while len(self._known) > MOST_TOKENS:
                self._known.popitem(last=False)


class Gatekeeper:
    """Turns tokens into viewers, and viewers into rights."""

    def __init__(
        self, api: Api, answers: Answers | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """api: may create TokenReviews and SubjectAccessReviews."""
        self._api = api
        self._answers = answers or Answers(clock)
        self._tokens = Answers(clock, MOST_TOKENS)
        self._unknown_tokens = UnknownTokens(clock)

    def viewer(self, token: str) -> UserInfo | None:
        """The user of a token, None if the API server does not accept it.

        Raises ApiError, and TooManyError if too many unknown tokens are being checked.
        """
        digest = _digest(token)

        def ask() -> UserInfo | None:
            self._unknown_tokens.let_in(digest)
            found = self._review(token)
            if found is not None:
                self._unknown_tokens.know(digest)
            return found

        viewer: UserInfo | None = self._tokens.get(digest, ask)
        return viewer

    def rights(self, viewer: UserInfo, namespaces: Iterable[str]) -> Rights:
        """The viewer's rights to list nodes, and pods of these namespaces. Raises ApiError."""
        nodes = self._may(viewer, "nodes", "")
        if self._may(viewer, "pods", ""):
            return Rights(None, nodes)
        asked = sorted(set(namespaces))[:MOST_NAMESPACES]
        return Rights(frozenset(name for name in asked if self._may(viewer, "pods", name)), nodes)

    def may_see(self, viewer: UserInfo, resource: str, namespace: str) -> bool:
        """Whether the viewer may list a core resource of a namespace. Raises ApiError."""
        return self._may(viewer, resource, namespace)

    def _may(self, viewer: UserInfo, resource: str, namespace: str) -> bool:
        question = (viewer, resource, namespace)
        return bool(self._answers.get(question, lambda: self._ask(viewer, resource, namespace)))

    def _review(self, token: str) -> UserInfo | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = self._api.json("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body)
        status: Mapping[str, Any] = answer.get("status") or {}
        if not status.get("authenticated"):
            return None
        return UserInfo.of(status.get("user") or {})

    def _ask(self, viewer: UserInfo, resource: str, namespace: str) -> bool:
        attributes = {"verb": "list", "resource": resource, "version": "v1"}
        if namespace:
            attributes["namespace"] = namespace
        return may(self._api, viewer, attributes)


def _digest(token: str) -> str:
    """The hash of a token: the cache must not contain tokens."""
    return hashlib.sha256(token.encode()).hexdigest()
