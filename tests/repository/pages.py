"""The pages of the docs."""

from pathlib import Path

from hack.local.build import ROOT

DOCS = sorted(
    path
    for folder in (".", "docs/**", "manifests/**", "hack/**")
    for path in ROOT.glob(f"{folder}/*.md")
    if ".venv" not in path.parts
)


def path_in_repository(page: Path) -> str:
    """How a fault names a page."""
    return str(page.relative_to(ROOT))
