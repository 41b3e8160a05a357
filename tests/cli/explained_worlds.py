"""A cluster with a sweeper whose passes a test chooses, and what explain prints right before each."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from labeler.contract import keys
from tests.broken_nodes import refused
from tests.extensions.node_health.failing import proven
from tests.sweeper.pods import decode
from tests.sweeper.sets import pinned_to
from webhook.configuration.settings import BadNodes, MoveLimits, Settings
from webhook.extensions.fair_order.account_use import NAME
from webhook.extensions.known import SWITCHES
from webhook.extensions.node_health.avoided_nodes import encoded
from webhook.extensions.scale_up.provisioning_requests import REQUESTS, TEMPLATES
from webhook.inquiry.cluster_state import ClusterReading, _lost_owners
from webhook.inquiry.explanation import explain
from webhook.kube.client import Api, ApiError
from webhook.kube.collection import Listing
from webhook.kube.decoding import key_of
from webhook.kube.disruption_budgets import PodDisruptionBudget
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.kube.state_config_map import path_of
from webhook.policy.values import Policy
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.context import Pass
from webhook.sweeper.observe.cache import _BUDGETS, _FAILED, ClusterCache
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts
from webhook.sweeper.observe.owner_existence import OwnerExistence
from webhook.sweeper.observe.plans import is_gated
from webhook.sweeper.observe.view import Moment
from webhook.sweeper.observe.watches import WatchedCollection
from webhook.sweeper.report_memory import Delays
from webhook.sweeper.sweep import Sweeper

GPU: Final = "nvidia.com/gpu"
BEGIN: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
SETTINGS: Final = Settings(
    reserve_share=1.0, bind_seconds=1e5, bad_nodes=BadNodes(failures=1, share=1.0),
    moves=MoveLimits(is_on=True),
)  # fmt: skip
RECORD: Final = "/api/v1/namespaces/topogate-system/configmaps/topogate-node-failures"
FAIR_USE: Final = path_of(NAME)
LEVELS: Final = ("topology.gke.io/cluster", "topology.gke.io/rack", "topology.gke.io/host")


class Stored(Api):
    """An API server that stores Placements and requests for nodes, and carries out releases and evictions.

    owners: by path, the objects that GET returns, such as owners and records. requested: by path, requests
    for nodes and their templates. moment: now. released: "namespace/name" of pods. evicted: their names.
    """

    def __init__(self) -> None:
        self.placements: dict[str, dict[str, Any]] = {}
        self.owners: dict[str, dict[str, Any]] = {}
        self.released: set[str] = set()
        self.evicted: set[str] = set()
        self.requested: dict[str, dict[str, Any]] = {}
        self.moment = BEGIN
        self.version = 0

    def request(self, method: str, path: str, **options: Any) -> bytes:
        """Raises ApiError for anything else."""
        if method == "GET" and path in self.owners:
            return msgspec.json.encode(self.owners[path])
        if "/provisioningrequests" in path or "/podtemplates" in path:
            return self._requested(method, path, options.get("body"))
        if method == "PATCH" and path in self.owners:
            self.owners[path]["data"] |= options["body"]["data"]
            return msgspec.json.encode(self.owners[path])
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
        if name == "eviction" or (kind == "pods" and method == "DELETE"):
            self.evicted.add(kind if name == "eviction" else name)
            return b"{}"
        raise ApiError(404, "NotFound", f"{method} {path}: there is none")

    def _requested(self, method: str, path: str, body: Any) -> bytes:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            metadata = {**body["metadata"], "uid": path, **created(self.moment)}
            self.requested[path] = {**body, "metadata": {**metadata, "resourceVersion": "1"}}
        found = self.requested.pop(path) if method == "DELETE" else self.requested[path]
        return msgspec.json.encode(found)

    def _written(self, key: str, body: Mapping[str, Any]) -> bytes:
        """Merge the body into the Placement."""
        self.version += 1
        before = self.placements.get(key, {"metadata": {"uid": key, **created(self.moment)}})
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


@dataclass(frozen=True)
class Step:
    """A pass, and what is known of each gang.

    reasons: by gang, why it waits as the sweeper reports it, and notes: what extensions add to that. placed:
    the gangs with a new plan. explained: by gang and the name of the pod that is asked about, the lines.
    reading: the cluster before it.
    """

    reasons: Mapping[str, str]
    notes: Mapping[str, str]
    placed: Set[str]
    explained: Mapping[tuple[str, str], list[str]]
    reading: ClusterReading


@dataclass
class World:
    """A cluster with one sweeper, which leads from the beginning on.

    pods: by "namespace/name"; failed: those that have failed. facts: by the name of the controller. budgets:
    None while they have not been read.
    """

    nodes: dict[str, Node]
    pods: dict[str, Pod]
    facts: dict[str, OwnerFacts] = field(default_factory=dict)
    failed: list[Pod] = field(default_factory=list)
    api: Stored = field(default_factory=Stored)
    moment: Moment = SteppedSweeper.moment
    settings: Settings = SETTINGS
    policy: Policy | None = None
    budgets: Sequence[PodDisruptionBudget] | None = None

    def __post_init__(self) -> None:
        self.api.owners[FAIR_USE] = {"metadata": {"resourceVersion": "1"}, "data": {}}
        self.cache = ClusterCache(self.api)
        self.lead()

    def lead(self) -> None:
        """Another leader begins, without memory."""
        self.cache = ClusterCache(self.api)
        prepare = self.cache.watches.prepare
        copies = {each: prepare(each, lambda *_: None) for each in (_FAILED, _BUDGETS, REQUESTS, TEMPLATES)}
        if self.budgets is not None:
            copies[_BUDGETS]._replace(Listing("1", {each.metadata.name: each for each in self.budgets}))
            copies[_BUDGETS]._synced.set()
        for each in (REQUESTS, TEMPLATES):
            copies[each]._synced.set()
        self.cache._failed.extend(self.failed)
        self.cache.placements._replace(Listing("1", self._placements()))
        self.cache.existence = OwnerExistence(
            self.api, lambda *_: None, lambda: None, lambda: self.moment.seconds
        )
        self.cache.asker = lambda: self._facts_of  # type: ignore[method-assign]
        surroundings = Pass(
            self.api, self.cache, self.settings, clock=lambda: self.moment.seconds, extensions=SWITCHES,
            policy=lambda: self.policy,
        )  # fmt: skip
        self.sweeper = SteppedSweeper(surroundings)
        self.leads_since: datetime | None = None  # until its first pass

    def _facts_of(self, key: GangKey) -> OwnerFacts:
        return self.facts.get(key.name, OwnerFacts())

    def _placements(self) -> dict[str, Placement]:
        return {key: msgspec.convert(each, Placement) for key, each in self.api.placements.items()}

    def step(self, seconds: float) -> Step:
        """The next pass, so many seconds later, and the explanations right before it."""
        at = self.moment
        now = Moment(at.seconds + seconds, at.at + timedelta(seconds=seconds))
        self.moment = self.sweeper.moment = now
        self.api.moment = now.at
        for each in (REQUESTS, TEMPLATES):
            self.cache.watches.copy_of(each)._replace(Listing("1", self._requested(each)))
        self.leads_since = since = self.leads_since or now.at
        self.cache.nodes._replace(Listing("1", dict(self.nodes)))
        self.cache.pods._replace(Listing("1", dict(self.pods)))
        self._answer_owners()
        reading = self._reading(since)
        explained = {
            (gang, pod.metadata.name): list(
                explain(reading, pod.metadata.namespace, pod.metadata.name, self.settings, now)
            )
            for gang, pod in self._asked()
        }
        before = self._plans()
        self.sweeper.sweep()
        report = replace(self.sweeper._memory.report, delays=Delays())
        waiting = {key for key, each in report.reasons.items() if each.cause is not None}
        waits = {str(key): report.sentence(key) for key in waiting | report.waiters.keys()}
        notes = {str(key): note for key, note in report.notes.items()}
        after = self._plans()
        placed = {gang for gang, uids in after.items() if uids - before.get(gang, set())}
        return Step(waits, notes, placed, explained, reading)

    def _plans(self) -> dict[str, set[str]]:
        """By gang, the uids of its pods that its plan names."""
        return {
            f"{each['metadata']['namespace']}/{each['spec']['gang']}": {
                entry["uid"] for entry in each["spec"].get("pods", ())
            }
            for each in self.api.placements.values()
        }

    def _answer_owners(self) -> None:
        lost_owner = self.cache.existence.lookup()
        for pod in self.pods.values():
            lost_owner(pod)
        self.cache.existence.answer_all()

    def _asked(self) -> Iterator[tuple[str, Pod]]:
        """Of each gang that waits, a pod without a plan if there is one."""
        planned = set[str]().union(*self._plans().values())
        found: dict[str, Pod] = {}
        for pod in self.pods.values():
            if is_gated(pod, keys.GATE_PREFIX) and not pod.metadata.deletion_timestamp:
                gang = str(self.sweeper._snapshotter._gang_of(pod))
                if gang not in found or pod.metadata.uid not in planned:
                    found[gang] = pod
        return iter(found.items())

    def _reading(self, since: datetime) -> ClusterReading:
        return ClusterReading(
            tuple(self.pods.values()),
            dict(self.nodes),
            dict(self.cache.current_placements()),
            self._facts_of,
            read_record=lambda name: self.api.owners.get(path_of(name), {}).get("data"),
            read_objects=self._requested,
            read_policy=lambda: self.policy,
            read_namespaces=dict,
            read_budgets=lambda: Budgets(self.budgets or (), is_read=self.budgets is not None),
            read_failed=lambda: self.failed,
            read_leads_since=since.timestamp,
            read_lost_owners=lambda pods: _lost_owners(self.api, lambda *_: None, pods),
        )  # fmt: skip

    def _requested(self, collection: WatchedCollection[Any]) -> dict[str, Any]:
        kind = f"/{collection.path.rpartition('/')[2]}/"
        bodies = (each for path, each in self.api.requested.items() if kind in path)
        return {key_of(each): each for each in (msgspec.convert(body, collection.struct) for body in bodies)}

    # --- what happens between passes --------------------------------------------------------------

    def answer(self, kind: str, seconds: float) -> None:
        """The autoscaler writes this condition on all requests, right before the next pass."""
        at = f"{self.moment.at + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
        condition = {"type": kind, "status": "True", "message": "as it is", "lastTransitionTime": at}
        for path, request in self.api.requested.items():
            if "/provisioningrequests/" in path:
                request["status"] = {"conditions": [condition]}

    def carry_out(self, unbound: Set[str] = frozenset()) -> None:
        """Bind the pods that are released, but for these, and end those that are evicted."""
        entries = {
            (each["metadata"]["namespace"], entry["name"]): entry["node"]
            for each in self.api.placements.values()
            for entry in each["spec"].get("pods", ())
        }
        for key, pod in list(self.pods.items()):
            namespace, _, name = key.partition("/")
            if name in self.api.evicted:
                del self.pods[key]
            elif key in self.api.released and not pod.spec.node_name:
                node = entries.get((namespace, name), "")
                pinned: dict[str, Any] = {
                    "schedulingGates": [],
                    "affinity": pinned_to(node) if node else None,
                }
                self.change(pod, **(pinned if key in unbound else {**pinned, "nodeName": node}))
        self.api.evicted.clear()

    def change(self, pod: Pod, metadata: Mapping[str, Any] | None = None, **spec: Any) -> Pod:
        """The pod with these fields in its place."""
        body = msgspec.to_builtins(pod)
        body["spec"] |= spec
        body["metadata"] |= metadata or {}
        changed = decode(body)
        self.pods[f"{pod.metadata.namespace}/{pod.metadata.name}"] = changed
        return changed

    def refuse(self, key: str, seconds: float) -> None:
        """The kubelet refuses this pod, which has a node; its controller recreates it, see add."""
        pod = self.pods.pop(key)
        body = msgspec.to_builtins(pod)
        at = f"{self.moment.at:%Y-%m-%dT%H:%M:%SZ}"
        body["status"] = refused("OutOfcpu", "OutOfcpu") | {"containerStatuses": [], "startTime": at}
        self.failed.append(decode(body))
        self.cache._failed.append(self.failed[-1])
        self.recreate(pod, seconds)

    def fail(self, node: str) -> None:
        """The record of failing nodes has this one."""
        at = int(self.moment.at.timestamp()) - 30
        failure = proven(node, gang="ns/Job/lost", namespace="ns", at=at)
        data = {"failures": encoded((failure,))}
        self.api.owners[RECORD] = {"metadata": {"resourceVersion": "1"}, "data": data}

    def recreate(self, pod: Pod, seconds: float) -> None:
        """A new pod of its name."""
        self.api.released.discard(f"{pod.metadata.namespace}/{pod.metadata.name}")
        gate = {"schedulingGates": [{"name": keys.GATE}], "nodeName": "", "affinity": None}
        at = created(self.moment.at + timedelta(seconds=seconds))
        self.change(pod, {"uid": f"{pod.metadata.uid}+", **at}, **gate)

    def add(self, pods: Sequence[Pod], seconds: float) -> None:
        """These are created right before the next pass, which is so many seconds after the last one."""
        for pod in pods:
            self.change(pod, created(self.moment.at + timedelta(seconds=seconds)))

    def close(self) -> None:
        self.sweeper.close()
        self.cache.stop()


def created(at: datetime) -> dict[str, Any]:
    return {"creationTimestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
