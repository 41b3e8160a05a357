"""hack/demo before there is a control plane: where its gang will go, by `topogate simulate --map`."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hack.demos import workload
from hack.local.nodes import SimulatedNode


def show_preview(grid: Sequence[SimulatedNode]) -> None:
    """Simulate the demo's gang on its nodes, from files alone, and print the map."""
    items = [node.manifest(node.topology_labels) for node in grid]
    for _, pod in workload.foreign_pods():
        namespaced = pod["metadata"] | {"namespace": workload.FOREIGN_NAMESPACE}
        items.append({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": namespaced})
    _, job = workload.objects()[0]
    with tempfile.TemporaryDirectory(prefix="topogate-preview-") as folder:
        cluster, manifest = Path(folder) / "cluster.json", Path(folder) / "gang.json"
        cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        manifest.write_text(json.dumps(job))
        program = str(Path(sys.executable).parent / "topogate")
        command = [program, "simulate", "--map", "--cluster", str(cluster), str(manifest)]
        subprocess.run(command, check=False, stdout=sys.stderr)
