"""PodDisruptionBudgets (policy/v1): how many of the selected pods may be evicted now."""

from typing import Final

from webhook.kube.affinity import LabelSelector
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct

BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
ALWAYS_ALLOW: Final = "AlwaysAllow"
"""The unhealthyPodEvictionPolicy by which a budget protects no unready pod."""


class BudgetSpec(Struct, frozen=True):
    """The pods of the budget: an empty selector selects all pods of the namespace, None selects none."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Struct, frozen=True):
    """The status that the disruption controller writes."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class PodDisruptionBudget(Struct, frozen=True):
    """A budget."""

    metadata: Metadata
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
