"""Gangs that are planned in one pass are promised no free volume twice."""

import pytest

from labeler.contract import keys
from tests.scheduling.shelf import Shelf
from tests.sweeper.cluster import Placing, gpu_pod, places
from tests.sweeper.stored import WithStorage
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod

SETTINGS = Settings(settle_seconds=0)


def gang(name: str, *claims: str) -> list[Pod]:
    annotations = {keys.GANG_ANNOTATION: name, keys.GANG_SIZE_ANNOTATION: str(len(claims))}
    return [
        gpu_pod(
            f"{name}-{number}",
            metadata={"annotations": annotations},
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
        )
        for number, claim in enumerate(claims)
    ]


def cluster(shelf: Shelf, *pods: Pod) -> WithStorage:
    nodes = WithStorage(2, *pods, gpus=8)
    nodes.shelf = shelf
    for name in list(nodes.nodes):
        nodes.label(name, {"kubernetes.io/hostname": name})
    return nodes


@pytest.mark.promise("R106")
@pytest.mark.parametrize(("volumes", "placed"), [(3, 2), (4, 4)])
def test_the_second_gang_waits_for_the_next_pass_unless_there_is_plenty(volumes: int, placed: int) -> None:
    shelf = Shelf()
    for number in range(volumes):
        shelf.local(f"v{number}", on=("n0", "n1"))
    names = [[shelf.wait(f"{each}{number}") for number in range(2)] for each in "gh"]
    placing = Placing(cluster(shelf, *gang("g", *names[0]), *gang("h", *names[1])), SETTINGS)
    orders = placing.one()
    assert len(places(orders)) == placed
    if placed == 2:
        (outcome,) = orders.outcomes
        assert "counted again" in outcome.reason
        assert len(places(placing.one(without=["g"]))) == 2  # not held against it in the next pass
