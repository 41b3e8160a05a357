"""Whatever a pass asks the placement core for one gang has one budget of steps together."""

import random
from dataclasses import replace

import pytest

from labeler.contract import keys
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from webhook.configuration.settings import Settings
from webhook.placement import Budget, Options
from webhook.placement.place import FIRST_FIT
from webhook.sweeper.decide.core_questions import QUESTIONS

BOUND = 300


def hard_gang(dice: random.Random) -> Nodes:
    """A gang of many kinds that all but fills 24 nodes of 16 GPUs, on which pods of lower priority run."""
    annotations = {keys.GANG_ANNOTATION: "g", keys.GANG_SIZE_ANNOTATION: "90"}
    metadata = {"annotations": annotations, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:05Z"}
    sizes = [dice.choice((3, 5, 7)) for _ in range(90)]
    pods = [
        gpu_pod(f"g-{number}", gpus=size, priority=100, metadata={**metadata, "uid": f"g-{number}"})
        for number, size in enumerate(sizes)
    ]
    running = [
        gpu_pod(
            f"low-{number}",
            gpus=dice.choice((1, 2)),
            node=f"n{number}",
            priority=1,
            metadata={"uid": f"low-{number}"},
        )
        for number in range(24)
    ]
    return Nodes(24, *pods, *running, gpus=16)


@pytest.mark.promise("S49")
@pytest.mark.parametrize("seed", range(2))
def test_place_victims_and_reserved_nodes_of_one_gang_take_no_more_than_one_budget(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[Budget] = []
    real = Budget.__init__

    def note(self: Budget, steps: int, parent: Budget | None = None) -> None:
        real(self, steps, parent)
        whole.extend([] if parent else [self])

    monkeypatch.setattr(Budget, "__init__", note)
    options = replace(Options(), bound=BOUND)
    settings = Settings(settle_seconds=0, reserve_seconds=0, reserve_share=1.0, options=options)
    Placing(hard_gang(random.Random(seed)), settings).one()
    spent = sum(each.spent for each in whole)
    beyond = QUESTIONS * 2 * FIRST_FIT * 24  # each question may look for any place, twice
    assert BOUND < spent <= (QUESTIONS + 1) * BOUND + beyond
