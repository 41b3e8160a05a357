"""How evictions are carried out: a pass ends between gangs, or where one of them cannot go on in time."""

from typing import Any, cast

import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.pods import job_pod
from webhook.kube.client import Api, ApiError
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Done, Eviction, Orders
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


class Slow(Api):
    """An API server that takes a second for each eviction."""

    def __init__(self, clock: Clock, *, refuses: bool = False) -> None:
        self.clock = clock
        self.refuses = refuses
        self.evicted: list[str] = []

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.clock.now += 1
        self.evicted.append(path.split("/")[6])
        if self.refuses:
            raise ApiError(500, "InternalError", "a webhook gave no answer in time")
        return b"{}"


def apply(api: Slow, *, for_others: bool = True) -> Done:
    """Evict two gangs of three pods, in a pass of two seconds."""
    pods = [job_pod(number, job) for job in ("a", "b") for number in range(3)]
    orders = Orders(evictions=tuple(Eviction(pod, "why", "", True, for_others) for pod in pods))
    surroundings = Pass(api, cast(Any, None), Settings(pass_seconds=2), clock=api.clock)
    applier = Applier(surroundings, cast(Any, None))
    done = applier.apply(orders, View([], pods, {}, {}))
    applier.close()
    return done


def test_a_pass_whose_time_is_over_ends_between_gangs_not_inside_one() -> None:
    api = Slow(Clock())
    done = apply(api)
    assert api.evicted == ["a-0", "a-1", "a-2"]
    assert done.failed, "the next pass goes on with what is left"


@pytest.mark.parametrize("for_others", [True, False], ids=["evicted", "deleted"])
def test_a_pass_whose_time_is_over_ends_with_the_first_that_is_refused(for_others: bool) -> None:
    api = Slow(Clock(), refuses=True)
    done = apply(api, for_others=for_others)
    assert api.evicted == ["a-0", "a-1"]
    assert done.failed
