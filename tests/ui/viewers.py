"""Viewers of the page with given rights."""

from collections.abc import Callable, Iterable

from flask import Response

from webhook.kube.access import UserInfo
from webhook.ui.redact import Rights
from webhook.ui.viewer_access import CurrentViewer


class Granted:
    """A viewer with given rights."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights

    def refusal(self) -> Response | None:
        return None

    def viewer(self) -> UserInfo:
        return UserInfo("somebody")

    def watched(self) -> Callable[[], bool]:
        return lambda: True

    def seen(self, viewer: UserInfo, namespaces: Iterable[str]) -> CurrentViewer:
        return CurrentViewer(viewer.user, self._rights, frozenset())

    def login(self, token: str) -> Response:
        return Response(status=404)


MINE = Rights(frozenset({"mine"}))
