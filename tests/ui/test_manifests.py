"""The account of the component `ui` reads and asks, and writes nothing."""

import time
from typing import Any, cast

import pytest
import yaml

from hack.local.build import ROOT
from tests.sweeper.clock import Clock
from webhook.extensions.fair_order.account_use import NAME as ACCOUNT_USE
from webhook.extensions.node_health.avoided_nodes import NAME as NODE_FAILURES
from webhook.extensions.node_health.avoided_nodes import data_of
from webhook.extensions.node_health.failing_nodes import FailingNode, FailingNodes
from webhook.extensions.scale_up.provisioning_requests import REQUESTS, TEMPLATES
from webhook.inquiry.cluster_state import LEASE
from webhook.kube.client import Api, ApiError
from webhook.kube.disruption_budgets import BUDGETS
from webhook.kube.state_config_map import path_of
from webhook.ui.live import RECORD_SECONDS, LeaderRecords

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


@pytest.mark.promise("R191")
@pytest.mark.parametrize(
    "path", [*map(path_of, (NODE_FAILURES, ACCOUNT_USE)), LEASE, BUDGETS, REQUESTS.path, TEMPLATES.path]
)
def test_the_page_may_read_what_the_sweepers_reasons_depend_on(path: str) -> None:
    """By their names alone, where they have names; else it would show other reasons than the sweeper."""
    found = [each for each in yaml.safe_load_all(COMPONENT.read_text()) if each["kind"].endswith("Role")]
    parts = path.split("/")
    group = "" if parts[1] == "api" else parts[2]
    is_named = "namespaces" in parts
    resource, name = (parts[-2], parts[-1]) if is_named else (parts[-1], None)
    rules = [rule for role in found for rule in role["rules"] if resource in rule["resources"]]
    assert [rule for rule in rules if rule["apiGroups"] != [group]] == []
    verbs = {
        verb for rule in rules if name is None or name in rule["resourceNames"] for verb in rule["verbs"]
    }
    assert verbs == ({"get"} if is_named else {"list", "watch"})


class Records:
    """An API server with these objects, which counts the reads."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self.objects = objects
        self.reads: list[str] = []

    def json(self, method: str, path: str, **_: Any) -> Any:
        self.reads.append(path)
        found = self.objects.get(path, ApiError(404, "NotFound", "no"))
        if isinstance(found, ApiError):
            raise found
        return found


def test_the_page_reads_the_records_of_the_leader_at_intervals_and_keeps_the_last_known() -> None:
    clock, use = Clock(), path_of(ACCOUNT_USE)
    api = Records({use: {"data": {"a": "1"}}, LEASE: {"spec": {"acquireTime": "1970-01-01T00:01:00Z"}}})
    records = LeaderRecords(cast(Api, api), clock)
    assert (records.record(ACCOUNT_USE), records.leads_since()) == ({"a": "1"}, 60.0)
    api.objects[use] = {"data": {"a": "2"}}
    assert records.record(ACCOUNT_USE) == {"a": "1"}
    clock.now += RECORD_SECONDS
    assert records.record(ACCOUNT_USE) == {"a": "2"}
    api.objects[use] = ApiError(0, "", "away")
    clock.now += RECORD_SECONDS
    assert (records.record(ACCOUNT_USE), api.reads.count(use)) == ({"a": "2"}, 3)


def test_the_page_shows_no_avoided_node_once_the_record_of_failures_is_deleted() -> None:
    clock, path = Clock(), path_of(NODE_FAILURES)
    now = int(time.time())
    failing = FailingNode("n1", "h100", 3, "exit status 1", now, now + 600)
    api = Records({path: {"data": data_of((), FailingNodes(for_all={"n1": failing}))}})
    records = LeaderRecords(cast(Api, api), clock)
    assert set(records.avoided()) == {"n1"}
    del api.objects[path]
    clock.now += RECORD_SECONDS
    assert records.avoided() == {}


@pytest.mark.parametrize("status", [401, 403, 404])
def test_who_may_not_read_the_record_of_failures_sees_no_avoided_node(status: int) -> None:
    api = Records({path_of(NODE_FAILURES): ApiError(status, "No", "no answer")})
    assert LeaderRecords(cast(Api, api)).avoided() == {}
