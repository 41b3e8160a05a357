"""What the chart installs follows the configuration in its values."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.local.build import ROOT
from hack.local.install import LABELER, SYSTEM
from tests.releases.helm import Objects, templated
from webhook.cli.config import differences
from webhook.configuration.cluster import KEY, NAME, identity, of_config_map
from webhook.configuration.file import parse
from webhook.policy import rendering

VALUES: Final = {"gpu-low-priority": 1, "gpu-medium-priority": 10, "gpu-high-priority": 100}
SHIPPED: Final = ROOT / "webhook/configuration/shipped-configuration.yaml"
FALLDIO: Final = "falldio.com/gpu"

CONFIGURATIONS: Final[dict[str, dict[str, Any]]] = {
    "as shipped": {},
    "another gate": {"gatePrefix": "example.com/wait-"},
    "patterns": {
        "gpus": {
            "resources": [
                "example.com/gpu", "nvidia.com/*", "nvidia.com/mig-[1-3]g.*", "a.b/?pu-[!a-y-]", "x.y/[]a]",
                "x.y/a[", "x.y/[z-a]", "x.y/a*b", "x.y/[!]", "x.y/a!b-c_d.e",
            ]
        }
    },
    "patterns alone": {"gpus": {"resources": ["nvidia.com/mig-[1-3]g.*"]}},
    "claims": {"gpus": {"deviceClasses": ["gpu.nvidia.com"]}},
    "claims by patterns": {"gpus": {"deviceClasses": ["gpu.*", "[!r]*.example.com"]}},
    "all claims": {"gpus": {"deviceClasses": ["*", "gpu.nvidia.com"]}},
    "namespaces left alone": {"namespaces": {"excluded": ["z-ci", "a-ci", "kube-system"]}},
    "schedulers": {"schedulerNames": ["second", "default-scheduler"]},
    "groups left alone": {"gangs": {"native": "leave"}},
    "maxima": {"namespaces": {"rules": {"b": {"maximumTier": "low"}, "a": {"maximumTier": "high"}, "c": {}}}},
    "a maximum of all others": {"namespaces": {"rules": {"*": {"maximumTier": "medium"}}}},
    "a maximum but for some": {"namespaces": {"rules": {"*": {"maximumTier": "low"}, "b": {}, "a": {}}}},
    "maxima of some and all others": {
        "namespaces": {"rules": {"*": {"maximumTier": "low"}, "b": {"maximumTier": "high"}, "a": {}}}
    },
    "levels": {"topology": {"levels": [{"room": "example.com/z"}, {"cell": "example.com/a"}]}},
}  # fmt: skip


def with_values(values: dict[str, Any], folder: Path, *sets: str) -> Objects:
    """The objects of the chart with a file of values, and everything that follows from the configuration."""
    (folder / "values.yaml").write_text(json.dumps(values))
    return templated(
        ("strict.enabled=true", "inProcessGate.enabled=true", *sets), file=folder / "values.yaml"
    )


@pytest.mark.promise("O56")
@pytest.mark.usefixtures("control_plane")
@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_what_the_api_server_decides_by_itself_follows_the_configuration_of_the_chart(
    case: str, tmp_path: Path
) -> None:
    found = with_values({"config": CONFIGURATIONS[case]}, tmp_path)
    policy = of_config_map(found["ConfigMap", SYSTEM, NAME]).policy
    there = {identity(each): each for each in found.values()}
    for wanted in rendering.objects(policy, VALUES):
        assert list(differences(wanted, there[identity(wanted)])) == []


@pytest.mark.usefixtures("control_plane")
def test_no_object_of_the_chart_names_the_gate_of_another_prefix(tmp_path: Path) -> None:
    found = with_values({"config": {"gatePrefix": "example.com/wait-"}}, tmp_path)
    naming = [name for name, each in found.items() if "gke.io/topology-aware-auto-" in json.dumps(each)]
    assert naming == []


@pytest.mark.usefixtures("control_plane")
def test_levels_keep_their_order(tmp_path: Path) -> None:
    found = with_values({"config": CONFIGURATIONS["levels"]}, tmp_path)
    topology = of_config_map(found["ConfigMap", SYSTEM, NAME]).settings.topology
    assert (topology.level_names, topology.families) == (
        ("room", "cell"),
        (("example.com/z", "example.com/a"),),
    )


@pytest.mark.usefixtures("control_plane")
def test_a_preset_leaves_alone_what_is_given(tmp_path: Path) -> None:
    given = {"gpus": {"deviceClasses": ["*"]}, "models": [{"name": "X", "labels": {"a": "b"}}]}
    found = with_values(
        {"config": given}, tmp_path, "falldio=label", "labeler.source=eks", "labeler.config.interval=5"
    )
    policy = of_config_map(found["ConfigMap", SYSTEM, NAME]).policy
    assert FALLDIO in policy.gpu_resources
    assert policy.resource_claims
    assert [model.name for model in policy.gpu_models] == ["X"]
    labeler = yaml.safe_load(found["ConfigMap", LABELER, "labeler"]["data"]["labeler.yaml"])
    assert (labeler["interval"], "node-labels" in labeler["sources"][0]) == (5, True)


@pytest.mark.promise("O421")
@pytest.mark.usefixtures("control_plane")
@pytest.mark.parametrize(
    ("value", "place", "change"),
    [
        ("config.tiers[0].name=bronze", 0, {"name": "bronze"}),
        ("config.tiers[1].priorityClassName=of-a-team", 1, {"priorityClassName": "of-a-team"}),
    ],
)
def test_a_key_of_one_tier_changes_that_tier_alone(value: str, place: int, change: dict[str, str]) -> None:
    document = yaml.safe_load(templated((value,))["ConfigMap", SYSTEM, NAME]["data"][KEY])
    wanted = yaml.safe_load(SHIPPED.read_text())["tiers"]
    wanted[place] |= change
    assert document["tiers"] == wanted


@pytest.mark.usefixtures("control_plane")
def test_a_list_of_whole_tiers_replaces_the_shipped_one(tmp_path: Path) -> None:
    tiers = [{"name": "only", "priorityClassName": "gpu-low-priority"}]
    found = with_values({"config": {"tiers": tiers}}, tmp_path)
    assert yaml.safe_load(found["ConfigMap", SYSTEM, NAME]["data"][KEY])["tiers"] == tiers


@pytest.mark.usefixtures("control_plane")
def test_a_value_of_the_configuration_changes_that_key_alone() -> None:
    found = templated(("config.gangs.settle=1m", "config.nodeHealth.failures=4"))
    document = yaml.safe_load(found["ConfigMap", SYSTEM, NAME]["data"][KEY])
    changed = {"gangs": {"settle": "1m"}, "nodeHealth": {"failures": 4}}
    assert document == yaml.safe_load(SHIPPED.read_text()) | changed
    parse(found["ConfigMap", SYSTEM, NAME]["data"][KEY])
