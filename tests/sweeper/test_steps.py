"""The tables of steps, by which every gang is placed: what they are, and that they change nothing given."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from labeler.contract import keys
from tests.scheduling.shelf import Shelf
from tests.sweeper.cluster import Nodes, Placing, divided, gpu_pod
from tests.sweeper.stored import WithStorage
from webhook.configuration.settings import Settings
from webhook.sweeper import decision
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.decide.placement_pass import CHECKS, STEPS, PlacingMemory
from webhook.sweeper.decision import Memory
from webhook.sweeper.observe.view import View

DESIGN = Path(__file__).parents[2] / "docs" / "design"
SETTINGS = Settings(settle_seconds=0)


def test_the_page_lists_every_check_and_step_in_its_order() -> None:
    assert listed_in("checked") == [step.__name__ for step in CHECKS]
    assert listed_in("placed") == [step.__name__ for step in STEPS]


def test_the_page_lists_every_step_of_a_pass_in_its_order() -> None:
    assert listed_in("decided") == list(decision.STEPS)


def test_the_page_lists_all_that_is_remembered() -> None:
    assert first_cells(chapter_of("What a pass remembers")) == [each.name for each in fields(Memory)]


def listed_in(chapter: str) -> list[str]:
    """The first cells of the tables of the chapter, on a page on passes, of which the heading ends so."""
    return first_cells(chapter_of(chapter))


def chapter_of(heading: str) -> str:
    """What stands below the heading that ends so, on the pages on passes."""
    text = "".join((DESIGN / name).read_text() for name in ("life-of-a-pod.md", "steps-of-a-gang.md"))
    chapters = re.split(r"^#{1,3} ", text, flags=re.MULTILINE)
    (text,) = (each for each in chapters if each.partition("\n")[0].endswith(heading))
    return text


def first_cells(text: str) -> list[str]:
    """Of each row of its tables, if it is a name in code."""
    return re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)


def pods_that_share_no_zone() -> Nodes:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    metadata: dict[str, Any] = {"labels": {"app": "x"}}
    return Nodes(2, *(gpu_pod(name, metadata=metadata, affinity=affinity) for name in "abc"), gpus=8)


def test_each_variant_of_a_gang_is_asked_about_and_the_gang_is_planned_as_it_is_divided() -> None:
    placing = Placing(Nodes(2, gpu_pod("a")), SETTINGS)
    divide = divided({"n0", "n1"}, {"n0"})
    placing.divide = lambda given: divide(replace(given, gang=replace(given.gang, required_level="node")))
    (plan,) = placing.one().plans
    assert [entry.node for entry in plan.entries] == ["n1"]
    assert plan.gang.required_level == plan.asked.gang.required_level == "node"


def pods_of_one_volume() -> Nodes:
    shelf = Shelf()
    shelf.local("v0", on=("n0", "n1"))
    claims = [{"name": "v", "persistentVolumeClaim": {"claimName": shelf.wait(name)}} for name in "ab"]
    cluster = WithStorage(2, *(gpu_pod(f"p{n}", volumes=[claim]) for n, claim in enumerate(claims)), gpus=8)
    cluster.shelf = shelf
    return cluster


def gangs_of_which_one_waits() -> Nodes:
    metadata = {"annotations": {keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: "2"}}
    return Nodes(2, gpu_pod("alone"), *(gpu_pod(f"g-{n}", metadata=metadata) for n in range(2)))


@pytest.mark.parametrize(
    "cluster_of", [pods_that_share_no_zone, pods_of_one_volume, gangs_of_which_one_waits]
)
def test_placing_twice_on_the_same_view_orders_the_same(cluster_of: Any) -> None:
    cluster = cluster_of()
    for name in cluster.nodes:
        cluster.label(name, {"kubernetes.io/hostname": name, "zone": name})
    placing = Placing(cluster, SETTINGS)
    view = placing.view()
    first, second = (orders_on(view, placing) for _ in range(2))
    assert first.plans
    assert first.outcomes
    assert shown(first) == shown(second)


def orders_on(view: View, placing: Placing) -> Orders:
    """What is decided without memory on a view on which others have decided before."""
    placing.memory = PlacingMemory()
    snapshot = placing.snapshotter.snapshot(view)
    gangs = placing.gangs()
    placing.remember(gangs, view, snapshot)
    return placing.place(gangs, placing.given(view, snapshot, 1))


def shown(orders: Orders) -> object:
    plans = [(each.gang.key, each.entries, each.spread) for each in orders.plans]
    return plans, [(each.gang.key, each.cause, each.reason) for each in orders.outcomes]
