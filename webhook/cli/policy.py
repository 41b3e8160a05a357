"""`topogate policy check FILE`: whether a policy file can be used, with every fault named."""

import argparse
import sys
from pathlib import Path
from typing import Any

from webhook.policy.file import PolicyError, parse_policy, read_yaml
from webhook.policy.values import Policy

_KEY = "policy.yaml"


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("policy", help="check the admission policy", description=__doc__)
    commands = parser.add_subparsers(dest="policy_command", required=True)
    check = commands.add_parser("check", help="name every fault of a policy file")
    check.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="a policy, or a ConfigMap with a policy.yaml"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the files; 0 if all can be used, else 1."""
    status = 0
    for path in arguments.files:
        try:
            policy = parse_policy(_policy_text(path), str(path))
        except PolicyError as error:
            print(error, file=sys.stderr)
            status = 1
        else:
            print(f"{path}: ok: {_summary(policy)}")
    return status


def _policy_text(path: Path) -> bytes | str:
    """The policy in a file, taken out of a ConfigMap if that is what the file holds."""
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
