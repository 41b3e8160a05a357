"""Which topogate this is: as pyproject.toml says, in a checkout by itself, else by what was installed."""

from pathlib import Path
from typing import Final

NAME: Final = "topogate"
_PROJECT: Final = Path(__file__).resolve().parents[1] / "pyproject.toml"


def version() -> str:
    """Such as "0.2.0"; "unknown" where the code was copied without its metadata."""
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
