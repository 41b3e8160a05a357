"""What people see of avoided nodes in the record: their reasons, and the check of `topogate doctor`."""

import json
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from tests.extensions.node_health.failing import node
from webhook.extensions.node_health.avoided_nodes import NODES, examine, failures_in, reasons
from webhook.kube.objects import Node
from webhook.sweeper.extension import HookInput
from webhook.sweeper.observe.view import Moment, View

NOW = 1_700_000_000
RESET = "topogate.io/reset-failures"


def avoided(node: str, by: str = "*", until: int = NOW + 60) -> str:
    return (
        f'{{"node": "{node}", "by": "{by}", "model": "H100", "gangs": 3, "cause": "exit status 1", '
        f'"last": {NOW}, "until": {until}}}'
    )


def test_what_all_avoid_or_the_own_namespace_is_listed_with_its_reason_and_nothing_of_others() -> None:
    stored = (
        f"[{avoided('n1')}, {avoided('n2', by='a')}, {avoided('n3', by='b')}, {avoided('n4', until=NOW)}]"
    )
    data = {"avoided": stored}
    found = reasons(data, NOW, "a")
    assert set(found) == {"n1", "n2"}
    assert set(reasons(data, NOW)) == {"n1"}
    cause = "pods of 3 gangs failed there and ran elsewhere, last at 2023-11-14 22:13:20Z by exit status 1"
    assert found["n1"] == cause


def test_what_the_namespace_called_all_avoids_is_shown_to_nobody_else() -> None:
    data = {"avoided": f"[{avoided('n1', by='all')}]"}
    assert reasons(data, NOW, "a") == {}
    assert reasons(data, NOW) == {}
    assert set(reasons(data, NOW, "all")) == {"n1"}


def given(data: dict[str, str], *nodes: Node) -> HookInput:
    objects: dict[Hashable, Mapping[str, Node]] = {NODES: {each.metadata.name: each for each in nodes}}
    now = Moment(at=datetime.fromtimestamp(NOW, UTC))
    return HookInput(View([], [], {}, {}, objects=objects, now=now), record=data)


def examined(data: dict[str, str], **reset_at: str) -> list[tuple[bool, str]]:
    nodes = [node(name, annotations={RESET: text}) for name, text in reset_at.items()]
    return [(not each.remedy, each.sentence) for each in examine(given(data, *nodes))]


DEEP = "[" * 100_000
EDITED = st.one_of(
    st.text(),
    st.sampled_from([DEEP, f'[{{"x":{DEEP}', f'{{"x":{DEEP}', "\ud800", '["\ud800"]', "[1e999]", "NaN"]),
    st.recursive(st.none() | st.floats() | st.integers() | st.text(), st.lists).map(json.dumps),
    st.lists(
        st.dictionaries(st.sampled_from(["node", "by", "last", "until", "gang", "at"]), st.integers())
    ).map(json.dumps),
)


@given_any(EDITED)
def test_no_text_in_the_record_is_a_defect(text: str) -> None:
    data = {"failures": text, "avoided": text}
    assert failures_in(data) == ()
    assert reasons(data, NOW) == {}
    assert len(examined(data)) <= 1


@pytest.mark.promise("O145", "W11")
def test_the_doctor_warns_of_avoided_nodes_and_of_resets_that_are_no_time() -> None:
    data = {"avoided": f"[{avoided('n1')}, {avoided('n2', by='team')}]"}
    assert examined(data, n3="soon") == [
        (False, "1 node is avoided since pods of several gangs failed there: n1"),
        (False, "some namespaces avoid nodes where their pods failed: n2"),
        (False, "node n3: topogate.io/reset-failures is not a time: 'soon'"),
    ]


def test_the_doctor_warns_of_a_reset_under_its_name_in_v0_1() -> None:
    made = node("n3", annotations={"topogate.io/forgive-failures": "2026-01-01T00:00:00Z"})
    (line,) = examine(given({}, made))
    assert (
        line.sentence
        == "1 node has the annotation topogate.io/forgive-failures, which v0.3 does not read: n3"
    )
    assert line.remedy.endswith(
        'topogate.io/reset-failures="$(date -u +%FT%TZ)" topogate.io/forgive-failures-'
    )


def test_the_doctor_finds_all_well_where_no_node_is_avoided() -> None:
    assert examined({}, n0="2026-01-01T00:00:00Z") == [(True, "no node is avoided")]


def test_the_doctor_names_what_to_do_with_what_it_cannot_read() -> None:
    ((is_well, sentence),) = examined({"avoided": "nonsense"})
    assert not is_well
    assert sentence.startswith("topogate-node-failures cannot be read")
