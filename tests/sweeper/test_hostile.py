"""A tenant with the rights of `edit` does its worst beside one whose gangs must not notice.

The choices are the same in every run; hack/soak draws others, with every other kind of failure.
"""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation, facts_of, system_node
from hack.local.pods import GPUS, RUN_FOR, Json, is_finished, is_terminating, name_of
from hack.soaks.checks import Checks, listed
from hack.soaks.hostile import HIGHEST, PODS, Drawing, Written
from hack.soaks.sweepers import SETTINGS, start_sweepers
from hack.soaks.tenant import Tenant, admit
from labeler.contract import keys
from tests.support import create_namespace, register_nodes
from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from tests.sweeper.pods import decode
from webhook.configuration.settings import Settings
from webhook.kube.client import Api
from webhook.sweeper.observe.gangs import OWN_ERROR

SEED: Final = 4711
GANGS: Final = 14
AT_ONCE: Final = 3
STARVED_SECONDS: Final = 600.0
"""A gang of the quiet tenant that still waits then starves: on the busiest machine none waits so long."""
SHAPE: Final = nodes.Shape(nodes=10, blocks=2, subblocks=2, intel=2)
SHORT: Final = SETTINGS | {
    "bind_seconds": 4,
    "abandon_seconds": 10,
    "reserve_seconds": 3,
    "reserve_hold_seconds": 4,
    "pass_seconds": 2,
}


@pytest.fixture
def installation(cluster: Cluster) -> Iterator[Installation]:
    """topogate as its manifests say, with a sweeper of short patience, and labelled nodes."""
    grid = nodes.grid(SHAPE)
    made = Installation(cluster)
    register_nodes(cluster, [system_node()], labelled=False)
    made.apply(facts_of(grid))
    made.start(("certs", "webhook"))
    register_nodes(cluster, grid)
    (made.programs["sweeper"],) = start_sweepers(made, settings=SHORT)
    yield made
    made.stop()


class Quiet:
    """Creates gangs, a few at a time, and sees how long each waits for all of its pods to have run."""

    def __init__(self, api: Api, namespace: str, choices: random.Random) -> None:
        self._api, self._namespace, self._random = api, namespace, choices
        self.made: dict[str, tuple[int, float]] = {}
        self.waited: dict[str, float] = {}
        self._seen: set[str] = set()
        self.lost: set[str] = set()
        """Pods that were deleted before they had ended."""

    def advance(self, pods: list[Json]) -> None:
        """pods: its own."""
        self._seen |= {name_of(pod) for pod in pods}
        there = {name_of(pod) for pod in pods if is_finished(pod) or not is_terminating(pod)}
        self.lost |= self._seen - there
        started = [
            pod["metadata"]["labels"]["job-name"]
            for pod in pods
            if pod["status"]["phase"] in ("Running", "Succeeded")
        ]
        for name, (size, since) in self.made.items():
            if name not in self.waited and started.count(name) == size:
                self.waited[name] = time.monotonic() - since
        if len(self.made) < GANGS and len(self.made) - len(self.waited) < AT_ONCE:
            self._create(f"quiet-{len(self.made)}")

    @property
    def longest(self) -> float:
        """Seconds for which one of them has waited, or waits."""
        now = time.monotonic()
        return max((self.waited.get(name, now - at) for name, (_, at) in self.made.items()), default=0.0)

    def _create(self, name: str) -> None:
        size = self._random.choice((1, 2, 3, 4))
        of_cards = self._random.random() < 0.3
        limits = {keys.I915: 1, keys.MILLICORES: 400} if of_cards else {GPUS: self._random.choice((1, 2))}
        size = 1 if of_cards else size
        template = {
            "metadata": {"annotations": {RUN_FOR: "3s"}},
            "spec": {
                "restartPolicy": "Never",
                "priorityClassName": HIGHEST,
                "containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}],
            },
        }
        spec = {"completionMode": "Indexed", "completions": size, "parallelism": size, "template": template}
        body = {"metadata": {"name": name}, "spec": spec}
        self._api.request("POST", f"/apis/batch/v1/namespaces/{self._namespace}/jobs", body=body)
        self.made[name] = size, time.monotonic()


def drawn(seed: int, count: int) -> list[Written]:
    """What is written by so many deeds."""
    drawing = Drawing(random.Random(seed), [f"n{number}" for number in range(10)], ["quiet-0", "quiet-1"])
    return [each for _ in range(count) for each in drawing.draw()[1]]


def test_a_seed_draws_the_same_again() -> None:
    assert drawn(SEED, 100) == drawn(SEED, 100)
    assert drawn(SEED, 100) != drawn(SEED + 1, 100)


@pytest.mark.promise("I60")
@pytest.mark.parametrize("seed", range(3))
def test_whatever_waits_with_it_a_gang_that_fits_is_placed_in_the_same_pass(seed: int) -> None:
    """In memory, where no guard has refused anything."""
    hostile = [each.body for each in drawn(seed, 50) if each.path == PODS]
    for number, body in enumerate(hostile):
        body["metadata"] |= {
            "namespace": "theirs",
            "uid": f"u{number}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        body["status"] = {"phase": "Pending"}
    quiet = [gpu_pod(f"quiet-{number}", gpus=2) for number in range(3)]
    placing = Placing(Nodes(10, *map(decode, hostile), *quiet, gpus=8), Settings(reserve_seconds=0))
    orders = placing.one()
    assert {pod.metadata.name for pod in quiet} <= places(orders).keys()
    assert not [outcome for outcome in orders.outcomes if outcome.reason == OWN_ERROR]


@pytest.mark.promise("S2", "I21", "I70")
def test_whatever_one_tenant_writes_another_s_gangs_lose_no_pod_share_no_card_and_wait_not_long(
    installation: Installation,
) -> None:
    api, labels = installation.api, {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}
    ours, theirs = (create_namespace(installation.cluster, labels) for _ in range(2))
    admit(api, theirs)
    checks = Checks(frozenset({ours}), frozenset({theirs}))
    choices = random.Random(SEED)
    names = [node.name for node in nodes.grid(SHAPE)]
    drawing = Drawing(choices, names, [f"quiet-{number}" for number in range(GANGS)])
    tenant = Tenant(api, theirs, drawing, choices)
    quiet = Quiet(api, ours, random.Random(SEED))
    with ExitStack() as after:
        after.callback(tenant.leave)  # what has finalizers would stay in the way of the next test
        for _ in range(40):
            tenant.act()  # it was there first
        while len(quiet.waited) < GANGS and not checks.faults and quiet.longest < STARVED_SECONDS:
            tenant.act()
            pods, placements = listed(api, (ours, theirs))
            checks.look(pods, placements, time.monotonic(), patience=STARVED_SECONDS)
            quiet.advance([pod for pod in pods if pod["metadata"]["namespace"] == ours])
            time.sleep(0.05)

    assert checks.faults == []
    assert checks.released
    assert quiet.lost == set()
    assert quiet.longest < STARVED_SECONDS
    # It did what it is for.
    assert len(tenant.done) == 18, "each kind of deed"
    assert tenant.refused[403] > 5
