"""Prices beside anchors leave out no solution with the fewest domains, by trying every choice."""

import random
from collections import Counter
from itertools import product

import numpy as np
import pytest

from tests.placement.small import seeds
from webhook.placement.budget import Budget
from webhook.placement.homogeneous.candidate_children import fewest_parts, heads_beside, priced


@pytest.mark.parametrize("seed", seeds(40))
def test_beside_anchors_no_amount_of_a_solution_with_the_fewest_domains_is_left_out(seed: int) -> None:
    dice = random.Random(seed)
    slot_counts = [[dice.randint(1, 6) for _ in range(dice.randint(1, 3))] for _ in range(dice.randint(2, 4))]
    anchored = {number for number in range(len(slot_counts)) if dice.random() < 0.5}
    free = [
        dice.sample(of, dice.randint(0, len(of))) if n in anchored else [] for n, of in enumerate(slot_counts)
    ]
    others = [
        list((Counter(of) - Counter(given)).elements()) for of, given in zip(slot_counts, free, strict=True)
    ]
    heads = {n: heads_beside(*parts) for n, parts in enumerate(zip(free, others, strict=True))}
    wanted = dice.randint(1, sum(map(sum, slot_counts)))
    counts = [
        [(taken, amount) for taken, top in enumerate(head) for amount in range(top + 1)]
        for head in heads.values()
    ]
    solutions = [each for each in product(*counts) if sum(amount for _, amount in each) >= wanted]
    used = [sum(taken > 0 for n, (taken, _) in enumerate(each) if n not in anchored) for each in solutions]
    fewest = min(used)
    best = [each for each, number in zip(solutions, used, strict=True) if number == fewest]
    least = min(sum(taken for taken, _ in each) for each in best)
    most = least + dice.choice((0, 0, 1, 3))
    largest = sorted((n for n in heads if n not in anchored), key=lambda n: -heads[n][-1])[:fewest]
    missing = wanted - sum(head[0] for head in heads.values())
    needed = fewest_parts([np.diff(heads[n]) for n in (*anchored, *largest)], missing)
    assert needed is not None
    assert needed >= least
    enough = missing if dice.random() < 0.7 else None
    of_parts = dict(enumerate(others))
    amounts, found = priced(heads, of_parts, anchored, wanted, fewest, most, enough, Budget(10**6))
    assert least <= found <= most
    most = found
    for each in best:
        if sum(taken for taken, _ in each) > most:
            continue
        for number, (taken, amount) in enumerate(each):
            if number in anchored or taken:
                assert amount >= amounts[number]
