"""What a soak draws of its own comes when it is to: a place is taken once a gang runs, and not before."""

import random
from collections import Counter
from typing import Any, cast

import pytest

from hack.soaks import scaling
from hack.soaks.crowd import Crowd
from hack.soaks.ending import unfinished
from hack.soaks.partial_victims import ABOVE, Halving
from hack.soaks.plan import NOMINATED, PINNED, POD_GROUP, Plan
from hack.soaks.reader import PODS
from hack.soaks.scaling import Scaling
from webhook.kube.client import Api

Json = dict[str, Any]


class Scripted:
    """Answers as it is asked to, and remembers what was written; there is nothing else."""

    def __init__(self) -> None:
        self.items: dict[str, list[Json]] = {}
        self.failed = 0
        self.written: list[tuple[str, str, Json]] = []

    def json(self, _method: str, path: str, **_: Any) -> Json:
        if "/jobs/" in path:
            return {"status": {"failed": self.failed}}
        return {"items": self.items.get(path, [])}

    def request(self, method: str, path: str, body: Json | None = None, **_: Any) -> None:
        self.written.append((method, path, body or {}))

    @property
    def deleted(self) -> list[str]:
        return [path.rpartition("/")[2] for method, path, _ in self.written if method == "DELETE"]


def pod(uid: str, node: str = "", phase: str = "Pending") -> Json:
    metadata = {"uid": uid, "name": uid, "namespace": "soak"}
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase}}


def test_every_second_soak_binds_gangs_as_one_and_some_of_these_by_nomination() -> None:
    drawn = Counter(Plan(60, seed).bind for seed in range(300))
    assert drawn.keys() == {PINNED, POD_GROUP, NOMINATED}
    assert min(drawn.values()) >= 30
    assert 120 <= drawn[PINNED] <= 180
    without = {Plan(60, seed, without=frozenset({"nominated"})).bind for seed in range(300)}
    assert without == {PINNED, POD_GROUP}


# --- halves ---------------------------------------------------------------------------------------


@pytest.fixture
def api() -> Scripted:
    return Scripted()


@pytest.fixture
def halving(api: Scripted) -> Halving:
    """One that has made its first gang, of pods that may run on as many nodes."""
    done: Counter[str] = Counter()
    crowd = Crowd(cast(Api, api), 80, random.Random(1), done)
    made = Halving(cast(Api, api), crowd, ["a", "b", "c", "d"], 600, random.Random(1), done)
    made.something(lambda _: False)
    return made


def places(api: Scripted) -> list[str]:
    """Where the pods of the first gang may run."""
    (job,) = (body for _, path, body in api.written if path.endswith("/jobs"))
    terms = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert len(term["matchExpressions"][0]["values"]) == job["spec"]["completions"]
    return list(term["matchExpressions"][0]["values"])


def sent(api: Scripted) -> list[Json]:
    """Those who were sent to take a place."""
    pods = [body for _, path, body in api.written if path.endswith("/pods")]
    return [body for body in pods if body["spec"].get("priorityClassName") == ABOVE]


def stand(api: Scripted, nodes: list[str]) -> None:
    """Let a pod of the gang run on each of these."""
    api.items["/api/v1/namespaces/soak/pods"] = [pod(f"on-{node}", node, "Running") for node in nodes]


def test_one_place_of_a_gang_is_taken_once_all_of_it_runs(api: Scripted, halving: Halving) -> None:
    own = places(api)
    stand(api, own[1:])
    halving.something(lambda _: False)
    assert not sent(api)
    stand(api, own)
    halving.something(lambda _: False)
    halving.something(lambda _: False)
    (one,) = sent(api)
    assert one["spec"]["nodeSelector"]["kubernetes.io/hostname"] in own


def test_a_gang_whose_pods_would_come_again_late_is_left_alone(api: Scripted, halving: Halving) -> None:
    stand(api, places(api))
    api.failed = 2
    halving.something(lambda _: False)
    assert not sent(api)


# --- nodes that an autoscaler removes -------------------------------------------------------------


def test_nodes_that_stand_empty_are_removed_and_may_come_again(
    api: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "_IDLE_SECONDS", -2.0)
    choices, done = random.Random(1), Counter[str]()
    made = Scaling(cast(Api, api), Crowd(cast(Api, api), 80, choices, done), choices, done)
    made.standin.pool.clear()
    api.items["/api/v1/nodes"] = [{"metadata": {"name": node.name}} for node in made.nodes]
    api.items[PODS] = [pod("there", "pool-2")]
    made.end_what_is_due()
    assert sorted(api.deleted) == ["pool-0", "pool-1", "pool-3"]
    assert len(made.standin.pool) == 3


# --- the end --------------------------------------------------------------------------------------


def test_what_others_run_for_ever_ends_before_a_gang_is_reported_as_not_ended(api: Scripted) -> None:
    ended: list[str] = []

    def add_nodes() -> None:
        ended.append("others")
        api.items[PODS] = []

    api.items[PODS] = [pod("waits")]
    assert unfinished(cast(Api, api), 1.0, lambda: None, Counter(), add_nodes) == []
    assert ended == ["others"]
