"""The constraints of a claim during a search: attributes that must match or be distinct. Pure.

Source of the rules: k8s.io/dynamic-resource-allocation/structured, matchAttributeConstraint and
distinctAttributeConstraint, reproduced exactly: for a request with several devices, the latter compares with
the last chosen device.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from webhook.devices.claims import AttributeRule, Choice
from webhook.devices.pools import OneDevice


@dataclass
class ConditionState:
    """The state of a constraint: the devices that it binds so far, and their values."""

    condition: AttributeRule
    count: int = 0
    value: Hashable = None
    by_request: dict[str, Hashable] = field(default_factory=dict)

    def add(self, choice: Choice, device: OneDevice) -> bool:
        """Add a device; False if it breaks the constraint."""
        if not self.condition.binds(choice):
            return True
        value = device.described.compared(self.condition.attribute)
        if value is None:
            return False
        request = choice.name.partition("/")[0]
        if self.condition.is_same:
            if self.count and value != self.value:
                return False
            self.value = value
        else:
            if self.count and value in self.by_request.values():
                return False
            self.by_request[request] = value
        self.count += 1
        return True

    def remove(self, choice: Choice) -> None:
        """Remove the last added device."""
        if self.condition.binds(choice):
            self.by_request.pop(choice.name.partition("/")[0], None)
            self.count -= 1
