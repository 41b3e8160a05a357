"""The list of an image's contents, in the format CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json)."""

import json
from collections.abc import Sequence
from typing import Any

from hack.images.debian import Package
from hack.images.lock import Locked


def describe(name: str, packages: Sequence[Package], distributions: Sequence[Locked]) -> str:
    """The document for the image `name`: its Debian packages and its Python distributions."""
    components = [
        _component(
            each.name, each.version, f"pkg:deb/debian/{each.name}@{each.version}?arch={each.architecture}",
            [f"sha256:{each.sha256}"],
        )
        for each in packages
    ] + [
        # The lock names the files of every platform; the one that was installed is among them.
        _component(each.name, each.version, f"pkg:pypi/{each.name}@{each.version}", [])
        for each in sorted(distributions, key=lambda each: each.name)
    ]  # fmt: skip
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name}},
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def _component(name: str, version: str, url: str, hashes: Sequence[str]) -> dict[str, Any]:
    component: dict[str, Any] = {"type": "library", "name": name, "version": version, "purl": url}
    if hashes:
        component["hashes"] = [{"alg": "SHA-256", "content": each.removeprefix("sha256:")} for each in hashes]
    return component
