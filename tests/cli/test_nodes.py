"""`topogate nodes`, and what `topogate doctor` says of nodes, over what the sweeper keeps of failures."""

import argparse
from typing import Any

import pytest

from tests.extensions.node_health.failing import proven
from webhook.cli import node_list, session
from webhook.extensions.node_health.avoided_nodes import NAME, encoded
from webhook.inquiry import bad_nodes
from webhook.kube.state_config_map import path_of

NOW = 1_700_000_000
RESET = "topogate.io/reset-failures"


class Cluster:
    """The boundary to the API server: the sweeper's ConfigMap, and nodes."""

    def __init__(self, data: dict[str, str] | None, **resets: str) -> None:
        self.data = data
        self.nodes = [
            {"metadata": {"name": name, "annotations": {RESET: text}}} for name, text in resets.items()
        ]

    def json(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        assert method == "GET"
        return {"data": self.data} if path == path_of(NAME) else {"items": self.nodes}


def avoided(node: str, by: str = "*", until: int = NOW + 60) -> str:
    return (
        f'{{"node": "{node}", "by": "{by}", "model": "H100", "gangs": 3, "cause": "exit status 1", '
        f'"last": {NOW}, "until": {until}}}'
    )


def stored(*nodes_: str) -> str:
    return encoded(tuple(proven(each, gang=each, namespace="a", at=NOW) for each in nodes_))


@pytest.mark.promise("O145")
def test_avoided_nodes_come_first_and_then_those_with_failures_alone() -> None:
    data = {"avoided": f"[{avoided('n1')}]", "failures": stored("n0", "n1")}
    found = bad_nodes.rows(data, NOW)
    assert [(row.node, row.by, row.gangs, row.failures) for row in found] == [
        ("n1", "*", 3, 1),
        ("n0", "", 1, 1),
    ]


def test_a_node_whose_time_is_over_is_not_avoided_though_nobody_has_written_it() -> None:
    assert bad_nodes.rows({"avoided": f"[{avoided('n1', until=NOW)}]"}, NOW) == []


def shown(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr(session, "connect", lambda _: cluster)
    monkeypatch.setattr("webhook.cli.node_list.time.time", lambda: NOW)
    status = node_list.run(argparse.Namespace(command="nodes", output=None, watch=False, selector=None))
    captured = capsys.readouterr()
    return status, captured.out + captured.err


@pytest.mark.promise("O145")
def test_the_list_shows_by_whom_until_when_why_and_how_to_end_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"avoided": f"[{avoided('n1')}]", "failures": stored("n1")}
    status, text = shown(Cluster(data, n2="yes"), monkeypatch, capsys)
    assert status == 0
    assert text.splitlines()[1].split("   ")[0] == "n1"
    assert "2023-11-14 22:14:20Z" in text
    assert "exit status 1" in text
    assert f'kubectl annotate node NODE --overwrite {RESET}="$(date -u +%FT%TZ)"' in text
    assert "Node n2: the annotation that resets its failures is not a time: yes" in text


@pytest.mark.parametrize("data", [None, {}, {"avoided": "[]", "failures": "[]"}])
def test_where_nothing_fails_one_sentence_reports_it(
    data: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(Cluster(data), monkeypatch, capsys) == (0, "No recorded pod failure counts for any node.\n")


def test_what_cannot_be_read_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = shown(Cluster({"avoided": "nonsense"}), monkeypatch, capsys)
    assert status == 1
    assert text.startswith("topogate nodes: the failure record of the nodes cannot be read")
