"""Unlike pods that are hard to pack into nodes, and OR-Tools' CP-SAT as the rival that packs them."""

import importlib
import random
from dataclasses import dataclass
from typing import Any

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


@dataclass(frozen=True)
class Packing:
    """sizes: what a pod of each kind asks for; counts: pods of each kind; free: what each node has."""

    sizes: list[list[int]]
    counts: list[int]
    free: list[list[int]]


def planted(nodes: int, kinds: int, slack: int, seed: int) -> Packing:
    """Nodes that pods fill but for at most so much of cpu and memory each; -1: one cpu too few in all."""
    dice = random.Random(f"{nodes}/{kinds}/{slack}/{seed}")
    sizes = [[dice.randint(1, 16), dice.randint(1, 32), dice.choice((0, 0, 1, 2, 3))] for _ in range(kinds)]
    counts, free = [0] * kinds, []
    for _ in range(nodes):
        held = [0, 0, 0]
        for _ in range(dice.randint(4, 7)):
            kind = dice.randrange(kinds)
            counts[kind] += 1
            held = [amount + more for amount, more in zip(held, sizes[kind], strict=True)]
        spare = [dice.randint(0, max(0, slack)), dice.randint(0, max(0, slack)), 0]
        free.append([amount + more for amount, more in zip(held, spare, strict=True)])
    if slack < 0:
        free[0][0] -= 1
    used = [kind for kind, count in enumerate(counts) if count]
    return Packing([sizes[kind] for kind in used], [counts[kind] for kind in used], free)


def loose(nodes: int, kinds: int, each: int, seed: int) -> Packing:
    """So many kinds of so many pods each, on nodes of several sizes."""
    dice = random.Random(f"{nodes}/{kinds}/{each}/{seed}")
    sizes = [
        [dice.randint(1, 16), dice.randint(1, 32), dice.choice((0, 1, 1, 2, 4, 8))] for _ in range(kinds)
    ]
    free = [
        [dice.choice((16, 32, 64)), dice.choice((64, 128)), dice.choice((0, 1, 2, 4, 8))]
        for _ in range(nodes)
    ]
    return Packing(sizes, [each] * kinds, free)


def cp_sat(packing: Packing, steps: float) -> bool | None:
    """Whether all pods fit, by CP-SAT with one worker in so many deterministic seconds; None: not decided.

    One integer for each kind and node, one row for each node and resource.
    """
    cp_model: Any = importlib.import_module("ortools.sat.python.cp_model")
    model = cp_model.CpModel()
    of_kind: list[list[Any]] = [[] for _ in packing.sizes]
    for free in packing.free:
        here = []
        for kind, size in enumerate(packing.sizes):
            room = min(have // need for have, need in zip(free, size, strict=True) if need)
            pods = model.new_int_var(0, min(room, packing.counts[kind]), "")
            here.append(pods)
            of_kind[kind].append(pods)
        for number, have in enumerate(free):
            model.add(
                sum(size[number] * pods for size, pods in zip(packing.sizes, here, strict=True)) <= have
            )
    for pods, count in zip(of_kind, packing.counts, strict=True):
        model.add(sum(pods) == count)
    return solved(model, steps)


def solved(model: Any, steps: float) -> bool | None:
    """Whether a model has a solution, by one worker in so many deterministic seconds; None: not decided."""
    cp_model: Any = importlib.import_module("ortools.sat.python.cp_model")
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = steps
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return True
    return False if status == cp_model.INFEASIBLE else None
