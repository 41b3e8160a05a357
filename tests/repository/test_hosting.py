"""What the place that hosts the repository reads: the workflow, the issue forms, the security policy."""

from typing import Any

import yaml

from hack.local.build import ROOT

GITHUB = ROOT / ".github"


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


def test_the_form_for_faults_sends_vulnerabilities_to_the_security_policy() -> None:
    assert "SECURITY.md" in (GITHUB / "ISSUE_TEMPLATE/fault.yml").read_text()
    assert "security advisories" in (ROOT / "SECURITY.md").read_text()
