"""A new node is given to nobody until it says where it stands, or is old enough."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from webhook.configuration.settings import ScaleUp, Settings
from webhook.extensions.known import SWITCHES
from webhook.extensions.scale_up.new_nodes import missing_labels
from webhook.extensions.scale_up.scale_up import SCALE_UP, ScaleUpMemory
from webhook.kube.objects import Node
from webhook.placement import Topology
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.extension import HookInput

BEGAN = 1_767_225_600.0  # 2026-01-01T00:00:00Z
PLACE = dict(zip(keys.PRERELEASE_TOPOLOGY, ("b0", "s0", "h0"), strict=True))


def node(labels: dict[str, str], created: str = "2026-01-01T00:00:00Z") -> Node:
    metadata = {"name": "n0", "labels": labels, "creationTimestamp": created}
    status = {"allocatable": {"nvidia.com/gpu": "1", "pods": "110"}}
    return msgspec.convert({"metadata": metadata, "status": status}, Node)


@pytest.mark.promise("O126")
@pytest.mark.parametrize(
    ("labels", "age", "left"),
    [({}, 10, 50), ({}, 60, None), (PLACE, 10, None), (dict([*PLACE.items()][:1]), 59, 1)],
)
def test_it_waits_for_a_complete_set_of_labels_and_no_longer_than_it_may(
    labels: dict[str, str], age: float, left: float | None
) -> None:
    found = missing_labels({"n0": node(labels)}, 60.0, Topology(), BEGAN + age)
    assert found == ({} if left is None else {"n0": left})


@pytest.mark.parametrize(("fast_by", "left"), [(1, 61), (60, 120), (61, None), (3600, None), (86400, None)])
def test_a_node_of_the_future_is_waited_for_only_where_clocks_differ_a_little(
    fast_by: float, left: float | None
) -> None:
    """Our clock was set back, or the API server's was ahead when the node was made."""
    found = missing_labels({"n0": node({})}, 60.0, Topology(), BEGAN - fast_by)
    assert found == ({} if left is None else {"n0": left})


def excluding(placing: Placing) -> HookInput:
    return HookInput(placing.view(), placing.settings, gangs=placing.gangs())


def placed(placing: Placing) -> Orders:
    """What a pass decides with the nodes that extensions exclude."""
    for switch in SWITCHES:
        if switch.is_on(HookInput(settings=placing.settings)):
            extension = switch.load()
            if extension.exclude_nodes is not None:
                placing.rules, _ = extension.exclude_nodes(excluding(placing), extension.memory)
    return placing.one()


@pytest.mark.promise("O126")
@pytest.mark.parametrize("is_on", [True, False])
def test_a_gang_waits_for_the_labels_of_new_nodes_where_nodes_are_asked_for(is_on: bool) -> None:
    cluster = Nodes(1, gpu_pod("p"))
    just_now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    cluster.nodes["n0"] = node({}, just_now)
    choices = ScaleUp("class" if is_on else "")
    placing = Placing(cluster, Settings(settle_seconds=0, scale_up=choices))
    placed(placing)
    orders = placed(placing)
    if is_on:
        assert places(orders) == {}
        sentence = "avoids the node n0 (it is new, and has no topology labels yet)"
        assert sentence in orders.outcomes[0].reason
        cluster.nodes["n0"] = node(PLACE, just_now)
        assert places(placed(placing)) == {"p": "n0"}
    else:
        assert places(orders) == {"p": "n0"}


def test_a_pass_is_due_once_the_next_node_is_old_enough() -> None:
    cluster = Nodes(1, gpu_pod("p"))
    choices = ScaleUp("class", after_seconds=500.0, label_seconds=300.0)
    placing = Placing(cluster, Settings(scale_up=choices))
    created = datetime.now(UTC) - timedelta(seconds=60)
    cluster.nodes["n0"] = node({}, f"{created:%Y-%m-%dT%H:%M:%SZ}")
    given = excluding(placing)
    _, memory = SCALE_UP.exclude_nodes(given, ScaleUpMemory())
    end = HookInput(given.view, given.settings, gangs=given.gangs)
    orders, _ = SCALE_UP.after_pass(end, memory)
    assert 200 < orders.due_seconds <= 240
    _, memory = SCALE_UP.exclude_nodes(replace(given, gangs=()), memory)
    assert memory.labels_due_seconds == float("inf"), "nobody waits for it"
