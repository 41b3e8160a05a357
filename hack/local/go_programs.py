"""Helm and cert-manager's controllers for tests: built from Go modules once a machine, and cached.

Most of what Helm is made of is compiled for the control plane as well, at the same versions. cert-manager's
controllers take five minutes of processor time, which no usual run of the tests is to cost: only
`hack/test --cert-manager` builds them. Every later run on that machine finds them.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
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

CRDS: Final = "crds"
"""The folder of cert-manager's CRDs beside its program."""

_KUBERNETES: Final = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
"""Which cluster Helm renders for where it is not asked to; 1.20 unless its makers' build says another."""


@dataclass(frozen=True)
class CachedProgram:
    """A program below hack. files: of its folder, which decide what it is; finish: adds what it needs."""

    name: str
    program: GoProgram
    flags: tuple[str, ...]
    files: tuple[str, ...] = ("go.mod", "go.sum")
    finish: Callable[[Path], None] = lambda folder: None

    @property
    def folder(self) -> Path:
        """Where it is, once it is built."""
        digest = hashlib.sha256(f"{sys.platform} {platform.machine()} {self.flags}".encode())
        for name in self.files:
            digest.update((self.program.source / name).read_bytes())
        return cache_folder() / f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def binary(self) -> Path:
        """The program in its folder."""
        return self.folder / self.name

    def build(self) -> Path:
        """The program, built if need be. Raises NoControlPlaneError."""
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.binary.exists():
                partial = folder / f"{self.name}.partial"
                compile_program(self.program, partial, self.flags)
                self.finish(folder)
                partial.rename(self.binary)
                for other in cache_folder().glob(f"{self.name}-*"):
                    if other != folder:
                        shutil.rmtree(other, ignore_errors=True)
        return self.binary


def _copy_crds(folder: Path) -> None:
    source = CERT_MANAGER.program.source
    result = subprocess.run(
        [toolchain(), "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager"],
        cwd=source,
        env={**os.environ, **GO_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise NoControlPlaneError(f"cert-manager's module is not there: {result.stderr.strip()[-500:]}")
    shutil.rmtree(folder / CRDS, ignore_errors=True)  # of a build that was killed
    (folder / CRDS).mkdir()
    for path in (Path(result.stdout.strip()) / "deploy" / "crds").glob("*.yaml"):
        shutil.copyfile(path, folder / CRDS / path.name)  # not with its mode: the module cache is read-only


_PLAIN: Final = ("-trimpath", "-buildvcs=false", "-ldflags")
"""As the control plane's, so that what both are made of is compiled once."""

HELM: Final = CachedProgram(
    "helm",
    GoProgram("Helm", ROOT / "hack" / "helm", "helm.sh/helm/v3/cmd/helm"),
    (*_PLAIN, f"-s -w -X {_KUBERNETES}Major=1 -X {_KUBERNETES}Minor=36"),
)
CERT_MANAGER: Final = CachedProgram(
    "certmanager",
    GoProgram("cert-manager's controllers", ROOT / "hack" / "certmanager", "."),
    (*_PLAIN, "-s -w"),
    ("go.mod", "go.sum", "main.go"),
    _copy_crds,
)


def main() -> int:
    """Get those that are named ready ahead of their use; says in one sentence why it cannot."""
    try:
        for tool in (HELM, CERT_MANAGER):
            if tool.name in sys.argv[1:]:
                tool.build()
    except NoControlPlaneError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
