"""Preferred levels, alone and below a required one: in one domain of each if there is capacity."""

from collections.abc import Sequence

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.pods import gather_all
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod
from webhook.placement import PlacementError
from webhook.sweeper.observe.gang_requests import preferred_of


@pytest.mark.parametrize(
    ("value", "levels"),
    [(None, ()), ("subblock", ("subblock",)), ("block,subblock,host", ("block", "subblock", "host"))],
)
def test_preferred_levels_are_names_with_commas_between(value: str | None, levels: tuple[str, ...]) -> None:
    assert preferred_of(value) == levels


@pytest.mark.parametrize(
    ("value", "complaint"),
    [("", "names no level"), ("block,", "names no level"), ("host,host", "names 'host' twice")],
)
def test_levels_that_cannot_be_read_keep_the_gang_waiting_with_the_reason(value: str, complaint: str) -> None:
    with pytest.raises(PlacementError, match=complaint):
        preferred_of(value)
    (gang,) = gather_all(*gang_of(1, 1, preferred=value))
    assert complaint in gang.fault


SETTINGS = Settings(settle_seconds=0)


def gang_of(count: int, gpus: int, name: str = "g", **levels: str) -> list[Pod]:
    asked = {keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(count)}
    asked |= {f"topogate.io/{kind}-topology": value for kind, value in levels.items()}
    return [gpu_pod(f"{name}-{n}", gpus=gpus, metadata={"annotations": asked}) for n in range(count)]


TWO_BLOCKS = (
    ("b0", "s0"),
    ("b0", "s0"),
    ("b0", "s1"),
    ("b0", "s1"),
    ("b1", "s2"),
    ("b1", "s2"),
    ("b1", "s2"),
)


def nodes_in(places: Sequence[tuple[str, str]], *pods: Pod) -> Nodes:
    """Nodes of two GPUs, each in its block and subblock."""
    made = Nodes(len(places), *pods, gpus=2)
    for (name, node), place in zip(made.nodes.items(), places, strict=True):
        labels = dict(zip(keys.GCE_TOPOLOGY, (*place, name), strict=True))
        metadata = msgspec.structs.replace(node.metadata, labels=labels)
        made.nodes[name] = msgspec.structs.replace(node, metadata=metadata)
    return made


@pytest.mark.promise("R45")
@pytest.mark.parametrize(
    ("count", "expected"),
    [(3, {"n4", "n5", "n6"}), (4, {"n0", "n1", "n2", "n3"}), (5, set())],
    ids=["a subblock", "a block, as no subblock holds it", "no block holds it"],
)
@pytest.mark.parametrize("preferred", ["subblock", "subblock,host"])
def test_a_gang_in_one_required_block_takes_one_subblock_if_it_can(
    preferred: str, count: int, expected: set[str]
) -> None:
    pods = gang_of(count, 2, required="block", preferred=preferred)
    assert set(places(Placing(nodes_in(TWO_BLOCKS, *pods), SETTINGS).one()).values()) == expected


def test_pods_that_prefer_different_levels_are_parts_named_by_them() -> None:
    mine = gang_of(4, 1, preferred="block,subblock")
    for number, level in ((2, "block"), (3, "block")):
        annotations = {**mine[number].metadata.annotations, keys.PREFERRED_TOPOLOGY_ANNOTATION: level}
        metadata = msgspec.structs.replace(mine[number].metadata, annotations=annotations)
        mine[number] = msgspec.structs.replace(mine[number], metadata=metadata)
    (gang,) = gather_all(*mine)
    assert {part.name for part in gang.parts} == {
        "the 2 pods that prefer one block and prefer one subblock",
        "the 2 pods that prefer one block",
    }
