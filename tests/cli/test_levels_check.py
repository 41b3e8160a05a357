"""Whether topogate doctor notices that admission accepts other levels than the sweeper knows."""

from datetime import UTC, datetime
from typing import Any

import pytest

from webhook.inquiry.enforcement import levels
from webhook.inquiry.findings import State
from webhook.kube.client import Api

SETTINGS = "levels: {block: example.com/b, clique: example.com/c}"


class Installed(Api):
    """An installation with this policy, whose sweeper has a file of settings."""

    def __init__(self, policy: str) -> None:
        self.policy = f"apiVersion: topogate.io/v1alpha1\nkind: AdmissionPolicy\n{policy}\n"

    def json(self, method: str, path: str, **_: Any) -> Any:
        if path.endswith("/configmaps/topogate-policy"):
            return {"data": {"policy.yaml": self.policy}}
        if path.endswith("/configmaps/settings"):
            return {"data": {"sweeper.yaml": SETTINGS}}
        container = {"args": ["--config=/s/sweeper.yaml"], "volumeMounts": [{"name": "s", "mountPath": "/s"}]}
        volumes = [{"name": "s", "configMap": {"name": "settings"}}]
        return {"spec": {"template": {"spec": {"containers": [container], "volumes": volumes}}}}


@pytest.mark.parametrize(
    ("policy", "state"), [("", State.ILL), ("topologyLevels: [block, clique]", State.WELL)]
)
def test_doctor_finds_levels_that_admission_does_not_accept(policy: str, state: State) -> None:
    (finding,) = levels(Installed(policy), datetime.now(UTC))
    assert finding.state is state
