"""What others wrote is shown as one line of plain text: in the terminal, in the log, in objects."""

import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook import logs
from webhook.cli.terminal import complain, print_line
from webhook.text import printable

FORGED = "a\n2026-11-21T00:00:00Z INFO webhook forged \x1b[2K\x1b]0;title\x07\u202e\x9b31m\x7f\r"


def is_plain(text: str) -> bool:
    return text.isprintable()


@pytest.mark.promise("S3")
@given(st.text())
def test_whatever_is_printed_is_one_line_of_plain_text(text: str) -> None:
    assert is_plain(printable(text))


@pytest.mark.promise("S3")
def test_a_command_prints_forged_lines_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(FORGED)
    complain(FORGED)
    for output in capsys.readouterr():
        assert output.count("\n") == 1
        assert is_plain(output.rstrip("\n"))


def logged(form: str, monkeypatch: pytest.MonkeyPatch) -> str:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    before = logging.getLogger().handlers[:]
    try:
        logs.configure("info", form)
        try:
            raise ValueError(FORGED)
        except ValueError:
            logging.getLogger("test").exception("failed gang=%s", FORGED)
    finally:
        logging.getLogger().handlers[:] = before
    return stream.getvalue()


def test_a_line_of_the_log_is_forged_neither_by_a_message_nor_by_an_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, *rest = logged("text", monkeypatch).splitlines()
    assert "failed gang=a\\n2026" in first
    assert is_plain(first)
    assert all(line.startswith("  ") and is_plain(line) for line in rest)
    assert "forged" in rest[-1]


def test_a_log_in_json_has_one_plain_line_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = logged("json", monkeypatch).splitlines()
    assert is_plain(line)
    assert json.loads(line)["message"].startswith("failed gang=a\n2026")
