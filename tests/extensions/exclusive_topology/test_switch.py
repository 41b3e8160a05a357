"""When exclusive topology is on, what it explains, and what becomes of gangs while it has a defect."""

import pytest

from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.sets import exclusive, member, racks
from webhook.configuration.settings import Settings
from webhook.extensions.exclusive_topology.exclusive_topology import divide_gang, explain
from webhook.extensions.known import SWITCHES
from webhook.kube.objects import Pod
from webhook.sweeper.decide.core_questions import DividedGang, DivisionInput
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.extension import HookInput, Switch
from webhook.workloads import marks

AT_ONCE = Settings(settle_seconds=0, patience_seconds=0)


def switch() -> Switch:
    (found,) = (each for each in SWITCHES if each.load().name == "exclusive_topology")
    return found


@pytest.mark.parametrize(
    ("pods", "is_on"),
    [
        ((), False),
        ((gpu_pod("other"), gpu_pod("there", node="n0")), False),
        ((gpu_pod("of-a-set", metadata={"labels": {marks.EXCLUSIVE_LABELS[0]: "key"}}),), False),
        ((member("a0", "a"),), True),
        ((member("a0", "a", node="n0"),), True),
    ],
    ids=["no pods", "others", "a Job that wants no domain", "one that waits", "one that runs"],
)
def test_it_is_on_while_a_pod_wants_a_domain_of_its_own(pods: tuple[Pod, ...], is_on: bool) -> None:
    view = Placing(Nodes(1, *pods), Settings()).view()
    assert switch().is_on(HookInput(view)) is is_on


def test_the_pods_that_need_it_are_those_that_want_a_domain() -> None:
    assert [switch().needs(pod) for pod in (member("a0", "a"), gpu_pod("other"))] == [True, False]


def test_a_gang_that_cannot_be_divided_waits_and_keeps_no_other_from_its_place() -> None:
    def divide(given: DivisionInput) -> DividedGang:
        if given.gang.key.name == "a":
            raise ZeroDivisionError
        return divide_gang(given)

    pods = (member("a0", "a"), member("a1", "a"), member("b0", "b"), member("b1", "b"), gpu_pod("other"))
    placing = exclusive(Placing(racks(2, 2, 1, pods=pods), AT_ONCE))
    placing.divide = divide
    orders = placing.one()
    assert places(orders).keys() == {"b0", "b1", "other"}
    assert [(each.gang.key.name, each.cause) for each in orders.outcomes] == [("a", Cause.INTERNAL_ERROR)]


def explained(*pods: Pod) -> list[str]:
    placing = Placing(racks(2, 2, pods=pods), AT_ONCE)
    gangs = placing.gangs()
    given = HookInput(placing.view(), gangs=gangs)
    return list(explain(given, gangs[0]))


def test_explain_lists_the_domains_a_gang_wants_and_who_has_them() -> None:
    alone, other = member("a0", "a"), member("other", "other", node="n0")
    line = "Exclusive topology: it needs 1 domain of rack to itself; "
    assert explained(alone) == [f"{line}none is taken yet."]
    assert explained(alone, other) == [f"{line}others have r0."]
    assert explained(alone, member("a1", "a", node="n2"), other) == [f"{line}it has r1 and others have r0."]
    assert explained(gpu_pod("plain")) == []
