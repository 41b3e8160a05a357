"""Cards on a real kubelet: each container is looked at from inside, and compared with its annotations.

All of topogate runs as the pods of its manifests; only the cards are played (hack/local/devices.py).
"""

import itertools
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from hack.local import devices, node
from hack.local.cluster import Cluster
from hack.local.devices import PlayedCard
from hack.local.install import SYSTEM
from hack.local.install_real import ALLOCATOR, RealInstallation
from labeler.contract import keys
from labeler.contract.annotations import decode_allocation
from tests.node.conftest import look_inside, pods_of
from tests.support import create_namespace
from webhook.kube.client import MERGE_PATCH, ApiError

CARDS: Final = [PlayedCard(number) for number in range(4)]
SHARES: Final = 10
"""As the manifest has it."""
FINISHED_SECONDS: Final = 780
QUIET_TURNS: Final = 2
"""The most looks in a row without a kill: on a fast machine the Jobs are done after a dozen looks."""


@dataclass
class Site:
    """A cluster with topogate and four cards on its real node."""

    cluster: Cluster
    kills: Counter[str] = field(default_factory=Counter)

    def kill(self, name: str) -> None:
        """SIGKILL, and a new start: of the kubelet here, of a pod by those who make it again."""
        self.kills[name] += 1
        if name == "kubelet":
            self.cluster.running["kubelet"].send(signal.SIGKILL)
            self.cluster.start("kubelet")
            return
        namespace = ALLOCATOR if name == "allocator" else SYSTEM
        pod = next((pod for pod in self.pods(namespace) if pod.startswith(f"{name}-")), None)
        if pod is not None:
            self.cluster.kubectl("delete", "pod", pod, "-n", namespace, "--force", "--grace-period=0")

    def pods(self, namespace: str) -> list[str]:
        """The names of the pods of a namespace."""
        items = self.cluster.api().json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return [item["metadata"]["name"] for item in items]

    def allocatable(self, resource: str) -> int:
        """How much of a resource the node has for kube-scheduler."""
        found = self.cluster.api().json("GET", f"/api/v1/nodes/{node.NAME}")
        return int(found["status"]["allocatable"].get(resource, 0))


@pytest.fixture(scope="module")
def site(real_control_plane: Cluster) -> Iterator[Site]:
    cluster = real_control_plane
    devices.plug(cluster.namespaces, CARDS)
    place = dict(zip(keys.PRERELEASE_TOPOLOGY, ("b0", "s0", "h0"), strict=True))
    path = f"/api/v1/nodes/{node.NAME}"
    body: dict[str, Any] = {"metadata": {"labels": place}}
    cluster.api().request("PATCH", path, body=body, content_type=MERGE_PATCH)
    installation = RealInstallation(cluster, components=("labeler-extended-resources", "allocator"))
    installation.apply()
    installation.wait()
    site = Site(cluster)
    cluster.wait_for("the cards' devices", lambda: site.allocatable(keys.I915) == len(CARDS) * SHARES)
    cluster.wait_for("the cards' tiles", lambda: site.allocatable(keys.TILES) == 2 * len(CARDS))
    yield site
    devices.unplug(cluster.namespaces, CARDS)


def job(name: str, containers: list[dict[str, int]], seconds: int) -> dict[str, Any]:
    """A Job of one pod, whose containers tell what they see and end. containers: their limits."""
    look = f"ls /dev/dri 2>/dev/null; env | grep ^ZE_; sleep {seconds}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 30,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [
                        {
                            "name": f"c{number}",
                            "image": "topogate.local/busybox:1",
                            "imagePullPolicy": "Never",
                            "command": ["sh", "-c", look],
                            "resources": {"limits": {key: str(value) for key, value in limits.items()}},
                        }
                        for number, limits in enumerate(containers)
                    ],
                }
            },
        },
    }


def some_containers(chance: random.Random) -> list[dict[str, int]]:
    """One to three containers; every third pod asks for tiles, in each container that asks for cards."""
    counts = [chance.choice((0, 1, 1, 2)) for _ in range(chance.randint(1, 3))]
    counts[0] = counts[0] or 1
    tiled = chance.random() < 0.33
    return [
        ({keys.I915: count} | ({keys.TILES: count} if tiled else {})) if count else {} for count in counts
    ]


def seen_tiles(text: str) -> tuple[set[str], set[tuple[int, int]]]:
    """The device files that a container told of, and the (card, tile) that Level Zero would show it."""
    files = {line for line in text.splitlines() if line.startswith(("card", "renderD"))}
    told = dict(line.split("=", 1) for line in text.splitlines() if line.startswith("ZE_"))
    cards = [card for card in CARDS if f"card{card.number}" in files]
    every = [(card.number, tile) for card in cards for tile in range(card.tiles)]
    mask = told.get("ZE_AFFINITY_MASK", "")
    if not mask:
        return files, set(every)
    assert told["ZE_FLAT_DEVICE_HIERARCHY"] == "FLAT"
    return files, {every[int(entry)] for entry in mask.split(",")}


def test_the_allocator_has_no_capability_and_writes_to_nothing_but_the_sockets_folder(site: Site) -> None:
    (pod,) = pods_of(site.cluster, ALLOCATOR)
    seen = look_inside(site.cluster, pod)
    assert (seen["capabilities"], seen["no_new_privileges"], seen["seccomp"]) == (0, 1, 2)
    assert not seen["written"]
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    assert [each["name"] for each in mounts if not each.get("readOnly")] == ["device-plugins"]
    assert seen["megabytes"] * 2**20 < 60 * 10**6


@pytest.mark.timeout(900)
def test_each_container_sees_exactly_its_cards_and_tiles(site: Site) -> None:
    run_jobs(site, waves=[6, 6], victims=[])


@pytest.mark.timeout(900)
def test_each_container_sees_exactly_its_cards_and_tiles_whoever_is_killed(site: Site) -> None:
    run_jobs(site, waves=[30, 10, 10, 10], victims=["kubelet", "allocator", "sweeper"])
    assert min(site.kills[victim] for victim in ("kubelet", "allocator", "sweeper")) > 0


def run_jobs(site: Site, waves: list[int], victims: list[str]) -> None:
    """Jobs in waves of so many, victims killed meanwhile: what containers saw is what the plan says."""
    cluster, chance = site.cluster, random.Random(5)
    total, turn = sum(waves), itertools.cycle(victims)
    api = cluster.api()
    namespace = create_namespace(cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wanted = {f"j{number}": some_containers(chance) for number in range(total)}
    names = iter(wanted)
    pending = [list(itertools.islice(names, count)) for count in waves]
    told: dict[tuple[str, str], str] = {}
    chosen: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}

    def listen() -> bool:
        """Take down what finished pods have said; returns whether all of them could be heard."""
        all_heard = True
        for pod in api.json("GET", pods)["items"]:
            name = pod["metadata"]["name"]
            if pod["status"].get("phase") == "Failed":
                failed[name] = f"{pod['status'].get('reason')}: {pod['status'].get('message')}"
            if name in chosen or pod["status"].get("phase") != "Succeeded":
                continue
            try:
                for container in pod["spec"]["containers"]:
                    query = {"container": container["name"]}
                    said = api.request("GET", f"{pods}/{name}/log", query=query)
                    told[name, container["name"]] = said.decode()
            except ApiError:
                all_heard = False  # a kubelet that was just started does not know the pod yet: asked again
                continue
            chosen[name] = pod
        return all_heard

    def ended() -> int:
        """How many Jobs are done: more pods than that may succeed where a kubelet is killed."""
        return sum(bool(each.get("status", {}).get("succeeded")) for each in api.json("GET", jobs)["items"])

    started = time.monotonic()
    deadline = started + FINISHED_SECONDS
    done = quiet = 0
    while done < total or not listen():
        state = f"{done} of {total} are done, {dict(site.kills)}"
        assert time.monotonic() < deadline, f"{state}; failed: {failed}"
        if pending and chance.random() < 0.5:
            for name in pending.pop(0):
                api.request("POST", jobs, body=job(name, wanted[name], chance.randint(2, 6)))
        quiet += 1
        if victims and (pending or done < total * 0.8) and (chance.random() < 0.3 or quiet > QUIET_TURNS):
            site.kill(next(turn))
            quiet = 0
        time.sleep(chance.uniform(1, 3))
        listen()
        done = ended()
        print(f"{time.monotonic() - started:.0f} s: {state}, {len(failed)} failed")
    print("why pods failed:", Counter(failed.values()))
    of_job = Counter(pod["metadata"]["labels"]["job-name"] for pod in chosen.values())
    print("Jobs with more than one pod that succeeded:", {k: v for k, v in of_job.items() if v > 1})

    assert len(chosen) >= total
    for name, pod in chosen.items():
        plan = decode_allocation(pod["metadata"]["annotations"], len(pod["spec"]["containers"]))
        assert plan is not None
        for container, slot in zip(pod["spec"]["containers"], plan.slots, strict=True):
            files, tiles = seen_tiles(told[name, container["name"]])
            assert files == {Path(path).name for share in slot for path in CARDS[share.card].nodes}
            assert tiles == {
                (share.card, tile) for share in slot for tile in share.tiles or range(CARDS[share.card].tiles)
            }
