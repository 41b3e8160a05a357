"""What the recipes of CONTRIBUTING.md ask for is there; a failing test says which step is missing."""

import re

import pytest

from hack.local.build import ROOT
from labeler.allocator import vendors
from labeler.models import VENDORS
from labeler.sources import known_sources

OPERATORS = ROOT / "docs/operators"


@pytest.mark.parametrize("source", known_sources())
@pytest.mark.parametrize("page", ["topology.md", "platforms.md"])
def test_each_source_of_the_labeler_stands_on_the_pages_for_operators(source: str, page: str) -> None:
    """Failed? Add the source to a table of that page: step 5 of "To add a label source"."""
    rows = [line for line in (OPERATORS / page).read_text().splitlines() if line.startswith("|")]
    is_there = any(re.search(rf"`{source}[`:]|labeler-{source}`", row) for row in rows)
    assert is_there, f"add a row with `{source}` to a table of docs/operators/{page}"


@pytest.mark.parametrize("vendor", VENDORS.values())
def test_each_vendor_stands_on_the_page_on_platforms(vendor: str) -> None:
    """Failed? Add a row to docs/operators/platforms.md: step 5 of "To add a GPU vendor"."""
    assert f"`vendor.{vendor}`" in (OPERATORS / "platforms.md").read_text()


def test_each_vendor_whose_cards_are_handed_out_has_a_module_and_stands_on_the_page_on_cards() -> None:
    """Failed? Enter the module in KNOWN, and name it in docs/operators/cards.md: steps 3 and 5."""
    modules = {path.stem for path in (ROOT / "labeler/allocator/vendors").glob("[!_]*.py")}
    assert modules == set(vendors.KNOWN)
    text = (OPERATORS / "cards.md").read_text()
    assert [name for name in vendors.KNOWN if f"`{name}`" not in text] == []
