"""The chart's values: defaults, schema, and what options put in their place. Part of `hack/chart`."""

import copy
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from hack.local.build import ROOT
from hack.releases import chart_arguments
from hack.releases.template_variants import Optional, Value
from labeler.sources import known_sources
from webhook.configuration.cluster import KEY, NAME
from webhook.configuration.schema import DEFAULTS, SCHEMA
from webhook.policy.values import DEFAULT_EXCLUDED_NAMESPACES

WRITTEN: Final = Path(__file__).parent / "chart"
"""The part of the chart that is written by hand."""

Object = dict[str, Any]
TEXTS: Final[Mapping[str, Mapping[str, Value | Optional]]] = {
    NAME: {KEY: Value('include "topogate.config" . | fromJson | toYaml | toJson')},
    "labeler": {
        "labeler.yaml": Value('include "topogate.labeler" . | fromJson | toYaml | toJson'),
        "facts.yaml": Optional(".Values.labeler.facts"),
    },
}
"""The files that an operator may give, by the names of their ConfigMaps."""

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


def written() -> dict[str, str]:
    """The files that are written by hand."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return {
        str(path.relative_to(WRITTEN)): path.read_text().replace("VERSION", version)
        for path in WRITTEN.rglob("*")
        if path.is_file()
    }


def values() -> str:
    """values.yaml: the part that is written by hand, with the shipped configuration."""
    shipped = (ROOT / "webhook/configuration/shipped-configuration.yaml").read_text().splitlines()
    lines = [line for line in shipped if not line.startswith(("apiVersion:", "kind:"))]
    text = "\n".join(f"  {line}" if line else "" for line in lines).strip("\n")
    return written()["values.yaml"].replace("  CONFIGURATION", text)


def presets(base: list[Object], options: Mapping[str, list[Object]]) -> str:
    """What the chart's templates know: what is shipped, and what options put in the place of that.

    base: the objects that are always there; options: those of each option by its value.
    """
    return json.dumps(
        {
            "config": _documents(base, options, NAME, KEY),
            "labeler": _documents(base, options, "labeler", "labeler.yaml"),
            "usual": {key: DEFAULTS[key] for key in _DECIDING},
            "excluded": sorted(DEFAULT_EXCLUDED_NAMESPACES),
            "priorityClasses": {
                each["metadata"]["name"]: each["value"] for each in base if each["kind"] == "PriorityClass"
            },
        },
        indent=2,
    )


def _documents(base: list[Object], options: Mapping[str, list[Object]], name: str, key: str) -> Object:
    """The document in a ConfigMap as shipped, and by option."""
    found: Object = {}
    for option, objects in {"shipped": base, **options}.items():
        (text,) = (
            each["data"][key]
            for each in objects
            if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", name)
        )
        document = yaml.safe_load(text)
        if option == "shipped" or document != found["shipped"]:
            found[option] = document
    return found


def schema() -> str:
    """values.schema.json: every value that there is, so that a misspelt one is refused."""
    made = json.loads(Path(__file__).with_name("values.schema.json").read_text())
    own = copy.deepcopy(SCHEMA)
    # Templates of Helm get the keys of a mapping sorted, and the order of levels counts.
    levels = own["definitions"]["TopologyKeys"]["properties"]["levels"]
    levels["anyOf"] = [each for each in levels["anyOf"] if each["type"] == "array"]
    made["definitions"] |= own["definitions"]
    made["properties"]["config"] = {key: own[key] for key in ("type", "additionalProperties", "properties")}
    for program, special in _PROGRAMS.items():
        names = (*special, *_COMMON)
        properties: Object = {name: {"$ref": f"#/definitions/program/{name}"} for name in names}
        items = {"type": "string", "pattern": chart_arguments.pattern(program)}
        properties["extraArgs"] = {"type": "array", "items": items}
        made["properties"][program] = {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
            "required": [*special, *_REQUIRED],
        }
    sources = made["definitions"]["program"]["config"]["properties"]["sources"]["items"]
    sources["anyOf"][0]["enum"] = sources["anyOf"][1]["propertyNames"]["enum"] = known_sources()
    made["required"] = list(made["properties"])
    made["required"].remove("global")
    return json.dumps(made, indent=2) + "\n"
