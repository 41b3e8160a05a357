"""Serving certificates that we issue, and the order in which they are replaced. Pure.

Every certificate comes from an authority created only for it, whose key is discarded: there is no signing key
that could be stolen. In return, each renewal changes the caBundle in three steps, each of which leaves a
bundle that trusts what is served:

1. publish: the caBundle has the old authority and the next one, and every API server receives it;
2. switch: the serving Secret has the next certificate, and every replica loads it;
3. drop: the caBundle has only the new authority.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509

from webhook.admission.certificate_authority import Authority

LIFETIME: Final = timedelta(days=90)
RENEW_AT: Final = 2 / 3
"""Share of its lifetime: a third remains to notice that renewing fails."""
PUBLISH_WAIT: Final = timedelta(minutes=5)
"""From publishing to switching: an API server that cannot see a change for longer is down."""
SWITCH_WAIT: Final = timedelta(minutes=30)
"""From switching to dropping: the kubelet updates a mounted Secret within about two minutes."""
_CLOCK_SKEW: Final = timedelta(hours=1)
_END: Final = b"-----END CERTIFICATE-----"


@dataclass(frozen=True)
class Pair:
    """A serving certificate with its key and the authority that signed it, all PEM."""

    authority: bytes
    certificate: bytes
    key: bytes

    @property
    def lifetime(self) -> tuple[datetime, datetime]:
        """Its period of validity. Raises ValueError if it is not a certificate."""
        certificate = x509.load_pem_x509_certificate(self.certificate)
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def issue(hosts: Sequence[str], lifetime: timedelta = LIFETIME, now: datetime | None = None) -> Pair:
    """Create an authority and one serving certificate (P-256) for these DNS names and addresses."""
    now = now or datetime.now(UTC)
    span = (now - _CLOCK_SKEW, now + lifetime)
    authority = Authority.create(f"topogate webhook authority {now:%Y-%m-%dT%H:%M:%SZ}", span)
    certificate, key = authority.issue("topogate webhook", hosts=hosts)
    return Pair(authority.pem, certificate, key)


@dataclass(frozen=True)
class Observed:
    """The state in the cluster.

    serving: what the webhook's Secret has; None if nothing usable. upcoming: its successor. bundles: the
    caBundle of each webhook of the configuration. published_at: since when all of them have the upcoming
    authority. switched_at: since when `serving` has been served.
    """

    serving: Pair | None
    upcoming: Pair | None
    bundles: tuple[bytes, ...]
    published_at: datetime | None
    switched_at: datetime | None


@dataclass(frozen=True)
class Waits:
    """The time between the steps, and when renewing starts (a share of the certificate's lifetime)."""

    publish: timedelta = PUBLISH_WAIT
    switch: timedelta = SWITCH_WAIT
    renew_at: float = RENEW_AT


ISSUE: Final = "issue"
PREPARE: Final = "prepare"
PUBLISH: Final = "publish"
SWITCH: Final = "switch"
DROP: Final = "drop"


@dataclass(frozen=True)
class Step:
    """What to do next.

    action: one of the words above, or "" for nothing now. bundle: the new caBundle, for publish and drop.
    wait: a rotation is in progress and continues then. reason: for the log.
    """

    action: str
    reason: str
    bundle: bytes = b""
    wait: datetime | None = None


def next_step(seen: Observed, now: datetime, waits: Waits = Waits(), *, force: bool = False) -> Step:
    """Decide the next step of a rotation, only from the state in the cluster.

    It is safe to decide again after any crash: a step that is done is not due any more. force: renew before
    it is due.
    """
    if seen.serving is None:
        return Step(ISSUE, "there is no usable serving certificate")
    vouched = _vouched(seen)
    published = list(dict.fromkeys(part for bundle in seen.bundles for part in split(bundle)))
    if any(not set(vouched) <= set(split(bundle)) for bundle in seen.bundles):
        # Existing authorities stay: replicas may still serve certificates that they signed.
        return Step(PUBLISH, "a caBundle lacks an authority that is in use", join([*published, *vouched]))
    if seen.upcoming is not None:
        if seen.published_at is None:
            return Step(PUBLISH, "record since when both authorities are published", join(published))
        due = seen.published_at + waits.publish
        if now < due:
            return Step("", "API servers load the caBundle with both authorities", wait=due)
        return Step(SWITCH, "both authorities have been published long enough")
    if any(split(bundle) != vouched for bundle in seen.bundles):
        due = (seen.switched_at or now - waits.switch) + waits.switch
        if now < due:
            return Step("", "replicas load the new certificate", wait=due)
        return Step(DROP, "the old authority is no longer in use", join(vouched))
    not_before, not_after = seen.serving.lifetime
    renew = not_before + (not_after - not_before) * waits.renew_at
    if force or now >= renew:
        return Step(PREPARE, "asked for" if force else f"the serving certificate expires at {not_after}")
    return Step("", f"nothing to do before {renew}")


def join(certificates: Sequence[bytes]) -> bytes:
    """PEM certificates as one bundle, each once."""
    return b"".join(dict.fromkeys(split(b"\n".join(certificates))))


def split(bundle: bytes) -> list[bytes]:
    """The certificates of a bundle, each as PEM text with one final newline."""
    parts = (part.strip() for part in bundle.replace(b"\r\n", b"\n").split(_END))
    return [part + b"\n" + _END + b"\n" for part in parts if part]


def _vouched(seen: Observed) -> list[bytes]:
    """The authorities that every bundle must have."""
    pairs = [pair for pair in (seen.serving, seen.upcoming) if pair is not None]
    return list(dict.fromkeys(part for pair in pairs for part in split(pair.authority)))
