"""What must hold of volumes: a pod runs where its volume is, and no node or volume has too many.

Judged are pods that topogate has placed, released or bound: on a node those with volumes of a driver never
have more different ones than it attaches, and those with claims that wait for a free volume of the node
never are more than it has. That two pods never use one claim for a single pod, nor two claims one volume, is
Kubernetes' own promise: if it broke here, what was read would be wrong. Pods, claims and volumes are read by
watches of their own, so that much is judged once all have caught up.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from hack.soaks.takes import Take, claims_of

LOCAL: Final = "soak-local"
SINGLE: Final = "soak-single"
"""StorageClasses of the volumes that nodes have; those of the latter for a single pod each."""
DRIVER: Final = "disks.soak.example.com"
"""A CSI driver whose volumes can be attached anywhere."""
ON_NODE: Final = {LOCAL: 2, SINGLE: 1}
"""How many volumes of each a node has."""
ATTACHED: Final = 2
"""Volumes of the driver that a node attaches."""
FOR_ONE_POD: Final = "ReadWriteOncePod"

Json = dict[str, Any]


@dataclass(frozen=True)
class _Volume:
    """driver: "" for none. nodes: where it can be used, None for anywhere."""

    driver: str
    nodes: frozenset[str] | None


@dataclass(frozen=True)
class _Bound:
    """A pod that was bound, with claims, beside others that used one of them."""

    at: str
    pod: str
    node: str
    claims: tuple[str, ...]
    shared: Mapping[str, str]


@dataclass
class Mounts:
    """Who uses which volumes; faults: sentences. The ledger feeds it. What claims and volumes were is kept.

    judged: pods bound with volumes; full: how often a node had as many of a kind as it may.
    turns: pods that used a claim after another had.
    """

    faults: list[str] = field(default_factory=list)
    judged: int = 0
    full: int = 0
    handovers: int = 0
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _claims: dict[str, Json] = field(default_factory=dict)
    _live: dict[str, str] = field(default_factory=dict)
    _volumes: dict[str, _Volume] = field(default_factory=dict)
    _users: dict[str, dict[str, str]] = field(default_factory=dict)
    _ever: dict[str, set[str]] = field(default_factory=dict)
    _bound: list[_Bound] = field(default_factory=list)

    def volume(self, kind: str, body: Json) -> None:
        """A version of a PersistentVolume."""
        if kind == "DELETED":
            return
        spec = body["spec"]
        required = spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms")
        nodes = None if required is None else frozenset(required[0]["matchExpressions"][0]["values"])
        self._volumes[body["metadata"]["name"]] = _Volume(spec.get("csi", {}).get("driver", ""), nodes)

    def claim(self, kind: str, body: Json) -> None:
        """A version of a PersistentVolumeClaim."""
        metadata, spec = body["metadata"], body["spec"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        volume = spec.get("volumeName")
        if kind == "DELETED":
            self._live = {of: by for of, by in self._live.items() if by != name}
            return
        self._claims[name] = spec
        if not volume:
            return
        other = self._live.setdefault(volume, name)
        if other != name:
            self.faults.append(f"{self.now():%T}: {volume} was given to {name} while {other} had it")

    def keep_only(self, claims: Set[str]) -> None:
        """The other claims are gone: a watch was interrupted, and then all that is there was listed."""
        self._live = {volume: name for volume, name in self._live.items() if name in claims}

    def pod(self, pod: Json, *, gone: bool) -> None:
        """A version of a pod."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        claims = claims_of(pod)
        is_new = bool(node) and not gone and not all(uid in self._users.get(each, ()) for each in claims)
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        shared: dict[str, str] = {}
        for each in claims:
            users = self._users.setdefault(each, {})
            if gone or not node:
                users.pop(uid, None)
                continue
            users[uid] = name
            for other in (description for by, description in users.items() if by != uid):
                shared[each] = other
            self.handovers += is_new and bool(self._ever.setdefault(each, set()) - {uid})
            self._ever[each].add(uid)
        if claims and is_new:
            self._bound.append(_Bound(f"{self.now():%T}", name, node, claims, shared))

    def keep_only_pods(self, uids: Set[str]) -> None:
        """The same of pods."""
        self._users = {
            claim: {uid: name for uid, name in users.items() if uid in uids}
            for claim, users in self._users.items()
        }

    def too_many(self, node: str, takes: Iterable[Take], *, settled: bool) -> list[str]:
        """What pods that topogate has placed use beyond what the node has.

        settled: all claims have been read; until then one that has not may be of either kind.
        """
        takes = sorted((take for take in takes if take.claims), key=lambda take: take.name)
        claims = {each for take in takes for each in take.claims}
        unknown = set() if settled else {each for each in claims if self._driver(each) is None}
        who = ", ".join(f"{take.name} ({', '.join(take.claims)})" for take in takes)
        found = []
        for what, most in ({DRIVER: ATTACHED} | ON_NODE).items():
            those = {
                each
                for each in claims
                if what in (self._driver(each), self._class(each)) and not self._is_elsewhere(each, node)
            }
            if len(those | unknown) > most:
                found.append(f"{node} has {len(those)} volumes of {what} in use, of {most}: {who}")
            self.full += len(those) == most and not settled
        return found

    def _driver(self, claim: str) -> str | None:
        """The driver of a claim's volume, "" for none; None while that is not known."""
        spec = self._claims.get(claim)
        if spec is None:
            return None
        if self._class(claim) in ON_NODE:
            return ""
        volume = self._volumes.get(spec.get("volumeName", ""))
        return None if volume is None else volume.driver

    def _is_elsewhere(self, claim: str, node: str) -> bool:
        """Whether the claim has a volume that this node cannot use: its pod cannot be here, nor take one."""
        volume = self._volumes.get(self._claims.get(claim, {}).get("volumeName", ""))
        return volume is not None and volume.nodes is not None and node not in volume.nodes

    def _class(self, claim: str) -> str:
        return str(self._claims.get(claim, {}).get("storageClassName", ""))

    def settle(self) -> None:
        """Judge the pods that were bound, once claims and volumes have been read."""
        for each in self._bound:
            self.judged += 1
            for claim in each.claims:
                spec = self._claims.get(claim, {})
                volume = self._volumes.get(spec.get("volumeName", ""))
                description = f"{each.at}: {each.pod} was bound to {each.node}"
                if volume is not None and volume.nodes is not None and each.node not in volume.nodes:
                    self.faults.append(
                        f"{description}, its volume {spec['volumeName']} is on {sorted(volume.nodes)}"
                    )
                if claim in each.shared and FOR_ONE_POD in spec.get("accessModes", ()):
                    self.faults.append(
                        f"{description} while {each.shared[claim]} used {claim}, for a single pod"
                    )
        self._bound.clear()
