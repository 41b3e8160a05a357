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
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from flask import Response, redirect, request

from webhook.kube.client import ApiError
from webhook.ui.redact import EVERYTHING, Rights
from webhook.ui.rights import Gatekeeper, TooManyError, Viewer

COOKIE: Final = "topogate-ui"
"""On a laptop with the port behind it, so that one page there does not log the other out."""

SESSION_SECONDS: Final = 8 * 3600.0
TIDY_SECONDS: float = 60.0
"""A token whose session has ended is forgotten after this at the latest."""
MOST_SESSIONS: Final = 1_000
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class NoViewerError(Exception):
    """Nobody who may look; the message says how to become somebody."""


@dataclass(frozen=True)
class CurrentViewer:
    """A viewer with the rights of this moment. name: for the page's corner."""

    name: str
    rights: Rights
    event_namespaces: Container[str] | None = None

    def may_see_events(self, namespace: str) -> bool:
        """Whether Events of a namespace may be shown."""
        return self.event_namespaces is None or namespace in self.event_namespaces


class Access(Protocol):
    """How requests become viewers."""

    def refusal(self) -> Response | None:
        """The answer to a request that is refused whatever it asks, None for all others."""

    def viewer(self) -> Viewer:
        """Who asks. Raises NoViewerError."""

    def watched(self) -> Callable[[], bool]:
        """Whether whoever asks is still a viewer, to be called also once the request has been answered."""

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

    def watched(self) -> Callable[[], bool]:
        """The secret is good for as long as the process lives."""
        return lambda: True

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
class _EventNamespaces:
    """Where a viewer may list Events: asked only of the namespace that is looked at."""

    gatekeeper: Gatekeeper
    viewer: Viewer

    def __contains__(self, namespace: object) -> bool:
        return self.gatekeeper.may_see(self.viewer, "events", str(namespace))


@dataclass(frozen=True)
class Proxy:
    """Headers in which a proxy in front names the user and, comma-separated, the groups."""

    user_header: str
    groups_header: str = ""


class ClusterAccess:
    """Viewers with a token of their own, or named by a proxy where that is configured."""

    def __init__(
        self,
        gatekeeper: Gatekeeper,
        proxy: Proxy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """proxy: believed for every request, so nobody but the proxy may reach this process then."""
        self._clock = clock
        self._is_tidied = False
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
        token = self._token()()
        viewer = self._gatekeeper.viewer(token) if token else None
        if viewer is None:
            raise NoViewerError("Log in with a token, for example of `kubectl create token NAME`.")
        return viewer

    def watched(self) -> Callable[[], bool]:
        """Asks about the token as a request does; one that cannot be asked about counts as ended."""
        token_now = self._token()

        def is_viewer() -> bool:
            token = token_now()
            try:
                return bool(token) and self._gatekeeper.viewer(token) is not None
            except (ApiError, TooManyError):
                return False

        return is_viewer if self._proxy is None else lambda: True

    def _token(self) -> Callable[[], str]:
        """The request's own token, or that of its session for as long as it lasts."""
        header, session = request.headers.get("Authorization", ""), request.cookies.get(COOKIE, "")
        if header.startswith("Bearer "):
            return lambda: header[7:].strip()
        return lambda: self._of_session(session)

    def seen(self, viewer: Viewer, namespaces: Iterable[str]) -> CurrentViewer:
        """What the API server lets the viewer list."""
        rights = self._gatekeeper.rights(viewer, namespaces)
        return CurrentViewer(viewer.user, rights, _EventNamespaces(self._gatekeeper, viewer))

    def login(self, token: str) -> Response:
        """Begin a session for a token that the API server accepts."""
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
        """Forget tokens in time although nobody looks, for as long as there are any."""
        while True:
            with self._lock:
                self._drop_ended()
                if not self._sessions:
                    self._is_tidied = False
                    return
            time.sleep(TIDY_SECONDS)

    @property
    def sessions(self) -> int:
        """How many tokens are kept."""
        with self._lock:
            return len(self._sessions)

    @staticmethod
    def _proxied(proxy: Proxy) -> Viewer:
        user = request.headers.get(proxy.user_header, "")
        if not user:
            raise NoViewerError(f"The proxy in front gave no {proxy.user_header}.")
        groups = request.headers.get(proxy.groups_header, "") if proxy.groups_header else ""
        named = tuple(group.strip() for group in groups.split(",") if group.strip())
        return Viewer(user, (*named, "system:authenticated"))
