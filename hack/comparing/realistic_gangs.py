"""Clusters and gangs as users have them, drawn by a seed: what topogate and first-fit are both asked.

Clusters have 64 to 20,000 nodes in blocks of subblocks, in pools of different machines, empty, fragmented or
nearly full. Gangs have 2 to 2,000 pods in one to eight classes: training with launchers, rollouts,
parameter servers, prefill and decode, workers in slices, pods on GPU cards. Some are restricted to a GPU
model, tolerate taints, have placed pods, or ask for one domain of a level.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from labeler.contract import keys
from webhook.placement import (
    Anchor,
    Card,
    CardRequest,
    Gang,
    Member,
    NodeInfo,
    PodClass,
    Rules,
    Slice,
    Snapshot,
    Taint,
    Toleration,
    Usage,
    vector,
)

GPU: Final = "nvidia.com/gpu"
MODEL: Final = "nvidia.com/gpu.product"
MILLICORES: Final = "gpu.intel.com/millicores"
SHARES: Final = "gpu.intel.com/i915"
GIB: Final = 2**30
_DEDICATED: Final = Taint("dedicated", "inference", "NoSchedule")


@dataclass(frozen=True, slots=True)
class DrawnQuestion:
    """One drawn question. what: the kind of cluster and gang, in words."""

    what: str
    gang: Gang
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class _Machine:
    """A kind of node. amounts: what it has; cards: how many GPU cards are distinguished on it."""

    amounts: dict[str, int]
    model: str = ""
    taints: tuple[Taint, ...] = ()
    cards: int = 0


_H100: Final = _Machine({"cpu": 192_000, "memory": 2048 * GIB, "pods": 110, GPU: 8}, "H100")
_A100: Final = _Machine({"cpu": 96_000, "memory": 1024 * GIB, "pods": 110, GPU: 8}, "A100")
_L40: Final = _Machine({"cpu": 64_000, "memory": 512 * GIB, "pods": 110, GPU: 4}, "L40", (_DEDICATED,))
_CPU: Final = _Machine({"cpu": 128_000, "memory": 512 * GIB, "pods": 110})
_CARDS: Final = 8
_MAX1550: Final = _Machine(
    {"cpu": 112_000, "memory": 1024 * GIB, "pods": 110, SHARES: 10 * _CARDS, MILLICORES: 1000 * _CARDS},
    "Max 1550",
    cards=_CARDS,
)
_POOLS: Final = (
    (_H100,),
    (_H100,),
    (_A100,),
    (_H100, _A100),
    (_H100, _A100, _L40),
    (_H100, _CPU),
    (_A100, _CPU),
)
_FULLNESS: Final = ("empty", "fragmented", "fragmented", "nearly full")


def drawn(seed: int, most_nodes: int = 20_000) -> DrawnQuestion:
    """The question of a seed, on a cluster of at most so many nodes."""
    dice = random.Random(f"realistic/{seed}")
    carded = dice.random() < 0.1
    count = round(64 * (min(most_nodes, 1000 if carded else 20_000) / 64) ** dice.random())
    pools = (_MAX1550,) if carded else dice.choice(_POOLS)
    fullness = dice.choice(_FULLNESS)
    made, usage = _cluster(dice, count, pools, fullness)
    gang, kind = _gang(dice, made, usage, carded)
    if dice.random() < 0.15 and not carded:
        gang, more = _with_anchors(dice, gang, made, usage)
        usage = {name: (*usage.get(name, ()), *more.get(name, ())) for name in usage.keys() | more.keys()}
    if dice.random() < 0.1:
        excluded = dice.sample([node.name for node in made], len(made) // 20)
        gang = replace(gang, excluded_nodes=frozenset(excluded))
    what = f"{kind} on {len(made)} nodes, {fullness}"
    return DrawnQuestion(what, gang, Snapshot.of(made, usage))


_Usages = dict[str, tuple[Usage, ...]]
"""By node what others use."""


def _cluster(
    dice: random.Random, count: int, pools: Sequence[_Machine], fullness: str
) -> tuple[list[NodeInfo], _Usages]:
    """Nodes in blocks of 2 to 16 subblocks of 4 to 32; a subblock has machines of one pool."""
    per_block, per_subblock = dice.choice((2, 4, 8, 16)), dice.choice((4, 8, 16, 32))
    ragged, unlabelled = dice.random() < 0.5, dice.random() < 0.15
    made: list[NodeInfo] = []
    usage: _Usages = {}
    subblock = 0
    while len(made) < count:
        machine = dice.choice(pools)
        busy = dice.random() < 0.4
        for _ in range(dice.randint(2, per_subblock) if ragged else per_subblock):
            name = f"n{len(made)}"
            place = (f"b{subblock // per_block}", f"s{subblock}", f"h{len(made)}")
            labels = dict(zip(keys.GCE_TOPOLOGY, place, strict=True))
            if unlabelled and dice.random() < 0.05:
                labels = {}
            made.append(_node(name, labels, machine))
            if (share := _used_share(dice, fullness, busy)) > 0:
                usage[name] = (_used(dice, machine, share),)
        subblock += 1
    return made, usage


def _node(name: str, labels: dict[str, str], machine: _Machine) -> NodeInfo:
    labels = labels | ({MODEL: machine.model} if machine.model else {})
    per_card = {SHARES: 10, MILLICORES: 1000}
    cards = tuple(Card(f"card{n}", per_card, numa=n * 2 // machine.cards) for n in range(machine.cards))
    return NodeInfo(name, labels, machine.taints, allocatable=machine.amounts, cards=cards)


def _used_share(dice: random.Random, fullness: str, busy: bool) -> float:
    """The share of a node that other pods use."""
    if fullness == "empty":
        return 0.0
    if fullness == "nearly full":
        return dice.choice((1.0, 1.0, 1.0, 0.875, 0.75, 0.5))
    return dice.randint(0, 8) / 8 if busy or dice.random() < 0.1 else 0.0


def _used(dice: random.Random, machine: _Machine, share: float) -> Usage:
    """What others use of a node: its GPUs by that share, CPU and memory by less, so that GPUs run out."""
    taken = {"pods": 1}
    taken |= {
        each: int(machine.amounts[each] * share * dice.uniform(0.3, 0.95)) for each in ("cpu", "memory")
    }
    taken |= {GPU: round(machine.amounts[GPU] * share)} if GPU in machine.amounts else {}
    cards = {
        f"card{number}": {SHARES: 1, MILLICORES: 100 * dice.randint(1, 10)}
        for number in range(machine.cards)
        if dice.random() < share
    }
    for resource in (SHARES, MILLICORES) if machine.cards else ():
        taken[resource] = sum(each[resource] for each in cards.values())
    return Usage(taken, cards, name="other")


def _gang(dice: random.Random, made: Sequence[NodeInfo], usage: _Usages, carded: bool) -> tuple[Gang, str]:
    """A gang for a share of the GPUs that are free, of a domain where it must be in one."""
    kind = "cards" if carded else dice.choice([*_SHAPES])
    classes = _carded(dice) if carded else _SHAPES[kind](dice)
    level = dice.choice((None, None, None, None, "block", "block", "subblock"))
    if kind == "slices":
        level = dice.choice((None, None, "block"))
    scarce = MILLICORES if carded else GPU
    each = sum(weight * dict(pod.requests).get(scarce, 0) for pod, weight in classes) or 1
    share = 10 ** (dice.uniform(-3, -0.1) if level is None else dice.uniform(-1.5, -0.1))
    most = int(2000 / (sum(weight for _, weight in classes) or 1))
    times = max(1, min(round(_free(made, usage, scarce, level) * share / each), most))
    counted = [(pod, max(1, round(weight * times))) for pod, weight in classes]
    if dice.random() < 0.2:
        counted = _with_rules(dice, counted, made)
    members = [pod for pod, count in counted for _ in range(count)]
    gang = Gang("g", tuple(Member(f"p{rank:04}", rank, pod) for rank, pod in enumerate(members)))
    if kind == "slices":
        return _in_slices(dice, counted, level), kind
    choices: list[tuple[str, ...]] = [(), (), (), ("block",), ("subblock",)]
    preferred = dice.choice(choices) if level is None else ()
    return replace(gang, required_level=level, preferred_levels=preferred), kind


def _free(made: Sequence[NodeInfo], usage: _Usages, resource: str, level: str | None) -> int:
    """What is free of a resource in the domain of a level that has most of it, or in the cluster."""
    free: Counter[str] = Counter()
    label = "" if level is None else keys.GCE_TOPOLOGY[keys.LEVEL_NAMES.index(level)]
    for node in made:
        domain = node.labels.get(label, "")
        taken = sum(use.requests.get(resource, 0) for use in usage.get(node.name, ()))
        free[domain] += node.allocatable.get(resource, 0) - taken
    return max(free.values())


_Classes = list[tuple[PodClass, float]]
"""Classes of pods, and how many there are of each beside the others."""


def _pod(
    dice: random.Random, gpus: int, cpu: tuple[int, int] = (2, 10), memory: tuple[int, int] = (16, 96)
) -> PodClass:
    """A pod of so many GPUs, with CPUs and GiB for each of them (as for one GPU if it has none)."""
    per = max(1, gpus)
    amounts = {"cpu": 1000 * per * dice.randint(*cpu), "memory": GIB * per * dice.randint(*memory), "pods": 1}
    return PodClass(vector(amounts | ({GPU: gpus} if gpus else {})))


def _workers(dice: random.Random) -> _Classes:
    return [(_pod(dice, dice.choice((1, 2, 4, 8, 8))), 1)]


def _training(dice: random.Random) -> _Classes:
    """Workers beside one launcher without GPUs."""
    return [(_pod(dice, dice.choice((2, 4, 8, 8))), 1), (_pod(dice, 0), 0)]


def _two_roles(dice: random.Random) -> _Classes:
    """Rollouts of few GPUs beside a training of many, or prefill beside decode."""
    small, large = dice.choice(((1, 4), (1, 8), (2, 8), (2, 4), (4, 8)))
    return [(_pod(dice, small), dice.choice((1, 2, 4))), (_pod(dice, large), 1)]


def _parameter_servers(dice: random.Random) -> _Classes:
    """Workers beside servers that need CPUs and memory, and often an evaluator."""
    servers = (_pod(dice, 0, (8, 48), (64, 256)), dice.choice((0.25, 0.5, 1)))
    evaluator = [(_pod(dice, 1), 0.0)] if dice.random() < 0.5 else []
    return [(_pod(dice, dice.choice((1, 2, 4, 8))), 1), servers, *evaluator]


def _many_roles(dice: random.Random) -> _Classes:
    """Three to eight classes of pods, some of them of one pod."""
    sizes, weights = (0, 0, 1, 1, 2, 3, 4, 8), (0, 0.5, 1, 1, 2)
    return [(_pod(dice, dice.choice(sizes)), dice.choice(weights)) for _ in range(dice.randint(3, 8))]


def _sliced(dice: random.Random) -> _Classes:
    """Workers in slices, in half of the cases beside a leader."""
    leader = [(_pod(dice, dice.choice((0, 1))), 0.0)] if dice.random() < 0.5 else []
    return [(_pod(dice, dice.choice((1, 2, 4, 8))), 1), *leader]


def _carded(dice: random.Random) -> _Classes:
    """Pods on shares of a card or on several cards, some on cards of one NUMA node."""
    classes: _Classes = []
    for _ in range(dice.choice((1, 1, 2, 3))):
        several = dice.random() < 0.5
        requests = [
            CardRequest(dice.randint(1, 3) if several else 1, vector({SHARES: 1, MILLICORES: amount}))
            for amount in dice.sample((100, 200, 300, 500, 1000), dice.choice((1, 1, 2)))
        ]
        totals = {SHARES: sum(request.count for request in requests)}
        totals[MILLICORES] = sum(request.count * dict(request.per_card)[MILLICORES] for request in requests)
        amounts = {"cpu": 1000 * dice.randint(1, 16), "memory": GIB * dice.randint(8, 64), "pods": 1} | totals
        single = several and dice.random() < 0.5
        classes.append(
            (PodClass(vector(amounts), cards=tuple(requests), single_numa=single), dice.choice((1, 2)))
        )
    return classes


_SHAPES: Final[dict[str, Callable[[random.Random], _Classes]]] = {
    "workers": _workers,
    "training with a launcher": _training,
    "two roles": _two_roles,
    "parameter servers": _parameter_servers,
    "many roles": _many_roles,
    "slices": _sliced,
}


def _with_rules(
    dice: random.Random, classes: list[tuple[PodClass, int]], made: Sequence[NodeInfo]
) -> list[tuple[PodClass, int]]:
    """One class, or all, on one GPU model, with the toleration that this takes."""
    model = dice.choice(sorted({node.labels[MODEL] for node in made if MODEL in node.labels}) or ["H100"])
    rules = Rules(selector=((MODEL, model),), tolerations=(Toleration("dedicated", "Exists"),))
    chosen = {dice.randrange(len(classes))} if dice.random() < 0.5 else set(range(len(classes)))
    return [
        (replace(pod, rules=rules) if number in chosen else pod, count)
        for number, (pod, count) in enumerate(classes)
    ]


def _in_slices(dice: random.Random, classes: Sequence[tuple[PodClass, int]], level: str | None) -> Gang:
    """The workers in whole slices, of one level or of two."""
    (worker, count), *others = classes
    choices: list[tuple[Slice, ...]] = [(Slice("subblock", size),) for size in (2, 4, 8)]
    choices.append((Slice("block", 16), Slice("subblock", 4)))
    choices += [(Slice("host", 2),)] if dict(worker.requests)[GPU] <= 4 else []
    slices = dice.choice(choices)
    largest = max(each.size for each in slices)
    count = max(1, count // largest) * largest
    members = [Member(f"w{rank:04}", rank, worker) for rank in range(count)]
    members += [Member("leader", count, pod) for pod, _ in others]
    return Gang("g", tuple(members), slices=slices, required_level=level)


def _with_anchors(
    dice: random.Random, gang: Gang, made: Sequence[NodeInfo], usage: _Usages
) -> tuple[Gang, _Usages]:
    """Pods of the gang that are placed already, side by side, and what they take of their nodes."""
    pod = gang.members[0].pod_class
    first = dice.randrange(len(made))
    subblock = made[first].labels.get(keys.GCE_TOPOLOGY[1], "")
    anchors: list[Anchor] = []
    more: _Usages = {}
    for node in made[first : first + dice.choice((1, 4))]:
        if node.labels.get(keys.GCE_TOPOLOGY[1]) != subblock:
            continue
        free = dict(node.allocatable)
        for use in usage.get(node.name, ()):
            free = {resource: amount - use.requests.get(resource, 0) for resource, amount in free.items()}
        if all(free.get(resource, 0) >= amount for resource, amount in pod.requests):
            rank = None if gang.slices else len(gang.members) + len(anchors)  # a rank would begin a slice
            anchors.append(Anchor(node.name, rank))
            more[node.name] = (Usage(dict(pod.requests), name=f"placed-{node.name}", gang="g"),)
    return replace(gang, anchors=tuple(anchors)), more
