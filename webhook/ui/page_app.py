"""The page's HTTP routes, the answers to errors, and the headers of all answers.

A Content-Security-Policy forbids inline script and style, and requests to other sites. No data of the cluster
is inserted into HTML here: the page's script writes it as text.
"""

from functools import partial
from pathlib import Path
from typing import Final

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from webhook.inquiry.documents import InputError
from webhook.kube.client import ApiError
from webhook.ui import whatif
from webhook.ui.pages import PageDependencies, Pages, UnavailableError, as_json, as_text
from webhook.ui.rights import TooManyError
from webhook.ui.viewer_access import NoViewerError

STATIC: Final = Path(__file__).with_name("static")
LARGEST_BODY_BYTES: Final = 2 * whatif.LARGEST_TEXT
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


STATUS_OF_ERRORS: Final = {NoViewerError: 401, InputError: 400, UnavailableError: 503, TooManyError: 429}
"""The errors whose message the viewer gets, with their status."""


def create_app(dependencies: PageDependencies) -> Flask:
    """Create the app; see Pages for the answers of its routes."""
    app = Flask("topogate-ui", static_folder=str(STATIC), static_url_path="/static")
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY_BYTES
    app.json.sort_keys = False  # type: ignore[attr-defined]
    pages = Pages(dependencies)

    app.add_url_rule("/", "index", lambda: app.send_static_file("index.html"))
    app.add_url_rule("/healthz", "healthz", lambda: as_text(200, "ok"))
    app.add_url_rule("/readyz", view_func=pages.readyz)
    app.add_url_rule("/metrics", view_func=pages.metrics)
    app.add_url_rule("/login", view_func=pages.login, methods=["POST"])
    app.add_url_rule("/api/picture", view_func=pages.picture)
    app.add_url_rule("/api/nodes", view_func=pages.nodes)
    app.add_url_rule("/api/gang", view_func=pages.gang)
    app.add_url_rule("/api/history", view_func=pages.history)
    app.add_url_rule("/api/changes", view_func=pages.changes)
    app.add_url_rule("/api/what-if", view_func=pages.what_if, methods=["POST"])

    app.before_request(dependencies.access.refusal)

    @app.after_request
    def harden(response: Response) -> Response:
        response.headers.update(HEADERS)
        if not request.path.startswith("/static/"):
            response.headers["Cache-Control"] = "no-store"
        return response

    for kind, status in STATUS_OF_ERRORS.items():
        app.register_error_handler(kind, partial(_refused, status))

    @app.errorhandler(ApiError)
    def unasked(error: ApiError) -> Response:
        return as_json({"error": f"The API server did not answer as needed: {error}"}, 502)

    @app.errorhandler(HTTPException)
    def of_http(error: HTTPException) -> Response:
        return as_json({"error": error.description or error.name}, error.code or 500)

    return app


def _refused(status: int, error: Exception) -> Response:
    return as_json({"error": str(error)}, status)
