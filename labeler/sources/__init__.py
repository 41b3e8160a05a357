"""Where a node's facts come from: one module a source, each failing alone.

A source is a module of this package with a function ``create(options, context) -> Source``, and the names of
its options in ``OPTIONS``; its name in the configuration is the module's name. Adding a source is adding a
module. One whose name begins with ``_`` is a helper of sources.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from threading import Event
from types import ModuleType
from typing import Any, Protocol, cast

from labeler.documents import unknown_key
from labeler.facts import Facts, SourceError

Options = Mapping[str, object]


class OptionError(ValueError):
    """A source's options are wrong: the message names the fault in the configuration."""


class Source(Protocol):
    """Something that knows facts of this node."""

    def discover(self) -> Facts:
        """The facts now. Raises SourceError when they cannot be read now."""

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """Call ``changed`` whenever discover may return something new, until stop is set.

        Runs in a thread of its own; returns at once where the source cannot notice changes by itself.
        """


def _no_server() -> Mapping[str, Any]:
    raise SourceError("the Node is not known without an API server")


@dataclass(frozen=True)
class Context:
    """What a source may need to know: which Node this is, and how to read its metadata.

    node_metadata raises SourceError when the API server does not answer.
    """

    node_name: str
    node_metadata: Callable[[], Mapping[str, Any]] = _no_server


def known_sources() -> list[str]:
    """The names that a configuration may use."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))


def create_source(name: str, options: Options, context: Context) -> Source:
    """The source of that name. Raises OptionError for an unknown name or wrong options."""
    if name not in known_sources():
        raise OptionError(f"no source is called {name!r}; there are {', '.join(known_sources())}")
    allowed = known_options(name)
    for option in options:
        if option not in allowed:  # a typo must not become a default
            raise OptionError(f"source {name}: {option}: {unknown_key(option, allowed)}")
    return cast(Source, _module(name).create(options, context))


def known_options(name: str) -> tuple[str, ...]:
    """The names of the options of a source."""
    return cast("tuple[str, ...]", _module(name).OPTIONS)


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name.replace('-', '_')}")
