"""Writes the files of the Helm chart that follow from the code: `hack/chart`.

The folder manifests is the chart: its templates read the base, the overlays and the components. Made are the
defaults and the schema of the values, and the version.
"""

import copy
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from hack.local.build import ROOT
from hack.releases import chart_arguments
from labeler.contract.keys import TOPOLOGY_FAMILIES
from labeler.sources import known_options, known_sources
from webhook.configuration.schema import DEFAULTS, SCHEMA
from webhook.policy.values import DEFAULT_EXCLUDED_NAMESPACES

CHART: Final = ROOT / "manifests"
_SHIPPED: Final = ROOT / "webhook/configuration/shipped-configuration.yaml"

_DECIDING: Final = ("gatePrefix", "schedulerNames", "gpus", "namespaces", "gangs", "tiers")
"""Keys of the configuration that the API server's own conditions follow from."""

_COMMON: Final = (
    "resources", "extraArgs", "env", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints",
    "podLabels", "podAnnotations", "priorityClassName", "serviceAccount",
)  # fmt: skip
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "webhook": ("replicas",),
    "sweeper": ("replicas",),
    "tasks": ("replicas",),
    "certs": ("replicas",),
    "ui": ("replicas", "enabled"),
    "labeler": ("source", "extendedResources", "config", "facts"),
    "allocator": ("enabled",),
}
"""The values of each program beside the common ones; those that are in values.yaml may not be taken away."""
_REQUIRED: Final = ("resources", "extraArgs")


def main() -> None:
    """Write the files."""
    for name, text in contents().items():
        (CHART / name).write_text(text)


def contents() -> dict[str, str]:
    """The files by their names."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return {
        "Chart.yaml": _written("Chart.yaml").replace("VERSION", version),
        "values.yaml": _written("values.yaml").replace("VERSION", version).replace(*_configuration()),
        "values.schema.json": _schema(),
        "defaults.json": _defaults(),
    }


def _written(name: str) -> str:
    """A file as it is written by hand."""
    return Path(__file__).with_name(name).read_text()


def _configuration() -> tuple[str, str]:
    """What stands in values.yaml for the shipped configuration, and that."""
    shipped = _SHIPPED.read_text().splitlines()
    lines = [line for line in shipped if not line.startswith(("apiVersion:", "kind:"))]
    return "  CONFIGURATION", "\n".join(f"  {line}" if line else "" for line in lines).strip("\n")


def _defaults() -> str:
    """What holds in the API server's own conditions where the configuration has no such key."""
    configuration = {key: DEFAULTS[key] for key in _DECIDING}
    excluded = sorted(DEFAULT_EXCLUDED_NAMESPACES)
    topology = sorted({key for family in TOPOLOGY_FAMILIES for key in family})
    made = {"configuration": configuration, "excludedNamespaces": excluded, "topologyKeys": topology}
    return json.dumps(made, indent=2) + "\n"


def _schema() -> str:
    """Every value that there is, so that a misspelt one is refused."""
    made = json.loads(_written("values.schema.json"))
    own = copy.deepcopy(SCHEMA)
    # Templates of Helm get the keys of a mapping sorted, and the order of levels counts.
    levels = own["definitions"]["TopologyKeys"]["properties"]["levels"]
    levels["anyOf"] = [each for each in levels["anyOf"] if each["type"] == "array"]
    # A tier without one of its keys changes the shipped tier at its place, and the chart checks the result.
    own["definitions"]["TierItem"] |= {"type": ["object", "null"], "required": []}
    made["definitions"] |= own["definitions"]
    # A key without a value would take the shipped tiers and models away.
    own["required"] = sorted({*yaml.safe_load(_SHIPPED.read_text())} - {*own["required"]})
    made["properties"]["config"] = {
        key: own[key] for key in ("type", "additionalProperties", "properties", "required")
    }
    for program, special in _PROGRAMS.items():
        names = (*special, *_COMMON)
        properties: dict[str, Any] = {name: {"$ref": f"#/definitions/program/{name}"} for name in names}
        items = {"type": "string", "pattern": chart_arguments.pattern(program)}
        properties["extraArgs"] = {"type": "array", "items": items}
        made["properties"][program] = {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
            "required": [*special, *_REQUIRED],
        }
    sources = made["definitions"]["program"]["config"]["properties"]["sources"]["items"]
    sources["anyOf"][0]["enum"] = known_sources()
    sources["anyOf"][1]["properties"] = {
        name: {"type": "object", "propertyNames": {"enum": known_options(name)}} for name in known_sources()
    }
    made["required"] = list(made["properties"])
    made["required"].remove("global")
    return json.dumps(made, indent=2) + "\n"


if __name__ == "__main__":
    main()
