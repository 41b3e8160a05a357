"""Numbers in messages: one pod is "1 pod"."""

import re

import pytest

from hack.local.build import ROOT
from webhook.text import counted


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [
        (0, ("pod",), "0 pods"),
        (1, ("pod",), "1 pod"),
        (2, ("pod",), "2 pods"),
        (1, ("gang waits", "gangs wait"), "1 gang waits"),
        (2, ("gang waits", "gangs wait"), "2 gangs wait"),
    ],
)
def test_a_number_stands_before_the_noun_in_its_form(
    count: int, words: tuple[str, ...], expected: str
) -> None:
    assert counted(count, *words) == expected


def test_no_message_leaves_the_form_of_a_noun_open() -> None:
    """As "1 block(s)"."""
    files = (file for part in ("webhook", "labeler", "hack") for file in (ROOT / part).rglob("*.py"))
    found = {
        (str(file.relative_to(ROOT)), match)
        for file in files
        for match in re.findall(r"\w+\(s\)(?=[ ,.;:])", file.read_text())
    }
    assert found == set()


NOUNS = "pods|nodes|gangs|workers|more pods|more gangs|more workers|other pods|free nodes|requests"
OF_A_LIST = re.compile(rf"(?<!of )\{{len\([^{{}}]*\}} ({NOUNS})\b")


def test_no_message_puts_the_length_of_a_list_before_a_plural_as_it_is() -> None:
    """ "1 of 3 pods" is right with any number; of these that are left, more than one is certain."""
    certain = {
        ("webhook/kube/placements.py", "pods"),  # too many for one object
        ("webhook/devices/pod_claims.py", "pods"),  # the most there may be
        ("webhook/tasks/status.py", "nodes"),  # a single one is named
        ("webhook/sweeper/observe/gang_requests.py", "pods"),
    }
    found = {
        (str(file.relative_to(ROOT)), match)
        for file in (ROOT / "webhook").rglob("*.py")
        for match in OF_A_LIST.findall(file.read_text())
    }
    assert found <= certain
