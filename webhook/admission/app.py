"""The HTTP side of admission: a Flask app without state, and the reviews in front of it.

An answer is either a proper AdmissionReview or a 4xx/5xx, for which the failurePolicy decides. Bodies are
never logged: a pod's environment may have secrets.
"""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from flask import Flask, Response
from gunicorn.http.errors import ParseException
from werkzeug.exceptions import (
    ClientDisconnected,
    HTTPException,
    MethodNotAllowed,
    RequestEntityTooLarge,
    ServiceUnavailable,
)

from webhook.admission import patch
from webhook.admission.admission_metrics import ERROR, AdmissionMetrics
from webhook.admission.decide import DENIED, LEFT_ALONE, Decision, LeftAlone, decide
from webhook.admission.review import Request, ReviewError, decode_request, encode_response
from webhook.admission.tls import ContextCache
from webhook.configuration.store import ConfigurationStore
from webhook.kube.objects import PriorityClass

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

JSON: Final = "application/json"
LARGEST_BODY_BYTES: Final = 8 * 1024 * 1024
"""The API server accepts objects of up to 3 MiB, and a review contains one and its envelope."""
LARGE_BODY_BYTES: Final = 256 * 1024
"""Larger reviews are decoded one at a time: empty containers decode into thirty times their size.

Pods are far smaller.
"""
LARGE_BODY_WAIT_SECONDS: Final = 2.0
CLASSES_STALE_SECONDS: float = 300.0
"""Seconds without a message after which no PriorityClass is injected: it may have been changed or deleted."""

Classes = Callable[[], Mapping[str, PriorityClass]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Dependencies:
    """What the app reads besides the request.

    certificate: what is served. classes: the cluster's PriorityClasses by name, as last observed.
    classes_synced: whether they were ever complete. classes_silence: seconds since the last message about
    them; a working watch is never silent for longer than it lasts.
    """

    store: ConfigurationStore
    certificate: ContextCache
    classes: Classes
    classes_synced: Callable[[], bool]
    classes_silence: Callable[[], float]

    @property
    def classes_known(self) -> bool:
        """Whether the classes are those of the cluster, apart from the last minutes."""
        return self.classes_synced() and self.classes_silence() < CLASSES_STALE_SECONDS


def create_app(dependencies: Dependencies) -> Flask:
    """Create the app: POST /mutate, GET /healthz, /readyz, /metrics."""
    app = Flask("topogate", static_folder=None)
    metrics = AdmissionMetrics()
    export_state(metrics, dependencies)
    app.wsgi_app = Reviews(app.wsgi_app, dependencies, metrics)  # type: ignore[method-assign]
    app.add_url_rule("/healthz", "healthz", lambda: _text(200, "ok"))
    app.add_url_rule("/readyz", "readyz", lambda: _readiness(dependencies))

    @app.get("/metrics")
    def scrape() -> Response:
        content, content_type = metrics.render()
        return Response(content, content_type=content_type)

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:
        return _text(error.code or 500, error.name)

    return app


class Reviews:
    """Answers /mutate in front of Flask, whose routing and contexts cost more than the decision."""

    def __init__(
        self, others: "WSGIApplication", dependencies: Dependencies, metrics: AdmissionMetrics
    ) -> None:
        """others: the app that answers all other paths."""
        self._others = others
        self._dependencies = dependencies
        self._metrics = metrics
        self._large_body = threading.Lock()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer one request."""
        if environ["PATH_INFO"] != "/mutate":
            return self._others(environ, start_response)
        try:
            answer = self._review(environ)
        except HTTPException as error:
            self._metrics.count(ERROR, f"http-{error.code}")
            answer = _text(error.code or 500, error.name)
        if isinstance(answer, Response):
            return answer(environ, start_response)
        start_response("200 OK", [("Content-Type", JSON), ("Content-Length", str(len(answer)))])
        return [answer]

    def _review(self, environ: "WSGIEnvironment") -> bytes | Response:
        """The answer to one review, or why there is none. Raises HTTPException."""
        if environ["REQUEST_METHOD"] != "POST":
            raise MethodNotAllowed
        if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != JSON:
            self._metrics.count(ERROR, "content-type")
            return _text(415, f"Content-Type must be {JSON}")
        text = environ.get("CONTENT_LENGTH", "")
        length = int(text) if text.isdecimal() else None
        if length is not None and length <= LARGE_BODY_BYTES:
            return self._timed(_body(environ, length))
        with _alone(self._large_body):
            return self._timed(_body(environ, length))

    def _timed(self, body: bytes) -> bytes | Response:
        started = time.perf_counter()
        answer = _answer(body, self._dependencies, self._metrics)
        self._metrics.latency.observe(time.perf_counter() - started)
        return answer


@contextlib.contextmanager
def _alone(lock: threading.Lock) -> Iterator[None]:
    """Hold the lock meanwhile. Raises ServiceUnavailable if other reviews are too slow to release it."""
    if not lock.acquire(timeout=LARGE_BODY_WAIT_SECONDS):
        raise ServiceUnavailable
    try:
        yield
    finally:
        lock.release()


def _body(environ: "WSGIEnvironment", length: int | None) -> bytes:
    """The whole body, at most LARGEST_BODY_BYTES; what the API server sends has a length."""
    if length is not None and length > LARGEST_BODY_BYTES:
        raise RequestEntityTooLarge
    try:
        body = environ["wsgi.input"].read(LARGEST_BODY_BYTES if length is None else length)
    except (OSError, ParseException):  # the client stalled or left, or its chunks are invalid
        raise ClientDisconnected from None
    if length is None and len(body) >= LARGEST_BODY_BYTES:  # chunked, and cut there
        raise RequestEntityTooLarge
    return bytes(body)


def _answer(body: bytes, dependencies: Dependencies, metrics: AdmissionMetrics) -> bytes | Response:
    """Answer one review; a body that cannot be answered gets 400, an error of ours 500."""
    try:
        review = decode_request(body)
        decision = _decision(review, dependencies)
        answer = encode_response(
            review.uid,
            patch=patch.encode(decision.operations) if decision.operations else None,
            denial=decision.denial,
            warnings=decision.warnings,
        )
    except ReviewError as error:
        metrics.count(ERROR, "malformed")
        logger.warning("review_refused bytes=%d reason=%r", len(body), str(error))
        return _text(400, str(error))
    except Exception as error:  # noqa: BLE001 - the failurePolicy must decide, whatever the error
        metrics.count(ERROR, "internal-error")
        logger.error("review_failed bytes=%d error=%s at=%s", len(body), type(error).__name__, _where())
        return _text(500, "the webhook failed on this review; see its log")
    metrics.count(decision.outcome, decision.reason)
    metrics.warnings.inc(len(decision.warnings))
    _log(review, decision)
    return answer


def _decision(review: Request, dependencies: Dependencies) -> Decision:
    """Decide on a review: only the creation of pods is reviewed."""
    if not review.is_pod_creation or review.object is None:
        return Decision(LEFT_ALONE, LeftAlone.NO_POD_CREATION)
    classes, known = dependencies.classes(), dependencies.classes_known
    policy = dependencies.store.policy
    return decide(review.object, review.namespace, policy, classes, classes_known=known)


def _log(review: Request, decision: Decision) -> None:
    """Log a refusal, and at level debug every decision."""
    if decision.outcome == DENIED or logger.isEnabledFor(logging.DEBUG):
        # A line for each pod would cost more than deciding on it, and the audit log has the patch.
        logger.info(
            "review uid=%.64r namespace=%.64r outcome=%s reason=%s operations=%d warnings=%d",
            review.uid,
            review.namespace,
            decision.outcome,
            decision.reason,
            len(decision.operations),
            len(decision.warnings),
        )


def _where() -> str:
    """File and line of the exception being handled; its text may quote the pod, so it is not logged."""
    trace = sys.exc_info()[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "unknown"


def _readiness(dependencies: Dependencies) -> Response:
    """Ready if pods would be gated. Other problems are reported but do not make it unready.

    An old policy, an old certificate that is still valid, and a tier without its class do less harm than all
    pods without a gate.
    """
    store, certificate = dependencies.store, dependencies.certificate
    synced = dependencies.classes_synced()
    ready = synced and not certificate.fault
    detail = {
        "ready": ready,
        "configuration": {"generation": store.generation, "rejected": store.faults},
        "certificate": certificate.fault or "valid",
        "certificateRejected": certificate.error or None,
        "priorityClasses": _classes_state(dependencies, synced=synced),
    }
    return Response(msgspec.json.encode(detail), status=200 if ready else 503, content_type=JSON)


def _classes_state(dependencies: Dependencies, *, synced: bool) -> str:
    if not synced:
        return "not synced: cannot list PriorityClasses (yet)"
    if dependencies.classes_known:
        return "synced"
    silence = dependencies.classes_silence()
    return f"stale: no message about PriorityClasses for {silence:.0f} s; tiers have no effect meanwhile"


def export_state(metrics: AdmissionMetrics, dependencies: Dependencies) -> None:
    """Declare what the webhook's metrics read of its configuration, certificate and classes."""
    store, certificate = dependencies.store, dependencies.certificate
    metrics.registry.register(store)
    metrics.gauge(
        "topogate_certificate_expiry_timestamp_seconds",
        "When the certificate that is served expires.",
        lambda: certificate.not_after.timestamp(),
    )
    metrics.gauge(
        "topogate_certificate_rejected",
        "1 while the pair on disk is unusable and an older certificate is served.",
        lambda: float(bool(certificate.error)),
    )
    metrics.gauge(
        "topogate_priority_classes_silence_seconds",
        "Since the last message about PriorityClasses; usually below 120.",
        dependencies.classes_silence,
    )
    metrics.gauge(
        "topogate_priority_classes",
        "PriorityClasses known.",
        lambda: float(len(dependencies.classes())),
    )


def _text(status: int, message: str) -> Response:
    return Response(message + "\n", status=status, content_type="text/plain; charset=utf-8")
