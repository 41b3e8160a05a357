"""Gated pods of schedulers that topogate does not serve: they lose their gate, and nothing else is done."""

from dataclasses import replace
from typing import Any

import pytest

from tests.sweeper.pods import decode, gather_all, pod_json
from webhook.kube.objects import Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.policy.values import Policy
from webhook.sweeper.decide.admission_followup import model_label_step
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.observe.view import View

VIEW = View([], [], {}, {})
RULE = 'topogate neither gates nor places pods with schedulerName "volcano"'


def pod(name: str, scheduler: str = "") -> Pod:
    spec: dict[str, Any] = {"schedulerName": scheduler} if scheduler else {}
    return decode(pod_json(name, **spec))


def released(orders: Orders) -> list[tuple[str, str]]:
    return [(planned.name, planned.node) for _, planned in orders.releases]


def step(*pods: Pod, view: View = VIEW, policy: Policy | None = None) -> Orders:
    return model_label_step(gather_all(*pods), view, policy or Policy())


@pytest.mark.promise("O58")
def test_the_gate_of_a_pod_of_another_scheduler_is_removed_and_its_owner_gets_a_warning() -> None:
    orders = step(pod("a", "volcano"))
    assert released(orders) == [("a", "")]
    assert [each.note for each in orders.warnings] == [f"{RULE}: its gate is removed"]
    assert [each.reason for each in orders.outcomes] == [f"{RULE}: their gates are being removed"]
    assert not any(each.is_news for each in orders.outcomes)


@pytest.mark.promise("R282")
def test_the_gates_of_a_gang_that_an_extension_leaves_to_kube_scheduler_are_removed() -> None:
    """Only those of pods that no plan names: an earlier version may have planned some of them."""
    pods = [pod("a"), pod("b")]
    planned = {pods[0].metadata.uid: PlannedPod(name="a", uid=pods[0].metadata.uid, node="n0")}
    left = [replace(gang, left="its PodGroup is in a tree") for gang in gather_all(*pods)]
    orders = model_label_step(left, replace(VIEW, planned=planned), Policy())
    assert released(orders) == [("b", "")]
    (warning,) = orders.warnings
    note = "its PodGroup is in a tree: its gate is removed"
    assert (warning.reason, warning.note) == ("LeftToKubeScheduler", note)


def test_pods_of_served_schedulers_are_placed() -> None:
    policy = Policy(scheduler_names=("default-scheduler", "volcano"))
    orders = step(pod("a"), pod("b", "default-scheduler"), pod("c", "volcano"), policy=policy)
    assert (orders.releases, orders.outcomes) == ((), ())


def test_no_release_is_ordered_while_one_is_not_observed_yet_or_was_refused() -> None:
    one = pod("a", "volcano")
    entry = PlannedPod(name="a", uid=one.metadata.uid, node="")
    assert step(one, view=replace(VIEW, planned={one.metadata.uid: entry})).releases == ()
    assert model_label_step(gather_all(one), VIEW, Policy(), lambda _: True).releases == ()
