"""The sentence of `topogate explain` is the sentence of the sweeper's next pass, word for word."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.explanation import explain
from webhook.kube.client import Api, ApiError
from webhook.kube.collection import Listing
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.attempt import RETRY_SECONDS
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.observe.plans import is_gated
from webhook.sweeper.observe.view import Moment
from webhook.sweeper.sweep import Sweeper

GPU: Final = "nvidia.com/gpu"
BEGIN: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
SETTINGS: Final = Settings(reserve_share=1.0)
LEVELS: Final = ("topology.gke.io/cluster", "topology.gke.io/rack", "topology.gke.io/host")


class Stored(Api):
    """An API server that stores Placements, and carries out releases and evictions."""

    def __init__(self) -> None:
        self.placements: dict[str, dict[str, Any]] = {}
        self.released: set[str] = set()
        self.evicted: set[str] = set()
        self.version = 0

    def request(self, method: str, path: str, **options: Any) -> bytes:
        """Raises ApiError for anything else."""
        *_, namespace, kind, name = ("", "", *path.removesuffix("/status").split("/"))
        if name == "placements":
            return self._written(f"{kind}/{options['body']['metadata']['name']}", options["body"])
        if kind == "placements" and method == "DELETE":
            return msgspec.json.encode(self.placements.pop(f"{namespace}/{name}"))
        if kind == "placements":
            return self._written(f"{namespace}/{name}", options["body"])
        if kind == "pods" and method == "PATCH":
            self.released.add(f"{namespace}/{name}")
            return msgspec.json.encode({"metadata": {"name": name, "namespace": namespace}})
        if name == "eviction":
            self.evicted.add(kind)
            return b"{}"
        raise ApiError(404, "NotFound", f"{method} {path}: there is none")

    def _written(self, key: str, body: Mapping[str, Any]) -> bytes:
        """Merge the body into the Placement."""
        self.version += 1
        before = self.placements.get(key, {"metadata": {"uid": key}})
        after = {**before}
        for part in ("spec", "status"):
            merged = {**before.get(part, {}), **body.get(part, {})}
            after[part] = {name: value for name, value in merged.items() if value is not None}
        metadata = {"namespace": key.partition("/")[0], "name": key.partition("/")[2]}
        after["metadata"] = {**before["metadata"], **metadata, "resourceVersion": str(self.version)}
        self.placements[key] = after
        return msgspec.json.encode(after)


class SteppedSweeper(Sweeper):
    """Its passes are at the moments that a test chooses."""

    moment = Moment(1000.0, BEGIN)

    def _now(self) -> Moment:
        return self.moment


@dataclass
class World:
    """A cluster with one sweeper, which leads from the beginning on."""

    nodes: dict[str, Node]
    pods: dict[str, Pod]
    api: Stored = field(default_factory=Stored)
    moment: Moment = SteppedSweeper.moment

    def __post_init__(self) -> None:
        self.cache = ClusterCache(self.api)
        self.cache._follows_failed = True  # nothing fails
        surroundings = Pass(self.api, self.cache, SETTINGS, clock=lambda: self.moment.seconds)
        self.sweeper = SteppedSweeper(surroundings)

    def step(self, seconds: float) -> tuple[dict[str, str], dict[str, list[str]]]:
        """The next pass, so many seconds later: its reasons, and the explanation before it, by gang."""
        at = self.moment
        now = Moment(at.seconds + seconds, at.at + timedelta(seconds=seconds))
        self.moment = self.sweeper.moment = now
        self.cache.nodes._replace(Listing("1", dict(self.nodes)))
        self.cache.pods._replace(Listing("1", dict(self.pods)))
        placements = dict(self.cache.current_placements())
        waiting = {
            str(self.sweeper._snapshotter._gang_of(pod)): pod
            for pod in self.pods.values()
            if is_gated(pod, keys.GATE_PREFIX) and not pod.metadata.deletion_timestamp
        }
        explained = {
            gang: list(
                explain(self._reading(placements), pod.metadata.namespace, pod.metadata.name, SETTINGS, now)
            )
            for gang, pod in waiting.items()
        }
        self.sweeper.sweep()
        reasons = self.sweeper._memory.report.reasons
        return {str(key): each.reason for key, each in reasons.items() if each.cause is not None}, explained

    def _reading(self, placements: Mapping[str, Placement]) -> ClusterReading:
        return ClusterReading(
            tuple(self.pods.values()), dict(self.nodes), placements, lambda _: OwnerFacts(),
            read_budgets=lambda: Budgets(is_read=False),
            read_leads_since=BEGIN.timestamp,
        )  # fmt: skip

    def carry_out(self) -> None:
        """Bind the pods that are released, and end those that are evicted."""
        entries = {
            (each["metadata"]["namespace"], entry["name"]): entry["node"]
            for each in self.api.placements.values()
            for entry in each["spec"].get("pods", ())
        }
        for key, pod in list(self.pods.items()):
            namespace, _, name = key.partition("/")
            if name in self.api.evicted:
                del self.pods[key]
            elif key in self.api.released and is_gated(pod, keys.GATE_PREFIX):
                spec = msgspec.structs.replace(
                    pod.spec, scheduling_gates=[], node_name=entries[namespace, name]
                )
                self.pods[key] = msgspec.structs.replace(pod, spec=spec)

    def add(self, pods: Sequence[Pod], seconds: float) -> None:
        """These are created right before the next pass, which is so many seconds after the last one."""
        at = f"{self.sweeper.moment.at + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
        for pod in pods:
            metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=at)
            self.pods[f"{metadata.namespace}/{metadata.name}"] = msgspec.structs.replace(
                pod, metadata=metadata
            )

    def close(self) -> None:
        self.sweeper.close()
        self.cache.stop()


# --- random worlds ------------------------------------------------------------------------------------


def node(number: int, gpus: int, is_cordoned: bool, block: str) -> Node:
    name = f"n{number}"
    labels = dict(zip(LEVELS, (block, "s", name), strict=True))
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"unschedulable": is_cordoned},
            "status": {"allocatable": {GPU: str(gpus), "cpu": "8", "pods": "110"}},
        },
        Node,
    )


@st.composite
def gang_pods(draw: st.DrawFn, name: str) -> list[Pod]:
    """A gang by annotation, of which anything may be unusual."""
    count, gpus = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    annotations = {
        keys.GANG_ANNOTATION: name,
        keys.GANG_SIZE_ANNOTATION: str(count + draw(st.sampled_from([0, 0, 0, 1]))),
    }
    annotations |= draw(
        st.sampled_from(
            [
                {}, {}, {},
                {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"},
                {keys.REQUIRED_TOPOLOGY_ANNOTATION: "rack"},
                {keys.SLICE_TOPOLOGY_ANNOTATION: "block", keys.SLICE_SIZE_ANNOTATION: "2"},
                {keys.GANG_MIN_SIZE_ANNOTATION: "1"},
                {keys.SPREAD_TOPOLOGY_ANNOTATION: "block:1"},
            ]
        )
    )  # fmt: skip
    oddity = draw(st.sampled_from(["", "", "", "gate", "scheduler", "deleted", "opted out", "bound"]))
    age = draw(st.sampled_from([0, 0, 3600]))
    resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "resources": resources}],
        "priority": draw(st.sampled_from([0, 0, 100])),
        "schedulerName": "volcano" if oddity == "scheduler" else "default-scheduler",
    }
    if oddity == "gate":
        spec["schedulingGates"] = [{"name": keys.GATE}, {"name": "quota.example.com/wait"}]
    namespace = draw(st.sampled_from(["ns", "ns", "other"]))
    pods = []
    for number in range(count):
        own, more = dict(spec), {}
        if number == 0 and oddity == "deleted":
            more = {"deletionTimestamp": "2026-11-29T12:00:00Z"}
        if number == 0 and oddity in ("opted out", "bound"):
            own["schedulingGates"] = []
            own["nodeName"] = "n0" if oddity == "bound" else ""
        metadata = {
            "namespace": namespace, "uid": f"{namespace}-{name}-{number}", "annotations": annotations,
            "creationTimestamp": f"{BEGIN - timedelta(seconds=age):%Y-%m-%dT%H:%M:%SZ}", **more,
        }  # fmt: skip
        pods.append(decode(pod_json(f"{name}-{number}", metadata=metadata, **own)))
    return pods


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes = [
        node(number, draw(st.integers(1, 4)), draw(st.integers(0, 5)) == 0, draw(st.sampled_from("ab")))
        for number in range(draw(st.integers(1, 4)))
    ]
    pods = [pod for name in "pqrs"[: draw(st.integers(1, 4))] for pod in draw(gang_pods(name))]
    for number in range(draw(st.integers(0, 2))):
        container = {"name": "c", "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}}}
        spec = {"nodeName": "n0", "schedulingGates": [], "priority": draw(st.sampled_from([0, 50]))}
        pods.append(decode(pod_json(f"busy-{number}", containers=[container], **spec)))
    return World(
        {each.metadata.name: each for each in nodes},
        {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in pods},
    )


@st.composite
def later_steps(draw: st.DrawFn) -> list[tuple[float, list[Pod]]]:
    """After how many seconds the next passes are, and the pods that are new then.

    Before RETRY_SECONDS, the sweeper may leave a reason as it is, and not ask again.
    """
    seconds = st.sampled_from([RETRY_SECONDS, 100, 400, 2000])
    return [(draw(seconds), draw(gang_pods(name))) for name in "xy"[: draw(st.integers(0, 2))]]


def differences(reasons: Mapping[str, str], explained: Mapping[str, list[str]]) -> Iterator[str]:
    """The gangs of which explain does not print the sentence of the pass."""
    for gang, lines in explained.items():
        now = [line.removeprefix("Now: ") for line in lines if line.startswith("Now: ")]
        reason = reasons.get(gang, "")
        last = "".join(
            line.removeprefix("Last attempt: ") for line in lines if line.startswith("Last attempt")
        )
        if now == ["the same."]:
            now = [last] if last.startswith(reason) else now
        is_same = (
            now == [reason] if reason else not now or "places it" in now[0] or "evicted as a whole" in now[0]
        )
        if not is_same and not (now == [last] and reason):
            yield f"{gang}: the sweeper reports {reason!r}, explain prints {lines}"


@pytest.mark.promise("R175")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(), later_steps())
def test_explain_prints_the_sentence_of_the_next_pass(
    world: World, steps: list[tuple[float, list[Pod]]]
) -> None:
    """Gangs are added, time passes, reservations are made and expire, and pods are bound in between."""
    try:
        assert list(differences(*world.step(0))) == []
        for seconds, pods in steps:
            world.carry_out()
            world.add(pods, seconds)
            assert list(differences(*world.step(seconds))) == []
    finally:
        world.close()
