"""Tables of docs that are made from code say what the code says."""

from pathlib import Path

import pytest

from hack.references import TABLES, renewed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("page", "name"), TABLES)
def test_a_generated_table_is_up_to_date(page: str, name: str) -> None:
    text = (ROOT / page).read_text()
    assert renewed(page, name, text) == text, "run hack/reference and commit what it changes"


def test_a_page_without_a_place_for_its_table_is_named() -> None:
    page, name = next(iter(TABLES))
    with pytest.raises(LookupError, match=page):
        renewed(page, name, "# A page")
