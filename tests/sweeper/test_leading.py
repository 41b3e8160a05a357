"""A process that does not lead any more writes nothing: another has made its own decisions by now."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sweeper.applies import Applies
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.deferred import BUSY
from tests.sweeper.pods import job_pod
from tests.sweeper.releases import Never
from tests.sweeper.reports import Answers, Reports
from webhook.configuration.settings import Settings
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause, Done, Eviction, GangOutcome, ModelLabelOrder, Orders, Pair
from webhook.sweeper.observe.view import View

PODS = [job_pod(number) for number in range(3)]


def planned(number: int) -> Pair:
    pod = PODS[number]
    return pod, PlannedPod(pod.metadata.name, pod.metadata.uid, "n0")


def plans() -> Orders:
    orders = Placing(Nodes(1, gpu_pod("p")), Settings(settle_seconds=0)).one()
    assert orders.plans
    return orders


ORDERS: dict[str, Callable[[], Orders]] = {
    "release": lambda: Orders(releases=(planned(0),)),
    "labels": lambda: Orders(model_label_orders=(ModelLabelOrder(PODS[0], {"model": "H100"}),)),
    "deletion": lambda: Orders(evictions=(Eviction(PODS[0], "why", ""),)),
    "eviction": lambda: Orders(evictions=(Eviction(PODS[0], "why", "", may_run=True, for_others=True),)),
    "plan": plans,
}


def applied(orders: Orders, api: Answers, may_act: Callable[[], bool]) -> Done:
    """What becomes of orders in a pass."""
    version = orders.plans[0].usage_version if orders.plans else 0
    cache: Any = SimpleNamespace(usage_version=version, expect=lambda _: None, written=lambda _: None)
    never: Any = Never()
    surroundings = Pass(api, cache, Settings(), may_act=may_act, stopping=never, clock=Clock())
    applier = Applies(surroundings)
    try:
        return applier.apply(orders, View(PODS, [], {}, {}))
    finally:
        applier.close()


@pytest.mark.parametrize("kind", ORDERS)
def test_who_does_not_lead_any_more_carries_no_order_out_and_has_nothing_to_announce(kind: str) -> None:
    orders = ORDERS[kind]()
    leader, other = Answers(), Answers()
    applied(orders, leader, lambda: True)
    assert leader.writes
    done = applied(orders, other, lambda: False)
    assert other.writes == []
    assert (done.released, done.evicted, done.labelled, done.placed) == ((), (), (), ())
    assert (done.warnings, done.delays, done.outcomes, done.refused) == ((), (), (), ())


def leads_for(count: int) -> Callable[[], bool]:
    """Whether a process leads that is asked so often before it loses its Lease."""
    left = iter([True] * count)
    return lambda: next(left, False)


def test_a_pass_that_loses_the_lease_writes_no_further_pod_and_retries_none() -> None:
    orders = Orders(releases=tuple(map(planned, range(3))))
    api = Answers()
    done = applied(orders, api, leads_for(2))
    assert [each.name for each in done.released] == ["train-0", "train-1"]
    assert len(api.writes) == 2
    api = Answers()
    api.answer = BUSY
    assert applied(orders, api, leads_for(1)).released == ()
    assert len(api.writes) == 1
    evictions = tuple(Eviction(pod, "why", "", may_run=True, for_others=True) for pod in PODS)
    api = Answers()
    done = applied(Orders(evictions=evictions), api, leads_for(1))
    assert [order.pod for order in done.evicted] == PODS[:1]
    assert len(api.writes) == 1


def test_who_does_not_lead_any_more_writes_no_status() -> None:
    gang = Placing(Nodes(1, gpu_pod("p")), Settings()).gangs()[0]
    for leads in (True, False):
        api = Answers()
        cache: Any = SimpleNamespace(current_placements=dict, written=lambda _: None)
        reporter = Reports(Pass(api, cache, Settings(), may_act=lambda leads=leads: leads))  # type: ignore[misc]
        reporter.on_result(Orders(outcomes=(GangOutcome(gang, "no capacity", Cause.INSUFFICIENT_CAPACITY),)))
        reporter.report(View([], [], {}, {}), [gang])
        assert bool(api.writes) is leads
