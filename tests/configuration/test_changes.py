"""What a change of each key asks of the operator: no restart, and for some keys to render again."""

import re
from typing import Any, Final

import pytest
import yaml

from hack.local.build import ROOT
from hack.references import rows
from webhook.configuration.file import Configuration, from_document
from webhook.policy import rendering

BASE: Final = """
apiVersion: topogate.io/v1beta1
kind: Configuration
tiers: [{name: low, priorityClassName: l}, {name: high, priorityClassName: h}]
models: [{name: H100, labels: {a.io/b: c}}]
fairOrder: {accountLabel: a.io/team}
makeRoom: {}
"""
CHANGES: Final[dict[str, Any]] = {
    "gatePrefix": "example.com/wait-",
    "schedulerNames": ["second"],
    "gpus.resources": ["a.io/gpu"],
    "gpus.deviceClasses": ["gpu.a.io"],
    "gpus.modelLabel": "a.io/model",
    "models": [{"name": "H200", "labels": {"a.io/b": "d"}}],
    "tiers": [{"name": "low", "priorityClassName": "l"}],
    "namespaces.excluded": ["ci"],
    "namespaces.rules": {"team": {"defaultTier": "low"}},
    "topology.levels": {"block": "a.io/block", "host": "a.io/host"},
    "gangs.labels": ["a.io/gang"],
    "gangs.owners": ["Flow.a.io"],
    "gangs.looseOwners": ["Flow.a.io"],
    "gangs.native": "leave",
    "gangs.settle": "1s",
    "gangs.patience": "1s",
    "gangs.startWithFewer": True,
    "placement.mode": "headroom",
    "placement.weights": {"cpu": 7},
    "binding.mode": "podgroup",
    "binding.timeout": "1s",
    "preemption.enabled": False,
    "reservations.after": "1s",
    "reservations.duration": "1s",
    "reservations.share": 0.1,
    "repair.enabled": False,
    "repair.owners": [],
    "repair.abandonAfter": "1s",
    "nodeHealth.avoid": "hard",
    "nodeHealth.failures": 7,
    "nodeHealth.avoidFor": "1s",
    "nodeHealth.share": 0.9,
    "spareNodes.perBlock": 1,
    "spareNodes.lastResort": True,
    "scaleUp.provisioningClass": "a.io",
    "scaleUp.parameters": {"a": "b"},
    "scaleUp.requests": 1,
    "scaleUp.pods": 1,
    "makeRoom.after": "1s",
    "makeRoom.movesPerHour": 1,
    "makeRoom.movesPerGangAndDay": 1,
    "fairOrder.halfLife": "1s",
    "fairOrder.maximumWait": "1s",
    "fairOrder.accountLabel": "a.io/unit",
    "fairOrder.weights": {"team": 2},
    "fairOrder.modelCosts": {"H100": 2},
    "admission.keepManagedFields": True,
}
"""By key, another value than its default."""


def changed(path: str, value: Any) -> Configuration:
    """The base with one other value."""
    document = yaml.safe_load(BASE)
    section, _, key = path.rpartition(".")
    (document.setdefault(section, {}) if section else document)[key or path] = value
    return from_document(document, path)


@pytest.mark.promise("O54")
def test_each_key_reaches_what_programs_decide_by_at_each_change() -> None:
    """Programs take up `policy` and `settings` of a new version; a key that is in neither would need more."""
    documented = {path for path, *_ in rows() if "[]" not in path and ".NAME." not in path}
    assert CHANGES.keys() == documented - {"apiVersion", "kind"}
    base = from_document(yaml.safe_load(BASE), "the base")
    assert [path for path, value in CHANGES.items() if changed(path, value) == base] == []


@pytest.mark.promise("O54")
def test_the_page_names_each_key_after_which_conditions_of_the_api_server_are_rendered() -> None:
    base = from_document(yaml.safe_load(BASE), "the base").policy
    found = {
        path
        for path, each in CHANGES.items()
        if not rendering.render_equally(base, changed(path, each).policy)
    }
    page = (ROOT / "docs/operators/configuration.md").read_text()
    (sentence,) = re.findall(r"after one\s+of\s+(.*?)\s+or\s+of a maximum,\s+render", page, re.DOTALL)
    assert found == set(re.findall("`(.*?)`", sentence))


@pytest.mark.promise("O54")
def test_a_maximum_is_rendered() -> None:
    rules = [{"team": {"maximumTier": tier}} for tier in ("low", "high")]
    low, high = (changed("namespaces.rules", each).policy for each in rules)
    assert not rendering.render_equally(low, high)
