"""The pods of a moment, made of those before and of what has changed, are those of a whole reading."""

import random
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from webhook.extensions.node_health.node_health import candidates
from webhook.extensions.node_health.pod_failures import gang_id
from webhook.kube.objects import Pod
from webhook.sweeper.observe.membership import controller_of, key_of
from webhook.sweeper.observe.plans import is_gated
from webhook.sweeper.observe.pods import Journal, Pods, PodTrait, TraitRules
from webhook.workloads import marks

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OWNERS = ("ReplicaSet", "DaemonSet", "Job")


class Story:
    """Pods to which something happens at each step."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.pods: dict[str, Pod] = {}
        self.made = 0

    def pod(self, name: str, uid: str) -> Pod:  # noqa: C901
        """A pod of any sort."""
        dice = self.dice
        metadata: dict[str, Any] = {"uid": uid, "annotations": {}, "namespace": dice.choice(("ns", "system"))}
        spec: dict[str, Any] = {} if dice.random() < 0.4 else {"schedulingGates": []}
        if dice.random() < 0.3:
            metadata["annotations"][keys.GAS_TIMESTAMP_ANNOTATION] = "1"
        if spec and dice.random() < 0.7:
            spec["nodeName"] = dice.choice(("n1", "n2", "n3"))
        if dice.random() < 0.5:
            metadata["annotations"][keys.GANG_ANNOTATION] = dice.choice("gh")
        if dice.random() < 0.3:
            metadata["annotations"][keys.SPREAD_TOPOLOGY_ANNOTATION] = "block"
        if dice.random() < 0.2:
            metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 900}
        if dice.random() < 0.2:
            metadata["labels"] = dict.fromkeys(marks.EXCLUSIVE_LABELS, "j")
            metadata["annotations"][marks.JOBSET_EXCLUSIVE] = dice.choice(("", "block"))
        if dice.random() < 0.3:
            kind = dice.choice(OWNERS)
            version = "batch/v1" if kind == "Job" else "apps/v1"
            owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "o", "controller": True}
            metadata["ownerReferences"] = [owner]
        if dice.random() < 0.3:
            spec["affinity"] = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}
        if dice.random() < 0.2:
            spec["terminationGracePeriodSeconds"] = 900
        if dice.random() < 0.2:
            spec["schedulingGroup"] = {"podGroupName": "group"}
        if dice.random() < 0.5:
            spec["priority"] = dice.choice((-10, 0, 10))
        phase = dice.choice(("Pending", "Running")) if "nodeName" in spec else "Pending"
        status: dict[str, Any] = {"phase": phase}
        if dice.random() < 0.2:
            status["containerStatuses"] = [{"state": {"waiting": {"reason": "RunContainerError"}}}]
        return decode({**pod_json(name, metadata=metadata, **spec), "status": status})

    def step(self, journal: Journal) -> None:
        """A pod is created, changed, deleted, or recreated under its name."""
        name = f"p{self.dice.randrange(9)}"
        before, after = self.pods.get(name), None
        if before is None or self.dice.random() < 0.7:
            again = before is None or self.dice.random() < 0.3
            self.made += again
            after = self.pod(name, f"uid-{self.made}" if again or before is None else before.metadata.uid)
        journal.note(before, after)
        self.pods = {key: pod for key, pod in {**self.pods, name: after}.items() if pod is not None}


RULES = TraitRules(is_gated, key_of, {"system"})


def uids(groups: Mapping[Any, Iterable[Pod]]) -> dict[Hashable, list[str]]:
    """Groups of pods, comparable."""
    return {key: sorted(pod.metadata.uid for pod in pods) for key, pods in groups.items()}


@pytest.mark.promise("I36")
@pytest.mark.parametrize("seed", range(6))
def test_pods_of_a_moment_are_those_of_the_one_before_and_what_has_changed(seed: int) -> None:
    story, journal = Story(seed), Journal()
    pods = Pods(RULES)
    for _ in range(80):
        for _ in range(story.dice.randint(0, 4)):
            story.step(journal)
        earlier, seen = pods, (dict(pods.by_uid), {sort: dict(pods.of[sort]) for sort in PodTrait})
        pods = pods.after(journal.take())
        rebuilt = Pods.sorted(RULES, story.pods.values())
        assert pods.by_uid == {pod.metadata.uid: pod for pod in story.pods.values()} == rebuilt.by_uid
        assert pods.of == rebuilt.of
        assert uids(pods.bound) == uids(rebuilt.bound)
        assert uids(pods.waiting) == uids(rebuilt.waiting)
        assert uids(pods.mates) == uids(rebuilt.mates)
        assert uids(pods.siblings) == uids(rebuilt.siblings)
        assert pods.priorities == rebuilt.priorities
        assert (earlier.by_uid, earlier.of) == seen, "a pass keeps what it has seen"


def test_every_trait_occurs_in_the_stories() -> None:
    story, found = Story(1), set[PodTrait]()
    for _ in range(300):
        story.step(Journal())
        found.update(*map(RULES.traits, story.pods.values()))
    assert found == set(PodTrait)


@pytest.mark.parametrize("seed", range(2))
def test_those_that_may_speak_of_a_failure_are_found_without_looking_at_all_pods(seed: int) -> None:
    story = Story(seed)
    for _ in range(60):
        story.step(Journal())
        pods = Pods.sorted(RULES, story.pods.values())
        others = list(pods.of[PodTrait.OTHER].values())
        # A bare pod is the only one of its gang, so it is asked for by its node alone.
        makers = {
            pod.metadata.uid: maker
            for pod in others
            if (maker := controller_of(pod, key_of(pod))).id != pod.metadata.uid
        }
        gangs = {uid: (maker.namespace, gang_id(maker)) for uid, maker in makers.items()}
        nodes = {each.metadata.uid: (each.metadata.namespace, each.spec.node_name) for each in others}
        some = frozenset(each for each in gangs.values() if story.dice.random() < 0.5)
        there = frozenset(each for each in nodes.values() if each[1] and story.dice.random() < 0.3)
        found = [pod.metadata.uid for pod in candidates(pods, some, there)]
        assert len(found) == len(set(found))
        assert set(found) == {uid for uid in nodes if gangs.get(uid) in some or nodes[uid] in there}


def test_pods_of_which_nothing_has_changed_are_the_very_same() -> None:
    pods = Pods.sorted(RULES, [decode(pod_json("a"))])
    assert pods.after({}) is pods
    assert pods.after({"unknown": None}) is pods


def test_a_sort_that_nothing_has_joined_or_left_is_the_very_same() -> None:
    bound = decode(pod_json("b", nodeName="n1", schedulingGates=[]))
    pods = Pods.sorted(RULES, [decode(pod_json("a"))])
    after = pods.after({bound.metadata.uid: bound})
    assert after.of[PodTrait.GATED] is pods.of[PodTrait.GATED]


def test_a_journal_has_what_has_become_of_pods_that_were_there() -> None:
    there, gone, after = (decode(pod_json(name)) for name in ("a", "b", "a"))
    journal = Journal()
    journal.note(there, after)
    journal.note(gone, None)
    journal.begin({"ns/a": there, "ns/b": gone})
    assert journal.take() == {there.metadata.uid: after, gone.metadata.uid: None}
    assert not journal.take()
