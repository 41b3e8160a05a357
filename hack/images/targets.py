"""What each image is made of: of the locked packages those that something imports, and no more of them."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Target:
    """One image. packages: our own Python packages; distributions: the locked ones that they import."""

    name: str
    packages: tuple[str, ...]
    distributions: tuple[str, ...]
    debian: tuple[str, ...] = ()
    """Debian packages beside Python and libudev."""


_LABELER: Final = (
    "pyudev", "pyyaml", "urllib3",
    # The allocator's.
    "grpcio", "msgspec", "nvidia-ml-py", "prometheus-client", "protobuf", "typing-extensions",
)  # fmt: skip

TOPOGATE: Final = Target(
    "topogate",
    ("labeler", "webhook"),
    (
        *_LABELER,
        "cryptography", "cffi", "pycparser",
        "flask", "blinker", "click", "itsdangerous", "jinja2", "markupsafe", "werkzeug",
        "gunicorn",
        # The client without its asynchronous half, and what importing it imports.
        "kubernetes", "certifi", "charset-normalizer", "durationpy", "idna", "oauthlib", "pydantic",
        "pydantic-core", "annotated-types", "typing-inspection", "python-dateutil",
        "requests", "requests-oauthlib", "websocket-client",
        "jsonpatch", "jsonpointer",
        "numpy", "highspy",
        "cel-expr-python",
    ),
    ("libstdc++6",),  # numpy, highspy, grpcio, cel-expr-python
)  # fmt: skip
LABELER: Final = Target("topogate-labeler", ("labeler",), _LABELER, ("libstdc++6",))
TARGETS: Final = {target.name: target for target in (TOPOGATE, LABELER)}

DROPPED: Final = (
    "**/tests", "**/testing/tests", "**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.h", "**/*.c", "**/*.a",
    "bin", "share", "**/__pycache__", "**/conftest.py",
    # Loaded by name only when somebody uses them, which nothing of ours does: bodies stay raw here.
    "kubernetes/aio", "kubernetes/client/models/[!_]*.py", "kubernetes/client/api/[!_]*.py",
    "kubernetes/test", "kubernetes/docs",
    "cel_expr_python/ext/ext_encoders*", "cel_expr_python/ext/ext_proto*",
    "numpy/f2py", "numpy/distutils", "numpy/_core/lib", "numpy/_core/include",
)  # fmt: skip
"""Parts of distributions that nothing imports, relative to where Python finds them."""
