"""`topogate policy`: check a policy file, and render it for the API server.

`check` reports every fault of the file, and with --against how rendered objects differ from it. `render`
prints the objects by which the API server itself applies the policy.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from webhook.cli.terminal import complain, print_line
from webhook.policy import rendering
from webhook.policy.document import PolicyError, read_yaml
from webhook.policy.file import parse_policy
from webhook.policy.rendering import Object, RenderError
from webhook.policy.values import Policy

_KEY: Final = "policy.yaml"
_HEAD: Final = (
    "# Made by `topogate policy render` from the admission policy and the PriorityClasses. Do not edit this "
    "file:\n# edit those, and run it again. What each part is for stands in webhook/policy/rendering.py.\n"
)


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser(
        "policy",
        help="check the admission policy, and render what follows from it",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="policy_command", required=True)
    check = commands.add_parser("check", help="report every fault of a policy file")
    check.add_argument(
        "--against",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="YAML with rendered objects, or a folder of such files, or - for standard input (kubectl get "
        "mutatingwebhookconfigurations,validatingadmissionpolicies,mutatingadmissionpolicies -o yaml); "
        "reports what differs from the policy",
    )
    render = commands.add_parser("render", help="print the objects that follow from a policy file")
    render.add_argument(
        "--into", type=Path, metavar="FOLDER", help="rewrite the files below it that hold these objects"
    )
    for each in (check, render):
        each.add_argument(
            "files",
            nargs="+",
            type=Path,
            metavar="FILE",
            help="a policy, or a ConfigMap with a policy.yaml; other files may hold PriorityClasses",
        )


def run(arguments: argparse.Namespace) -> int:
    """Check or render; 0 if everything can be used and agrees, else 1."""
    policies: dict[Path, Policy] = {}
    values: dict[str, int] = {}
    status = 0
    for path in arguments.files:
        try:
            found = _classes(path)
            if found is not None:
                values |= found
            else:
                policies[path] = parse_policy(_policy_text(path), str(path))
        except PolicyError as error:
            for line in str(error).splitlines():
                complain(line)
            status = 1
    try:
        if arguments.policy_command == "check":
            return _check(policies, values, arguments.against) or status
        if status:
            return status
        if len(policies) != 1:
            raise RenderError(f"pass one policy file, not {len(policies)}")
        return _render(next(iter(policies.values())), values, arguments.into)
    except (RenderError, PolicyError) as error:
        complain(f"topogate policy {arguments.policy_command}: {error}")
        return 1


# --- check --------------------------------------------------------------------------------------------


def _check(policies: Mapping[Path, Policy], values: Mapping[str, int], against: list[Path]) -> int:
    """Print what each policy has, and where the rendered objects differ from it."""
    rendered = {identity(each): each for path in against for each in _objects(path)}
    drifted = 0
    for path, policy in policies.items():
        print_line(f"{path}: ok: {_summary(policy)}")
        if not against:
            continue
        wanted = {identity(each): each for each in rendering.objects(policy, values)}
        there = wanted.keys() & rendered.keys()
        if not there:
            raise RenderError("the files of --against have none of the rendered objects")
        for key in sorted(there):
            for place in differences(wanted[key], rendered[key]):
                print_line(f"{path}: {' '.join(key)}: {place} has drifted; run topogate policy render")
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


def _render(policy: Policy, values: Mapping[str, int], folder: Path | None) -> int:
    objects = rendering.objects(policy, values)
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


# --- reading ------------------------------------------------------------------------------------------


def _objects(path: Path) -> Iterator[Object]:
    """The objects of a file, of all files below a folder, or of standard input; lists are expanded."""
    files = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
    for file in files:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text()
            documents = list(yaml.safe_load_all(text))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise RenderError(f"{file}: cannot be read: {error}") from None
        for document in documents:
            if isinstance(document, dict):
                items = document.get("items")
                yield from (each for each in items or () if isinstance(each, dict))
                if items is None:
                    yield document


def _classes(path: Path) -> dict[str, int] | None:
    """The values of a file's PriorityClasses by name; None if it has none."""
    try:
        found = list(_objects(path))
    except RenderError:
        return None  # a policy with a fault, then: its reader reports that better
    classes = [each for each in found if each.get("kind") == "PriorityClass"]
    for each in classes:
        if not isinstance(each.get("value"), int):
            raise PolicyError(str(path), [f"PriorityClass {identity(each)[1]} has no value"])
    return {identity(each)[1]: each["value"] for each in classes} or None


def _policy_text(path: Path) -> bytes | str:
    """The policy in a file, taken out of a ConfigMap if the file has one."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise PolicyError(str(path), [f"cannot be read: {error.strerror}"]) from None
    document = read_yaml(text, str(path))
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return text
    data = document.get("data")
    inner = data.get(_KEY) if isinstance(data, dict) else None
    if not isinstance(inner, str):
        raise PolicyError(str(path), [f"data: the ConfigMap has no {_KEY} with a text"])
    return inner


def _summary(policy: Policy) -> str:
    counts = (
        (len(policy.tiers), "tiers"),
        (len(policy.gpu_models), "GPU models"),
        (len(policy.gpu_resources), "GPU resources"),
        (len(policy.namespaces), "namespace entries"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts)
