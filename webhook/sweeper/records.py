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

logger = logging.getLogger(__name__)


class RecordStore:
    """Reads and writes one record. What fails is logged once, and tried again later."""

    def __init__(self, surroundings: Pass, spec: RecordSpec) -> None:
        self._pass = surroundings
        self._spec = spec
        self._clock = surroundings.clock
        self._map = StateConfigMap(surroundings.api, path_of(spec.name), timeout_seconds=TIMEOUT_SECONDS)
        self._write_at = 0.0
        self._read_at = 0.0
        self._complaint = ""

    def read(self) -> Mapping[str, str] | None:
        """Its data if it is to be read: it has not been, or somebody else has written since. Else None."""
        if self._map.version or self._clock() < self._read_at:
            return None
        self._read_at = self._clock() + self._spec.seconds
        try:
            data = self._map.read()
        except ApiError as error:
            self._complain(f"it cannot be read: {error}")
            return None
        self._write_at = self._clock() + self._spec.seconds
        return data

    @property
    def may_write(self) -> bool:
        """Whether it is time to write, it has been read, and this process leads."""
        return bool(self._map.version) and self._clock() >= self._write_at and self._pass.may_act()

    def write(self, data: Mapping[str, str]) -> bool:
        """Write these keys, if it may be written now; returns whether that was done."""
        if not self.may_write:
            return False
        self._write_at = self._clock() + self._spec.seconds
        try:
            self._map.write(data)
        except ApiError as error:
            if error.status in (404, 409):
                self._map.version, self._read_at = "", 0.0
            if error.status != 409:
                self._complain(f"it cannot be written: {error}")
            return False
        self._complaint = ""
        return True

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            logger.warning("record_not_kept configmap=%s/%s reason=%r", NAMESPACE, self._spec.name, complaint)
