"""The objects of an overlay of the manifests with components, as kustomize makes them."""

import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hack.local.build import ROOT, programs

Object = dict[str, Any]
Identity = tuple[str, str, str]
"""Kind, namespace and name of an object."""


def rendered(overlay: str, components: Sequence[str] = ()) -> dict[Identity, Object]:
    """The objects by their identities. Raises NoControlPlaneError, CalledProcessError."""
    text = rendered_text(overlay, tuple(components))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {identity_of(each): each for each in yaml.load_all(text, loader)}


@cache
def rendered_text(overlay: str, components: tuple[str, ...] = ()) -> str:
    """The same as kustomize writes it, which takes 0.15 s: several tests are of one overlay."""
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".overlay-") as folder:
        (Path(folder) / "kustomization.yaml").write_text(
            yaml.safe_dump(
                {
                    "resources": [f"../manifests/{overlay}"],
                    "components": [f"../manifests/components/{name}" for name in components],
                }
            )
        )
        command = [*programs().commands["kubectl"], "kustomize", folder]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def identity_of(each: Object) -> Identity:
    """Which object a manifest is of."""
    metadata = each.get("metadata", {})
    return (each["kind"], metadata.get("namespace", ""), metadata.get("name", ""))
