"""The tables of steps, by which every gang is placed, and the page that tells of them."""

import re
from pathlib import Path

from webhook.sweeper.decide.placing import CHECKS, STEPS

PAGE = Path(__file__).parents[2] / "docs" / "design" / "way-of-a-pass.md"


def test_the_page_lists_every_check_and_step_in_its_order() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    names = [step.__name__ for step in (*CHECKS, *STEPS)]
    assert [name for name in listed if name[0].islower()] == names
