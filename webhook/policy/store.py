"""The policy file under a running process, and the thread that watches files.

The policy is read again whenever its bytes change. A new version that cannot be used leaves the old one in
force, and stays visible as a fault until a good one comes.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from webhook.policy.document import PolicyError
from webhook.policy.file import parse_policy
from webhook.policy.values import Policy

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
        """Load a new version of the file, if there is a valid one."""
        try:
            content = _read(self._path)
            if content == self._bytes:
                return
            self._bytes = content
            policy = parse_policy(content, str(self._path))
        except PolicyError as error:
            self._reject(error.faults)
            if not self._path.exists():
                self._bytes = b""  # whatever appears next is new
            return
        except Exception as error:  # an error of ours must not look like a loaded policy
            logger.exception("policy_unreadable file=%s", self._path)
            self._reject([f"cannot be read: {type(error).__name__}; see the log"])
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


class OptionalPolicy:
    """The policy for a program that works without one: an unreadable version is reported, and retried."""

    def __init__(self, path: Path | None) -> None:
        """path: None for no policy at all."""
        self._path = path
        self._store: PolicyStore | None = None
        self._faults: list[str] = []

    @property
    def policy(self) -> Policy | None:
        """The policy in force, None as long as there was no valid one."""
        return self._store.policy if self._store else None

    def refresh(self) -> None:
        """Load the file, or a new version of it."""
        if self._store is not None:
            self._store.refresh()
        elif self._path is not None:
            try:
                self._store = PolicyStore(self._path)
            except PolicyError as error:
                if error.faults != self._faults:
                    self._faults = error.faults
                    logger.error("policy_rejected file=%s faults=%r", self._path, error.faults)


def watch_files(refreshers: list[Callable[[], None]], poll_seconds: float = POLL_SECONDS) -> threading.Event:
    """Call the refreshers repeatedly in their own thread, until the returned event is set."""
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
