"""Days of a simulated cluster: weights are met, nothing stands idle, nobody starves."""

import itertools
from math import isclose
from random import Random

import pytest

from tests.extensions.fair_order.simulation import DAY, HOUR, MODEL, Cluster, Gang, backlog
from webhook.extensions.fair_order.account_use import Book, Use, window
from webhook.policy.fair import FairOrder

GPUS = 256
WEIGHTS = FairOrder(weights={"a": 1.0, "b": 3.0})

_FULL = GPUS * window(WEIGHTS.half_life_seconds)
HISTORIES: dict[str, Use] = {
    "nobody used anything": {},
    "a had it all": {"a": {MODEL: _FULL}},
    "b had it all": {"b": {MODEL: _FULL}},
    "each had half": {"a": {MODEL: _FULL / 2}, "b": {MODEL: _FULL / 2}},
    "another had it all, and is gone": {"z": {MODEL: _FULL}},
}


@pytest.mark.promise("O73")
@pytest.mark.parametrize(
    ("history", "seed"), [*zip(HISTORIES, range(10), strict=False), ("a had it all", 11)]
)
def test_two_accounts_of_weights_1_and_3_come_within_5_percent_of_that_in_a_day(
    history: str, seed: int
) -> None:
    cluster = Cluster(GPUS, WEIGHTS, Book({name: dict(use) for name, use in HISTORIES[history].items()}))
    cluster.run(DAY, backlog(Random(seed), {"a": 12, "b": 12}))
    use = {account: cluster.book.use[account][MODEL] for account in "ab"}
    assert isclose(use["a"] / sum(use.values()), 0.25, rel_tol=0.05)
    assert isclose(use["b"] / sum(use.values()), 0.75, rel_tol=0.05)


@pytest.mark.promise("O60")
def test_what_one_account_has_no_gangs_for_the_other_uses() -> None:
    cluster = Cluster(GPUS, WEIGHTS)
    cluster.run(DAY / 2, backlog(Random(1), {"a": 15}))
    assert cluster.idle < 0.06 * GPUS * DAY / 2
    before = dict(cluster.used)
    cluster.run(DAY, backlog(Random(2), {"a": 15, "b": 15}))
    assert cluster.share("b", before) > 0.75, "and who came later catches up"


def test_who_asks_for_less_than_its_share_has_all_of_it_at_once() -> None:
    names = itertools.count()

    def arrive(cluster: Cluster) -> list[Gang]:
        made = backlog_of_a(cluster)
        if not any(gang.account == "b" for gang in cluster.waiting):
            made.append(Gang(f"b-{next(names)}", "b", 8, HOUR / 2, cluster.now))
        return made

    backlog_of_a = backlog(Random(3), {"a": 15}, longest=HOUR)
    cluster = Cluster(64, FairOrder())
    cluster.run(DAY / 4, arrive)
    waits = [cluster.started[f"b-{number}"] for number in range(next(names) - 1)]
    assert len(waits) > 10
    assert cluster.share("b") > 0.1


@pytest.mark.promise("O74")
def test_a_gang_runs_within_the_longest_wait_though_new_accounts_come_without_end() -> None:
    fair = FairOrder(maximum_wait_seconds=4 * HOUR)
    names, random = itertools.count(), Random(5)
    old = Gang("old", "a", 64, HOUR, 0.0)

    def arrive(cluster: Cluster) -> list[Gang]:
        """Whatever becomes free, a new user requests it who has never used anything."""
        made = [] if cluster.now else [old]
        newcomers = [f"n{number}" for number in itertools.islice(names, 9 - len(cluster.waiting))]
        return made + [Gang(each, each, 16, random.uniform(60, HOUR), cluster.now) for each in newcomers]

    cluster = Cluster(128, fair, Book({"a": {MODEL: 1e9}}))
    cluster.run(7 * HOUR, arrive)
    # Its turn comes then; it runs once those that run before it have ended, in an hour at most.
    assert 4 * HOUR <= cluster.started["old"] <= 5 * HOUR


@pytest.mark.promise("O74")
def test_a_flood_of_old_gangs_gets_no_more_than_its_share_by_their_age() -> None:
    fair = FairOrder(maximum_wait_seconds=HOUR)
    random = Random(4)
    flood = [Gang(f"a-{number}", "a", 8, random.uniform(60, HOUR), 0.0) for number in range(150)]

    def arrive(cluster: Cluster) -> list[Gang]:
        return ([] if cluster.now else flood) + others(cluster)

    others = backlog(random, {"b": 10}, longest=HOUR)
    cluster = Cluster(64, fair)
    cluster.run(DAY / 2, arrive)
    assert any(gang.account == "a" for gang in cluster.waiting), "it had enough all the time"
    assert isclose(cluster.share("b"), 0.5, rel_tol=0.1)
