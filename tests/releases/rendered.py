"""The chart as Helm renders it, for the tests of the chart."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from hack.local.go_programs import HELM
from hack.releases import chart

Objects = dict[chart.Identity, dict[str, Any]]

IMAGES = ("images.topogate=topogate", "images.labeler=topogate-labeler")
"""The names that the base has; they stand for no registry, and are not refused for that."""

TEMPLATE = ("template", "topogate", str(chart.CHART))


def run(*arguments: str, values: Sequence[str] = IMAGES) -> "subprocess.CompletedProcess[str]":
    sets = [word for each in values for word in ("--set", each)]
    return subprocess.run([str(HELM.build()), *arguments, *sets], capture_output=True, text=True, check=False)


def templated(values: Sequence[str] = (), version: str = "1.36.0", file: Path | None = None) -> Objects:
    """The objects of the chart with these values, and with a file of values, beside the images."""
    arguments = (
        *TEMPLATE,
        "--namespace=kube-system",
        "--skip-tests",
        *([f"--values={file}"] if file else []),
    )
    result = run(*arguments, f"--kube-version={version}", values=[*IMAGES, *values])
    assert result.returncode == 0, result.stderr
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    objects = [each for each in yaml.load_all(result.stdout, loader) if each]
    found = {chart._identity(each): each for each in objects}
    assert len(found) == len(objects)
    return found
