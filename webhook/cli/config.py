"""`topogate config`: check a configuration, render it for the API server, and make one of old files.

`check` reports every fault of the file, and with --against how rendered objects differ from it. `render`
prints the objects by which the API server itself applies the configuration. `migrate` prints one
configuration with the meaning of the two files of version 0.1. `schema` prints the JSON Schema, for editors.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from webhook.cli.terminal import complain, print_line
from webhook.configuration.cluster import (
    identity,
    is_configuration,
    is_labeler_file,
    labeler_levels,
    level_faults,
    text_of,
)
from webhook.configuration.document import ConfigurationError, read_documents
from webhook.configuration.file import Configuration, from_document
from webhook.configuration.migrate import contents, migrate, parse_files
from webhook.configuration.schema import SCHEMA
from webhook.policy import rendering
from webhook.policy.rendering import Object, RenderError

_HEAD: Final = (
    "# Made by `topogate config render` from the configuration and the PriorityClasses. Do not edit this "
    "file:\n# edit those, and run it again. What each part is for stands in webhook/policy/rendering.py.\n"
)
_AGAINST: Final = "YAML with rendered objects, a folder of it, or - for standard input; reports what differs"
_FILES: Final = "a configuration (or its ConfigMap), PriorityClasses, or the labeler's ConfigMap to compare"
_OLD_FILES: Final = "admission's policy, the sweeper's settings, or a ConfigMap with the policy"


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser(
        "config",
        help="check the configuration, and render what follows from it",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="config_command", required=True)
    check = commands.add_parser("check", help="report every fault of a configuration")
    render = commands.add_parser("render", help="print the objects that follow from a configuration")
    old = commands.add_parser("migrate", help="print the configuration of two files of version 0.1")
    commands.add_parser("schema", help="print the JSON Schema of a configuration, for editors")
    check.add_argument("--against", type=Path, action="append", default=[], metavar="PATH", help=_AGAINST)
    into = "rewrite the files below it that hold these objects"
    render.add_argument("--into", type=Path, metavar="FOLDER", help=into)
    for each, files in ((check, _FILES), (render, _FILES), (old, _OLD_FILES)):
        each.add_argument("files", nargs="+", type=Path, metavar="FILE", help=files)


def run(arguments: argparse.Namespace) -> int:
    """Check, render or migrate; 0 if everything can be used and agrees, else 1."""
    command, faults, drifted = arguments.config_command, list[str](), False
    if command == "schema":
        print(json.dumps(SCHEMA, indent=2))
        return 0
    try:
        if command == "migrate":
            return _migrate(arguments.files)
        found = _read(arguments.files, faults)
        if command == "check":
            drifted = _check(found, arguments.against)
        elif not faults:
            _render(found, arguments.into)
    except ConfigurationError as error:
        faults += str(error).splitlines()
    except RenderError as error:
        faults.append(f"topogate config {command}: {error}")
    for fault in faults:
        complain(fault)
    return int(drifted or bool(faults))


# --- reading ------------------------------------------------------------------------------------------


@dataclass
class ConfigurationFiles:
    """Configurations by file, the values of PriorityClasses by name, and the labeler's levels by file."""

    configurations: dict[Path, Configuration] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    labeler_levels: dict[Path, list[str]] = field(default_factory=dict)


def _read(paths: Iterable[Path], faults: list[str]) -> ConfigurationFiles:
    """The files. faults: gets what is wrong with them."""
    found = ConfigurationFiles()
    for path in paths:
        try:
            _read_into(found, path)
        except ConfigurationError as error:
            faults += str(error).splitlines()
    for path, levels in found.labeler_levels.items():
        for configuration in found.configurations.values():
            faults += (f"{path}: {fault}" for fault in level_faults(configuration.settings.topology, levels))
    if not (found.configurations or faults):
        faults.append("pass a configuration: these files have none")
    return found


def _read_into(found: ConfigurationFiles, path: Path) -> None:
    (source, content), objects = _content(path)
    classes = [each for each in objects if each.get("kind") == "PriorityClass"]
    for each in classes:
        name, value = identity(each)[1], each.get("value")
        if not isinstance(value, int):
            raise ConfigurationError(source, [f"PriorityClass {name} has no value"])
        found.values[name] = value
    for each in filter(is_labeler_file, objects):
        found.labeler_levels[path] = labeler_levels(each)
    if any(map(is_configuration, objects)) or not (classes or path in found.labeler_levels):
        found.configurations[path] = parse_files([(source, content)])


def _content(path: Path) -> tuple[tuple[str, str | bytes], list[Object]]:
    """The name of a file with the configuration in it, and its objects. Raises ConfigurationError.

    A file with a fault has no objects here, since the reader of configurations reports it better.
    """
    ((source, content),), objects = contents([path]), list[Object]()
    with suppress(ConfigurationError):
        objects = list(_objects(content, source))
    return (source, next(map(text_of, filter(is_configuration, objects)), content)), objects


def _migrate(paths: Iterable[Path]) -> int:
    """Print the new file, and on standard error what is dropped. Raises ConfigurationError."""
    document, notes = migrate([_content(path)[0] for path in paths])
    print(as_yaml([document]), end="")
    for note in notes:
        complain(note)
    from_document(document, "the new configuration")
    return 0


# --- check --------------------------------------------------------------------------------------------


def _check(files: ConfigurationFiles, against: list[Path]) -> bool:
    """Print what each configuration has, and where the rendered objects differ from it; whether they do."""
    drifted = False
    rendered = {identity(each): each for path in against for each in _objects_below(path)}
    for path, configuration in files.configurations.items():
        print_line(f"{path}: ok: {_summary(configuration)}")
        wanted = {identity(each): each for each in rendering.objects(configuration.policy, files.values)}
        there = wanted.keys() & rendered.keys()
        if against and not there:
            raise RenderError("the files of --against have none of the rendered objects")
        for key in sorted(there):
            for place in differences(wanted[key], rendered[key]):
                print_line(f"{path}: {' '.join(key)}: {place} has drifted; run topogate config render")
                drifted = True
    return drifted


def _summary(configuration: Configuration) -> str:
    policy = configuration.policy
    return (
        f"{len(policy.tiers)} tiers, {len(policy.gpu_models)} GPU models, "
        f"{len(policy.gpu_resources)} GPU resources, {len(policy.namespaces)} namespace entries"
    )


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Where `found` lacks what `wanted` has.

    Fields that the API server adds are no difference, nor is the address of the webhook, which overlays
    change.
    """
    if path.endswith(".clientConfig"):
        return
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            yield from differences(value, found.get(key), f"{path}.{key}" if path else key)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif wanted != found:
        yield path


# --- render -------------------------------------------------------------------------------------------


def _render(found: ConfigurationFiles, folder: Path | None) -> None:
    """Print the objects, or rewrite the files that hold them. Raises RenderError."""
    if len(found.configurations) != 1:
        raise RenderError(f"pass one configuration, not {len(found.configurations)}")
    (configuration,) = found.configurations.values()
    objects = rendering.objects(configuration.policy, found.values)
    if folder is None:
        print(as_yaml(objects), end="")
        return
    wanted = {identity(each): each for each in objects}
    files = {path: text for path in _files(folder) if (text := path.read_text()).startswith(_HEAD)}
    if not files:
        raise RenderError(f"no file below {folder} begins as a rendered one does")
    for path, text in files.items():
        there = map(identity, _objects(text, str(path)))
        made = _HEAD + as_yaml(wanted[key] for key in there if key in wanted)
        if made != text:
            path.write_text(made)
            print_line(f"{path}: written")


class _Dumper(yaml.SafeDumper):
    """YAML with long texts folded, so that an expression is read and compared line by line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a repeated value twice instead of as an alias."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=">" if len(value) > 80 else None)


_Dumper.add_representer(str, _text)


def as_yaml(objects: Iterable[Object]) -> str:
    """The objects as a stream of YAML documents."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=110)


# --- objects ------------------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.yaml")) if path.is_dir() else [path]


def _objects_below(path: Path) -> Iterator[Object]:
    """The objects of a file, of all files below a folder, or of standard input. Raises ConfigurationError."""
    is_input = str(path) == "-"
    for source, content in [("-", sys.stdin.read())] if is_input else contents(_files(path)):
        yield from _objects(content, source)


def _objects(content: str | bytes, source: str) -> Iterator[Object]:
    """The objects of a text; lists are expanded. Raises ConfigurationError."""
    for document in read_documents(content, source):
        if isinstance(document, dict):
            items = document.get("items", [document])
            yield from (each for each in items or () if isinstance(each, dict))
