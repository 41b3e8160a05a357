"""The pages of the docs."""

import re
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


def anchors(paper: Path) -> set[str]:
    """The anchors of a paper's headings, as the common renderers make them."""
    heads = re.findall(r"^#+ (.+)$", paper.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
