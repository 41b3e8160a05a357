"""The configuration under a running process, and the thread that watches files.

The files are read again whenever their bytes change. A new version that cannot be used leaves the old one in
force, and stays visible as a fault until a good one comes.
"""

import argparse
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily

from webhook.configuration.document import ConfigurationError
from webhook.configuration.migrate import contents, parse_files
from webhook.configuration.settings import Settings
from webhook.policy import rendering
from webhook.policy.values import Policy

POLL_SECONDS: Final = 2.0
_RENDER: Final = (
    "The API server's own conditions follow from what has changed. Run topogate config render, and apply "
    "its objects. An upgrade with Helm has done so."
)

logger = logging.getLogger(__name__)


class ConfigurationStore:
    """The configuration in force. Reading it costs an attribute access; `refresh` does the work."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Load the first version. Raises ConfigurationError: without any nothing can be decided."""
        self._paths = tuple(paths)
        self._names = " ".join(map(str, paths))
        self._files = contents(self._paths)
        self.configuration = parse_files(self._files)
        self.generation = 1
        self.faults: list[str] = []
        self.loaded_at = time.time()

    @property
    def policy(self) -> Policy:
        """What admission and the task controller need of it."""
        return self.configuration.policy

    @property
    def settings(self) -> Settings:
        """What the sweeper needs of it."""
        return self.configuration.settings

    def remark(self) -> str:
        """What is wrong with the files, "" if nothing: a sentence for probes."""
        return f"the configuration on disk is not in force: {'; '.join(self.faults)}" if self.faults else ""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics of the configuration, for a registry of prometheus_client."""
        for name, meaning, value in (
            ("topogate_configuration_generation", "Versions of the configuration loaded.", self.generation),
            (
                "topogate_configuration_rejected",
                "1 while the configuration on disk is unusable and an older version is in force.",
                bool(self.faults),
            ),
            (
                "topogate_configuration_loaded_timestamp_seconds",
                "When the configuration in force was loaded.",
                self.loaded_at,
            ),
        ):
            yield GaugeMetricFamily(name, meaning, value)

    def refresh(self) -> None:
        """Load a new version of the files, if there is a valid one, and log what has changed."""
        policy, generation, faults = self.policy, self.generation, self.faults
        self.load()
        if self.generation != generation:
            logger.info("configuration_loaded files=%s generation=%d", self._names, self.generation)
            if not rendering.render_equally(policy, self.policy):
                logger.warning("configuration_to_be_rendered remedy=%r", _RENDER)
        elif self.faults != faults:
            logger.error(
                "configuration_rejected files=%s generation_in_force=%d faults=%r",
                self._names, self.generation, self.faults,
            )  # fmt: skip

    def load(self) -> None:
        """Load a new version of the files, if there is a valid one."""
        try:
            before, self._files = self._files, []  # files that cannot be read are new when they are back
            self._files = contents(self._paths)
            if self._files == before:
                return
            configuration = parse_files(self._files)
        except ConfigurationError as error:
            self.faults = error.faults
            return
        except Exception as error:  # an error of ours must not look like a loaded configuration
            logger.exception("configuration_unreadable files=%s", self._names)
            self.faults = [f"cannot be read: {type(error).__name__}; see the log"]
            return
        self.configuration, self.faults = configuration, []
        self.generation += 1
        self.loaded_at = time.time()


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Add --config, and --policy, which version 0.1 had for one of its two files."""
    what = "the configuration of the cluster (YAML)"
    parser.add_argument("--config", type=Path, action="append", default=[], metavar="FILE", help=what)
    parser.add_argument("--policy", type=Path, action="append", dest="config", help=argparse.SUPPRESS)


def require_file(options: argparse.Namespace, program: str) -> None:
    """End a program without a configuration that needs one. Raises SystemExit."""
    if not options.config:
        raise SystemExit(f"{program}: --config FILE is missing")


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
