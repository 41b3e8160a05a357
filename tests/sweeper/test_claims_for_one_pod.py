"""Pods of several gangs that have one claim, for a single pod at a time."""

import msgspec
import pytest

from tests.scheduling.shelf import Shelf
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod
from webhook.scheduling.storage import Storage


class WithVolumes(Nodes):
    """Nodes that can all use the volumes on a shelf."""

    def __init__(self, *pods: Pod) -> None:
        super().__init__(2, *pods)
        self.shelf = Shelf()

    def storage(self, is_wanted: bool) -> Storage | None:  # type: ignore[override]
        return self.shelf.storage if is_wanted else None


def pod(name: str, claim: str) -> Pod:
    """A pod with a claim that is a gang of its own."""
    return gpu_pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


@pytest.mark.parametrize(("mode", "count"), [("ReadWriteOncePod", 1), ("ReadWriteMany", 2)])
def test_of_two_gangs_that_wait_for_one_claim_a_pass_places_one(mode: str, count: int) -> None:
    cluster = WithVolumes(pod("a", "d"), pod("b", "d"))
    cluster.shelf.disk("d", (mode,))
    orders = Placing(cluster, Settings(settle_seconds=0)).one()
    assert len(places(orders)) == count
    assert [outcome.reason for outcome in orders.outcomes] == [
        'the PersistentVolumeClaim "d" is ReadWriteOncePod, and pod a uses it'
    ] * (2 - count)


def test_a_gang_does_not_wait_for_one_that_found_no_place_itself() -> None:
    """Who waits for something else has no claim yet."""
    first = pod("a", "d")
    lost = msgspec.structs.replace(first.spec, node_selector={"nowhere": "x"})
    cluster = WithVolumes(msgspec.structs.replace(first, spec=lost), pod("b", "d"))
    cluster.shelf.disk("d", ("ReadWriteOncePod",))
    assert places(Placing(cluster, Settings(settle_seconds=0)).one()).keys() == {"b"}
