"""What the page shows of a gang for which another one is moved, and of the one that is moved."""

from datetime import UTC, datetime
from typing import Any, Final

from flask.testing import FlaskClient

from labeler.contract import keys
from tests.sweeper.preemptions import member, plan
from tests.ui.scenes import GRID, cluster_of, page_of, running_job, scene_of, waiting_job, with_gpus
from webhook.sweeper.observe.membership import key_of

MOVABLE: Final[dict[str, Any]] = {"annotations": {keys.MOVABLE_ANNOTATION: "true"}}


def shown(page: FlaskClient, name: str) -> Any:
    """What the page shows of the gang of a Job."""
    picture: Any = page.get("/api/picture").json
    (row,) = [each for each in picture["gangs"] if each["name"] == name]
    return page.get(f"/api/gang?id={row['id']}").json


def test_the_gang_that_waits_is_shown_with_the_gangs_whose_move_would_help() -> None:
    small, its_plan = running_job("small", GRID[0].name, **MOVABLE)
    fixed, other_plan = running_job("fixed", GRID[4].name)
    asking = waiting_job(4, annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})
    plans = {each.key: each for each in (its_plan, other_plan)}
    page = page_of(scene_of(cluster_of([*asking, small, fixed], plans, size=4)), size=4)
    sentences = shown(page, "train")["sentences"]
    assert any(each.startswith("It would fit if 1 gang, 1 pod, moved: ns/Job/small") for each in sentences)
    assert "No gang is moved in this cluster: its configuration has no makeRoom." in sentences


def test_the_recreated_gang_is_shown_in_the_place_that_is_reserved_for_it() -> None:
    """Nobody else is: the gang that waits behind it gets another node."""
    small = with_gpus(member("small", 0, priority=0, metadata={"uid": "ns-small-again"}))
    other = with_gpus(member("other", 0, priority=0))
    group = {
        "pods": ["ns-small-0"], "whole": True, "nodes": [GRID[7].name],
        "movedGang": key_of(small).placement_key, "moves": [datetime.now(UTC).isoformat()],
    }  # fmt: skip
    asking = waiting_job(4)
    on = {pod.metadata.uid: GRID[number].name for number, pod in enumerate(asking)}
    key, plan_of_asking = plan(key_of(asking[0]).placement_name, on, preempts=True, victims=[group])
    cluster = cluster_of([*asking, small, other], {key: plan_of_asking}, size=1)
    page = page_of(scene_of(cluster), size=1)
    assert shown(page, "small")["nodes"] == [GRID[7].name]
    assert shown(page, "other")["nodes"] not in ([], [GRID[7].name])
