"""What the place that hosts the repository reads: the workflow, the issue forms, the security policy."""

from typing import Any

import pytest
import yaml

from hack.local.build import ROOT

GITHUB = ROOT / ".github"
FORMS = [path for path in sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) if path.name != "config.yml"]


def read(path: Any) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


def test_ci_runs_what_everybody_else_runs() -> None:
    (job,) = read(GITHUB / "workflows/ci.yaml")["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert [command.split()[-1] for command in commands] == [".ci/run"]
    (checkout,) = (step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["fetch-depth"] == 0, "the test of an upgrade takes an earlier commit"


def test_the_workflow_may_only_read() -> None:
    assert read(GITHUB / "workflows/ci.yaml")["permissions"] == {"contents": "read"}


def test_there_is_a_form_for_a_gang_that_waits_and_one_for_a_fault() -> None:
    assert [read(path)["name"] for path in FORMS] == ["A fault", "A gang waits"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_every_form_asks_for_versions_and_the_output_of_doctor(path: Any) -> None:
    body = {each["id"]: each for each in read(path)["body"] if "id" in each}
    assert {"versions", "doctor"} <= body.keys()
    assert body["versions"]["validations"]["required"]
    assert all(each["attributes"]["label"] for each in body.values())


def test_the_form_for_faults_sends_vulnerabilities_to_the_security_policy() -> None:
    assert "SECURITY.md" in (GITHUB / "ISSUE_TEMPLATE/fault.yml").read_text()
    assert "security advisories" in (ROOT / "SECURITY.md").read_text()
