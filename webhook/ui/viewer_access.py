"""Access to the page: the user of a laptop, or users of the cluster's API server.

On a laptop the address has a random secret, so that other users of the machine and other sites cannot read
the page, and the Host header must name loopback. The browser keeps the secret in a cookie. Cookies ignore
ports, so the browser also sends it to any other page on this laptop's loopback that the user opens. In a
cluster each viewer has a token.
"""

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from flask import Response, redirect, request

from webhook.kube.access import UserInfo
from webhook.kube.client import ApiError
from webhook.ui.redact import EVERYTHING, Rights
from webhook.ui.rights import Gatekeeper, TooManyError

COOKIE: Final = "topogate-ui"
"""The name of the cookie; on a laptop the port is appended, so that one page does not log out of another."""

SESSION_SECONDS: Final = 8 * 3600.0
TIDY_SECONDS: float = 60.0
"""The token of an ended session is dropped after this time at the latest."""
MOST_SESSIONS: Final = 1_000
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class NoViewerError(Exception):
    """The request has no valid viewer; the message says how to log in."""


@dataclass(frozen=True)
class CurrentViewer:
    """A viewer with current rights. name: displayed on the page."""

    name: str
    rights: Rights
    event_namespaces: Container[str] | None = None

    def may_see_events(self, namespace: str) -> bool:
        """Whether Events of a namespace may be shown."""
        return self.event_namespaces is None or namespace in self.event_namespaces


class Access(Protocol):
    """Authenticates the viewers of requests."""

    def refusal(self) -> Response | None:
        """The answer if the request is refused before its route, None otherwise."""

    def viewer(self) -> UserInfo:
        """The viewer of the request. Raises NoViewerError."""

    def watched(self) -> Callable[[], bool]:
        """A function: whether the viewer still has access. It can be called after the request."""

    def seen(self, viewer: UserInfo, namespaces: Iterable[str]) -> CurrentViewer:
        """The viewer with rights for these namespaces. Raises ApiError."""

    def login(self, token: str) -> Response:
        """Answer the page's form."""


class LaptopAccess:
    """The user with the secret address, who sees everything that the kubeconfig may list."""

    def __init__(self, name: str, secret: str | None = None) -> None:
        """name: of the kubeconfig's user, displayed on the page."""
        self.secret = secret or secrets.token_urlsafe(24)
        self._viewer = UserInfo(name)

    def refusal(self) -> Response | None:
        """Refuse a Host that is not loopback, such as a site's name that resolves here (DNS rebinding)."""
        host = request.host.rpartition(":")[0] or request.host
        if host not in LOOPBACK:
            return Response("This page answers on loopback alone.", 403, content_type="text/plain")
        given = request.args.get("secret")
        if request.path == "/" and given is not None:
            answer = redirect("/")
            if hmac.compare_digest(given.encode(), self.secret.encode()):
                answer.set_cookie(_own_cookie(), self.secret, httponly=True, samesite="Strict")
            assert isinstance(answer, Response)
            return answer
        return None

    def viewer(self) -> UserInfo:
        """The user, if the request has the secret."""
        if not hmac.compare_digest(request.cookies.get(_own_cookie(), "").encode(), self.secret.encode()):
            raise NoViewerError("Open the address that `topogate ui` printed: it carries the secret.")
        return self._viewer

    def watched(self) -> Callable[[], bool]:
        """The secret is valid for as long as the process lives."""
        return lambda: True

    def seen(self, viewer: UserInfo, namespaces: Iterable[str]) -> CurrentViewer:
        """All rights, since this process lists everything as the user."""
        return CurrentViewer(viewer.user, EVERYTHING)

    def login(self, token: str) -> Response:
        """The answer that a laptop has no login."""
        return Response("On a laptop there is no login.", 404, content_type="text/plain")


def _own_cookie() -> str:
    port = (
        request.host.partition(":")[2]
        if not request.host.startswith("[")
        else request.host.partition("]:")[2]
    )
    return f"{COOKIE}-{port}" if port else COOKIE


@dataclass(frozen=True)
class _EventNamespaces:
    """The namespaces where a viewer may list Events, checked on demand."""

    gatekeeper: Gatekeeper
    viewer: UserInfo

    def __contains__(self, namespace: object) -> bool:
        return self.gatekeeper.may_see(self.viewer, "events", str(namespace))


@dataclass(frozen=True)
class Proxy:
    """The headers of a proxy with the user and, comma-separated, the groups."""

    user_header: str
    groups_header: str = ""


class ClusterAccess:
    """Viewers with their own token, or named by a configured proxy."""

    def __init__(
        self,
        gatekeeper: Gatekeeper,
        proxy: Proxy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """proxy: trusted for every request, so only the proxy may be able to reach this process."""
        self._clock = clock
        self._is_tidied = False
        self._gatekeeper = gatekeeper
        self._proxy = proxy
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def refusal(self) -> Response | None:
        """No request is refused before its route."""
        return None

    def viewer(self) -> UserInfo:
        """The proxy's user, else the user of the token in the request or its session."""
        if self._proxy is not None:
            return self._proxied(self._proxy)
        token = self._token()()
        viewer = self._gatekeeper.viewer(token) if token else None
        if viewer is None:
            raise NoViewerError("Log in with a token, for example of `kubectl create token NAME`.")
        return viewer

    def watched(self) -> Callable[[], bool]:
        """A function that checks the token again; a failed check ends the access."""
        token_now = self._token()

        def is_viewer() -> bool:
            token = token_now()
            try:
                return bool(token) and self._gatekeeper.viewer(token) is not None
            except (ApiError, TooManyError):
                return False

        return is_viewer if self._proxy is None else lambda: True

    def _token(self) -> Callable[[], str]:
        """A function: the request's own token, or the token of its session while that lasts."""
        header, session = request.headers.get("Authorization", ""), request.cookies.get(COOKIE, "")
        if header.startswith("Bearer "):
            return lambda: header[7:].strip()
        return lambda: self._of_session(session)

    def seen(self, viewer: UserInfo, namespaces: Iterable[str]) -> CurrentViewer:
        """The viewer with the rights that the API server grants."""
        rights = self._gatekeeper.rights(viewer, namespaces)
        return CurrentViewer(viewer.user, rights, _EventNamespaces(self._gatekeeper, viewer))

    def login(self, token: str) -> Response:
        """Start a session for a token that the API server accepts."""
        token = token.strip()
        if not token or self._gatekeeper.viewer(token) is None:
            return Response("The API server does not accept this token.", 401, content_type="text/plain")
        name = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[name] = (self._clock(), token)
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
            if not self._is_tidied:
                self._is_tidied = True
                threading.Thread(target=self._tidy, name="sessions", daemon=True).start()
        answer = redirect("/")
        answer.set_cookie(COOKIE, name, httponly=True, samesite="Strict", secure=request.is_secure)
        assert isinstance(answer, Response)
        return answer

    def _of_session(self, name: str) -> str:
        with self._lock:
            self._drop_ended()
            return self._sessions.get(name, (0.0, ""))[1]

    def _drop_ended(self) -> None:
        while self._sessions and self._clock() - next(iter(self._sessions.values()))[0] >= SESSION_SECONDS:
            self._sessions.popitem(last=False)

    def _tidy(self) -> None:
        """Drop the tokens of ended sessions even without requests, until no session is left."""
        while True:
            with self._lock:
                self._drop_ended()
                if not self._sessions:
                    self._is_tidied = False
                    return
            time.sleep(TIDY_SECONDS)

    @property
    def sessions(self) -> int:
        """The number of sessions."""
        with self._lock:
            return len(self._sessions)

    @staticmethod
    def _proxied(proxy: Proxy) -> UserInfo:
        user = request.headers.get(proxy.user_header, "")
        if not user:
            raise NoViewerError(f"The proxy in front gave no {proxy.user_header}.")
        groups = request.headers.get(proxy.groups_header, "") if proxy.groups_header else ""
        named = tuple(group.strip() for group in groups.split(",") if group.strip())
        return UserInfo(user, (*named, "system:authenticated"))
