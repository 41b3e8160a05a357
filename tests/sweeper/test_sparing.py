"""Gangs of one pass: an earlier one spares the places of the next, where another place is as good for it."""

from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from webhook.kube.objects import Pod
from webhook.sweeper.decide import in_time, sparing
from webhook.sweeper.decide.question import GangQuestion, question
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.settings import Settings

SETTINGS = Settings(settle_seconds=0)


def gang(name: str, count: int, gpus: int, **wishes: str) -> list[Pod]:
    annotations = {keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(count), **wishes}
    return [
        gpu_pod(f"{name}-{number}", gpus=gpus, metadata={"annotations": annotations})
        for number in range(count)
    ]


def racks(*pods: Pod) -> Nodes:
    """A rack of two free nodes of two GPUs, and one of four, of which three have one left."""
    used = [gpu_pod(f"runs-{node}", gpus=1, node=node) for node in ("n3", "n4", "n5")]
    made = Nodes(6, *used, *pods, gpus=2)
    for number, name in enumerate(made.nodes):
        labels = dict(zip(keys.GCE_TOPOLOGY, ("b", "r1" if number < 2 else "r2", name), strict=True))
        metadata = msgspec.structs.replace(made.nodes[name].metadata, labels=labels)
        made.nodes[name] = msgspec.structs.replace(made.nodes[name], metadata=metadata)
    return made


LARGE = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"}


@pytest.mark.parametrize(
    ("others", "first"),
    [([], {"n0"}), (gang("large", 2, 2, **LARGE), {"n2"})],
    ids=["alone", "before one that needs the whole rack"],
)
def test_a_gang_spares_the_rack_that_only_the_next_one_needs(others: list[Pod], first: set[str]) -> None:
    found = places(Placing(racks(*gang("a-small", 2, 1), *others), SETTINGS).one())
    assert {node for pod, node in found.items() if pod.startswith("a-small")} == first
    assert {node for pod, node in found.items() if pod.startswith("large")} == (
        {"n0", "n1"} if others else set()
    )


@pytest.mark.parametrize(("urgent", "first"), [(1, {"n2"}), (0, {"n0"})])
def test_in_a_burst_only_the_most_urgent_gangs_spare_others(
    urgent: int, first: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_time, "SPARING", urgent)
    found = places(Placing(racks(*gang("a-small", 2, 1), *gang("large", 2, 2, **LARGE)), SETTINGS).one())
    assert {node for pod, node in found.items() if pod.startswith("a-small")} == first


@pytest.mark.parametrize("level", ["no level", "subblock"])
def test_what_a_later_gang_wishes_wrongly_is_told_to_that_one_alone(level: str) -> None:
    wishes: dict[str, Any] = {keys.REQUIRED_TOPOLOGY_ANNOTATION: level}
    orders = Placing(racks(*gang("a-small", 2, 1), *gang("large", 9, 2, **wishes)), SETTINGS).one()
    assert set(places(orders)) == {"a-small-0", "a-small-1"}
    assert [verdict.gang.key.name for verdict in orders.verdicts] == ["large"]


def test_a_later_gang_that_cannot_be_looked_at_stops_none_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("not foreseen")

    monkeypatch.setattr(sparing, "sparing", fails)
    case = Placing(racks(*gang("a-small", 2, 1), *gang("large", 2, 2, **LARGE)), SETTINGS)
    assert {pod.rpartition("-")[0] for pod in places(case.one())} >= {"a-small"}


def test_in_the_second_half_of_a_pass_nobody_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    made = racks(*gang("a-first", 1, 9), *gang("b-small", 2, 1), *gang("large", 2, 2, **LARGE))
    case = Placing(made, Settings(settle_seconds=0, pass_seconds=8))

    def three_seconds() -> None:
        case.clock.now += 3

    monkeypatch.setattr(case.placer, "_beat", three_seconds)
    found = places(case.one())
    assert {node for pod, node in found.items() if pod.startswith("b-small")} == {"n2"}
    monkeypatch.setattr(case.placer, "_settings", Settings(settle_seconds=0, pass_seconds=5))
    found = places(case.one())
    assert {node for pod, node in found.items() if pod.startswith("b-small")} == {"n0"}


def test_what_next_gangs_ask_is_read_once_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(gang: PodGang, *more: Any) -> GangQuestion:
        asked.append(gang.key.name)
        return question(gang, *more)

    monkeypatch.setattr(sparing, "question", noted)
    pods = [pod for name in "abcdef" for pod in gang(name, 2, 1)]
    assert len(places(Placing(racks(*pods), SETTINGS).one())) == 8
    assert max(map(asked.count, asked)) == 2, "once for others, and once in its turn"
