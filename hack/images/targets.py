"""What each image is made of: of the locked packages those that something imports, and no more of them."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Target:
    """One image. packages: our own Python packages; distributions: the locked ones that they import.

    debian: its packages beside Python and libudev. extras: of pyproject.toml, those that it has.
    """

    name: str
    packages: tuple[str, ...]
    distributions: tuple[str, ...]
    debian: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()


_BOTH: Final = ("pyudev", "pyyaml", "urllib3", "msgspec", "prometheus-client", "typing-extensions")
_EXTRAS: Final = {
    "allocator": ("grpcio", "protobuf"),
    "dra": ("cel-expr-python",),
    "nvidia": ("nvidia-ml-py",),
}  # fmt: skip
"""The extras of pyproject.toml that an image may have."""

_TOPOGATE: Final = (
    *_BOTH,
    "cryptography", "cffi", "pycparser",
    "flask", "blinker", "click", "itsdangerous", "jinja2", "markupsafe", "werkzeug",
    "gunicorn",
    # The client without its asynchronous half, and what importing it imports.
    "kubernetes", "certifi", "charset-normalizer", "durationpy", "idna", "oauthlib", "pydantic",
    "pydantic-core", "annotated-types", "typing-inspection", "python-dateutil",
    "requests", "requests-oauthlib", "websocket-client",
    "jsonpatch", "jsonpointer",
    "numpy", "highspy",
)  # fmt: skip


def _target(name: str, packages: tuple[str, ...], base: tuple[str, ...], *extras: str) -> Target:
    """An image with libstdc++, which numpy, highspy, grpcio and cel-expr-python load."""
    distributions = (*base, *(each for extra in extras for each in _EXTRAS[extra]))
    return Target(name, packages, distributions, ("libstdc++6",), extras)


TOPOGATE: Final = _target("topogate", ("labeler", "webhook"), _TOPOGATE)
DRA: Final = _target("topogate-dra", ("labeler", "webhook"), _TOPOGATE, "dra")
"""In the place of TOPOGATE where pods have claims on devices."""
LABELER: Final = _target("topogate-labeler", ("labeler",), _BOTH, "allocator", "nvidia")
TARGETS: Final = {target.name: target for target in (TOPOGATE, DRA, LABELER)}

DROPPED: Final = (
    "**/tests", "**/testing/tests", "**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.h", "**/*.c", "**/*.a",
    "bin", "share", "**/__pycache__", "**/conftest.py",
    # Loaded by name only when they are used, which nothing of ours does: bodies stay raw here.
    "kubernetes/aio", "kubernetes/client/models/[!_]*.py", "kubernetes/client/api/[!_]*.py",
    "kubernetes/test", "kubernetes/docs",
    "cel_expr_python/ext/ext_encoders*", "cel_expr_python/ext/ext_proto*",
    "numpy/f2py", "numpy/distutils", "numpy/_core/lib", "numpy/_core/include",
)  # fmt: skip
"""Parts of distributions that nothing imports, relative to where Python finds them."""
