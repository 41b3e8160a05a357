"""hack/reference: the tables of docs that are made from code, so that pages and programs agree.

A table stands in its page between two comments, `<!-- generated: NAME -->` and `<!-- end -->`.
"""

import argparse
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import yaml

from hack.program_metrics import served_metrics
from labeler import config
from labeler.contract.event_reasons import EventReason, EventSource
from labeler.contract.key_reference import KEY_USES, KeyUse
from webhook.cli.main import COMMANDS, module_of
from webhook.configuration.schema import DEFAULTS, SCHEMA, resolved, words
from webhook.configuration.value_kinds import Schema

_ROOT: Final = Path(__file__).parent.parent
_MARKED: Final = r"(<!-- generated: {} -->\n).*?(<!-- end -->)"


def configuration_keys() -> str:
    """All keys of the configuration."""
    return _table(
        ("Key", "Takes", "Default", "Meaning"),
        [(f"`{name}`", what, _default(default), meaning) for name, what, default, meaning in rows()],
    )


def rows() -> Iterator[tuple[str, str, Any, str]]:
    """Each key's path, type, default and meaning, also those of the items of lists.

    Raises KeyError for a key without a meaning.
    """
    return _rows(SCHEMA, DEFAULTS, "")


def _rows(schema: Schema, defaults: Any, path: str) -> Iterator[tuple[str, str, Any, str]]:
    for name, key in schema["properties"].items():
        below, default = resolved(key), defaults.get(name)
        if "properties" in below:
            yield from _rows(below, default, f"{path}{name}.")
            continue
        if "description" not in key:
            raise KeyError(f"{path}{name} has no line `{name}: meaning` in the docstring of its section")
        yield f"{path}{name}", words(below), default, key["description"]
        for item, where in ((below.get("items"), "[]"), (below.get("additionalProperties"), ".NAME")):
            if isinstance(item, dict) and "$ref" in item:
                yield from _rows(resolved(item), {}, f"{path}{name}{where}.")


def labeler_keys() -> str:
    """All keys of the labeler's file."""
    return _table(
        ("Key", "Takes", "Default", "Meaning"),
        [
            (f"`{name}`", each.what, _default(each.default), each.meaning)
            for name, each in config.KEYS.items()
        ],
    )


def command_options() -> str:
    """Each command of topogate with its own arguments and options."""
    return "\n".join(
        f"## {name}\n\n{parser.description or ''}\n\n{_options(parser)}" for name, parser in _commands()
    )


def _commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    root = argparse.ArgumentParser(prog="topogate")
    parsers = root.add_subparsers()
    for module in dict.fromkeys(map(module_of, COMMANDS)):
        importlib.import_module(module).add_parser(parsers)
    for name, meaning in COMMANDS.items():
        parser = parsers.choices[name]
        nested = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        for group in nested:
            helps = {each.dest: each.help for each in group._choices_actions}
            for verb, below in group.choices.items():
                below.description = _sentence(helps[verb] or "")
                yield f"{name} {verb}", below
        if not nested:
            parser.description = _sentence(meaning)
            yield name, parser


def _options(parser: argparse.ArgumentParser) -> str:
    """A table of what a command takes, without what docs/users/commands.md says of many commands."""
    lines = []
    for each in parser._actions:
        if each.help == argparse.SUPPRESS or set(each.option_strings) & _COMMON:
            continue
        value = "" if each.nargs == 0 else each.metavar or each.dest.upper()
        if each.choices and not each.metavar:
            value = "|".join(map(str, each.choices))
        given = f"{', '.join(each.option_strings)} {value}".strip()
        lines.append((f"`{given}`", (each.help or "") % {"default": each.default}))
    return _table(("Argument", "Meaning"), lines) if lines else "It takes no arguments of its own.\n"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


_COMMON: Final = frozenset(
    {"--help", "--namespace", "--kubeconfig", "--context", "--selector", "--watch"}
) | {
    "--all-namespaces",
    "--output",
}


def program_metrics() -> str:
    """All metrics of all programs."""
    return _table(
        ("Metric", "Type", "Labels", "By", "Meaning"),
        [
            (f"`{each.name}`", each.kind, ", ".join(each.labels), ", ".join(each.programs), each.meaning)
            for each in served_metrics()
        ],
    )


def event_reasons() -> str:
    """All reasons of Events but those of the task controller, those of each source below a heading."""
    return "\n".join(
        f"## {source.value}\n\n{_reasons(source)}"
        for source in EventSource
        if source is not EventSource.TASKS
    )


def task_event_reasons() -> str:
    """The reasons of the task controller's Events."""
    return _reasons(EventSource.TASKS)


def _reasons(source: EventSource) -> str:
    rows = [
        (f"`{each}`", "Warning" if each.is_warning else "Normal", each.meaning)
        for each in EventReason
        if each.source is source
    ]
    return _table(("Reason", "Type", "Meaning"), rows)


def wire_keys() -> str:
    """All keys of the wire contract, those of each group below a heading."""
    return "\n".join(
        f"## {heading}\n\n"
        + _table(("Key", "On", "Written by", "Read by", "Meaning"), [_key_row(each) for each in uses])
        for heading, uses in KEY_USES.items()
    )


def _key_row(use: KeyUse) -> tuple[str, ...]:
    value = f" = `{use.value}`" if use.value else ""
    return ", ".join(f"`{key}`" for key in use.keys) + value, use.on, use.written_by, use.read_by, use.meaning


def alerts() -> str:
    """The alerts of the component `monitoring`, each with a link to its runbook."""
    text = (_ROOT / "manifests/components/monitoring/rules.yaml").read_text()
    rules = [rule for group in yaml.safe_load(text)["spec"]["groups"] for rule in group["rules"]]
    return _table(
        ("Alert", "Severity", "After", "Meaning"),
        [
            (
                f"[{rule['alert']}]({rule['annotations']['runbook_url'].removeprefix('docs/operators/')})",
                rule["labels"]["severity"],
                rule.get("for", "at once"),
                rule["annotations"]["summary"],
            )
            for rule in rules
        ],
    )


TABLES: Final[Mapping[tuple[str, str], Callable[[], str]]] = {
    ("docs/operators/configuration.md", "configuration keys"): configuration_keys,
    ("docs/operators/configuration.md", "labeler keys"): labeler_keys,
    ("docs/design/wire-contract.md", "keys"): wire_keys,
    ("docs/operators/events.md", "event reasons"): event_reasons,
    ("docs/operators/events.md", "task event reasons"): task_event_reasons,
    ("docs/operators/metrics.md", "metrics"): program_metrics,
    ("docs/operators/alerts.md", "alerts"): alerts,
    ("docs/users/options.md", "command options"): command_options,
}
"""By page and name of the table."""


def renewed(page: str, name: str, text: str) -> str:
    """A page's text with that table renewed. Raises LookupError if the page has no place for it."""
    marked = re.compile(_MARKED.format(re.escape(name)), re.DOTALL)
    if not marked.search(text):
        raise LookupError(f"{page} has no place for a table: <!-- generated: {name} --> and <!-- end -->")
    return marked.sub(lambda found: f"{found[1]}\n{TABLES[page, name]()}\n{found[2]}", text)


def main(root: Path) -> None:
    """Renew all tables below `root`."""
    for page, name in TABLES:
        path = root / page
        path.write_text(renewed(page, name, path.read_text()))


def _table(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    made = [head, ("---",) * len(head), *lines]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in made)


def _default(value: Any) -> str:
    """A default as a file would have it, in code; nothing where there is none."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, StrEnum | str):
        return f"`{value}`" if value else '`""`'
    if isinstance(value, float):
        return f"`{value:.12g}`"
    if isinstance(value, frozenset):
        return ", ".join(f"`{each}`" for each in sorted(value)) or "`[]`"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value) or "`[]`"
    if isinstance(value, Mapping):
        return "`{" + ", ".join(f"{key}: {each}" for key, each in value.items()) + "}`"
    return f"`{value}`"


if __name__ == "__main__":
    main(_ROOT)
