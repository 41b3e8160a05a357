"""Pods with plans and without, one after the other, while both sides are killed; every answer is checked.

The plans are made here as the sweeper makes them, from what is free; what each container was started with is
read back by an own reading of the mask. A container that sees another card or tile than its annotation says
is a wrong one. A refusal is none: the pod would be recreated.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hack.local.cluster import Cluster
from labeler.contract import keys
from labeler.contract.annotations import Slot, SlotCard, encode_allocation
from tests.allocator.machine import NODE, Machine, ManagerGoneError
from tests.allocator.reading import kind_of, visible
from tests.allocator.site import CARDS, NAMESPACE, SHARES, prepare
from webhook.kube.client import Api

_REGISTER_SECONDS: Final = 90.0
"""For what takes a second: the limit is for what would never come."""
_HIERARCHIES: Final = (None, None, "FLAT", "COMPOSITE", "COMBINED")
_START: Final = 1_700_000_000_000_000_000


@dataclass
class Count:
    """What came of it."""

    allocations: int = 0
    planned: int = 0
    without_plan: int = 0
    refused: int = 0
    ambiguous_refused: int = 0
    interrupted: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    registered_after: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass
class _Living:
    """A pod that holds devices. slots: () without a plan."""

    manifest: dict[str, Any]
    slots: Sequence[Slot]


class AllocationRun:
    """One machine and the pods on it."""

    def __init__(self, cluster: Cluster, machine: Machine, seed: int) -> None:
        """The machine is entered; nothing is started yet."""
        self._api: Api = cluster.api()
        self._cluster = cluster
        self._machine = machine
        self._random = random.Random(seed)
        self._living: list[_Living] = []
        self._number = 0
        self.count = Count()

    def start(self) -> None:
        """Both sides, registered."""
        self._machine.start_manager()
        self._machine.start_allocator()
        self._wait_registered()

    def many(self, allocations: int, kill_every: int) -> Count:
        """So many allocations; a random kill of either side for about every so many pods."""
        while self.count.allocations < allocations:
            if self._random.random() < 1 / kill_every:
                self._trouble()
            elif self._random.random() < 0.02:
                self._ambiguity()
            else:
                self._one_pod()
            self.count.peak_bytes = max(self.count.peak_bytes, self._machine.resident_bytes("VmHWM"))
        return self.count

    # --- pods ------------------------------------------------------------------------------------

    def _one_pod(self) -> None:
        while self._living and self._random.random() < 0.45:
            self._remove(self._random.choice(self._living))
        pod = self._make_pod()
        if pod is None:
            self._remove(self._random.choice(self._living))
            return
        self._admit(pod)

    def _admit(self, pod: _Living) -> None:
        created = self._api.json("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=pod.manifest)
        pod.manifest = _shortened(created)
        self._living.append(pod)
        started = time.monotonic()
        try:
            answer = self._machine.ask({"admit": pod.manifest})
        except ManagerGoneError:
            self.count.interrupted += 1
            self._forget(pod)
            raise
        seconds = time.monotonic() - started
        if answer["error"]:
            self.count.refused += 1
            self.count.reasons[kind_of(answer["error"])] += 1
            self._forget(pod)
            return
        asked = 0
        for container in pod.manifest["spec"]["containers"]:
            wants = int(container["resources"].get("limits", {}).get(keys.I915, 0))
            if wants:
                asked += 1
                self._check(pod, container, wants, answer["containers"][container["name"]])
        self.count.allocations += asked
        if asked:
            self.count.seconds.append(seconds / asked)

    def _check(self, pod: _Living, container: Mapping[str, Any], wants: int, got: Mapping[str, Any]) -> None:
        index = [each["name"] for each in pod.manifest["spec"]["containers"]].index(container["name"])
        where = f"{pod.manifest['metadata']['name']}/{container['name']}"
        devices = got["ids"].get(keys.I915, [])
        cards = {int(device.removeprefix("card").partition("-")[0]) for device in devices}
        files = set().union(*(CARDS[number].nodes for number in cards))
        if len(devices) != wants or set(got["paths"]) != files:
            self.count.wrong.append(f"{where}: asked for {wants}, got {devices} and {sorted(got['paths'])}")
        if not pod.slots:
            self.count.without_plan += 1
            return
        self.count.planned += 1
        slot = pod.slots[index]
        expected = {(s.card, t) for s in slot for t in s.tiles or range(CARDS[s.card].tiles)}
        seen = visible(cards, got["environment"])
        if cards != {share.card for share in slot} or seen != expected:
            self.count.wrong.append(f"{where}: planned {slot}, got {devices} {got['environment']}")

    def _remove(self, pod: _Living) -> None:
        self._machine.ask({"remove": pod.manifest["metadata"]["uid"]})
        self._forget(pod)

    def _forget(self, pod: _Living) -> None:
        self._living.remove(pod)
        name = pod.manifest["metadata"]["name"]
        self._api.request(
            "DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", body={"gracePeriodSeconds": 0}
        )

    def _make_pod(self) -> _Living | None:
        """A pod whose plan fits into what is free; None if nothing does."""
        free = Counter({card.number: SHARES for card in CARDS})
        for living in self._living:
            for share in (share for slot in living.slots for share in slot):
                free[share.card] -= 1
        unmanaged = sum(len(_askers(living)) for living in self._living if not living.slots)
        planned = self._random.random() < 0.9
        if min(free.values()) - unmanaged < 3:
            return None
        slots: list[Slot] = []
        tiled = self._random.random() < 0.5
        for _ in range(self._random.randint(1, 3)):
            chosen = sorted(self._random.sample(range(len(CARDS)), self._random.choice((0, 1, 1, 2, 3))))
            slots.append(tuple(SlotCard(card, self._tiles() if tiled else ()) for card in chosen))
        if not any(slots):
            slots[0] = (SlotCard(self._random.randrange(len(CARDS)), self._tiles() if tiled else ()),)
        if not planned:
            slots = [slot[:1] for slot in slots]
        first = next(len(slot) for slot in slots if slot)
        init = self._random.randint(1, first) if self._random.random() < 0.2 else 0
        return _Living(self._manifest(slots, planned, init), slots if planned else ())

    def _tiles(self) -> tuple[int, ...]:
        return self._random.choice(((0,), (1,), (0, 1)))

    def _manifest(self, slots: Sequence[Slot], planned: bool, init: int) -> dict[str, Any]:
        self._number += 1
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"p{self._number}",
                "annotations": encode_allocation(slots, _START + self._number) if planned else {},
            },
            "spec": {
                "nodeName": NODE,
                "initContainers": [self._container("i0", init)] if init else [],
                "containers": [self._container(f"c{i}", len(slot)) for i, slot in enumerate(slots)],
            },
        }

    def _container(self, name: str, count: int) -> dict[str, Any]:
        hierarchy = self._random.choice(_HIERARCHIES)
        return {
            "name": name,
            "image": "none",
            "env": [{"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": hierarchy}] if hierarchy else [],
            "resources": {"limits": {keys.I915: str(count)} if count else {}},
        }

    # --- trouble -----------------------------------------------------------------------------------

    def _ambiguity(self) -> None:
        """Two planned pods of one kind wait for devices: neither may get any."""
        slots = [(SlotCard(self._random.randrange(len(CARDS))),)]
        other = _Living(self._manifest(slots, True, 0), slots)
        created = self._api.json("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=other.manifest)
        other.manifest = _shortened(created)
        self._living.append(other)
        self._machine.ask({"known": other.manifest})
        before = self.count.refused
        slots = [(SlotCard(self._random.randrange(len(CARDS))),)]
        self._admit(_Living(self._manifest(slots, True, 0), slots))
        if self.count.refused == before:
            self.count.wrong.append("two pods that fit were not refused")
        self.count.ambiguous_refused += 1
        self._remove(other)

    def _trouble(self) -> None:
        """Kill one side or both, at rest or in the middle of an admission."""
        victims = self._random.choice((("allocator",), ("manager",), ("allocator", "manager")))
        killer = threading.Timer(self._random.choice((0, 0.005, 0.02)), self._kill, [victims])
        if self._random.random() < 0.5:
            killer.start()
            with contextlib.suppress(ManagerGoneError):
                self._one_pod()
            killer.join()
        else:
            self._kill(victims)
        if "manager" in victims:
            self._machine.start_manager([living.manifest for living in self._living])
        if "allocator" in victims:
            self._machine.start_allocator()
        for victim in victims:
            self.count.kills[victim] += 1
        self._wait_registered()

    def _kill(self, victims: Sequence[str]) -> None:
        if "manager" in victims:
            self._machine.kill_manager()
        if "allocator" in victims:
            self._machine.kill_allocator()

    def _wait_registered(self) -> None:
        started = time.monotonic()
        while self._machine.devices(keys.I915) < len(CARDS) * SHARES:
            if time.monotonic() - started > _REGISTER_SECONDS:
                raise TimeoutError(f"{keys.I915} was not registered within {_REGISTER_SECONDS:.0f} s")
            time.sleep(0.05)
        self.count.registered_after.append(time.monotonic() - started)


def _shortened(created: Mapping[str, Any]) -> dict[str, Any]:
    metadata = created["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            key: metadata[key] for key in ("name", "namespace", "uid", "annotations") if key in metadata
        },
        "spec": created["spec"],
    }


def _askers(pod: _Living) -> list[str]:
    return [each["name"] for each in pod.manifest["spec"]["containers"]]


def measure(folder: Path, allocations: int, kill_every: int, seed: int) -> Count:
    """A run on a control plane of its own. folder: takes the machine's files."""
    with Cluster.fresh() as cluster:
        prepare(cluster, folder / "token")
        with Machine(cluster, folder, CARDS, f"--shares={SHARES}") as machine:
            running = AllocationRun(cluster, machine, seed)
            running.start()
            return running.many(allocations, kill_every)
