"""The reason of a gang that waits only because its owner is unknown says so, and what to write."""

import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod

SETTINGS = Settings(settle_seconds=0, patience_seconds=0, reserve_seconds=1e6)
NOTE = "nothing is known of Flow.example.com"


def step(number: int, kind: str = "Flow", gang: str = "o", **annotations: str) -> Pod:
    owner = {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "name": gang,
        "uid": f"uid-{gang}",
        "controller": True,
    }
    metadata = {"ownerReferences": [owner], "annotations": annotations}
    return gpu_pod(f"{gang}-{number}", metadata={**metadata, "uid": f"{gang}-{number}"})


def reasons(count: int, *pods: Pod) -> dict[str, str]:
    """By gang, why it waits on so many nodes of a GPU each."""
    orders = Placing(Nodes(count, *pods), SETTINGS).one()
    return {each.gang.key.name: each.reason for each in orders.outcomes}


@pytest.mark.promise("R230")
def test_there_is_a_note_where_some_of_its_pods_could_run() -> None:
    reason = reasons(2, *(step(number) for number in range(3)))["o"]
    assert "capacity for 2 of 3" in reason
    assert NOTE in reason
    assert "gangs.looseOwners: [Flow.example.com]" in reason
    assert "gangs.owners: [Flow.example.com]" in reason
    assert f'{keys.GANG_MIN_SIZE_ANNOTATION}: "1"' in reason


@pytest.mark.promise("R230")
@pytest.mark.parametrize(
    ("count", "pods"),
    [
        pytest.param(0, [step(0), step(1)], id="there is no capacity for any"),
        pytest.param(0, [step(0)], id="it has one pod"),
        pytest.param(
            1,
            [step(n, **{keys.GANG_ANNOTATION: "o"}) for n in range(3)],
            id="its author says that it is a gang",
        ),
        pytest.param(1, [step(n, "StatefulSet") for n in range(3)], id="its owner is known"),
        pytest.param(
            1, [step(n, **{keys.GANG_MIN_SIZE_ANNOTATION: "2"}) for n in range(3)], id="it has a minimum"
        ),
    ],
)
def test_there_is_no_note_where(count: int, pods: list[Pod]) -> None:
    (reason,) = reasons(count, *pods).values()
    assert "nothing is known" not in reason


def test_a_gang_that_asks_the_same_gets_a_note_on_its_own_owner() -> None:
    pods = [step(n, gang="a") for n in range(3)] + [step(n, "StatefulSet", "b") for n in range(3)]
    reason = reasons(2, *pods)
    assert NOTE in reason["a"]
    assert "nothing is known" not in reason["b"]
