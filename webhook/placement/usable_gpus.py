"""How many GPUs of a node pods of the mix can use, and how many fewer once a gang is there.

A node's usable GPUs are counted in two ways for each class of the mix:

- by one pod: the free GPUs, or cards, on which a pod of the class can run; 0 if the node lacks anything else
  that the pod requests. The rest is fragmentation as FGD defines it.
- by filling: the GPUs that pods of the class take if they alone fill the node, which depends on the resource
  that runs out first.

A node's value is OF_ONE times the first and once the second, by the weight of each class. It depends on free
amounts alone, and is computed once for all nodes with the same. A node loses by a gang what it is worth less
afterwards; TIGHT counts against CPU and GPUs that then stay free, so that of nearly equal nodes the fuller
one is better.

A class weighs as much as its pods, and more if few GPUs of the cluster are usable by filling: twice as much
for half of them. So whole nodes and scarce models stay free for the pods that can use no others.

Source of the first: Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent (USENIX ATC 2023).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from webhook.placement.capacity import takes_pods
from webhook.placement.free_amounts import Labels, MixResources, States, states_of
from webhook.placement.mix import WHOLE, Mix, names_of
from webhook.placement.model import NodeInfo, PodClass
from webhook.placement.served_requests import Array, table, times
from webhook.placement.snapshot import Block, NodeState, Snapshot

OF_ONE: Final = 10
"""Found by `hack/bench trace`: with less, whole nodes are opened early; with more, CPU runs out first."""

TIGHT: Final = 20
"""Thousandths of a GPU for a large node that is completely free."""

SCARCE: Final = 64
"""The largest factor of a weight: with more, classes that hardly any GPU is left for would decide alone."""

LARGE_CPU: Final = 128_000
LARGE_GPUS: Final = 8 * WHOLE

_BATCH: Final = 256
"""Amounts that are valued at once, which bounds the memory."""


class _Usable(NamedTuple):
    """[node, class]: thousandths of GPUs that pods use, by one pod and by filling; by node: of free cards."""

    by_one: Array
    by_filling: Array
    of_cards: Array


class UsableGpus:
    """The usable GPUs of nodes for one mix."""

    def __init__(self, mix: Mix) -> None:
        self.mix = mix
        self.resources = MixResources(*names_of(mix))
        self._counts = np.array([each.count for each in mix.classes], dtype=np.int64)
        self._weights = np.array(mix.weights, dtype=np.int64) if mix.weights else self._counts
        self._requests = table([each.requests for each in mix.classes], self.resources.of_nodes)
        self._thousandths = np.array([each.thousandths for each in mix.classes], dtype=np.int64)
        self._of_gpu = self._gpu_columns()
        of_cards = [(each.cards, each.per_card) for each in mix.classes]
        self._asked = tuple(sorted(set(of_cards)))
        self._cards = np.array([each.cards for each in mix.classes], dtype=np.int64)
        self._number = np.array([self._asked.index(each) for each in of_cards])
        self._start()

    def _gpu_columns(self) -> dict[int, Array]:
        """For each resource that is GPUs its column, and the classes that request it."""
        asked = [each.resource for each in self.mix.classes]
        return {
            self.resources.of_nodes.index(name): np.array([n for n, own in enumerate(asked) if own == name])
            for name in sorted({*asked} - {""})
        }

    def _start(self) -> None:
        """Value all states again, by the numbers of a new table."""
        self._states = states_of(self.resources)
        self._served = self._states.served(self._asked)
        self._before: dict[int, int] = {}
        self._may_run: dict[Labels, list[bool]] = {}

    def _table(self) -> States:
        """The numbers of states; a new table if the old one is full."""
        if self._states.is_full:
            self._start()
        return self._states

    def lost(self, nodes: Sequence[NodeState], pod: PodClass, pods: int) -> list[int]:
        """What each node loses by so many pods of a class, see the module docstring."""
        states = self._table()
        numbers = [states.number(each) for each in nodes]
        distinct = list(dict.fromkeys(numbers))
        new = [number for number in distinct if number not in self._before]
        values, _ = self._worth(*states.amounts(new))
        self._before.update(zip(new, values, strict=True))
        values, spare = self._worth(*states.later(distinct, pod, pods))
        losses = {
            number: self._before[number] - value + tight
            for number, value, tight in zip(distinct, values, spare, strict=True)
        }
        return [losses[number] for number in numbers]

    def _worth(self, free: Array, cards: Sequence[int]) -> tuple[list[int], list[int]]:
        """The value of each node, and what counts against its free CPU and GPUs."""
        values: list[int] = []
        spare: list[int] = []
        tight = TIGHT * OF_ONE * int(self._weights.sum())
        names = self.resources.of_nodes
        for start in range(0, len(cards), _BATCH):
            part = free[start : start + _BATCH]
            usable = self._usable(part, cards[start : start + _BATCH])
            values += ((OF_ONE * usable.by_one + usable.by_filling) @ self._weights).tolist()
            gpus = usable.of_cards + WHOLE * part[:, [*self._of_gpu]].sum(axis=1)
            cpu = part[:, names.index("cpu")] if "cpu" in names else 0
            spare += (tight * cpu // LARGE_CPU + tight * gpus // LARGE_GPUS).tolist()
        return values, spare

    def _amounts(self, nodes: Iterable[NodeState]) -> tuple[Array, list[int]]:
        """See States.amounts."""
        states = self._table()
        return states.amounts([states.number(each) for each in nodes])

    def by_filling(self, blocks: Iterable[Block]) -> tuple[list[int], int]:
        """Thousandths of GPUs that each class can use in these blocks by filling, and of all GPUs there."""
        states, nodes, gpus = self._table(), Counter[int](), 0
        key = states, (*self._of_gpu,)  # mixes of the same resources may count others of them as GPUs
        for block in blocks:
            there, of_block = block.worked_out(key, partial(self._in_block, block))
            nodes.update(there)
            gpus += of_block
        free, cards = states.amounts([*nodes])
        sums = np.array([*nodes.values()], dtype=np.int64) @ self._usable(free, cards).by_filling
        return sums.tolist(), gpus

    def _in_block(self, block: Block) -> tuple[Counter[int], int]:
        """The states of nodes that take pods, each with their number, and thousandths of all GPUs there."""
        states = [each for each in block.states if takes_pods(each)]
        names = [self.resources.of_nodes[column] for column in self._of_gpu]
        gpus = sum(
            len(each.cards) + sum(max(0, each.node.allocatable.get(name, 0)) for name in names)
            for each in states
        )
        return Counter(map(self._states.number, states)), WHOLE * gpus

    def unusable(
        self, nodes: Sequence[NodeState], units_per_gpu: Callable[[NodeInfo, str], int]
    ) -> tuple[list[str], list[list[int]]]:
        """Resources, and for each node the free thousandths of GPUs that one pod cannot use for lack of each.

        They are the means over the pods of the mix; of several resources, and whole GPUs, the scarcest
        counts. The last two amounts of a node are for lack of GPUs and of cards. GPUs of each resource, and
        cards, count for the classes that request them, except those of another model than the node's.
        units_per_gpu: of a resource on a node.
        """
        free, cards = self._amounts(nodes)
        one, _, of_cards = self._usable(free, cards)
        missing = np.zeros_like(one)
        weights = self._counts * self._has_gpus(nodes)
        columns = [*self._of_gpu.items(), (None, np.flatnonzero(self._cards))]
        for column, classes in columns:
            every = of_cards if column is None else WHOLE * free[:, column]
            units = 1 if column is None else self._units(nodes, column, units_per_gpu)
            total = units * np.maximum(1, weights[:, classes].sum(axis=1))
            unused = every[:, None] - one[:, classes]
            missing[:, classes] = unused * weights[:, classes] // total[:, None]
        names = self.resources.of_nodes
        gpus = {names[column] for column in self._of_gpu} | set(self.resources.of_cards)
        lacking = [name for name in names if name not in gpus]
        cause_of = np.where(self._cards > 0, len(lacking) + 1, len(lacking)) * np.ones_like(one)
        least = np.ones(one.shape)
        for column, classes in self._of_gpu.items():
            asked = np.maximum(1, self._requests[classes, column])
            least[:, classes] = np.minimum(1, free[:, column, None] / asked)
        for number, name in enumerate(lacking):
            column = names.index(name)
            asked = self._requests[:, column]
            part = np.where(asked > 0, free[:, column, None] / np.maximum(1, asked), 1.0)
            cause_of[part < least] = number
            least = np.minimum(least, part)
        sums = [(missing * (cause_of == number)).sum(axis=1) for number in range(len(lacking) + 2)]
        return lacking, np.stack(sums, axis=1).tolist()

    def _units(
        self, nodes: Iterable[NodeState], column: int, units_per_gpu: Callable[[NodeInfo, str], int]
    ) -> Array:
        name = self.resources.of_nodes[column]
        return np.array([units_per_gpu(each.node, name) for each in nodes])

    def _has_gpus(self, nodes: Sequence[NodeState]) -> Array:
        """[node, class]: 1 if the node has GPUs of the resource, or cards, that the class requests."""
        found = np.array([bool(each.cards) for each in nodes])[:, None] * (self._cards > 0)
        for column, classes in self._of_gpu.items():
            name = self.resources.of_nodes[column]
            has = np.array([_offers(each, name) for each in nodes])
            found[:, classes] = has[:, None]
        for number, state in enumerate(nodes) if self.resources.labels else ():
            found[number] *= self._allowed(self.resources.labels_on(state.node))
        return found.astype(np.int64)

    def _allowed(self, labels: Labels) -> list[bool]:
        """For each class whether it may run on nodes with these values of the labels of models."""
        if labels not in self._may_run:
            there = dict(zip(self.resources.labels, labels, strict=True))
            self._may_run[labels] = [
                all(there[key] in values for key, values in each.models) for each in self.mix.classes
            ]
        return self._may_run[labels]

    def _usable(self, free: Array, cards: Sequence[int]) -> _Usable:
        """cards: the number of each node's set of cards."""
        states, served = self._states, self._served
        missing = served.missing(cards)
        served.add(missing, [states.cards_of(number).cards for number in missing])
        of_cards, sums, pods = served.of(cards)
        fitting = times(free, self._requests)
        by_one = sums[:, self._number]
        by_filling = np.minimum(fitting, pods[:, self._number]) * self._thousandths
        by_filling = np.minimum(of_cards[:, None], by_filling)
        for column, classes in self._of_gpu.items():
            by_one[:, classes] = WHOLE * free[:, column, None]
            by_filling[:, classes] = fitting[:, classes] * self._thousandths[classes]
        by_one *= fitting > 0
        if self.resources.labels:
            rows = [self._allowed(states.cards_of(number).labels) for number in cards]
            may_run = np.array(rows, dtype=bool).reshape(by_one.shape)
            by_one *= may_run
            by_filling *= may_run
        return _Usable(by_one, by_filling, of_cards)


def _offers(state: NodeState, name: str) -> bool:
    """Whether a node has GPUs of a resource for pods that request no cards."""
    is_of_cards = any(name in each.card.capacity for each in state.cards)
    return state.node.allocatable.get(name, 0) > 0 and not is_of_cards


def weighted(mix: Mix, snapshot: Snapshot) -> Mix:
    """The mix with the weights of its classes in this cluster, see the module docstring.

    Their factors are powers of two, so that what is computed for a mix stays valid in most passes.
    """
    known = snapshot.mix if snapshot.mix.classes == mix.classes else mix  # weights do not count in it
    usable, gpus = of_mix(known).by_filling(snapshot.blocks.values())
    factors = [_power_of_two(gpus // max(each, gpus // SCARCE)) if each else 1 for each in usable]
    weights = [each.count * factor for each, factor in zip(mix.classes, factors, strict=True)]
    return Mix(mix.classes, tuple(weights))


def _power_of_two(number: int) -> int:
    """The largest one that is not larger than a number."""
    return 1 << number.bit_length() - 1


def of_mix(mix: Mix) -> UsableGpus:
    """The usable GPUs for a mix, computed once for it."""
    if "usable" not in mix.notes:
        mix.notes["usable"] = UsableGpus(mix)
    usable: UsableGpus = mix.notes["usable"]
    return usable
