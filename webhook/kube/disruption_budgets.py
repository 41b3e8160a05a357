"""PodDisruptionBudgets (policy/v1): how many of the pods that one selects may be evicted now."""

from typing import Final

from webhook.kube.affinity import LabelSelector
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct

BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"


class BudgetSpec(Struct, frozen=True):
    """Whose budget it is: an empty selector selects all pods of the namespace, None selects none."""

    selector: LabelSelector | None = None


class BudgetStatus(Struct, frozen=True):
    """What its controller has counted."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(Struct, frozen=True):
    """A budget."""

    metadata: Metadata
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
