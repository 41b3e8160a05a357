"""Cards on a real kubelet: each container is looked at from inside, and compared with its annotations.

All of topogate runs as the pods of its manifests; only the cards are played (hack/local/devices.py).
"""

import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hack.local.cluster import Cluster
from hack.local.install_real import ALLOCATOR
from labeler.contract import keys
from labeler.contract.annotations import decode_allocation
from tests.node.conftest import look_inside, pods_of
from tests.node.played_site import CARDS, Site, job, played, reports_of
from tests.support import create_namespace, delete_namespace, wait_for_pods

FINISHED_SECONDS: Final = 780
WITNESSES: Final = {
    "whole": [{keys.I915: 1}],
    "several": [{keys.I915: 1}, {}, {keys.I915: 2}],
    "tiles": [{keys.I915: 1, keys.TILES: 1}, {keys.I915: 1, keys.TILES: 1}],
}
"""Pods that run through all kills, and the limits of their containers."""

LIST_ALLOCATED: Final = """
import json
from pathlib import Path
from labeler.allocator.listing import PodResources
listing = PodResources(Path("/var/lib/kubelet/pod-resources/kubelet.sock")).now()
print(json.dumps({"/".join(key): held for key, held in listing.items()}))
"""
VICTIMS: Final = ("kubelet", "allocator", "sweeper")
MOST_KILLS: Final = 12
"""Then there is peace: on a slow machine nobody would be up again before the next."""
QUIET_TICKS: Final = 2
"""The most looks in a row without a kill: on a fast machine the Jobs are done after a dozen looks."""


@pytest.fixture(scope="module")
def site(real_control_plane: Cluster) -> Iterator[Site]:
    with played(real_control_plane) as made:
        yield made


def some_containers(chance: random.Random) -> list[dict[str, int]]:
    """One to three containers; every third pod asks for tiles, in each container that asks for cards."""
    counts = [chance.choice((0, 1, 1, 2)) for _ in range(chance.randint(1, 3))]
    counts[0] = counts[0] or 1
    tiled = chance.random() < 0.33
    return [
        ({keys.I915: count} | ({keys.TILES: count} if tiled else {})) if count else {} for count in counts
    ]


def seen_tiles(text: str) -> tuple[set[str], set[tuple[int, int]]]:
    """The device files that a container reported, and the (card, tile) that Level Zero would show it."""
    files = {line for line in text.splitlines() if line.startswith(("card", "renderD"))}
    environment = dict(line.split("=", 1) for line in text.splitlines() if line.startswith("ZE_"))
    cards = [card for card in CARDS if f"card{card.number}" in files]
    every = [(card.number, tile) for card in cards for tile in range(card.tiles)]
    mask = environment.get("ZE_AFFINITY_MASK", "")
    if not mask:
        return files, set(every)
    assert environment["ZE_FLAT_DEVICE_HIERARCHY"] == "FLAT"
    return files, {every[int(entry)] for entry in mask.split(",")}


@pytest.mark.promise("S52")
def test_the_allocator_has_no_capability_and_writes_to_nothing_but_the_sockets_folder(site: Site) -> None:
    (pod,) = pods_of(site.cluster, ALLOCATOR)
    seen = look_inside(site.cluster, pod)
    assert (seen["capabilities"], seen["no_new_privileges"], seen["seccomp"]) == (0, 1, 2)
    assert not seen["written"]
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    assert [each["name"] for each in mounts if not each.get("readOnly")] == ["device-plugins"]
    assert seen["megabytes"] * 2**20 < 60 * 10**6


@pytest.mark.promise("O24")
@pytest.mark.timeout(900)
def test_each_container_sees_exactly_its_cards_and_tiles_and_no_pod_is_refused(site: Site) -> None:
    assert run_jobs(site, waves=[6, 6], victims=[]) == {}


@pytest.mark.promise("O31", "O44")
def test_each_container_sees_exactly_its_cards_and_tiles_and_keeps_them_whoever_is_killed(site: Site) -> None:
    """Each is killed once, beside containers that run, and pods come and go afterwards."""
    namespace = start_witnesses(site)
    try:
        before = look(site, namespace)
        assert len(before) == sum(len(containers) for containers in WITNESSES.values())
        for victim in VICTIMS:
            site.kill(victim)
        run_jobs(site, waves=[6], victims=[])
        assert look(site, namespace) == before
    finally:
        delete_namespace(site.cluster, namespace)  # they hold their cards for as long as they sleep


@pytest.mark.timeout(900)
@pytest.mark.when_changed("labeler/allocator", "hack/local", "manifests/components/allocator")
def test_containers_keep_their_cards_and_tiles_through_many_kills(site: Site) -> None:
    namespace = start_witnesses(site)
    try:
        before = look(site, namespace)
        assert len(before) == sum(len(containers) for containers in WITNESSES.values())
        run_jobs(site, waves=[30, 10, 10, 10], victims=list(VICTIMS))
        assert min(site.kills[victim] for victim in VICTIMS) > 0
        assert look(site, namespace) == before
    finally:
        delete_namespace(site.cluster, namespace)  # they hold their cards for as long as they sleep


def test_pods_without_a_plan_and_planned_ones_run_beside_each_other_on_whole_cards(site: Site) -> None:
    """Nobody plans for the card of a pod that nobody planned for, and of none that is out of use."""
    site.share(1)
    site.cluster.wait_for("the devices of other tests to be free", lambda: not allocated(site))
    foreign = create_namespace(site.cluster)
    for name in ("ends", "stays"):  # by default, from the highest card down: card3, then card2
        start_pod(site, foreign, name)
    (uid,) = (each["metadata"]["uid"] for each in pods_of(site.cluster, foreign) if is_named(each, "stays"))
    stays = f"{uid}=card2"
    site.cluster.wait_for(
        "the node to tell", lambda: stays in site.annotations()[keys.UNPLANNED_CARDS_ANNOTATION]
    )
    site.cluster.kubectl("delete", "pod", "ends", "-n", foreign)

    namespace = create_namespace(site.cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    assert cards_of(site, namespace, [start_job(site, namespace, f"j{number}") for number in range(3)]) == {
        "card0",
        "card1",
        "card3",
    }
    site.cluster.kubectl("delete", "jobs", "--all", "-n", namespace, "--cascade=foreground")
    file = site.cluster.namespaces.path(CARDS[0].nodes[0])
    file.unlink()
    site.cluster.wait_for(
        "the card to be told of",
        lambda: f"card0={keys.I915}:0" in site.annotations()[keys.OFFERED_CARDS_ANNOTATION],
    )
    assert cards_of(site, namespace, [start_job(site, namespace, "next")]) == {"card1"}


def is_named(pod: dict[str, Any], name: str) -> bool:
    return bool(pod["metadata"]["name"] == name)


def start_pod(site: Site, namespace: str, name: str) -> None:
    """A pod with one card, until it runs."""
    spec = job(name, [{keys.I915: 1}], 100_000)["spec"]["template"]["spec"]
    body = {"metadata": {"name": name}, "spec": spec}
    site.cluster.api().request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)
    site.cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, "--timeout=120s")


def start_job(site: Site, namespace: str, name: str) -> str:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    site.cluster.api().request("POST", path, body=job(name, [{keys.I915: 1}], 100_000))
    return name


def cards_of(site: Site, namespace: str, jobs: list[str]) -> set[str]:
    """The cards that the one pod of each Job sees; none of them was refused before."""
    site.cluster.kubectl(
        "wait", "--for=jsonpath={.status.ready}=1", "jobs", "--all", "-n", namespace, "--timeout=120s"
    )
    pods = pods_of(site.cluster, namespace)
    assert [pod["metadata"]["labels"]["job-name"] for pod in pods] == jobs, [why(pod) for pod in pods]
    found: set[str] = set()
    for pod in pods:
        name = pod["metadata"]["name"]
        seen = site.cluster.kubectl("exec", "-n", namespace, name, "--", "ls", "/dev/dri").stdout.split()
        found |= {each for each in seen if each.startswith("card")}
    return found


def start_witnesses(site: Site) -> str:
    """Pods that sleep for ever; returns their namespace once all of their containers run."""
    namespace = create_namespace(site.cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    for name, containers in WITNESSES.items():
        spec = job(name, containers, 100_000)["spec"]["template"]["spec"]
        body = {"metadata": {"name": name}, "spec": spec}
        site.cluster.api().request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)

    def all_run(pods: list[dict[str, Any]]) -> bool:
        states = [each["state"] for pod in pods for each in pod["status"].get("containerStatuses", ())]
        return len(states) == sum(map(len, WITNESSES.values())) and all("running" in each for each in states)

    wait_for_pods(site.cluster, namespace, all_run, "the witnesses to run", seconds=120)
    return namespace


def look(site: Site, namespace: str) -> dict[tuple[str, str], tuple[object, ...]]:
    """Which container it is, how often it began, what it sees inside, and which devices the kubelet books."""
    site.wait_for_devices()
    devices = allocated(site)
    found: dict[tuple[str, str], tuple[object, ...]] = {}
    for pod in pods_of(site.cluster, namespace):
        name = pod["metadata"]["name"]
        for each in pod["status"]["containerStatuses"]:
            inside = site.cluster.kubectl(
                "exec", "-n", namespace, name, "-c", each["name"], "--",
                "sh", "-c", "ls /dev/dri; env | grep ^ZE_; true",
            ).stdout  # fmt: skip
            listed = devices[f"{namespace}/{name}"][each["name"]].items()
            sorted_devices = {resource: sorted(of_resource) for resource, of_resource in listed}
            found[name, each["name"]] = (
                pod["status"]["phase"], each["containerID"], each["restartCount"], inside, sorted_devices,
            )  # fmt: skip
    return found


def allocated(site: Site) -> dict[str, dict[str, dict[str, list[str]]]]:
    """What the kubelet books: pod -> container -> resource -> devices; pods without any are left out."""
    pods = pods_of(site.cluster, ALLOCATOR)
    (name,) = (pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp"))
    output = site.cluster.kubectl("exec", "-n", ALLOCATOR, name, "--", "python3", "-c", LIST_ALLOCATED).stdout
    return {pod: found for pod, found in json.loads(output).items() if any(found.values())}


def why(pod: dict[str, Any]) -> str:
    """Why a pod failed: the kubelet's reason, or how its containers ended."""
    status = pod["status"]
    if status.get("reason"):
        return f"{status['reason']}: {status.get('message')}"
    return str([each["state"].get("terminated") for each in status.get("containerStatuses", ())])


def run_jobs(site: Site, waves: list[int], victims: list[str]) -> dict[str, str]:  # noqa: C901
    """Jobs in waves of so many, victims killed meanwhile: what containers saw is what the plan says.

    Returns the pods that failed, and why.
    """
    cluster, chance = site.cluster, random.Random(5)
    total, victim_order = sum(waves), itertools.cycle(victims)
    api = cluster.api()
    namespace = create_namespace(cluster, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wanted = {f"j{number}": some_containers(chance) for number in range(total)}
    names = iter(wanted)
    pending = [list(itertools.islice(names, count)) for count in waves]
    report_of: dict[tuple[str, str], str] = {}
    chosen: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}

    def listen() -> bool:
        """Note what finished pods have reported; returns whether all of them have."""
        all_reported = True
        for pod in api.json("GET", pods)["items"]:
            name = pod["metadata"]["name"]
            if pod["status"].get("phase") == "Failed":
                failed[name] = why(pod)
            if name in chosen or pod["status"].get("phase") != "Succeeded":
                continue
            reports = reports_of(pod)
            if reports is None:
                all_reported = False
                continue
            report_of.update({(name, container): report for container, report in reports.items()})
            chosen[name] = pod
        return all_reported

    def ended() -> int:
        """How many Jobs are done: more pods than that may succeed where a kubelet is killed."""
        return sum(bool(each.get("status", {}).get("succeeded")) for each in api.json("GET", jobs)["items"])

    started = time.monotonic()
    deadline = started + FINISHED_SECONDS
    done = quiet = kills = 0
    while done < total or not listen():
        state = f"{done} of {total} are done, {dict(site.kills)}"
        assert time.monotonic() < deadline, f"{state}; failed: {failed}"
        if pending and chance.random() < 0.5:
            for name in pending.pop(0):
                api.request("POST", jobs, body=job(name, wanted[name], chance.randint(1, 4)))
        quiet += 1
        is_due = chance.random() < 0.3 or quiet > QUIET_TICKS
        if victims and is_due and (pending or done < total * 0.8) and kills < MOST_KILLS:
            kills += 1
            site.kill(next(victim_order))
            quiet = 0
        elif kills and quiet > QUIET_TICKS:  # else Jobs with two refused pods avoid it for ten minutes
            site.reset_failures()
            quiet = 0
        time.sleep(chance.uniform(0.5, 2))
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
            files, tiles = seen_tiles(report_of[name, container["name"]])
            assert files == {Path(path).name for share in slot for path in CARDS[share.card].nodes}
            assert tiles == {
                (share.card, tile) for share in slot for tile in share.tiles or range(CARDS[share.card].tiles)
            }
    return failed
