"""``topogate-allocator``: starts the program, if what that needs is installed."""

import sys
from collections.abc import Sequence
from typing import Final

_EXTRA: Final = frozenset({"grpc", "google"})
"""What the extra `allocator` brings, as it is imported."""

_LACKS: Final = (
    "topogate-allocator: it cannot speak to the kubelet, as grpcio and protobuf are not installed: "
    "run the image topogate-labeler, or install topogate[allocator]\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; returns 0, or 2 for a mistake in the command line or in the installation."""
    try:
        from labeler.allocator import program
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(_LACKS)
        return 2
    return program.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
