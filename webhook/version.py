"""Which topogate this is: as pyproject.toml says, in a checkout by itself, else by what was installed."""

import argparse
import functools
from pathlib import Path
from typing import Any, Final

NAME: Final = "topogate"
_PROJECT: Final = Path(__file__).resolve().parents[1] / "pyproject.toml"


@functools.cache
def version() -> str:
    """Such as "0.2.0"; "unknown" where the code was copied without its metadata.

    Imports what it needs when it is called: most commands do not ask, and start sooner.
    """
    if _PROJECT.is_file():
        import tomllib

        project = tomllib.loads(_PROJECT.read_text()).get("project", {})
        if project.get("name") == NAME:
            return str(project["version"])
    from importlib import metadata

    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return "unknown"


class VersionAction(argparse.Action):
    """Prints a program's name and its version, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """For --version."""
        print(f"{parser.prog} {version()}")  # noqa: T201
        parser.exit()


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add --version."""
    parser.add_argument("--version", action=VersionAction, nargs=0, help="print the version and end")
