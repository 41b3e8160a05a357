"""A bearer token in a file that another program rotates: read again every minute, and after a refusal."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

REFRESH_SECONDS: Final = 60.0
"""As client-go does; a kubelet renews a token long before it expires."""

logger = logging.getLogger(__name__)


class TokenFile:
    """The token in a file. Thread-safe."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read it a first time. Raises OSError, or ValueError if it is empty."""
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._token = self._read()
        self._read_at = clock()

    def header(self) -> str:
        """The value of an Authorization header."""
        with self._lock:
            if self._clock() - self._read_at >= REFRESH_SECONDS:
                self._reread()
            return f"Bearer {self._token}"

    def renew(self, refused: str) -> bool:
        """Read the file again after a refusal; returns whether the token has changed."""
        with self._lock:
            if refused == f"Bearer {self._token}":
                self._reread()
            return refused != f"Bearer {self._token}"

    def _reread(self) -> None:
        self._read_at = self._clock()
        try:
            self._token = self._read()
        except (OSError, ValueError) as error:
            # The old token may still be valid, and the file is read again in a minute.
            logger.warning("token_unreadable path=%s error=%r", self._path, str(error))

    def _read(self) -> str:
        token = self._path.read_text().strip()
        if not token:
            raise ValueError(f"token file {self._path} is empty")
        return token
