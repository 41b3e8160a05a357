"""Who may open the page: the one person on this laptop, or viewers that the API server knows.

On a laptop the address carries a secret made at the start, so that neither other users of the machine nor
pages of other sites can read along, and the Host header must name loopback. The browser keeps it in a cookie,
and cookies know no ports: whoever else serves a page on this laptop's loopback, and gets the person to open
it, is sent the secret. In a cluster each viewer has a token.
"""

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from flask import Response, redirect, request

from webhook.ui.redact import EVERYTHING, Rights
from webhook.ui.rights import Gatekeeper, Viewer

COOKIE: Final = "topogate-ui"
"""On a laptop with the port behind it, so that one page there does not log the other out."""

SESSION_SECONDS: Final = 8 * 3600.0
MOST_SESSIONS: Final = 1_000
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class NoViewerError(Exception):
    """Nobody who may look; the message says how to become somebody."""


@dataclass(frozen=True)
class CurrentViewer:
    """A viewer with the rights of this moment. name: for the page's corner."""

    name: str
    rights: Rights
    event_namespaces: frozenset[str] | None = None

    def may_see_events(self, namespace: str) -> bool:
        """Whether Events of a namespace may be shown."""
        return self.event_namespaces is None or namespace in self.event_namespaces


class Access(Protocol):
    """How requests become viewers."""

    def refusal(self) -> Response | None:
        """The answer to a request that is refused whatever it asks, None for all others."""

    def viewer(self) -> Viewer:
        """Who asks. Raises NoViewerError."""

    def seen(self, viewer: Viewer, namespaces: Iterable[str]) -> CurrentViewer:
        """The viewer's rights as far as these namespaces go. Raises ApiError."""

    def login(self, token: str) -> Response:
        """Answer the page's form."""


class LaptopAccess:
    """One person, who has the address with the secret: what the kubeconfig may list is what is shown."""

    def __init__(self, name: str, secret: str | None = None) -> None:
        """name: of the kubeconfig's user, for the page's corner."""
        self.secret = secret or secrets.token_urlsafe(24)
        self._viewer = Viewer(name)

    def refusal(self) -> Response | None:
        """Refuse a Host that is not loopback: another site's name that resolves here (DNS rebinding)."""
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

    def viewer(self) -> Viewer:
        """The person, if the request carries the secret."""
        if not hmac.compare_digest(request.cookies.get(_own_cookie(), "").encode(), self.secret.encode()):
            raise NoViewerError("Open the address that `topogate ui` printed: it carries the secret.")
        return self._viewer

    def seen(self, viewer: Viewer, namespaces: Iterable[str]) -> CurrentViewer:
        """Everything that this process could list, it lists as the person."""
        return CurrentViewer(viewer.user, EVERYTHING)

    def login(self, token: str) -> Response:
        """There is nothing to log in to."""
        return Response("On a laptop there is no login.", 404, content_type="text/plain")


def _own_cookie() -> str:
    port = (
        request.host.partition(":")[2]
        if not request.host.startswith("[")
        else request.host.partition("]:")[2]
    )
    return f"{COOKIE}-{port}" if port else COOKIE


@dataclass(frozen=True)
class Proxy:
    """Headers in which a proxy in front names the user and, comma-separated, the groups."""

    user_header: str
    groups_header: str = ""


class ClusterAccess:
    """Viewers with a token of their own, or named by a proxy where that is configured."""

    def __init__(self, gatekeeper: Gatekeeper, proxy: Proxy | None = None) -> None:
        """proxy: believed for every request, so nobody but the proxy may reach this process then."""
        self._gatekeeper = gatekeeper
        self._proxy = proxy
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def refusal(self) -> Response | None:
        """Nothing is refused whatever it asks."""
        return None

    def viewer(self) -> Viewer:
        """The proxy's user, else whose token the request or its session carries."""
        if self._proxy is not None:
            return self._proxied(self._proxy)
        header = request.headers.get("Authorization", "")
        token = header[7:].strip() if header.startswith("Bearer ") else self._session()
        viewer = self._gatekeeper.viewer(token) if token else None
        if viewer is None:
            raise NoViewerError("Log in with a token, for example of `kubectl create token NAME`.")
        return viewer

    def seen(self, viewer: Viewer, namespaces: Iterable[str]) -> CurrentViewer:
        """What the API server lets the viewer list."""
        asked = frozenset(namespaces)
        rights = self._gatekeeper.rights(viewer, asked)
        events = frozenset(
            name
            for name in asked
            if rights.may_list(name) and self._gatekeeper.may_see(viewer, "events", name)
        )
        return CurrentViewer(viewer.user, rights, events)

    def login(self, token: str) -> Response:
        """Begin a session for a token that the API server accepts."""
        token = token.strip()
        if not token or self._gatekeeper.viewer(token) is None:
            return Response("The API server does not accept this token.", 401, content_type="text/plain")
        name = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[name] = (time.monotonic(), token)
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        answer = redirect("/")
        answer.set_cookie(COOKIE, name, httponly=True, samesite="Strict", secure=request.is_secure)
        assert isinstance(answer, Response)
        return answer

    def _session(self) -> str:
        with self._lock:
            since, token = self._sessions.get(request.cookies.get(COOKIE, ""), (0.0, ""))
        return token if time.monotonic() - since < SESSION_SECONDS else ""

    @staticmethod
    def _proxied(proxy: Proxy) -> Viewer:
        user = request.headers.get(proxy.user_header, "")
        if not user:
            raise NoViewerError(f"The proxy in front gave no {proxy.user_header}.")
        groups = request.headers.get(proxy.groups_header, "") if proxy.groups_header else ""
        named = tuple(group.strip() for group in groups.split(",") if group.strip())
        return Viewer(user, (*named, "system:authenticated"))
