"""What must hold of devices that gangs claim: nobody else has them, and they are where their pod was sent."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final

from hack.local import claims
from webhook.kube.client import Api

DEVICES: Final = 4
"""Of each node, beside the GPUs that its device plugin offers."""

COUNTS: Final = (1, 2, 4)

Json = dict[str, Any]
Device = tuple[str, str, str]


def publish(api: Api, namespace: str, grid: Mapping[str, Any]) -> None:
    """Give each node devices, and a namespace templates of claims on some of them."""
    claims.publish(api, grid.values(), DEVICES)
    for count in COUNTS:
        claims.create_template(api, namespace, claims.template(f"devices-{count}", count))


def asking(count: int, by_claim: bool) -> tuple[dict[str, int], Json]:
    """The limits, and the part of a pod's spec, that ask for so many devices."""
    if not by_claim:
        return {claims.RESOURCE: count}, {}
    return {}, {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": f"devices-{count}"}]}


@dataclass
class GivenDevices:
    """Who has which devices; faults: sentences. The ledger feeds it."""

    faults: list[str] = field(default_factory=list)
    judged: int = 0
    _of: dict[Device, tuple[str, str]] = field(default_factory=dict)
    _allocated: dict[str, set[Device]] = field(default_factory=dict)
    _pins: dict[str, str] = field(default_factory=dict)
    _used: dict[tuple[str, str], str] = field(default_factory=dict)

    def pod(self, uid: str, pin: str) -> None:
        """A pod, and where it was sent; "" while it was not."""
        if pin:
            self._pins[uid] = pin

    def claim(self, kind: str, claim: Json) -> None:
        """A version of a claim."""
        metadata, status = claim["metadata"], claim.get("status", {})
        uid, name = metadata["uid"], f"{metadata['namespace']}/{metadata['name']}"
        self._forget(uid)
        if kind == "DELETED":
            return
        for each in status.get("allocation", {}).get("devices", {}).get("results", []):
            device = each["driver"], each["pool"], each["device"]
            other = self._of.get(device)
            if other is not None:
                self.faults.append(f"{'/'.join(device)} was given to {name} while {other[1]} had it")
            self._of[device] = uid, name
            self._allocated.setdefault(uid, set()).add(device)
            for user in status.get("reservedFor", []):
                self._used[user["uid"], each["pool"]] = name

    def _forget(self, uid: str) -> None:
        for device in self._allocated.pop(uid, ()):
            if self._of.get(device, ("",))[0] == uid:
                del self._of[device]

    def keep_only(self, uids: Set[str]) -> None:
        """The other claims are gone: a watch was interrupted, and then all that is there was listed."""
        for uid in self._allocated.keys() - uids:
            self._forget(uid)

    def settle(self) -> None:
        """Judge where devices were given, once pods and claims have been read."""
        for (pod, pool), name in self._used.items():
            pin = self._pins.get(pod)
            self.judged += pin is not None
            if pin is not None and pin != pool:
                self.faults.append(f"{name} was given devices of {pool}, and its pod was sent to {pin}")
        self._used.clear()
