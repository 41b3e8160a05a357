"""How evictions are carried out: a gang is cut off by nothing but the loss of leadership."""

from typing import Any, cast

from tests.sweeper.clock import Clock
from tests.sweeper.pods import job_pod
from webhook.kube.client import Api
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Eviction, Orders
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


class Slow(Api):
    """An API server that takes a second for each eviction."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.evicted: list[str] = []

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.clock.now += 1
        self.evicted.append(body["metadata"]["name"])
        return b"{}"


def test_a_pass_whose_time_is_over_ends_between_gangs_not_inside_one() -> None:
    clock = Clock()
    api = Slow(clock)
    pods = [job_pod(number, job) for job in ("a", "b") for number in range(3)]
    orders = Orders(evictions=tuple(Eviction(pod, "preempted", "", for_others=True) for pod in pods))
    applier = Applier(Pass(api, cast(Any, None), Settings(pass_seconds=2), clock=clock), cast(Any, None))
    done = applier.apply(orders, View([], pods, {}, {}))
    applier.close()
    assert api.evicted == ["a-0", "a-1", "a-2"]
    assert done.failed, "the next pass goes on with what is left"
