"""Placements that are drawn, for tests."""

import random
import uuid

from webhook.kube.plan_pods import PlannedPod


def drawn(count: int, *, cards: bool = True) -> list[PlannedPod]:
    """Entries as a sweeper writes them for one-GPU pods of a Job; what is random there is random here."""
    dice = random.Random(count)

    def end(length: int) -> str:
        return "".join(dice.choices("bcdfghjklmnpqrstvwxz2456789", k=length))

    nodes = [f"gpu-pool-{number // 256:02d}-{end(8)}-{end(4)}" for number in range(count // 8 + 1)]
    return [
        PlannedPod(
            name=f"pretraining-workers-0-{rank}-{end(5)}",
            uid=str(uuid.UUID(int=dice.getrandbits(128), version=4)),
            node=nodes[rank // 8],
            rank=rank,
            annotations={"gas-container-cards": f"card{rank % 8}", "gas-ts": str(1764 * 10**15 + rank)}
            if cards
            else {},
        )
        for rank in range(count)
    ]
