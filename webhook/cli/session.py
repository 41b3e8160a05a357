"""What the subcommands that talk to a cluster share: kubeconfig, namespace, output, words for mistakes."""

import argparse
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.terminal import complain
from webhook.text import printable

if TYPE_CHECKING:
    from webhook.kube.client import Api

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
FORMATS: Final = ("json", "yaml", "wide", "name")


class SessionError(Exception):
    """It could not be done; the message says why, and what to do."""


class MistakeError(Exception):
    """What was asked cannot be meant; the message says what would do."""


def add_connection(parser: argparse.ArgumentParser, *, everywhere: bool = False) -> None:
    """The arguments that choose cluster and namespace."""
    parser.add_argument("-n", "--namespace", metavar="NAME", help="default: the kubeconfig's")
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG, else ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")
    if everywhere:
        parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")


def add_files(parser: argparse.ArgumentParser) -> None:
    """The operator's files, for who has other than the defaults."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the sweeper's settings, if it has a file"
    )
    parser.add_argument(
        "--policy", type=Path, metavar="FILE", help="admission's policy, which says what counts as a GPU"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """The argument that chooses a format."""
    parser.add_argument("-o", "--output", choices=FORMATS, help="default: a table for people")


def kubeconfigs_of(options: argparse.Namespace) -> tuple[Path, ...]:
    """The kubeconfigs that are meant; of several the first to say something counts."""
    if options.kubeconfig:
        return (Path(options.kubeconfig),)
    from webhook.kube.kubeconfig import of_this_person

    return of_this_person()


def connect(options: argparse.Namespace, *, brief: bool = False) -> "Api":
    """A client with the user's own rights. brief: for a few requests, one after the other. Raises
    SessionError.
    """
    from webhook.kube.client import Api, ConnectError

    try:
        return Api.connect(
            kubeconfigs_of(options),
            user_agent=f"topogate-{options.command}",
            context=options.context,
            brief=brief,
        )
    except ConnectError as error:
        raise SessionError(str(error)) from None


def namespace_of(options: argparse.Namespace) -> str:
    """The namespace that is meant: the argument's, else the kubeconfig's, else default.

    Raises MistakeError.
    """
    if options.namespace is not None:
        return namespace(options.namespace)
    from webhook.kube.kubeconfig import context_of, read

    try:
        written = context_of(read(kubeconfigs_of(options)), options.context).get("namespace") or "default"
    except (OSError, ValueError):
        return "default"  # what is wrong with it is said when the connection is made
    return namespace(str(written))


def namespace(written: str) -> str:
    """The same, where it may be the name of a namespace. Raises MistakeError."""
    if not is_name(written) or "." in written or len(written) > _LONGEST_LABEL:
        raise MistakeError(
            f"{written!r} is no namespace: its name is of a-z, 0-9 and -, at most {_LONGEST_LABEL} of them"
        )
    return written


def check_namespace(api: "Api", name: str) -> None:
    """Whether a namespace is there, for an answer that is empty.

    Raises SessionError where it is not; who may not read it is told nothing.
    """
    from webhook.kube.client import ApiError

    try:
        api.json("GET", f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if error.status == 404:
            raise SessionError(f"there is no namespace {name}") from None


def is_name(written: str) -> bool:
    """Whether an object may have that name, which then stands for nothing but itself in an address."""
    return len(written) <= _LONGEST_NAME and _NAME.fullmatch(written) is not None


def guarded(options: argparse.Namespace, work: Callable[[], int]) -> int:
    """Do it; what the cluster refuses is a sentence and status 1, a mistake one and status 2."""
    from webhook.kube.client import ApiError

    try:
        return work()
    except (SessionError, ApiError) as error:
        complain(f"topogate {options.command}: {sentence_of(error)}")
        return 1
    except MistakeError as error:
        complain(f"topogate {options.command}: {error}")
        return 2


def sentence_of(error: Exception) -> str:
    """What a user needs of an error: the API server's own words, without the request."""
    message = getattr(error, "message", "")
    if not message:
        return str(error)
    request, _, words = message.partition(": ")
    return words if words and "/" in request else str(message)


def pages(api: "Api", path: str, **query: str) -> Iterator[dict[str, Any]]:
    """The objects of a collection. Raises ApiError."""
    after = ""
    while True:
        page = api.json(
            "GET", path, query={"limit": "500", **query, **({"continue": after} if after else {})}
        )
        yield from page.get("items") or ()
        after = (page.get("metadata") or {}).get("continue") or ""
        if not after:
            return


def show_list(items: Sequence[dict[str, Any]], form: str) -> None:
    """Objects as json or yaml: a list, however many there are."""
    show({"apiVersion": "v1", "kind": "List", "items": list(items)}, form)


def show(document: dict[str, Any], form: str) -> None:
    """One object as json or yaml."""
    if form == "json":
        print(json.dumps(document, indent=2))
    else:
        import yaml

        print(yaml.safe_dump(document, sort_keys=False), end="")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns; the first one is the heading."""
    plain = [[printable(text) for text in row] for row in rows]
    widths = [max(len(row[column]) for row in plain) for column in range(len(plain[0]))]
    lines = ("   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in plain)
    return "\n".join(line.rstrip() for line in lines)


def age(created: str) -> str:
    """How long ago a time of the API is, as kubectl writes it."""
    from datetime import UTC, datetime

    with contextlib.suppress(ValueError):
        return span((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds())
    return ""


def span(seconds: float) -> str:
    """A duration in its two largest units."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts[:2])
