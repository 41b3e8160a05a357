"""Files that change under a running process: the policy and the serving certificate.

Both are read again whenever their bytes change. A new version that cannot be used leaves the old
one in force, and stays visible as a fault until a good one comes.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from webhook.admission.policy import Policy
from webhook.admission.policy_file import PolicyError, parse_policy

POLL_SECONDS: Final = 2.0

logger = logging.getLogger(__name__)


class PolicyStore:
    """The policy in force. Reading `policy` costs an attribute access; `refresh` does the work."""

    def __init__(self, path: Path) -> None:
        """Load the first version. Raises PolicyError: without any policy nothing can be decided."""
        self._path = path
        self._bytes = _read(path)
        self.policy: Policy = parse_policy(self._bytes, str(path))
        self.generation = 1
        self.faults: list[str] = []
        self.loaded_at = time.time()

    def refresh(self) -> None:
        """Take up a new version of the file, if there is one and it is good."""
        try:
            content = _read(self._path)
            if content == self._bytes:
                return
            self._bytes = content
            policy = parse_policy(content, str(self._path))
        except PolicyError as error:
            self._reject(error.faults)
            if not self._path.exists():
                self._bytes = b""  # whatever comes back is new
            return
        except Exception as error:  # a defect of ours must not look like a policy that was taken up
            logger.exception("policy_unreadable file=%s", self._path)
            self._reject([f"cannot be read: {type(error).__name__}; the log names the place"])
            return
        self.policy, self.faults = policy, []
        self.generation += 1
        self.loaded_at = time.time()
        logger.info("policy_loaded file=%s generation=%d", self._path, self.generation)

    def _reject(self, faults: list[str]) -> None:
        if faults == self.faults:
            return
        self.faults = faults
        logger.error(
            "policy_rejected file=%s generation_in_force=%d faults=%r", self._path, self.generation, faults
        )


class Certificate:
    """The certificate on disk, for readiness and metrics; the TLS context reads it for itself."""

    def __init__(self, path: Path) -> None:
        """Read it once; a bad file is a fault, not an exception."""
        self._path = path
        self._bytes = b""
        self._not_before = self._not_after = datetime.fromtimestamp(0, UTC)
        self._unreadable = ""
        self.refresh()

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            content = self._path.read_bytes()
            if content == self._bytes:
                return
            certificate = x509.load_pem_x509_certificate(content)
        except (OSError, ValueError) as error:
            reason = f"{self._path}: no certificate: {error}"
            if reason != self._unreadable:
                logger.error("certificate_unreadable file=%s error=%r", self._path, str(error))
            self._unreadable = reason
            return
        self._bytes, self._unreadable = content, ""
        self._not_before = certificate.not_valid_before_utc
        self._not_after = certificate.not_valid_after_utc
        logger.info("certificate_loaded file=%s expires=%s", self._path, self._not_after.isoformat())

    @property
    def expires_at(self) -> float:
        """When it expires, in seconds since the epoch; 0 if none was ever read."""
        return self._not_after.timestamp()

    @property
    def fault(self) -> str:
        """Why no client would accept it, "" if nothing is wrong."""
        now = datetime.now(UTC)
        if not self._bytes:
            return self._unreadable
        if now > self._not_after:
            return f"certificate expired at {self._not_after.isoformat()}"
        if now < self._not_before:
            return f"certificate is not valid before {self._not_before.isoformat()}"
        return ""


def watch_files(refreshers: list[Callable[[], None]], poll_seconds: float = POLL_SECONDS) -> threading.Event:
    """Call the refreshers again and again in a thread of their own, until the returned event is set."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(poll_seconds):
            for refresh in refreshers:
                try:
                    refresh()
                except Exception:
                    logger.exception("refresh_failed")

    threading.Thread(target=run, name="watch files", daemon=True).start()
    return stop


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PolicyError(str(path), [f"cannot be read: {error.strerror}"]) from None
