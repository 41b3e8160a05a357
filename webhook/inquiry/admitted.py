"""What admission would make of a pod: the same decision, its patch applied as the API server does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from labeler.contract import keys
from webhook.admission import patch
from webhook.admission.decide import DENIED, Decision, decide
from webhook.admission.review import NewPod
from webhook.kube.objects import PriorityClass
from webhook.policy.values import Policy

NOT_GATED: Final = "not-held"
"""Reason of a decision that a cluster does not make: it stores the pod without a gate of ours."""

NOT_OURS: Final = frozenset(
    {
        "opted-out", "node-name-set", "mirror-pod", "daemonset", "excluded-namespace",
        "scheduling-group", "other-scheduler", "kueue-topology", NOT_GATED,
    }
)  # fmt: skip
"""Reasons of a decision by which another one places the pod."""


@dataclass(frozen=True)
class AdmissionRules:
    """By what admission decides. classes: PriorityClasses by name. ask: asks a cluster about a pod of a
    namespace, beside the decision by the policy; None where there is none to ask.
    """

    policy: Policy
    classes: Mapping[str, PriorityClass]
    ask: "Callable[[Mapping[str, Any], str, Admitted], Admitted] | None" = None


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
    def is_gated(self) -> bool:
        """Whether a gate of ours holds the pod."""
        gates = self.pod["spec"].get("schedulingGates") or ()
        return any(str(gate.get("name")).startswith(keys.GATE_PREFIX) for gate in gates)

    @property
    def is_placed_by_others(self) -> bool:
        """Whether topogate leaves the pod to others."""
        return self.decision.reason in NOT_OURS


def admit(pod: Mapping[str, Any], namespace: str, rules: AdmissionRules) -> Admitted:
    """Decide on a pod's metadata and spec.

    Raises msgspec.ValidationError for what is no pod, and ApiError where a cluster is asked in vain.
    """
    body = {"metadata": pod.get("metadata") or {}, "spec": pod.get("spec") or {}}
    found = _decided(pod, body, namespace, rules)
    return found if rules.ask is None else rules.ask(body, namespace, found)


def _decided(pod: Mapping[str, Any], body: dict[str, Any], namespace: str, rules: AdmissionRules) -> Admitted:
    decision = decide(msgspec.convert(body, NewPod), namespace, rules.policy, rules.classes)
    operations = msgspec.to_builtins(decision.operations)
    if not operations:
        return Admitted(decision, {**pod, **body}, [])
    import jsonpatch  # loaded where there is something to apply

    changed = jsonpatch.apply_patch(body, patch.encode(decision.operations).decode())
    return Admitted(decision, {**pod, **changed}, list(operations))
