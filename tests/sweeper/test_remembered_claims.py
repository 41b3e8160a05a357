"""What is remembered of volumes, devices, namespaces, owners and statuses changes nothing either."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.devices.bodies import claim, claim_spec, device_class, exactly, given, gpus
from tests.scheduling.shelf import Shelf
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.readings import HOSTNAME, Cluster
from tests.sweeper.reports import Reports
from tests.sweeper.stories import NODES, Story, seen
from webhook.configuration.settings import Settings
from webhook.extensions.device_claims import CLAIMS as OF_CLAIMS
from webhook.extensions.device_claims import CLASSES, SLICES, TEMPLATES
from webhook.inquiry.resource_adder import ResourceAdder
from webhook.kube.client import Api
from webhook.kube.devices import DeviceClass, ResourceClaim, ResourceSlice
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.placement.model import PodClass
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.scheduling.storage import Storage
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.reservations import STARVATION, Reservation
from webhook.sweeper.observe.gangs import GangCache, GangKey, OwnerFacts, gather
from webhook.sweeper.observe.pods import Journal
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import START, Moment, View

DISKS = ("d0", "d1", "w0", "w1")
CLAIMS = ("c0", "c1", "c2")
NONE: dict[str, Any] = {}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Claimed(Cluster):
    """A cluster with volumes, devices and labelled namespaces."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf()
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.labels: NamespaceLabels = {}

    def storage(self, is_wanted: bool) -> Storage | None:  # type: ignore[override]
        return self.shelf.storage if is_wanted else None

    def read_collections(self, asked: Any) -> dict[Any, Any]:
        known = {SLICES: self.slices, CLASSES: self.classes, OF_CLAIMS: self.claims, TEMPLATES: NONE}
        return {each: known[each] for each in asked}

    def namespace_labels(self) -> NamespaceLabels:  # type: ignore[override]
        return self.labels


class Looks(Snapshotter):
    """One that sees what claims on devices add, and remembers that as well."""

    def __init__(self, cluster: Claimed, settings: Settings, journal: Journal | None = None) -> None:
        super().__init__(cluster, settings, journal)
        self._adder = ResourceAdder(settings, cluster.read_collections)

    def view(self, now: Moment = START) -> View:
        return self._adder.completed(super().view(now))


class ClaimedStory(Story):
    """One in which more happens than to pods."""

    cluster: Claimed

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        nodes, self.cluster = self.cluster.nodes, Claimed()
        self.cluster.nodes = nodes
        for _ in range(6):
            for happens in self.others:
                happens()

    @property
    def others(self) -> tuple[Callable[[], None], ...]:
        """What happens to others than pods, nodes and plans."""
        return self.disk, self.shelve, self.slice, self.claim, self.label, self.classify

    def pod(self, name: str) -> Pod:
        made, dice, spec = super().pod(name), self.dice, dict[str, Any]()
        if dice.random() < 0.5:
            asked = dice.sample(DISKS, dice.randint(1, 2))
            spec["volumes"] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in asked]
        if dice.random() < 0.4:
            asked = dice.sample(CLAIMS, dice.randint(1, 2))
            spec["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in asked]
        if made.spec.affinity is None and dice.random() < 0.3:
            term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}}
            term |= {"namespaceSelector": {"matchLabels": {"team": "t"}}}
            spec["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
        drawn = decode(pod_json(name, **spec)).spec
        return msgspec.structs.replace(
            made,
            spec=msgspec.structs.replace(
                made.spec,
                volumes=drawn.volumes,
                resource_claims=drawn.resource_claims,
                affinity=made.spec.affinity or drawn.affinity,
            ),
        )

    def step(self) -> None:
        if self.dice.random() < 0.6:
            super().step()
        else:
            self.dice.choice(self.others)()

    def disk(self) -> None:
        """A volume and its claim are created or replaced, or a claim is deleted."""
        shelf, name = self.cluster.shelf, self.dice.choice(DISKS)
        if self.dice.random() < 0.1:
            shelf.claims = {key: each for key, each in shelf.claims.items() if key != f"ns/{name}"}
        elif name.startswith("d"):
            shelf.disk(name, (self.dice.choice(("ReadWriteMany", "ReadWriteOncePod")),))
        else:
            shelf.wait(name, self.dice.choice(("1Gi", "2Gi")))

    def shelve(self) -> None:
        """A driver publishes another number of volumes, or of none; a free volume comes, or moves."""
        shelf, node = self.cluster.shelf, self.dice.choice(NODES)
        if self.dice.random() < 0.1:
            shelf.nodes = {name: each for name, each in shelf.nodes.items() if name != node}
        elif self.dice.random() < 0.5:
            shelf.limit(node, self.dice.randint(1, 3))
        else:
            shelf.local(f"pv{self.dice.randrange(3)}", on=(node,))

    def slice(self) -> None:
        node, count = self.dice.choice(NODES), self.dice.randint(0, 3)
        self.cluster.slices = {**self.cluster.slices, node: gpus(node, count)}

    def claim(self) -> None:
        name, dice = self.dice.choice(CLAIMS), self.dice
        of = given(f"g{dice.randrange(3)}", pool=dice.choice(NODES)) if dice.random() < 0.4 else None
        made = claim(name, claim_spec(exactly(dice.randint(1, 2))), given=of, namespace="ns")
        self.cluster.claims = {**self.cluster.claims, f"ns/{name}": made}

    def label(self) -> None:
        self.cluster.labels = {"ns": {"team": self.dice.choice("tu")}}

    def classify(self) -> None:
        expression = self.dice.choice(('device.driver == "gpu.example.com"', "true", "device.driver == ''"))
        self.cluster.classes = {"gpu": device_class("gpu", expression)} if self.dice.random() < 0.8 else {}


def classes(snapshotter: Snapshotter) -> dict[str, PodClass | str]:
    """What each pod that waits asks for."""
    view = snapshotter.view()
    found: dict[str, PodClass | str] = {}
    for pod in view.gated:
        try:
            found[pod.metadata.uid] = view.class_of(pod)
        except ValueError as error:
            found[pod.metadata.uid] = str(error)
    return found


def agree(one: PodClass | str, fresh: PodClass | str) -> bool:
    """Whether two classes ask for the same, but for rules under which nobody waits any more."""
    if isinstance(one, str) or isinstance(fresh, str):
        return one == fresh
    common = {name: amount for name, amount in one.requests if name in dict(fresh.requests)}
    rest = (one.rules, one.problem, one.cards, dict(one.beside))
    return common == dict(fresh.requests) and rest == (
        fresh.rules, fresh.problem, fresh.cards, dict(fresh.beside)
    )  # fmt: skip


@pytest.mark.promise("I36")
@pytest.mark.parametrize("counted", [frozenset[str](), frozenset({"gpu"})], ids=["needed", "counted"])
@pytest.mark.parametrize("seed", range(3))
def test_a_memory_of_claims_sees_what_an_empty_one_does(seed: int, counted: frozenset[str]) -> None:
    story, journal = ClaimedStory(seed), Journal()
    settings = Settings(gpu_device_classes=counted)
    remembers = Looks(story.cluster, settings, journal)
    for _ in range(60):
        story.step_noted_in(journal)
        afresh = Looks(story.cluster, settings)
        nodes, rest = seen(remembers)
        fresh_nodes, fresh_rest = seen(afresh)
        assert rest == fresh_rest
        assert nodes.keys() == fresh_nodes.keys()
        for name, fresh in fresh_nodes.items():
            assert {each: nodes[name].free[each] for each in fresh.free} == fresh.free
            assert (nodes[name].cards, nodes[name].path) == (fresh.cards, fresh.path)
        known, asked = classes(remembers), classes(afresh)
        assert known.keys() == asked.keys()
        for uid, each in asked.items():
            assert agree(known[uid], each), (known[uid], each)


def drawn_facts(dice: random.Random) -> OwnerFacts:
    """What an owner may say of its gang."""
    complaint = dice.choice((("", ""), ("2026-01-02T00:00:00Z", "quota")))
    devices = dice.choice((None, True, False))
    return OwnerFacts(
        dice.choice((None, 1, 2, 5)),
        dice.random() < 0.3,
        minimum=dice.choice((None, None, 1, 2)),
        blocked=lambda: complaint,
        is_cut=dice.random() < 0.2,
        devices=lambda: devices,
    )


@pytest.mark.parametrize("seed", range(2))
def test_gangs_that_are_remembered_are_those_gathered_again(seed: int) -> None:
    story, journal, cache = ClaimedStory(seed), Journal(), GangCache()
    remembers = Looks(story.cluster, Settings(), journal)
    owner_facts: dict[GangKey, OwnerFacts] = {}
    for _ in range(80):
        story.step_noted_in(journal)
        view = remembers.view()
        for pod in view.gated:
            if (key := view.gang_of(pod)) not in owner_facts or story.dice.random() < 0.1:
                owner_facts[key] = drawn_facts(story.dice)
            elif story.dice.random() < 0.2:
                now = drawn_facts(story.dice)
                owner_facts[key] = replace(owner_facts[key], blocked=now.blocked, devices=now.devices)
        made = gather(view.gated, view.others, owner_facts.__getitem__, view.gang_of, cache.gang_of)
        cache.end_pass()
        assert made == gather(view.gated, view.others, owner_facts.__getitem__, view.gang_of)


class Written(Api):
    """The API server and the copy of it, as far as Placements are concerned."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.writes = 0

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.writes += 1
        if method != "PATCH":
            return b""
        namespace, name = path.split("/")[5:8:2]
        before = msgspec.to_builtins(self.cluster.placements[f"{namespace}/{name}"])
        status = {key: value for key, value in body["status"].items() if value is not None}
        return msgspec.json.encode({**before, "status": status})

    def current_placements(self) -> dict[str, Placement]:
        return self.cluster.placements

    def written(self, placement: Placement) -> None:
        self.cluster.placements = {**self.cluster.placements, placement.key: placement}

    def forgotten(self, placement: Placement) -> None:
        there = self.cluster.placements
        self.cluster.placements = {key: each for key, each in there.items() if key != placement.key}


@pytest.mark.promise("I36")
@pytest.mark.parametrize("seed", range(3))
def test_after_a_report_one_without_memory_has_nothing_to_add(seed: int) -> None:
    story, journal = Story(seed), Journal()
    api = Written(story.cluster)
    cache: Any = api
    surroundings = Pass(api, cache, Settings())
    reporter = Reports(surroundings)
    remembers = Snapshotter(story.cluster, Settings(), journal)
    ends = datetime(2026, 1, 1, tzinfo=UTC)
    total = 0
    for _ in range(120):
        for _ in range(story.dice.randrange(3)):
            story.step_noted_in(journal)
        holders = [key for key in story.cluster.placements if story.dice.random() < 0.2]
        expected = {
            key: Reservation(STARVATION, key, frozenset({story.dice.choice(NODES)}), 0.0, 1.0, ends)
            for key in holders
        }
        reporter.report(remembers.view(), [], reservations=expected)
        total, api.writes = total + api.writes, 0
        Reports(surroundings).report(remembers.view(), [], reservations=expected)
        assert not api.writes
    assert total > 20
