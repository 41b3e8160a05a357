"""The page of a played cluster, as a browser gets it."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from playwright.sync_api import Browser, Page, expect
from werkzeug.serving import make_server

from hack.local.controlplane import free_port
from tests.browser.conftest import window
from tests.ui.scenes import (
    COUNTING,
    SECRET,
    SETTINGS,
    NoEvents,
    StillLive,
)
from webhook.kube.client import Api
from webhook.ui.live import Live, Scene
from webhook.ui.page_app import create_app
from webhook.ui.pages import PageDependencies
from webhook.ui.viewer_access import LaptopAccess

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def box_of(page: Page, selector: str, nth: int = 0) -> dict[str, float]:
    """Where an element is within the window, in pixels: x, y, width, height. selector: of CSS.

    Found and measured in one step: a redraw replaces elements, so that one found earlier may be gone.
    """
    expect(page.locator(selector).nth(nth)).to_be_visible()
    measure = "([css, nth]) => document.querySelectorAll(css)[nth].getBoundingClientRect().toJSON()"
    return cast(dict[str, float], page.evaluate(measure, [selector, nth]))


class Changing(StillLive):
    """Scenes that a test puts there one after the other."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._changed = threading.Condition()

    def put(self, scene: Scene) -> None:
        with self._changed:
            assert self._scene is not None
            self._scene = replace(scene, version=self._scene.version + 1)
            self._changed.notify_all()

    def wait(self, after: int, timeout_seconds: float) -> Scene | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._scene is not None and self._scene.version > after, timeout_seconds
            )
            return self._scene


@dataclass
class Served:
    """The page of a scene, open."""

    page: Page
    live: Changing

    def tile(self, node: str) -> Any:
        return self.page.locator(f'[data-node="{node}"]')


def read_whole(app: "WSGIApplication") -> "WSGIApplication":
    """The app, with files read as they are asked for.

    Werkzeug's server does not close a file whose reader has gone, as a page that is closed while it loads.
    """

    def wrapped(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        body = app(environ, start_response)
        if not environ["PATH_INFO"].startswith("/static/"):
            return body
        try:
            return [b"".join(body)]
        finally:
            if hasattr(body, "close"):
                body.close()

    return wrapped


@contextmanager
def served(
    browser: Browser, scene: Scene, access: type[LaptopAccess] = LaptopAccess, events: NoEvents | None = None
) -> Iterator[Served]:
    """events: the API server that is asked for Events, None for one without any."""
    live, api = Changing(scene), cast(Api, events or NoEvents())
    made = PageDependencies(cast(Live, live), SETTINGS, COUNTING, access("me", SECRET), api)
    server = make_server("127.0.0.1", free_port(), read_whole(create_app(made)), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    context = window(browser)
    try:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/?secret={SECRET}")
        page.wait_for_selector("#domains .domain")
        yield Served(page, live)
    finally:
        context.close()
        server.shutdown()
