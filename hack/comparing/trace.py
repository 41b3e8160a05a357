"""Nodes and pods of Alibaba's GPU cluster of 2023 ("openb"), and the order in which the pods arrive.

The tables beside this module have classes and counts of the trace's nodes and of its pods. Source:
clusterdata/cluster-trace-gpu-v2023 of github.com/alibaba, published with Q. Weng et al., Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent (USENIX ATC 2023).
The published lists, a row for each node or pod, have the same columns without `count`.
"""

import csv
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent / "openb"
NODES: Final = HERE / "nodes.csv"
PODS: Final = HERE / "pods.csv"
WHOLE: Final = 1000
"""Thousandths of a card."""


class TracePod(NamedTuple):
    """Requests of a pod: thousandths of a CPU, MiB, cards, thousandths of each card.

    models: the models of GPUs on which it runs, () for any.
    """

    cpu: int
    memory: int
    cards: int
    share: int
    models: tuple[str, ...] = ()

    @property
    def thousandths(self) -> int:
        """Thousandths of cards that it takes."""
        return self.cards * self.share


class TraceNode(NamedTuple):
    """What a node has free: thousandths of a CPU, MiB, thousandths of each of its cards."""

    cpu: int
    memory: int
    cards: tuple[int, ...]
    model: str = ""


def read_nodes(path: Path = NODES, every: int = 1) -> list[TraceNode]:
    """The empty nodes. every: take each n-th node alone, for a smaller cluster."""
    nodes = [
        TraceNode(int(row["cpu_milli"]), int(row["memory_mib"]), (WHOLE,) * int(row["gpu"]), row["model"])
        for row in _rows(path)
    ]
    return nodes[::every]


def read_pods(path: Path = PODS) -> list[TracePod]:
    """The pods of the trace, those that ask for no card too."""
    return [
        TracePod(
            int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"]),
            tuple(filter(None, (row.get("gpu_spec") or "").split("|"))),
        )
        for row in _rows(path)
    ]  # fmt: skip


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a table, each as often as its count says."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield from (row for _ in range(int(row.get("count") or 1)))


def arrivals(pods: list[TracePod], nodes: Iterable[TraceNode], seed: int, percent: int) -> list[TracePod]:
    """Pods in random order until they ask for so many percent of the cards; then the trace is drawn again."""
    dice = random.Random(seed)
    wanted = sum(sum(node.cards) for node in nodes) * percent // 100
    order = dice.sample(pods, len(pods))
    found: list[TracePod] = []
    while wanted > 0:
        pod = order.pop() if order else dice.choice(pods)
        found.append(pod)
        wanted -= pod.thousandths
    return found
