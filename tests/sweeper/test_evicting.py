"""How evictions are carried out: a pass ends between gangs, or where one of them cannot go on in time."""

from typing import Any, cast

import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.pods import job_pod
from webhook.kube.client import Api, ApiError
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.apply.put_off import FIRST_SECONDS, PutOff
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import NO_HURRY, Done, Eviction, Orders
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


class Slow(Api):
    """An API server that takes a second for each eviction."""

    def __init__(self, clock: Clock, *, refuses: bool = False, status: int = 500) -> None:
        self.clock = clock
        self.status = status
        self.refuses = refuses
        self.evicted: list[str] = []

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.clock.now += 1
        self.evicted.append(path.split("/")[6])
        if self.refuses:
            raise ApiError(self.status, "InternalError", "a webhook gave no answer in time")
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
    names = [order.pod.metadata.name for order in done.put_off]
    assert names[-4:] == ["a-2", "b-0", "b-1", "b-2"], "what was not tried stays due"


TRANSIENT = (0, 401, 408, 429, 500, 503)


def deleted(status: int, tries: int = 1) -> list[Done]:
    """What becomes of one deletion that is answered so, tried whenever a pass is due for it."""
    api, pod = Slow(Clock(), refuses=True, status=status), job_pod(0, "a")
    orders = Orders(evictions=(Eviction(pod, "why", "", may_run=True),))
    surroundings = Pass(api, cast(Any, None), Settings(pass_seconds=9, interval_seconds=30), clock=api.clock)
    applier = Applier(surroundings, cast(Any, None))
    done: list[Done] = []
    for _ in range(tries):
        done.append(applier.apply(orders, View([], [pod], {}, {})))
        api.clock.now += done[-1].again_seconds
    applier.close()
    return done


@pytest.mark.parametrize("status", TRANSIENT)
def test_a_deletion_that_meets_a_transient_answer_stays_due_and_makes_a_pass_due_soon(status: int) -> None:
    (done,) = deleted(status)
    assert [order.pod.metadata.name for order in done.put_off] == ["a-0"]
    assert done.again_seconds == FIRST_SECONDS


@pytest.mark.parametrize("status", [403, 422])
def test_a_deletion_that_is_refused_for_good_makes_no_pass_due(status: int) -> None:
    (done,) = deleted(status)
    assert (done.put_off, done.failed, done.again_seconds) == ((), False, NO_HURRY)


def test_a_deletion_that_is_put_off_for_ever_makes_fewer_and_fewer_passes_due() -> None:
    assert [done.again_seconds for done in deleted(429, 8)] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_try_in_a_pass_that_came_for_something_else_makes_the_wait_no_longer() -> None:
    clock = Clock()
    waits = PutOff(30, clock)
    waits.again("pod")
    clock.now = 0.25
    assert waits.again("pod") == 0.75
    clock.now = 1
    assert waits.again("pod") == 2


@pytest.mark.parametrize("way", ["it succeeded", "nobody tried for long"])
def test_what_failed_once_and_is_over_waits_for_as_little_as_at_first(way: str) -> None:
    clock = Clock()
    waits = PutOff(30, clock)
    for clock.now in (0, 1, 3):
        waits.again("pod")
    if way == "it succeeded":
        waits.over("pod")
    else:
        clock.now = 100
        waits.forget_old()
    assert waits.again("pod") == FIRST_SECONDS
