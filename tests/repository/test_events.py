"""Every reason of an Event is written by a program. test_references.py holds the page to the reasons."""

import re
from pathlib import Path

from hack.local.build import ROOT
from labeler.contract.event_reasons import EventReason
from webhook.tasks import task_objects

PHASES = {
    task_objects.PENDING,
    task_objects.WAITING,
    task_objects.RUNNING,
    task_objects.SUSPENDED,
    *task_objects.FINAL,
}
"""A GPUTask's Event has its phase as the reason."""


def modules() -> list[Path]:
    paths = [*ROOT.glob("webhook/**/*.py"), *ROOT.glob("labeler/**/*.py")]
    return [path for path in paths if path.stem != "event_reasons"]


def test_every_reason_is_written_by_a_program() -> None:
    code = "\n".join(path.read_text() for path in modules())
    written = {*re.findall(r"\bEventReason\.(\w+)", code)}
    assert [each.name for each in EventReason if each not in PHASES and each.name not in written] == []


def test_every_phase_of_a_task_is_a_reason() -> None:
    assert set(EventReason) >= PHASES


def test_a_reason_has_its_meaning_in_a_sentence() -> None:
    assert [
        each.name for each in EventReason if not each.meaning[0].isupper() or not each.meaning.endswith(".")
    ] == []
