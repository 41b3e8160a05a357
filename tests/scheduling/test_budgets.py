"""Which evictions a PodDisruptionBudget counts, by the rules of the eviction API."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest

from tests.sweeper.pods import decode, pod_json
from webhook.kube.disruption_budgets import PodDisruptionBudget
from webhook.kube.objects import Pod
from webhook.scheduling.budgets import Budgets

READY: Final = {"type": "Ready", "status": "True"}
UNREADY: Final = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}


def pod(number: int, phase: str = "Running", condition: Mapping[str, str] = READY, **metadata: Any) -> Pod:
    body = pod_json(f"p{number}", schedulingGates=[], nodeName="n")
    body["metadata"] |= {"uid": f"p{number}", "labels": {"app": "train"}, **metadata}
    return decode({**body, "status": {"phase": phase, "conditions": [condition]}})


def budget(status: Mapping[str, int], policy: str = "", name: str = "keep") -> PodDisruptionBudget:
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"selector": {"matchLabels": {"app": "train"}}, "unhealthyPodEvictionPolicy": policy},
        "status": status,
    }
    return msgspec.convert(body, PodDisruptionBudget)


NONE_ALLOWED: Final = {"disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 4}
JUST_MET: Final = {"disruptionsAllowed": 0, "currentHealthy": 4, "desiredHealthy": 4}
NONE_DESIRED: Final = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0}
DELETED: Final[dict[str, Any]] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.promise("O180")
@pytest.mark.parametrize(
    ("pods", "policy", "status", "protected"),
    [
        ([pod(0), pod(1)], "", NONE_ALLOWED, 2),
        ([pod(0), pod(1)], "AlwaysAllow", JUST_MET, 2),
        ([pod(0, "Pending"), pod(1, "Pending", UNREADY)], "", NONE_ALLOWED, 0),
        ([pod(0, "Succeeded"), pod(1, "Failed")], "", NONE_ALLOWED, 0),
        ([pod(0, **DELETED), pod(1)], "", NONE_ALLOWED, 1),
        ([pod(0, condition=UNREADY), pod(1, condition=UNREADY)], "", NONE_ALLOWED, 2),
        ([pod(0, condition=UNREADY), pod(1)], "AlwaysAllow", NONE_ALLOWED, 1),
        ([pod(0, condition=UNREADY), pod(1)], "IfHealthyBudget", JUST_MET, 1),
        ([pod(0, condition=UNREADY), pod(1, condition=UNREADY)], "", JUST_MET, 0),
        ([pod(0, condition=UNREADY), pod(1)], "", NONE_DESIRED, 2),
    ],
)
def test_a_budget_counts_the_pods_that_the_eviction_api_counts(
    pods: Sequence[Pod], policy: str, status: dict[str, int], protected: int
) -> None:
    budgets = Budgets([budget(status, policy)])
    why = f"PodDisruptionBudget keep allows 0 of {protected} evictions now" if protected else ""
    assert budgets.why_not(pods) == why


@pytest.mark.promise("O180")
def test_evictions_that_a_budget_does_not_count_leave_it_as_much() -> None:
    budgets = Budgets([budget({"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1})])
    after = budgets.without([pod(0, "Pending"), pod(1, condition=UNREADY), pod(2, **DELETED)])
    assert after.why_not([pod(3)]) == ""
    assert after.without([pod(3)]).why_not([pod(4)]) == (
        "PodDisruptionBudget keep allows 0 of 1 evictions now"
    )


@pytest.mark.promise("O180")
@pytest.mark.parametrize(
    ("one", "is_refused"), [(pod(0, condition=UNREADY), True), (pod(0, "Pending"), False)]
)
def test_an_unready_pod_of_two_budgets_is_never_evicted_and_a_pending_one_is(
    one: Pod, *, is_refused: bool
) -> None:
    budgets = Budgets([budget(JUST_MET, "AlwaysAllow", name) for name in ("keep", "other")])
    assert ("several PodDisruptionBudgets" in budgets.why_not([one])) == is_refused
