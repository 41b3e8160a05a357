"""Helm for tests of the chart: built from its Go module once a machine, and kept in the cache.

Most of what it is made of is compiled for the control plane as well, at the same versions.
"""

import fcntl
import hashlib
import platform
import shutil
import sys
from typing import Final

from hack.local.build import ROOT, GoProgram, NoControlPlaneError, cache_folder, compile_program

SOURCE: Final = ROOT / "hack" / "helm"

_PROGRAM: Final = GoProgram("Helm", SOURCE, "helm.sh/helm/v3/cmd/helm")
_KUBERNETES: Final = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
"""Which cluster Helm renders for where it is not asked to; 1.20 unless its makers' build says another."""

_STAMPS: Final = f"-s -w -X {_KUBERNETES}Major=1 -X {_KUBERNETES}Minor=36"
_FLAGS: Final = ("-trimpath", "-buildvcs=false", "-ldflags", _STAMPS)


def helm() -> str:
    """The program, built if need be. Raises NoControlPlaneError."""
    folder = cache_folder() / f"helm-{_digest()}"
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / "helm"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            compile_program(_PROGRAM, binary, _FLAGS)
            for other in cache_folder().glob("helm-*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
    return str(binary)


def _digest() -> str:
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()} {_FLAGS}".encode())
    for name in ("go.mod", "go.sum"):
        digest.update((SOURCE / name).read_bytes())
    return digest.hexdigest()[:16]


def main() -> int:
    """Get it ready ahead of its use; says in one sentence why it cannot."""
    try:
        print(helm())
    except NoControlPlaneError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
