"""Records of extensions: ConfigMaps in which what they remember outlives every process.

They are part of the installation and made by nobody here. One is written at most so often as it says, and
only by whoever has read it; if somebody else has written since, as an operator who resets it, that is taken
over.
"""

import logging
from collections.abc import Mapping
from typing import Final

from webhook.kube.client import ApiError
from webhook.kube.state_config_map import NAMESPACE, StateConfigMap, path_of
from webhook.sweeper.context import Pass
from webhook.sweeper.extension import RecordSpec

TIMEOUT_SECONDS: Final = 3.0
"""For each request: a pass waits for it."""
MISSING_SECONDS: Final = 60.0
"""Where one is not there, it is looked for again after this long."""

logger = logging.getLogger(__name__)


class RecordStore:
    """Reads and writes one record. What fails is logged once, and tried again later.

    is_pending: the API server has not answered yet what it holds, or that it is not there.
    """

    def __init__(self, surroundings: Pass, spec: RecordSpec) -> None:
        self._pass = surroundings
        self._spec = spec
        self._clock = surroundings.clock
        self._map = StateConfigMap(surroundings.api, path_of(spec.name), timeout_seconds=TIMEOUT_SECONDS)
        self._write_at = 0.0
        self._read_at = 0.0
        self._complaint = ""
        self._data: Mapping[str, str] = {}
        self._was_missing = False
        self.is_pending = True

    def read(self) -> Mapping[str, str] | None:
        """Its data if they are news, else None.

        They are once it has been read, and again if somebody else has written since. An empty one in the
        place of one that was removed is none, so that what is known is written into it.
        """
        if self._map.version or self._clock() < self._read_at:
            return None
        try:
            self._data = self._map.read()
        except ApiError as error:
            is_missing = error.status in (403, 404)
            self.is_pending = not is_missing
            self._was_missing = self._was_missing or is_missing  # no answer says nothing of that
            self._read_at = self._clock() + (MISSING_SECONDS if is_missing else self._spec.seconds)
            self._complain(f"it cannot be read: {error}")
            return None
        if not self._spec.is_written_at_once:
            self._write_at = self._clock() + self._spec.seconds
        was_missing, self._was_missing = self._was_missing, False
        self.is_pending = False
        return None if was_missing and not self._data else self._data

    @property
    def may_write(self) -> bool:
        """Whether it is time to write, it has been read, and this process leads."""
        return bool(self._map.version) and self._clock() >= self._write_at and self._pass.may_act()

    def write(self, data: Mapping[str, str]) -> bool:
        """Write these keys, if they are news and it may be written now; returns whether that was done."""
        if not self.may_write or {**self._data, **data} == self._data:
            return False
        self._write_at = self._clock() + self._spec.seconds
        try:
            self._map.write(data)
        except ApiError as error:
            if error.status in (404, 409):
                self._map.version, self._read_at = "", 0.0
                self.is_pending = True
                self._was_missing = self._was_missing or error.status == 404
            if error.status != 409:
                self._complain(f"it cannot be written: {error}")
            return False
        self._data = {**self._data, **data}
        self._complaint = ""
        return True

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            logger.warning("record_not_kept configmap=%s/%s reason=%r", NAMESPACE, self._spec.name, complaint)
