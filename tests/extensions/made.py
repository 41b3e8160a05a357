"""Extensions that are made of functions, for tests of what becomes of their answers."""

from typing import Any

from webhook.sweeper.extension import Extension


def extension(name: str, memory: Any = None, base: type[Extension] = Extension, **parts: Any) -> Extension:
    """An extension with these attributes, and with functions as its hooks."""
    hooks = {each: staticmethod(part) if callable(part) else part for each, part in parts.items()}
    made = type(name, (base,), {"name": name, "memory": memory, **hooks})()
    assert isinstance(made, Extension)
    return made
