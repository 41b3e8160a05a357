"""The sweeper, the page and the reader may read owners of each kind."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local.build import ROOT
from webhook.workloads.kinds import WORKLOADS, Workload

RIGHTS = {
    "topogate-sweeper": ROOT / "manifests/base/sweeper.yaml",
    "topogate-ui": ROOT / "manifests/components/ui/ui.yaml",
    "topogate-reader": ROOT / "manifests/components/reader/role.yaml",
}


def verbs_on(path: Path, role: str, group: str, resource: str) -> set[str]:
    rules = [
        rule
        for each in yaml.safe_load_all(path.read_text())
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == role
        for rule in each["rules"]
    ]
    return {
        verb
        for rule in rules
        if group in rule["apiGroups"] and resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.owner_name)
@pytest.mark.parametrize("role", RIGHTS)
def test_each_program_that_reads_owners_may_read_it(workload: Workload[Any], role: str) -> None:
    """Failed? Add the kind to the rules of that file."""
    found = verbs_on(RIGHTS[role], role, workload.group, workload.resource)
    assert {"get", "list", "watch"} <= found, RIGHTS[role]
