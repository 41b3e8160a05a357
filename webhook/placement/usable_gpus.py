"""How many GPUs of a node pods of the mix can use, and how many fewer once a gang is there.

A node's usable GPUs are counted in two ways for each class of the mix, weighted by the class's count:

- by one pod: the free GPUs, or cards, on which a pod of the class can run; 0 if the node lacks anything else
  that the pod requests. The rest is fragmentation as FGD defines it.
- by filling: the GPUs that pods of the class take if they alone fill the node, which depends on the resource
  that runs out first.

A node's value is OF_ONE times the first and once the second. It depends on free amounts alone, and is
computed once for all nodes with the same. A node loses by a gang what it is worth less afterwards; TIGHT
counts against CPU and GPUs that then stay free, so that of nearly equal nodes the fuller one is better.

Source of the first: Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent (USENIX ATC 2023).
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from webhook.placement.free_amounts import CardAmounts, Cards, Labels, MixResources, states_of
from webhook.placement.mix import WHOLE, Mix, names_of
from webhook.placement.model import PodClass, Vector
from webhook.placement.snapshot import NodeState

OF_ONE: Final = 10
"""Found by `hack/bench trace`: with less, whole nodes are opened early; with more, CPU runs out first."""

TIGHT: Final = 20
"""Thousandths of a GPU for a large node that is completely free."""

LARGE_CPU: Final = 128_000
LARGE_GPUS: Final = 8 * WHOLE

UNLIMITED: Final = 1 << 40
"""Pods of a class that requests nothing."""

_BATCH: Final = 256
"""Amounts that are valued at once, which bounds the memory."""

Array = npt.NDArray[np.int64]


class UsableGpus:
    """The usable GPUs of nodes for one mix."""

    def __init__(self, mix: Mix) -> None:
        self.mix = mix
        self.resources = MixResources(*names_of(mix))
        self.weights = np.array([each.count for each in mix.classes], dtype=np.int64)
        self._requests = _table([each.requests for each in mix.classes], self.resources.of_nodes)
        self._thousandths = np.array([each.thousandths for each in mix.classes], dtype=np.int64)
        whole = [each.resource for each in mix.classes]
        self._of_gpu = {
            self.resources.of_nodes.index(name): np.array([n for n, own in enumerate(whole) if own == name])
            for name in sorted({*whole} - {""})
        }
        of_cards = [(each.cards, each.per_card) for each in mix.classes]
        self._asked = list(dict.fromkeys(of_cards))
        """Distinct requests for cards; (0, ()) is the one of classes that request whole GPUs."""
        self._cards = np.array([each.cards for each in mix.classes], dtype=np.int64)
        self._number = np.array([self._asked.index(each) for each in of_cards])
        self._all = 2 * len(self._asked)
        """The column of all free thousandths in a row of _of_cards; after it comes one for each class."""
        self._start()

    def _start(self) -> None:
        """Value all states again, by the numbers of a table that is not full."""
        self._states = states_of(self.resources)
        self._before: dict[int, int] = {}
        self._row_of: dict[int, int] = {}
        of_models = len(self.mix.classes) if self.resources.labels else 0
        self._rows = np.zeros((0, self._all + 1 + of_models), dtype=np.int64)

    def lost(self, nodes: Sequence[NodeState], pod: PodClass, pods: int) -> list[int]:
        """What each node loses by so many pods of a class, see the module docstring."""
        if self._states.is_full:
            self._start()
        states = self._states
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
        tight = TIGHT * OF_ONE * int(self.weights.sum())
        names = self.resources.of_nodes
        for start in range(0, len(cards), _BATCH):
            part = free[start : start + _BATCH]
            rows = self._of_cards(cards[start : start + _BATCH])
            one, filling = self._usable(part, rows)
            values += ((OF_ONE * one + filling) @ self.weights).tolist()
            gpus = self._all_free(part, rows)
            cpu = part[:, names.index("cpu")] if "cpu" in names else 0
            spare += (tight * cpu // LARGE_CPU + tight * gpus // LARGE_GPUS).tolist()
        return values, spare

    def usable(self, nodes: Iterable[NodeState]) -> tuple[Array, Array, Array]:
        """Thousandths of GPUs that each class can use on each node, by one pod and by filling; all free."""
        free, cards = self._states.amounts([self._states.number(each) for each in nodes])
        rows = self._of_cards(cards)
        return *self._usable(free, rows), self._all_free(free, rows)

    def unusable(self, nodes: Sequence[NodeState]) -> tuple[list[str], list[list[int]]]:
        """Resources, and for each node the free thousandths of GPUs that one pod cannot use for lack of each.

        They are the means over the pods of the mix; of several resources the scarcest counts. The last two
        amounts of a node are for lack of GPUs and of cards. Classes that request GPUs, or cards, of another
        kind or model than the node's do not count.
        """
        one, _, every = self.usable(nodes)
        weights = self.weights * self._has_gpus(nodes)
        missing = (every[:, None] - one) * weights // np.maximum(1, weights.sum(axis=1))[:, None]
        names = self.resources.of_nodes
        gpus = {names[column] for column in self._of_gpu} | set(self.resources.of_cards)
        lacking = [name for name in names if name not in gpus]
        cause_of = np.where(self._cards > 0, len(lacking) + 1, len(lacking)) * np.ones_like(one)
        least = np.ones(one.shape)
        for number, name in enumerate(lacking):
            asked = self._requests[:, names.index(name)]
            free = np.array([max(0, each.free.get(name, 0)) for each in nodes])
            part = np.where(asked > 0, free[:, None] / np.maximum(1, asked), 1.0)
            cause_of[part < least] = number
            least = np.minimum(least, part)
        sums = [(missing * (cause_of == number)).sum(axis=1) for number in range(len(lacking) + 2)]
        return lacking, np.stack(sums, axis=1).tolist()

    def _has_gpus(self, nodes: Sequence[NodeState]) -> Array:
        """[node, class]: 1 if the node has GPUs of the resource, or cards, that the class requests."""
        found = np.array([bool(each.cards) for each in nodes])[:, None] * (self._cards > 0)
        for column, classes in self._of_gpu.items():
            name = self.resources.of_nodes[column]
            has = np.array([each.node.allocatable.get(name, 0) > 0 for each in nodes])
            found[:, classes] = has[:, None]
        for number, state in enumerate(nodes) if self.resources.labels else ():
            found[number] *= self._may_run([state.node.labels.get(key, "") for key in self.resources.labels])
        return found.astype(np.int64)

    def _may_run(self, labels: Iterable[str]) -> list[bool]:
        """For each class whether it may run on nodes with these values of the labels of models."""
        there = dict(zip(self.resources.labels, labels, strict=True))
        return [all(there[key] in values for key, values in each.models) for each in self.mix.classes]

    def _all_free(self, free: Array, rows: Array) -> Array:
        """The free thousandths of GPUs of each node."""
        found: Array = WHOLE * free[:, list(self._of_gpu)].sum(axis=1) + rows[:, self._all]
        return found

    def _usable(self, free: Array, rows: Array) -> tuple[Array, Array]:
        """By one pod and by filling. rows: see _of_cards."""
        times = _times(free, self._requests)
        one = rows[:, 2 * self._number]
        pods = np.minimum(times, rows[:, 2 * self._number + 1])
        filling = np.minimum(rows[:, self._all, None], pods * self._thousandths)
        for column, classes in self._of_gpu.items():
            one[:, classes] = WHOLE * free[:, column, None]
            filling[:, classes] = times[:, classes] * self._thousandths[classes]
        one *= times > 0
        if self.resources.labels:
            one *= rows[:, self._all + 1 :]
            filling *= rows[:, self._all + 1 :]
        return one, filling

    def _of_cards(self, numbers: Sequence[int]) -> Array:
        """For each set of cards, by number, a row: for each distinct request the free thousandths of cards
        that serve it and the pods that do; all free thousandths; for each class whether it may run there.
        """
        row_of = self._row_of
        missing = list(dict.fromkeys(number for number in numbers if number not in row_of))
        for start in range(0, len(missing), _BATCH):
            part = missing[start : start + _BATCH]
            row_of.update(zip(part, range(len(self._rows), len(self._rows) + len(part)), strict=True))
            self._rows = np.concatenate([self._rows, self._new_rows([*map(self._states.cards_of, part)])])
        rows: Array = self._rows[[row_of[number] for number in numbers]]
        return rows

    def _new_rows(self, sets: Sequence[tuple[Labels, Cards]]) -> Array:
        free, there = _cards([cards for _, cards in sets], len(self.resources.of_cards))
        rows = np.zeros((len(sets), self._rows.shape[1]), dtype=np.int64)
        rows[:, self._all] = there.sum(axis=1)
        if self.resources.labels:
            rows[:, self._all + 1 :] = [self._may_run(labels) for labels, _ in sets]
        for number, (count, per_card) in enumerate(self._asked):
            if count:
                request = _table([per_card], self.resources.of_cards)
                of_card = _times(free.reshape(-1, free.shape[2]), request).reshape(there.shape)
                is_serving = of_card > 0
                sums = (there * is_serving).sum(axis=1)
                rows[:, 2 * number] = np.where(is_serving.sum(axis=1) >= count, sums, 0)
                rows[:, 2 * number + 1] = _pods(of_card, count)
        return rows


def _pods(of_card: Array, count: int) -> Array:
    """The pods that cards serve, each on `count` distinct ones. of_card: how many each card serves."""
    pods: Array = of_card.sum(axis=1) // count
    while count > 1:
        fewer: Array = np.minimum(of_card, pods[:, None]).sum(axis=1) // count
        if (fewer == pods).all():
            break
        pods = fewer
    return pods


def _cards(sets: Sequence[Sequence[CardAmounts]], resources: int) -> tuple[Array, Array]:
    """The free amounts of each card of each set, and its free thousandths, by the scarcest resource."""
    width = max((len(each) for each in sets), default=0)
    nothing = (0,) * resources
    none = CardAmounts(nothing, nothing)
    cards = [card for each in sets for card in (*each, *[none] * (width - len(each)))]
    shape = (len(sets), width, resources)
    free = np.array([card.free for card in cards], dtype=np.int64).reshape(shape)
    most = np.array([card.most for card in cards], dtype=np.int64).reshape(shape)
    shares = np.where(most > 0, WHOLE * free // np.maximum(1, most), WHOLE)
    return free, shares.min(axis=2, initial=WHOLE) * (most > 0).any(axis=2)


def of_mix(mix: Mix) -> UsableGpus:
    """The usable GPUs for a mix, computed once for it."""
    if "usable" not in mix.notes:
        mix.notes["usable"] = UsableGpus(mix)
    usable: UsableGpus = mix.notes["usable"]
    return usable


def _table(vectors: Sequence[Vector], names: Sequence[str]) -> Array:
    """A row for each vector, 0 where it lacks a name."""
    rows = [[dict(vector).get(name, 0) for name in names] for vector in vectors]
    return np.array(rows, dtype=np.int64).reshape(len(vectors), len(names))


def _times(free: Array, requests: Array) -> Array:
    """[row of free amounts, row of requests]: how many times the requests fit, exact below 2**53."""
    found = np.full((len(free), len(requests)), float(UNLIMITED))
    for column in range(requests.shape[1]):
        asked = requests[:, column]
        some = np.flatnonzero(asked)
        if len(some) == len(asked):
            np.minimum(found, free[:, column, None] / asked, out=found)
        elif len(some):
            found[:, some] = np.minimum(found[:, some], free[:, column, None] / asked[some])
    return found.astype(np.int64)
