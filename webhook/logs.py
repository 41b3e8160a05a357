"""How the programs log: one line a fact, a constant word first, then key=value; or the same as JSON."""

import argparse
import json
import logging
import sys
import time
from types import TracebackType
from typing import Final

from webhook.text import printable
from webhook.version import version

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class _Text(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """One line whatever the message quotes; a traceback keeps its own lines, each behind a bar."""
        return printable(str(super().formatMessage(record)))

    def formatException(self, ei: _ExcInfo) -> str:
        """The traceback, in which no line can be taken for a message."""
        return "\n".join(f"  | {printable(line)}" for line in super().formatException(ei).splitlines())


class _Json(_Text):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, self.datefmt),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = logging.Formatter.formatException(self, record.exc_info)
        return json.dumps(entry)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags --log-level and --log-format, for begin."""
    parser.add_argument("--log-level", default="info", choices=LEVELS)
    parser.add_argument("--log-format", default="text", choices=FORMATS)


def begin(program: str, level: str, form: str) -> None:
    """Log as configured from now on, and first of all which program this is, and its version."""
    configure(level, form)
    logging.getLogger("webhook").info("starting program=%s version=%s", program, version())


def configure(level: str = "info", form: str = "text") -> None:
    """Log to standard error; level is one of Python's level names in any case."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.WARNING)
