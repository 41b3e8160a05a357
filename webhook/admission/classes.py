"""The cluster's PriorityClasses as admission knows them, and the policy's maximum among them."""

from collections.abc import Mapping

import msgspec

from webhook.admission.review import NewPod
from webhook.kube.objects import PriorityClass
from webhook.policy.values import Policy


class Classes(msgspec.Struct, frozen=True, gc=False):
    """The cluster's PriorityClasses, and whether they are known to be current."""

    by_name: Mapping[str, PriorityClass]
    known: bool

    def has(self, name: str) -> bool:
        """Whether the class certainly exists."""
        return self.known and name in self.by_name

    @property
    def default(self) -> str:
        """The class that the API server gives to pods without one: of several, the one of lowest value.

        A pod that has it cannot be distinguished from one whose author chose it, so it does not count as
        chosen.
        """
        defaults = [(item.value, name) for name, item in self.by_name.items() if item.global_default]
        return min(defaults)[1] if defaults else ""


def above_maximum(pod: NewPod, namespace: str, policy: Policy, classes: Classes) -> str:
    """By how much the pod's priority exceeds that of the namespace's highest tier, "" if it does not.

    Values are compared, not names: the cluster's own classes are above all tiers and belong to no tier.
    """
    highest = classes.by_name.get(policy.maximum_class(namespace))
    if highest is None or not classes.known or pod.spec.priority is None:
        return ""
    value = pod.spec.priority
    return f"priority {value}, at most {highest.value}" if value > highest.value else ""
