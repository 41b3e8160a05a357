"""The spread that the page names as the best possible for a gang."""

from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode
from tests.sweeper.preemptions import plan
from tests.sweeper.sets import member, pinned_to
from tests.ui.scenes import cluster_of, page_of, scene_of, waiting_job
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.observe.membership import key_of

BLOCKS = ("node-b0-s0-h00", "node-b1-s0-h00")


def bound(pod: Pod, node: str) -> Pod:
    """The pod as topogate releases it, and kube-scheduler binds it."""
    body = msgspec.to_builtins(pod)
    body["spec"] |= {"schedulingGates": [], "affinity": pinned_to(node), "nodeName": node}
    return decode(body)


def exclusive() -> list[Pod]:
    """A JobSet of two Jobs, each of which has a block to itself, and which wait for one another."""
    pods = [
        msgspec.to_builtins(member(f"{job}-0", job, over=keys.PRERELEASE_TOPOLOGY[0])) for job in ("a", "b")
    ]
    for body in pods:
        body["metadata"]["annotations"][keys.GANG_ANNOTATION] = "both"
    return [decode(body) for body in pods]


def plan_of(pods: list[Pod]) -> dict[str, Placement]:
    """The Placement of these bound pods."""
    return dict(
        [plan(key_of(pods[0]).placement_name, {pod.metadata.uid: pod.spec.node_name for pod in pods})]
    )


@pytest.mark.parametrize("is_released", [False, True], ids=["waits", "is released"])
@pytest.mark.parametrize(
    ("pods", "best"),
    [(waiting_job(2), "1 block, 1 subblock"), (exclusive(), "2 blocks, 2 subblocks")],
    ids=["any domain", "domains of its own"],
)
def test_the_best_spread_is_that_of_the_whole_gang_in_an_empty_cluster(
    pods: list[Pod], best: str, is_released: bool
) -> None:
    """A released gang is in both blocks, and other pods fill the rest of the first one."""
    others = [bound(pod, "node-b0-s1-h00") for pod in waiting_job(1, job="other")]
    own = [bound(pod, node) for pod, node in zip(pods, BLOCKS, strict=True)] if is_released else pods
    page = page_of(scene_of(cluster_of([*own, *others], plan_of(own) if is_released else {}, size=2)), size=2)
    shown: Any = page.get(f"/api/gang?id={key_of(own[0]).placement_key}").json
    assert shown["best"].startswith(f"{best}, ")
