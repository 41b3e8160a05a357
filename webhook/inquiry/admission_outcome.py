"""What admission would do to a pod: the same decision, with its patch applied as the API server does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from labeler.contract import keys
from webhook.admission import patch
from webhook.admission.decide import DENIED, LEFT_ALONE, LEFT_TO_OTHERS, Decision, decide
from webhook.admission.injection import NOTE_PATH
from webhook.admission.review import NewPod
from webhook.kube.objects import PriorityClass
from webhook.policy.values import Policy

NOT_GATED: Final = "not-gated"
"""Reason of a decision that no webhook makes: the cluster stores the pod without a gate of ours."""


@dataclass(frozen=True)
class AdmissionRules:
    """What admission decides from.

    classes: PriorityClasses by name. ask: asks a cluster about a pod of a namespace, in addition to the
    decision by the policy; None without a cluster. not_opted_in: namespaces that lack the label for topogate.
    """

    policy: Policy
    classes: Mapping[str, PriorityClass]
    ask: "Callable[[Mapping[str, Any], str, Admitted], Admitted] | None" = None
    not_opted_in: frozenset[str] = frozenset()


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
        """Whether the pod gets a gate of ours."""
        gates = self.pod["spec"].get("schedulingGates") or ()
        return any(str(gate.get("name")).startswith(keys.GATE_PREFIX) for gate in gates)

    @property
    def is_placed_by_others(self) -> bool:
        """Whether topogate leaves the placement of the pod to another scheduler."""
        return self.decision.reason in LEFT_TO_OTHERS or self.decision.reason == NOT_GATED


def admit(pod: Mapping[str, Any], namespace: str, rules: AdmissionRules) -> Admitted:
    """Decide on a pod's metadata and spec.

    Raises msgspec.ValidationError for what is not a pod, and ApiError if the cluster does not answer.
    """
    body = {"metadata": pod.get("metadata") or {}, "spec": pod.get("spec") or {}}
    if namespace in rules.not_opted_in:
        return Admitted(Decision(LEFT_ALONE, NOT_GATED), {**pod, **body}, [])
    found = _decided(pod, body, namespace, rules)
    return found if rules.ask is None else rules.ask(body, namespace, found)


def _decided(pod: Mapping[str, Any], body: dict[str, Any], namespace: str, rules: AdmissionRules) -> Admitted:
    decision = decide(msgspec.convert(body, NewPod), namespace, rules.policy, rules.classes)
    # The note is for a second call of the same request, and the API server never stores it.
    of_pod = [each for each in decision.operations if each.path != NOTE_PATH]
    operations = msgspec.to_builtins(of_pod)
    if not operations:
        return Admitted(decision, {**pod, **body}, [])
    import jsonpatch  # loaded only if there is a patch to apply

    changed = jsonpatch.apply_patch(body, patch.encode(of_pod).decode())
    return Admitted(decision, {**pod, **changed}, list(operations))
