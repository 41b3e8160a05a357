"""The account of the component `ui` reads and asks, and writes nothing."""

import pytest
import yaml

from hack.local.build import ROOT

COMPONENT = ROOT / "manifests" / "components" / "ui" / "ui.yaml"
READING = {"get", "list", "watch"}
ASKING = {"tokenreviews", "subjectaccessreviews"}


@pytest.mark.promise("R190")
def test_the_pages_account_reads_and_asks_and_writes_nothing() -> None:
    (role,) = (each for each in yaml.safe_load_all(COMPONENT.read_text()) if each["kind"] == "ClusterRole")
    for rule in role["rules"]:
        if set(rule["resources"]) <= ASKING:
            assert rule["verbs"] == ["create"]
        else:
            assert set(rule["verbs"]) <= READING
            assert "secrets" not in rule["resources"]
