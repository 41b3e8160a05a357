"""`topogate config`: check a configuration, render it for the API server, and make one of old files.

`check` reports every fault of the file, and with --against how rendered objects differ from it. `render`
prints the objects by which the API server itself applies the configuration. `migrate` prints one
configuration with the meaning of the two files of version 0.1.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from webhook.cli.terminal import complain, print_line
from webhook.configuration.cluster import (
    is_configuration,
    is_labeler_file,
    labeler_levels,
    level_faults,
    text_of,
)
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import Configuration, from_document
from webhook.configuration.migrate import contents, migrate, parse_files
from webhook.policy import rendering
from webhook.policy.rendering import Object, RenderError
from webhook.policy.values import Policy

_HEAD: Final = (
    "# Made by `topogate config render` from the configuration and the PriorityClasses. Do not edit this "
    "file:\n# edit those, and run it again. What each part is for stands in webhook/policy/rendering.py.\n"
)


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
    check.add_argument(
        "--against",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="YAML with rendered objects, or a folder of such files, or - for standard input (kubectl get "
        "mutatingwebhookconfigurations,validatingadmissionpolicies,mutatingadmissionpolicies -o yaml); "
        "reports what differs from the configuration",
    )
    render = commands.add_parser("render", help="print the objects that follow from a configuration")
    render.add_argument(
        "--into", type=Path, metavar="FOLDER", help="rewrite the files below it that hold these objects"
    )
    for each in (check, render):
        each.add_argument(
            "files",
            nargs="+",
            type=Path,
            metavar="FILE",
            help="a configuration, or a ConfigMap with it; other files may hold PriorityClasses, or the "
            "labeler's ConfigMap, whose levels must be among those of the configuration",
        )
    old = commands.add_parser("migrate", help="print the configuration of two files of version 0.1")
    old.add_argument(
        "files", nargs="+", type=Path, metavar="FILE",
        help="admission's policy, the sweeper's settings, or a ConfigMap with the policy",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Check, render or migrate; 0 if everything can be used and agrees, else 1."""
    try:
        if arguments.config_command == "migrate":
            return _migrate(arguments.files)
        found, status = _read(arguments.files)
        if arguments.config_command == "check":
            return _check(found, arguments.against) or status
        if status:
            return status
        if len(found.configurations) != 1:
            raise RenderError(f"pass one configuration, not {len(found.configurations)}")
        return _render(next(iter(found.configurations.values())), found.values, arguments.into)
    except ConfigurationError as error:
        for line in str(error).splitlines():
            complain(line)
    except RenderError as error:
        complain(f"topogate config {arguments.config_command}: {error}")
    return 1


# --- reading ------------------------------------------------------------------------------------------


@dataclass
class ConfigurationFiles:
    """Configurations by file, the values of PriorityClasses by name, and the labeler's levels by file."""

    configurations: dict[Path, Configuration] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    labeler_levels: dict[Path, list[str]] = field(default_factory=dict)


def _read(paths: Iterable[Path]) -> tuple[ConfigurationFiles, int]:
    """The files, and 1 if one of them has a fault, which is printed."""
    found, status = ConfigurationFiles(), 0
    for path in paths:
        try:
            _read_into(found, path)
        except ConfigurationError as error:
            for line in str(error).splitlines():
                complain(line)
            status = 1
    for path, levels in found.labeler_levels.items():
        for configuration in found.configurations.values():
            for fault in level_faults(configuration.settings.topology, levels):
                complain(f"{path}: {fault}")
                status = 1
    return found, status


def _read_into(found: ConfigurationFiles, path: Path) -> None:
    objects = _manifests(path)
    classes = {
        identity(each)[1]: each.get("value") for each in objects if each.get("kind") == "PriorityClass"
    }
    for name, value in classes.items():
        if not isinstance(value, int):
            raise ConfigurationError(str(path), [f"PriorityClass {name} has no value"])
        found.values[name] = value
    for each in objects:
        if is_labeler_file(each):
            found.labeler_levels[path] = labeler_levels(each)
    if not classes and path not in found.labeler_levels:
        found.configurations[path] = parse_files([_configuration(path)])


def _configuration(path: Path) -> tuple[str, str | bytes]:
    """The name of a file and the configuration in it. Raises ConfigurationError."""
    (content,) = contents([path])
    return next(((str(path), text_of(each)) for each in _manifests(path) if is_configuration(each)), content)


def _manifests(path: Path) -> list[Object]:
    """The objects of a file; none of one with a fault, which the reader of configurations reports better."""
    try:
        return list(_objects(path))
    except RenderError:
        return []


# --- migrate ------------------------------------------------------------------------------------------


def _migrate(paths: Iterable[Path]) -> int:
    """Print the new file, and on standard error what is dropped."""
    document, notes = migrate([_configuration(path) for path in paths])
    print(as_yaml([document]), end="")
    for note in notes:
        complain(note)
    from_document(document, "the new configuration")
    return 0


# --- check --------------------------------------------------------------------------------------------


def _check(files: ConfigurationFiles, against: list[Path]) -> int:
    """Print what each configuration has, and where the rendered objects differ from it."""
    rendered = {identity(each): each for path in against for each in _objects(path)}
    drifted = 0
    for path, configuration in files.configurations.items():
        policy = configuration.policy
        print_line(f"{path}: ok: {_summary(policy)}")
        if not against:
            continue
        wanted = {identity(each): each for each in rendering.objects(policy, files.values)}
        there = wanted.keys() & rendered.keys()
        if not there:
            raise RenderError("the files of --against have none of the rendered objects")
        for key in sorted(there):
            for place in differences(wanted[key], rendered[key]):
                print_line(f"{path}: {' '.join(key)}: {place} has drifted; run topogate config render")
                drifted += 1
    return 1 if drifted else 0


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Where `found` lacks what `wanted` has.

    Fields that the API server adds are no difference, nor is the address of the webhook, which overlays
    change.
    """
    if path.endswith(".clientConfig"):
        return
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            yield from differences(value, found.get(key), _path_of(key, path))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif wanted != found:
        yield path


def _path_of(key: str, parent: str) -> str:
    return f"{parent}.{key}" if parent else key


def identity(item: Mapping[str, Any]) -> tuple[str, str]:
    """The identity of an object: kind and name."""
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return str(item.get("kind")), str(name)


# --- render -------------------------------------------------------------------------------------------


def _render(configuration: Configuration, values: Mapping[str, int], folder: Path | None) -> int:
    objects = rendering.objects(configuration.policy, values)
    if folder is None:
        print(as_yaml(objects), end="")
        return 0
    wanted = {identity(each): each for each in objects}
    written: set[tuple[str, str]] = set()
    for path in sorted(folder.rglob("*.yaml")):
        if not path.read_text().startswith(_HEAD):
            continue
        there = [identity(each) for each in _objects(path)]
        text = _HEAD + as_yaml(wanted[key] for key in there if key in wanted)
        if text != path.read_text():
            path.write_text(text)
            print_line(f"{path}: written")
        written.update(there)
    if not written:
        raise RenderError(f"no file below {folder} begins as a rendered one does")
    return 0


class _Dumper(yaml.SafeDumper):
    """YAML with long texts folded, so that an expression is read and compared line by line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a repeated value twice instead of as an alias."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = ">" if len(value) > 80 else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(objects: Iterable[Object]) -> str:
    """The objects as a stream of YAML documents."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=110)


# --- objects ------------------------------------------------------------------------------------------


def _objects(path: Path) -> Iterator[Object]:
    """The objects of a file, of all files below a folder, or of standard input; lists are expanded."""
    for file in sorted(path.rglob("*.yaml")) if path.is_dir() else [path]:
        for document in _documents(file):
            if isinstance(document, dict):
                items = document.get("items")
                yield from (each for each in items or () if isinstance(each, dict))
                if items is None:
                    yield document


def _documents(file: Path) -> list[Any]:
    """The documents of a file, or of standard input. Raises RenderError."""
    try:
        return list(yaml.safe_load_all(sys.stdin.read() if str(file) == "-" else file.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RenderError(f"{file}: cannot be read: {error}") from None
    except RecursionError:
        raise RenderError(f"{file}: is nested too deeply") from None


def _summary(policy: Policy) -> str:
    counts = (
        (len(policy.tiers), "tiers"),
        (len(policy.gpu_models), "GPU models"),
        (len(policy.gpu_resources), "GPU resources"),
        (len(policy.namespaces), "namespace entries"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts)
