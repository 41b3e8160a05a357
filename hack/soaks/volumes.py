"""Volumes that gangs of a soak ask for, made and recreated as drivers and provisioners would.

Each node with GPUs has free local volumes, and a CSI driver there that attaches a few volumes of others. Jobs
of a soak ask for local volumes by claims that wait for their first consumer; sets of pods have volumes of the
driver, more than a node attaches; and pairs of Jobs have one claim that a single pod may use at a time.
"""

import itertools
import random
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from hack.soaks.crowd import OURS, Crowd
from hack.soaks.mounts import ATTACHED, DRIVER, FOR_ONE_POD, LOCAL, ON_NODE, SINGLE
from hack.soaks.takes import GPUS
from webhook.kube import drivers
from webhook.kube.client import Api, ApiError
from webhook.kube.volume_objects import CLASSES, VOLUMES

Json = dict[str, Any]

KINDS: Final = {"local": 2, "attached": 1, "single": 1}
"""How many of each are among as many as these are together."""
_MODES: Final = {LOCAL: "ReadWriteOnce", SINGLE: FOR_ONE_POD, "": "ReadWriteOnce"}
"""By class; volumes of the driver have none."""
_CLAIMS: Final = f"/api/v1/namespaces/{OURS}/persistentvolumeclaims"
_JOBS: Final = f"/apis/batch/v1/namespaces/{OURS}/jobs"


class Provisioner:
    """The volumes, what happens to them, and gangs that want some."""

    def __init__(self, api: Api, crowd: Crowd, nodes: Collection[str], choices: random.Random) -> None:
        """nodes: those that have volumes."""
        self._api = api
        self._crowd = crowd
        self._nodes = sorted(nodes)
        self._random = choices
        self._numbers = itertools.count()
        self._looked = 0.0
        self._single: set[str] = set()
        crowd.more |= {kind: (count, getattr(self, f"_{kind}_gang")) for kind, count in KINDS.items()}

    def publish(self) -> None:
        """Make the class, the driver, and what each node has of both."""
        later = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        for name in ON_NODE:
            self._api.request("POST", CLASSES, body={"metadata": {"name": name}, **later})
        body = {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False}}
        self._api.request("POST", drivers.DRIVERS, body=body)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._attaches, self._nodes))
            for name, count in ON_NODE.items():
                list(pool.map(lambda node, of=name: self._make_local(of, node), self._nodes * count))

    def _attaches(self, node: str) -> None:
        driver = {"name": DRIVER, "nodeID": node, "allocatable": {"count": ATTACHED}}
        body = {"metadata": {"name": node}, "spec": {"drivers": [driver]}}
        self._api.request("POST", drivers.NODES, body=body)

    def _make_local(self, class_name: str, node: str) -> None:
        there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        self._make(
            f"{class_name}-{next(self._numbers)}-on-{node}",
            {
                "storageClassName": class_name,
                "accessModes": [_MODES[class_name]],
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
            },
        )

    def _make(self, name: str, spec: Json) -> None:
        same = {"capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain"}
        self._api.request("POST", VOLUMES, body={"metadata": {"name": name}, "spec": spec | same})

    # --- gangs that want some -------------------------------------------------------------------

    def _local_gang(self, number: int) -> None:
        """A Job each of whose pods has a local volume for itself."""
        template = {"spec": _claim(LOCAL)}
        volumes = [{"name": "data", "ephemeral": {"volumeClaimTemplate": template}}]
        size = self._random.choice((2, 3, 4))
        limits = {GPUS: self._random.choice((1, 2))}
        self._crowd.post_job(f"local-{number}", size, limits, spec={"volumes": volumes})

    def _attached_gang(self, number: int) -> None:
        """A set of pods, with a volume of the driver each."""
        name, size = f"attached-{number}", self._random.choice((3, 4, 5))
        for index in range(size):
            volume = f"{name}-{index}"
            spec = {
                "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": DRIVER, "volumeHandle": volume},
                "claimRef": {"namespace": OURS, "name": f"data-{volume}"},
            }
            self._make(volume, spec)
        claim = {"metadata": {"name": "data"}, "spec": _claim("")}
        self._crowd.post_set(
            name,
            size,
            {GPUS: 1},
            podManagementPolicy="Parallel",
            volumeClaimTemplates=[claim],
            persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete"},
        )

    def _single_gang(self, number: int) -> None:
        """Two Jobs of one pod that have one claim: the second waits for the first to end."""
        claim = f"single-{number}"
        self._single.add(claim)
        self._api.request("POST", _CLAIMS, body={"metadata": {"name": claim}, "spec": _claim(SINGLE)})
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        for part in "ab":
            self._crowd.post_job(f"{claim}-{part}", 1, {GPUS: 1}, spec={"volumes": volumes})

    # --- what becomes of them -------------------------------------------------------------------

    def end_what_is_due(self) -> None:
        """Make volumes again whose claims are gone, and delete claims whose Jobs are. Raises ApiError."""
        if time.monotonic() - self._looked < 1.0:
            return
        self._looked = time.monotonic()
        for volume in self._api.json("GET", VOLUMES)["items"]:
            is_leaving = "deletionTimestamp" in volume["metadata"]
            if is_leaving or volume.get("status", {}).get("phase") != "Released":
                continue
            name, of = volume["metadata"]["name"], volume["spec"].get("storageClassName")
            with suppress(ApiError):
                self._api.request("DELETE", f"{VOLUMES}/{name}")
                if of in ON_NODE:
                    self._make_local(of, name.partition("-on-")[2])
        if not self._single:
            return
        jobs = {each["metadata"]["name"] for each in self._api.json("GET", _JOBS)["items"]}
        for claim in sorted(self._single):
            if not jobs & {f"{claim}-a", f"{claim}-b"}:
                with suppress(ApiError):
                    self._api.request("DELETE", f"{_CLAIMS}/{claim}")
                self._single.discard(claim)


def _claim(class_name: str) -> Json:
    size = {"requests": {"storage": "1Gi"}}
    return {"accessModes": [_MODES[class_name]], "storageClassName": class_name, "resources": size}
