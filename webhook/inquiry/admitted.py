"""What admission would make of a pod: the same decision, its patch applied as the API server does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from webhook.admission import patch
from webhook.admission.decide import DENIED, Decision, decide
from webhook.admission.review import NewPod
from webhook.kube.objects import PriorityClass
from webhook.policy.values import Policy

NOT_OURS: Final = frozenset(
    {
        "opted-out", "node-name-set", "mirror-pod", "daemonset", "excluded-namespace",
        "scheduling-group", "other-scheduler", "kueue-topology",
    }
)  # fmt: skip
"""Reasons of a decision by which another one places the pod."""


@dataclass(frozen=True)
class AdmissionRules:
    """By what admission decides. classes: PriorityClasses by name."""

    policy: Policy
    classes: Mapping[str, PriorityClass]


@dataclass(frozen=True)
class Admitted:
    """A decision, the pod after its patch, and the patch as JSON has it."""

    decision: Decision
    pod: dict[str, Any]
    operations: list[dict[str, Any]]

    @property
    def is_denied(self) -> bool:
        """Whether the pod would not be created."""
        return self.decision.outcome == DENIED

    @property
    def is_placed_by_others(self) -> bool:
        """Whether topogate leaves the pod to others."""
        return self.decision.reason in NOT_OURS


def admit(pod: Mapping[str, Any], namespace: str, rules: AdmissionRules) -> Admitted:
    """Decide on a pod's metadata and spec. Raises msgspec.ValidationError for what is no pod."""
    body = {"metadata": pod.get("metadata") or {}, "spec": pod.get("spec") or {}}
    decision = decide(msgspec.convert(body, NewPod), namespace, rules.policy, rules.classes)
    operations = msgspec.to_builtins(decision.operations)
    if not operations:
        return Admitted(decision, {**pod, **body}, [])
    import jsonpatch  # loaded where there is something to apply

    changed = jsonpatch.apply_patch(body, patch.encode(decision.operations).decode())
    return Admitted(decision, {**pod, **changed}, list(operations))
