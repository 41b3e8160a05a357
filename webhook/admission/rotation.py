"""Certificates in the cluster: the Secrets and the caBundle that `certificates.next_step` decides on.

All state is in the API server, each step is one guarded write or harmless to repeat, and decisions depend
only on that state: the process may die at any point and be started again. The serving Secret is mounted by
the webhook. The upcoming one exists only during a rotation.
"""

import base64
import binascii
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from webhook.admission import certificates
from webhook.admission.certificates import Observed, Pair, Step, Waits
from webhook.kube.client import JSON_PATCH, Api, ApiError

CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_PUBLISHED_AT: Final = "published-at"
_SWITCHED_AT: Final = "switched-at"
_NOT_FOUND: Final = 404

logger = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Names:
    """The objects in the cluster."""

    namespace: str = "topogate-system"
    secret: str = "topogate-webhook-tls"
    service: str = "webhook"
    configuration: str = "topogate"

    @property
    def upcoming(self) -> str:
        """The Secret that has the next certificate until the switch."""
        return f"{self.secret}-next"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names that a certificate must have: the API server connects to the first."""
        return (f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local")


@dataclass
class Rotation:
    """Carries out the steps. hosts: names of the certificate, if not the Service's."""

    api: Api
    names: Names = Names()
    waits: Waits = field(default_factory=Waits)
    lifetime: timedelta = certificates.LIFETIME
    hosts: tuple[str, ...] = ()
    clock: Callable[[], datetime] = field(default=_now)

    def run(self, *, force: bool = False, wait: bool = False) -> list[str]:
        """Take all steps that are due; returns their names.

        force: begin a rotation before it is due. wait: stay until it has gone through all its steps, instead
        of leaving the later ones to the next run. Raises ApiError; a conflict with another writer means that
        nothing was lost and the next run continues.
        """
        taken: list[str] = []
        while True:
            step = self.step(force=force)
            if step.action:
                taken.append(step.action)
                force = force and step.action != certificates.PREPARE
            elif wait and step.wait is not None:
                time.sleep(max(0.0, (step.wait - self.clock()).total_seconds()) + 0.05)
            else:
                return taken

    def step(self, *, force: bool = False) -> Step:
        """Look, decide, and take one step."""
        secrets = _Secrets(self.api, self.names)
        configuration = self._configuration()
        seen = self._observe(secrets, configuration)
        step = certificates.next_step(seen, self.clock(), self.waits, force=force)
        logger.info("certificates step=%s reason=%r wait=%s", step.action or "none", step.reason, step.wait)
        if step.action == certificates.ISSUE:
            pair = self._issue()
            # Otherwise each retry of a Secret that may not be written would add an authority to the caBundle.
            secrets.write(self.names.secret, pair, {_SWITCHED_AT: self.clock()}, is_dry=True)
            known = certificates.split(configuration.bundles[0]) if configuration.bundles else []
            self._publish(configuration, certificates.join([*known, pair.authority]))
            secrets.write(self.names.secret, pair, {_SWITCHED_AT: self.clock()})
        elif step.action == certificates.PREPARE:
            secrets.write(self.names.upcoming, self._issue(), {})
        elif step.action == certificates.PUBLISH:
            self._publish(configuration, step.bundle)
            if seen.upcoming is not None:
                secrets.write(self.names.upcoming, seen.upcoming, {_PUBLISHED_AT: self.clock()})
        elif step.action == certificates.SWITCH and seen.upcoming is not None:
            secrets.write(self.names.secret, seen.upcoming, {_SWITCHED_AT: self.clock()})
            secrets.delete(self.names.upcoming)
        elif step.action == certificates.DROP:
            self._publish(configuration, step.bundle)
        return step

    def _issue(self) -> Pair:
        return certificates.issue(self.hosts or self.names.hosts, self.lifetime, self.clock())

    def _observe(self, secrets: "_Secrets", configuration: "_Configuration") -> Observed:
        serving, upcoming = secrets.read(self.names.secret), secrets.read(self.names.upcoming)
        wanted = self.hosts or self.names.hosts[:1]
        usable = serving.pair is not None and is_usable(serving.pair, wanted, self.clock())
        if serving.pair is not None and not usable:
            logger.warning("certificate_unusable secret=%s", self.names.secret)
        next_usable = upcoming.pair is not None and is_usable(upcoming.pair, wanted, self.clock())
        return Observed(
            serving=serving.pair if usable else None,
            upcoming=upcoming.pair if next_usable else None,
            bundles=tuple(configuration.bundles),
            published_at=upcoming.times.get(_PUBLISHED_AT),
            switched_at=serving.times.get(_SWITCHED_AT),
        )

    def _configuration(self) -> "_Configuration":
        found = self.api.json("GET", f"{CONFIGURATIONS}/{self.names.configuration}")
        bundles = [_decoded(hook["clientConfig"].get("caBundle")) for hook in found.get("webhooks", ())]
        return _Configuration(found["metadata"]["resourceVersion"], bundles)

    def _publish(self, configuration: "_Configuration", bundle: bytes) -> None:
        """Write the caBundle of every webhook that has a different one, all in one guarded patch."""
        text = base64.b64encode(bundle).decode()
        changes = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": text}
            for index, there in enumerate(configuration.bundles)
            if there != bundle
        ]
        if not changes:
            return
        unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": configuration.version}
        self.api.request(
            "PATCH",
            f"{CONFIGURATIONS}/{self.names.configuration}",
            body=[unchanged, *changes],
            content_type=JSON_PATCH,
        )


@dataclass(frozen=True)
class _Configuration:
    version: str
    bundles: list[bytes]


@dataclass(frozen=True)
class _Secret:
    pair: Pair | None = None
    times: dict[str, datetime] = field(default_factory=dict)
    version: str = ""


class _Secrets:
    """The two Secrets, written only in the version that was read."""

    def __init__(self, api: Api, names: Names) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{names.namespace}/secrets"
        self._versions: dict[str, str] = {}

    def read(self, name: str) -> _Secret:
        try:
            found = self._api.json("GET", f"{self._path}/{name}")
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            return _Secret()
        self._versions[name] = found["metadata"]["resourceVersion"]
        data = {key: _decoded(value) for key, value in (found.get("data") or {}).items()}
        parts = [data.get(key, b"") for key in ("ca.crt", "tls.crt", "tls.key")]
        times = {key: _time(data[key]) for key in (_PUBLISHED_AT, _SWITCHED_AT) if key in data}
        return _Secret(
            Pair(*parts) if all(parts) else None,
            {key: value for key, value in times.items() if value is not None},
            self._versions[name],
        )

    def write(self, name: str, pair: Pair, times: dict[str, datetime], *, is_dry: bool = False) -> None:
        """Create or replace a Secret. Raises ApiError (409) if another client has written meanwhile.

        is_dry: only ask the API server whether it would accept it.
        """
        content = {"ca.crt": pair.authority, "tls.crt": pair.certificate, "tls.key": pair.key}
        content |= {key: value.isoformat().encode() for key, value in times.items()}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": name},
            "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
        }
        version = self._versions.get(name)
        query = {"dryRun": "All"} if is_dry else None
        if version is None:
            self._api.request("POST", self._path, query=query, body=body)
        else:
            body["metadata"]["resourceVersion"] = version
            self._api.request("PUT", f"{self._path}/{name}", query=query, body=body)

    def delete(self, name: str) -> None:
        try:
            self._api.request("DELETE", f"{self._path}/{name}")
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise


def is_usable(pair: Pair, hosts: tuple[str, ...], now: datetime) -> bool:
    """Whether a client that trusts the pair's authority would accept it now under these names."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(pair.authority))
        key = load_pem_private_key(pair.key, None)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    there = {str(name.value) for name in names}
    return (
        key.public_key() == certificate.public_key()
        and set(hosts) <= there
        and certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
    )


def _decoded(value: str | None) -> bytes:
    try:
        return base64.b64decode(value or "", validate=True)
    except binascii.Error:
        return b""


def _time(text: bytes) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
