"""Extensions that are made of functions, for tests of what becomes of their answers."""

from typing import Any

from webhook.sweeper.context import Retries
from webhook.sweeper.decide.retries import RetryTable
from webhook.sweeper.extension import Extension
from webhook.sweeper.hooks import ExtensionHooks


def extension(name: str, memory: Any = None, base: type[Extension] = Extension, **parts: Any) -> Extension:
    """An extension with these attributes, and with functions as its hooks."""
    hooks = {each: staticmethod(part) if callable(part) else part for each, part in parts.items()}
    made = type(name, (base,), {"name": name, "memory": memory, **hooks})()
    assert isinstance(made, Extension)
    return made


def none_failed(hooks: ExtensionHooks) -> Retries:
    """The retries of a pass before which no write has failed."""
    return Retries(hooks._pass, RetryTable())
