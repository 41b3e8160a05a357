"""Namespaces share the time of a pass: writes that hang or are refused in one of them delay no other."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from tests.extensions.made import extension
from tests.sweeper.applies import Applies
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.pods import job_pod
from tests.sweeper.reports import Answers, Copy, Reports
from webhook.configuration.settings import Settings
from webhook.grouping import round_robin
from webhook.kube.client import ApiError
from webhook.kube.placements import Placement
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide.orders import Cause, GangOutcome, ModelLabelOrder, Orders
from webhook.sweeper.decide.retries import RetryTable
from webhook.sweeper.extension import ObjectWrite
from webhook.sweeper.extension_objects import ExtensionObjects
from webhook.sweeper.observe.gangs import OwnerFacts, gather
from webhook.sweeper.observe.view import View
from webhook.sweeper.observe.watches import Verb, WatchedCollection

SICK, WELL = "a-sick", "well"
COUNT = 40
"""Objects of each namespace."""
HANGS_SECONDS = 10.0
"""As long as a pass may last: one write that hangs takes all of it."""


class Hanging(Answers):
    """An API server whose writes in one namespace end with an error after some seconds."""

    def __init__(self, clock: Clock, seconds: float, error: ApiError) -> None:
        super().__init__()
        self.clock, self.seconds, self.error = clock, seconds, error

    def request(self, method: str, path: str, **more: Any) -> bytes:
        answer = super().request(method, path, **more)
        if f"/namespaces/{SICK}/" in path:
            self.clock.now += self.seconds
            raise self.error
        return answer

    def written(self, namespace: str) -> set[str]:
        """The writes in a namespace, each once: the address, and the gang of a new Placement."""
        sent = zip(self.writes, self.bodies, strict=True)
        return {
            f"{write} {body['spec']['gang'] if isinstance(body, dict) and 'spec' in body else ''}"
            for write, body in sent
            if f"/namespaces/{namespace}/" in write
        }


Passes = Callable[[Hanging, ExitStack], Callable[[], object]]
"""Returns a function that makes one pass, of COUNT writes in either namespace, the sick one's first.

Its threads end with the stack.
"""


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def surroundings(api: Hanging, **more: Any) -> Pass:
    cache: Any = Copy()
    for name, value in more.items():
        setattr(cache, name, value)
    return Pass(api, cache, Settings(), clock=api.clock)


def statuses(api: Hanging, ends: ExitStack) -> Callable[[], object]:
    pods = [job_pod(0, f"job{number}", name) for name in (SICK, WELL) for number in range(COUNT)]
    gangs, reports = gather(pods, [], lambda _: OwnerFacts(1)), Reports(surroundings(api))
    why = Cause.INSUFFICIENT_CAPACITY
    reports.on_result(Orders(outcomes=tuple(GangOutcome(gang, "no capacity", why) for gang in gangs)))
    return lambda: reports.report(View([], [], {}, {}), gangs)


def labels(api: Hanging, ends: ExitStack) -> Callable[[], object]:
    pods = [job_pod(number, namespace=name) for name in (SICK, WELL) for number in range(COUNT)]
    orders = Orders(model_label_orders=tuple(ModelLabelOrder(pod, {"model": "H100"}) for pod in pods))
    applies = Applies(surroundings(api))
    ends.callback(applies.close)
    return lambda: applies.apply(orders, View(pods, [], {}, {}))


def plans(api: Hanging, ends: ExitStack) -> Callable[[], object]:
    pods = [
        gpu_pod(
            f"p{number}", metadata={"namespace": name, "uid": f"{name}-{number}"}, priority=int(name == SICK)
        )
        for name in (SICK, WELL)
        for number in range(COUNT)
    ]
    orders = Placing(Nodes(2 * COUNT, *pods), Settings(settle_seconds=0)).one()
    assert [plan.gang.key.namespace for plan in orders.plans] == [SICK] * COUNT + [WELL] * COUNT
    version = orders.plans[0].usage_version
    applies = Applies(surroundings(api, usage_version=version, expect=lambda _: None))
    ends.callback(applies.close)
    return lambda: applies.apply(orders, View(pods, [], {}, {}))


THINGS = WatchedCollection("/apis/example.com/v1/things", "Thing", Placement, verbs=frozenset(Verb))


def objects(api: Hanging, ends: ExitStack) -> Callable[[], object]:
    writes = [
        ObjectWrite.create(
            THINGS, {"metadata": {"namespace": name, "name": f"t{number}"}, "spec": {"gang": number}}, "why"
        )
        for name in (SICK, WELL)
        for number in range(COUNT)
    ]
    given = surroundings(api, watches=SimpleNamespace(copy_of=lambda _: SimpleNamespace(answered=bool)))
    made, table = ExtensionObjects(given, extension("test")), [RetryTable()]

    def one_pass() -> None:
        retries = Retries(given, table[0])
        made.write(writes, retries)
        table[0] = retries.table

    return one_pass


ALL = pytest.mark.parametrize("passes", [statuses, labels, plans, objects])


@ALL
def test_no_namespace_waits_for_writes_of_another_that_hang_as_long_as_a_pass(
    passes: Passes, ends: ExitStack
) -> None:
    api = Hanging(Clock(), HANGS_SECONDS, ApiError(500, "InternalError", "a webhook gave no answer in time"))
    one_pass = passes(api, ends)
    one_pass()
    one_pass()
    assert len(api.written(WELL)) >= COUNT


@ALL
def test_writes_that_are_refused_in_one_namespace_come_after_those_of_others(
    passes: Passes, ends: ExitStack
) -> None:
    """As of a namespace that gets 429: eight writes are under way at once."""
    api = Hanging(Clock(), 0.0, ApiError(429, "TooManyRequests", "too many requests"))
    passes(api, ends)()
    last = max(at for at, write in enumerate(api.writes) if f"/namespaces/{WELL}/" in write)
    early = [write for write in api.writes[:last] if f"/namespaces/{SICK}/" in write]
    assert len(api.written(WELL)) >= COUNT
    assert len(early) <= 2 * 8


def test_groups_are_served_round_robin_and_those_with_a_later_position_come_last() -> None:
    items = [f"{group}{number}" for group in ("late-", "a-", "b-") for number in range(2)]
    positions = {"late-": (5.0, 0.0), "a-": (0.0, 0.0), "b-": (0.0, 0.0)}
    found = round_robin(items, lambda each: each[:-1], lambda each: positions[each[:-1]])
    assert found == ["a-0", "b-0", "a-1", "b-1", "late-0", "late-1"]
