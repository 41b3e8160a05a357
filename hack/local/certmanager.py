"""cert-manager's controllers for a test: built from their Go module once a machine, and kept in the cache.

Five minutes of processor time, which no usual run of the tests is to cost: only `hack/test --cert-manager`
builds them (it runs this module). Every later run on that machine finds them.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from hack.local.build import (
    GO_ENVIRONMENT,
    ROOT,
    GoProgram,
    NoControlPlaneError,
    cache_folder,
    compile_program,
    toolchain,
)

SOURCE: Final = ROOT / "hack" / "certmanager"
CRDS: Final = "crds"

_PROGRAM: Final = "certmanager"
_MODULE: Final = "github.com/cert-manager/cert-manager"
_FLAGS: Final = ("-trimpath", "-buildvcs=false", "-ldflags", "-s -w")
"""As the control plane's, so that what both are made of is compiled once."""


def program(folder: Path) -> str:
    """The program in a folder that `kept` has returned."""
    return str(folder / _PROGRAM)


def cached() -> Path | None:
    """A folder with the program and cert-manager's CRDs; None where they have not been built."""
    found = _folder()
    return found if (found / _PROGRAM).exists() else None


def build() -> Path:
    """The same, built if need be. Raises NoControlPlaneError."""
    found = _folder()
    found.mkdir(parents=True, exist_ok=True)
    with (found / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (found / _PROGRAM).exists():
            _build(found)
            for folder in cache_folder().glob("certmanager-*"):
                if folder != found:
                    shutil.rmtree(folder, ignore_errors=True)
    return found


def _folder() -> Path:
    return cache_folder() / f"certmanager-{_digest()}"


def _digest() -> str:
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()} {_FLAGS}".encode())
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((SOURCE / name).read_bytes())
    return digest.hexdigest()[:16]


def _build(found: Path) -> None:
    partial = found / f"{_PROGRAM}.partial"
    compile_program(GoProgram("cert-manager's controllers", SOURCE, "."), partial, _FLAGS)
    module = Path(_run_toolchain(toolchain(), "list", "-m", "-f", "{{.Dir}}", _MODULE).strip())
    shutil.rmtree(found / CRDS, ignore_errors=True)  # of a build that was killed
    (found / CRDS).mkdir()
    for path in (module / "deploy" / "crds").glob("*.yaml"):
        shutil.copyfile(path, found / CRDS / path.name)  # not with its mode: the module cache is read-only
    partial.rename(found / _PROGRAM)


def _run_toolchain(compiler: str, *arguments: str) -> str:
    result = subprocess.run(
        [compiler, *arguments],
        cwd=SOURCE,
        env={**os.environ, **GO_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise NoControlPlaneError(
            f"cert-manager's controllers cannot be built here (go {arguments[0]} in hack/certmanager): "
            f"{result.stderr.strip()[-500:]}"
        )
    return result.stdout


def main() -> int:
    """Get them ready ahead of their use; says in one sentence why it cannot."""
    try:
        build()
    except NoControlPlaneError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
