"""`topogate doctor`: check an installation and suggest remedies. Changes nothing."""

import argparse
from typing import Any, Final

from webhook.cli import session
from webhook.text import printable

_MARKS: Final = {"well": "ok  ", "odd": "warn", "ill": "FAIL", "unknown": "?   "}


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser(
        "doctor",
        help="check an installation",
        description="Exit status: 0 if nothing is wrong, 1 if something is, 2 for wrong arguments, 3 if "
        "nothing wrong was found but you are not allowed to check everything.",
    )
    session.add_connection(parser)
    session.add_output(parser, session.DOCUMENTS)


def run(options: argparse.Namespace) -> int:
    """Print the findings; 1 if a check failed or nothing answers, 3 if a check was not possible."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    from webhook.inquiry.doctor import examine
    from webhook.inquiry.findings import State

    findings = list(examine(session.connect(options)))
    if options.output is not None:
        session.show([{**vars(each), "state": str(each.state)} for each in findings], options.output)
    else:
        for each in findings:
            remedy = f"\n        {each.remedy}" if each.remedy else ""
            print(f"{_MARKS[each.state]}  {each.check}: {printable(each.sentence)}{remedy}")
    states = {each.state for each in findings}
    return 1 if State.ILL in states else 3 if State.UNKNOWN in states else 0
