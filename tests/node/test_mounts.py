"""What a container of the node's programs can write to, with their manifests' volumes, made by the real runc.

As a container runtime makes them that knows recursively read-only mounts (containerd 2, CRI-O 1.30). Without
`recursiveReadOnly` what is mounted below a read-only folder stays writable.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local.build import ROOT

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("runc") is None or shutil.which("busybox") is None,
    reason="NOT RUN: what node programs can write to, which takes root, runc and busybox-static",
)

TRY = """
for folder in $(/bin/busybox awk '{print $2}' /proc/mounts); do
    case $folder in /proc*|/|/tmp) continue ;; esac
    if /bin/busybox mkdir $folder/topogate-was-here 2>/dev/null; then
        echo $folder
        /bin/busybox rmdir $folder/topogate-was-here
    fi
done
"""


def writable(folder: Path, mounts: list[dict[str, Any]], user: int) -> list[str]:
    """The mount points that a container of that user can write to; no capability, as the manifests say."""
    root = folder / "root"
    for each in ("bin", "proc", "tmp"):
        (root / each).mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), root / "bin" / "busybox")
    (root / "bin" / "try.sh").write_text(TRY)
    none: dict[str, list[str]] = {kind: [] for kind in ("bounding", "effective", "permitted", "inheritable")}
    own = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
    ]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": user},
            "args": ["/bin/busybox", "sh", "/bin/try.sh"],
            "cwd": "/",
            "capabilities": none,
            "noNewPrivileges": True,
        },
        "root": {"path": "root", "readonly": True},
        "mounts": own + mounts,
        "linux": {"namespaces": [{"type": kind} for kind in ("mount", "pid", "ipc", "network")]},
    }
    (folder / "config.json").write_text(json.dumps(config))
    command = ["unshare", "--mount", "runc", "--root", str(folder / "state"), "run", f"t{os.getpid()}"]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    return completed.stdout.split()


def host_mounts(path: str, recursive: bool = True) -> tuple[list[dict[str, Any]], int]:
    """The mounts of a DaemonSet's host folders that are read-only, and its user."""
    documents = yaml.safe_load_all((ROOT / "manifests" / path).read_text())
    (daemon,) = (each for each in documents if each["kind"] == "DaemonSet")
    spec = daemon["spec"]["template"]["spec"]
    sources = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    made = []
    for mount in spec["containers"][0]["volumeMounts"]:
        source = sources.get(mount["name"])
        if source is None or not mount.get("readOnly") or not Path(source).is_dir():
            continue
        option = "rro" if recursive and mount.get("recursiveReadOnly") == "IfPossible" else "ro"
        options = ["rbind", "rprivate", option]
        made.append({"destination": mount["mountPath"], "type": "bind", "source": source, "options": options})
    return made, int(spec["securityContext"]["runAsUser"])


@pytest.mark.promise("S52")
@pytest.mark.parametrize("path", ["components/allocator/allocator.yaml", "base/labeler.yaml"])
def test_nothing_in_or_below_the_nodes_folders_can_be_written_to(path: str, tmp_path: Path) -> None:
    mounts, user = host_mounts(path)
    assert "/sys" in {each["source"] for each in mounts}
    assert writable(tmp_path, mounts, user) == []


def test_what_lies_below_would_be_writable_otherwise(tmp_path: Path) -> None:
    mounts, user = host_mounts("components/allocator/allocator.yaml", recursive=False)
    found = writable(tmp_path, mounts, user)
    if not found:
        pytest.skip("nothing is mounted below /sys and /dev here that root without capabilities may write to")
    assert all(each.startswith(("/sys/", "/host/dev/")) for each in found)
