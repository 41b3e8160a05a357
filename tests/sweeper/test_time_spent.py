"""A step whose evictions take all the time for nothing leaves those of other steps theirs."""

from itertools import chain
from typing import Any, cast

import pytest

from tests.sweeper.applies import Applies
from tests.sweeper.clock import Clock
from tests.sweeper.pods import job_pod
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Eviction, Orders
from webhook.sweeper.observe.view import View

MANY = 20


class Hanging(Api):
    """An API server that answers nothing for pods of some steps, and takes a second for that."""

    def __init__(self, clock: Clock, steps: str) -> None:
        self._clock = clock
        self._steps = steps

    def request(self, method: str, path: str, **_: Any) -> bytes:
        if path.split("/")[6][0] in self._steps:
            self._clock.now += 1
            raise ApiError(0, "Unreachable", "no answer in time")
        return b"{}"


def evicted(steps: str, hanging: str) -> set[str]:
    """Of which steps pods are evicted; each has pods of its own, in a pass each second."""
    clock = Clock()
    pods = {step: [job_pod(0, f"{step}{number}") for number in range(MANY)] for step in steps}
    applier = Applies(Pass(Hanging(clock, hanging), cast(Any, None), Settings(pass_seconds=2), clock=clock))
    found: set[str] = set()
    for _ in range(120):
        orders = Orders(evictions=tuple(Eviction(pod, step, "") for step in steps for pod in pods[step]))
        done = applier.apply(orders, View([], list(chain(*pods.values())), {}, {}))
        found |= {order.cause for order in done.evicted}
        clock.now += 1
    applier.close()
    return found


@pytest.mark.parametrize("steps", ["ab", "ba", "abc", "acb", "cab"])
@pytest.mark.parametrize("hanging", ["a", "b", "ab"])
def test_a_step_of_which_nothing_can_be_evicted_starves_no_other(steps: str, hanging: str) -> None:
    assert evicted(steps, hanging) == set(steps) - set(hanging)


def test_a_step_waits_for_no_other_that_has_nothing_to_evict_any_more() -> None:
    clock = Clock()
    api = Hanging(clock, "a")
    applier = Applies(Pass(api, cast(Any, None), Settings(pass_seconds=2), clock=clock))
    ours, others = ([job_pod(0, f"{step}{number}") for number in range(MANY)] for step in "ab")

    def one_pass(pods: list[Any]) -> float:
        orders = Orders(evictions=tuple(Eviction(pod, "why", "") for pod in pods))
        return applier.apply(orders, View([], pods, {}, {})).again_seconds

    one_pass(ours)
    assert one_pass(others) == 1, "the time went by"
    clock.now += 1
    before = clock.now
    one_pass(ours)
    applier.close()
    assert clock.now == before + 2, "they have not come"
