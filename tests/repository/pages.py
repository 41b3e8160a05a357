"""The pages of the docs."""

from hack.local.build import ROOT

DOCS = sorted(
    path
    for folder in (".", "docs/**", "manifests/**", "hack/**")
    for path in ROOT.glob(f"{folder}/*.md")
    if ".venv" not in path.parts
)
