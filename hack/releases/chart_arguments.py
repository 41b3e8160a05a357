"""Which further arguments each program of the chart takes, by the program's own parser. Part of `hack/chart`.

Each item of `extraArgs` is a whole option, as --interval=5, since a schema sees one item at a time. An option
that no parser has, or a value that its parser refuses, would end the program in the cluster.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from labeler import main as labeler
from labeler.allocator import program as allocator
from webhook.admission import serve
from webhook.cli import certs
from webhook.sweeper import main as sweeper
from webhook.tasks import main as tasks
from webhook.ui import serve_page

_ANY: Final = ".+"
_NUMBER: Final = r"[0-9]+(\.[0-9]+)?"
_VALUES: Final[Mapping[Any, str]] = {
    None: _ANY,
    Path: _ANY,
    int: "[0-9]+",
    float: _NUMBER,
    labeler._seconds: r"[1-9][0-9]*(\.[0-9]+)?[smh]?",
    allocator._positive: "([1-9][0-9]{0,2}|1000)",
    allocator._seconds: r"([12]?[0-9](\.[0-9]+)?|30)",
    certs._seconds: _NUMBER,
    certs._days: r"[1-9][0-9]{0,2}(\.[0-9]+)?|[12][0-9]{3}|3[0-5][0-9]{2}|36[0-4][0-9]|3650",
}
"""Expressions of the texts that a type of argparse takes; a new type needs one here."""
_PORTS: Final[Mapping[str, str]] = {"webhook": "8443", "ui": "8090"}
"""The port of --bind, which the Service of the program has."""
NEVER: Final = frozenset(
    {
        "--help", "--version", "--oneshot", "--dry-run", "--source", "--facts", "--config", "--policy",
        "--kubeconfig", "--context", "--cert-dir", "--metrics-port", "--health-port",
    }
)  # fmt: skip
"""Options after which a program ends, or which contradict the chart's own arguments, mounts and probes."""


def _certs() -> argparse.ArgumentParser:
    """That of `topogate certs rotate`."""
    found = argparse.ArgumentParser()
    certs.add_parser(found.add_subparsers())
    for name in ("certs", "rotate"):
        (nested,) = (each for each in found._actions if isinstance(each, argparse._SubParsersAction))
        found = nested.choices[name]
    return found


PARSERS: Final[Mapping[str, Callable[[], argparse.ArgumentParser]]] = {
    "webhook": serve.parser,
    "sweeper": sweeper.parser,
    "tasks": tasks.parser,
    "certs": _certs,
    "ui": serve_page.parser,
    "labeler": labeler.parser,
    "allocator": allocator.parser,
}
"""By the section of the values."""


def pattern(program: str) -> str:
    """An expression of the arguments that a program takes."""
    return f"^({'|'.join(_options(program))})$"


def _options(program: str) -> Iterator[str]:
    for action in PARSERS[program]()._actions:
        for name in action.option_strings:
            if name.startswith("--") and name not in NEVER:
                value = f".*:{_PORTS[program]}" if name == "--bind" else _value(action)
                yield name if action.nargs == 0 else f"{name}=({value})"


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "|".join(re.escape(str(each)).replace(r"\-", "-") for each in action.choices)
    return _VALUES[action.type]
