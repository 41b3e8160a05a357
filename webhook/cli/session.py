"""What the subcommands that talk to a cluster share: kubeconfig, namespace, output, error messages."""

import argparse
import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.terminal import complain, is_terminal

if TYPE_CHECKING:
    from webhook.configuration.file import Configuration
    from webhook.kube.client import Api

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
FORMATS: Final = ("json", "yaml", "wide", "name")
DOCUMENTS: Final = ("json", "yaml")
"""Formats for programs."""
WATCH_SECONDS: Final = 2.0


class SessionError(Exception):
    """The command failed; the message says why, and what to do."""


class MistakeError(Exception):
    """The arguments make no sense; the message says what would."""


def add_connection(
    parser: argparse.ArgumentParser, *, everywhere: bool = False, is_everywhere: bool = False
) -> None:
    """The arguments that choose cluster and namespace. is_everywhere: without any, all namespaces count."""
    default = "all" if is_everywhere else "the kubeconfig's"
    parser.add_argument("-n", "--namespace", metavar="NAME", help=f"default: {default}")
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="default: $KUBECONFIG, else ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")
    if everywhere:
        parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")


def add_selector(parser: argparse.ArgumentParser, what: str) -> None:
    """The argument that selects by labels; what: the objects with these labels."""
    parser.add_argument(
        "-l", "--selector", metavar="LABELS", help=f"only {what} with these labels, as key=value,other!=value"
    )


def add_watch(parser: argparse.ArgumentParser) -> None:
    """The argument that repeats the output, see repeat."""
    parser.add_argument("-w", "--watch", action="store_true", help="again every two seconds")


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """The argument with a configuration in place of the cluster's own."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE",
        help="a configuration; default: the cluster's ConfigMap topogate-configuration, else the shipped one",
    )  # fmt: skip


def configuration_of(options: argparse.Namespace, api: "Api") -> "Configuration":
    """The configuration of --config, else the cluster's.

    Raises MistakeError for a file that cannot be used, SessionError for such a configuration of the cluster,
    and ApiError.
    """
    from webhook.configuration.cluster import read_configuration

    with _usable():
        return given_configuration(options) or read_configuration(api)


def known_configuration(options: argparse.Namespace, api: "Api") -> "Configuration | None":
    """The same, None if the cluster's may not be read or does not exist."""
    from webhook.configuration.cluster import read_if_allowed

    with _usable():
        return given_configuration(options) or read_if_allowed(api)


@contextlib.contextmanager
def _usable() -> Iterator[None]:
    """Turn ConfigurationError into SessionError."""
    from webhook.configuration.document import ConfigurationError

    try:
        yield
    except ConfigurationError as error:
        raise SessionError(str(error)) from None


def given_configuration(options: argparse.Namespace) -> "Configuration | None":
    """The configuration of --config, None without it. Raises MistakeError."""
    from webhook.configuration.document import ConfigurationError
    from webhook.configuration.migrate import load_files

    try:
        return load_files([options.config]) if options.config else None
    except ConfigurationError as error:
        raise MistakeError(str(error)) from None


def add_output(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """The argument that chooses a format."""
    parser.add_argument("-o", "--output", choices=formats, help="default: text for people")


def repeat(options: argparse.Namespace, show: Callable[[], object]) -> int:
    """Print it once, or with --watch until interrupted, on a terminal each time on a clear screen."""
    while True:
        if options.watch and options.output is None and is_terminal():
            print("\033[2J\033[H", end="")
        show()
        if sys.stdout is not None:
            sys.stdout.flush()
        if not options.watch:
            return 0
        time.sleep(WATCH_SECONDS)


def selected(options: argparse.Namespace) -> dict[str, str]:
    """What --selector adds to the query of a list."""
    return {"labelSelector": options.selector} if options.selector else {}


def names_of(api: "Api", path: str, options: argparse.Namespace) -> frozenset[tuple[str, str]] | None:
    """Namespace and name of the objects of a collection that --selector selects, None without it.

    Raises ApiError.
    """
    if not options.selector:
        return None
    found = (each["metadata"] for each in pages(api, path, **selected(options)))
    return frozenset((each.get("namespace", ""), each["name"]) for each in found)


def kubeconfigs_of(options: argparse.Namespace) -> tuple[Path, ...]:
    """The kubeconfigs to use; if several define a value, the first one counts."""
    if options.kubeconfig:
        return (Path(options.kubeconfig),)
    from webhook.kube.kubeconfig import of_this_person

    return of_this_person()


def connect(options: argparse.Namespace, *, brief: bool = False) -> "Api":
    """A client with the user's own rights: by a kubeconfig, or in a pod without one by its ServiceAccount.

    brief: for a few requests, one after the other. Raises SessionError.

    What is read with it is not logged unless logging is configured: the command reports what is wrong.
    """
    from webhook.kube.client import Api, ConnectError
    from webhook.kube.identity import is_in_pod

    if not brief:  # loading it takes time, and brief commands log nothing
        import logging

        logging.basicConfig(handlers=[logging.NullHandler()])

    files = kubeconfigs_of(options)
    is_pod = not options.kubeconfig and is_in_pod() and not any(each.exists() for each in files)
    try:
        return Api.connect(
            None if is_pod else files,
            user_agent=f"topogate-{options.command}",
            context=options.context,
            brief=brief,
        )
    except ConnectError as error:
        raise SessionError(str(error)) from None


def namespace_of(options: argparse.Namespace) -> str:
    """The chosen namespace: the argument's, else the kubeconfig's, else default. Raises MistakeError."""
    if options.namespace is not None:
        return namespace(options.namespace)
    from webhook.kube.kubeconfig import context_of, read

    try:
        written = context_of(read(kubeconfigs_of(options)), options.context).get("namespace") or "default"
    except (OSError, ValueError):
        return "default"  # its faults are reported when the connection is made
    return namespace(str(written))


def namespace(written: str) -> str:
    """The text, if it can be the name of a namespace. Raises MistakeError."""
    if not is_name(written) or "." in written or len(written) > _LONGEST_LABEL:
        raise MistakeError(
            f"{written!r} is not a namespace name: use a-z, 0-9 and -, at most {_LONGEST_LABEL} characters"
        )
    return written


def check_namespace(api: "Api", name: str) -> None:
    """Check that a namespace exists, for an empty answer.

    Raises SessionError if it does not exist; a user who may not read it gets no answer.
    """
    from webhook.kube.client import ApiError

    try:
        api.json("GET", f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if error.status == 404:
            raise SessionError(f"there is no namespace {name}") from None


def is_name(written: str) -> bool:
    """Whether an object may have that name; such a name needs no escaping in a URL."""
    return len(written) <= _LONGEST_NAME and _NAME.fullmatch(written) is not None


def guarded(options: argparse.Namespace, work: Callable[[], int]) -> int:
    """Run the command: a refusal of the cluster becomes a sentence and status 1, a mistake status 2."""
    from webhook.kube.client import ApiError

    try:
        return work()
    except (SessionError, ApiError) as error:
        complain(f"topogate {options.command}: {sentence_of(error)}")
        # Only the API server knows what is a valid selector.
        is_mistake = getattr(error, "status", 0) == 400 and getattr(options, "selector", None)
        return 2 if is_mistake else 1
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


def show(document: Any, form: str) -> None:
    """One object as json or yaml; also a list of anything."""
    if form == "json":
        print(json.dumps(document, indent=2))
    else:
        import yaml

        print(yaml.safe_dump(document, sort_keys=False), end="")


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
