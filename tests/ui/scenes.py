"""Scenes of a small cluster, drawn as the page draws them: 2 blocks of 2 subblocks of 2 nodes with 8 GPUs."""

import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

import msgspec
from flask.testing import FlaskClient

from hack.local import nodes
from tests.sweeper.pods import decode, job_pod, pod_json
from tests.sweeper.preemptions import member, plan
from webhook.configuration.settings import Settings
from webhook.configuration.store import ConfigurationStore
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.next_pass import PassFacts
from webhook.kube.client import Api
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.policy.values import Policy
from webhook.scheduling.budgets import Budgets
from webhook.scheduling.gpus import Counting
from webhook.sweeper.observe.gangs import OwnerFacts
from webhook.sweeper.observe.membership import key_of
from webhook.ui.history import History, sample
from webhook.ui.live import Artist, Live, Scene
from webhook.ui.page_app import create_app
from webhook.ui.pages import PageDependencies
from webhook.ui.viewer_access import Access, LaptopAccess

COUNTING = Counting(("nvidia.com/gpu", "gpu.intel.com/i915"), ("nvidia.com/gpu.product",))
GRID = nodes.grid(nodes.Shape(nodes=8, blocks=2, subblocks=2))
SECRET = "s3cret"
SETTINGS = Settings()


def gpu_container(gpus: int) -> dict[str, Any]:
    return {"name": "c", "image": "x", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}


def bound_pod(name: str, node: str, gpus: int = 8, namespace: str = "ns") -> Pod:
    metadata = {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    spec = {"nodeName": node, "schedulingGates": [], "containers": [gpu_container(gpus)]}
    return decode({**pod_json(name, metadata=metadata, **spec), "status": {"phase": "Running"}})


def waiting_job(count: int, gpus: int = 8, **metadata: Any) -> list[Pod]:
    """Gated pods of one indexed Job, with GPUs."""
    return [with_gpus(job_pod(index, **metadata), gpus) for index in range(count)]


def with_gpus(pod: Pod, gpus: int = 8) -> Pod:
    """The same pod, which asks for so many GPUs: by default all of a node."""
    container = msgspec.convert(gpu_container(gpus), type(pod.spec.containers[0]))
    spec = msgspec.structs.replace(pod.spec, containers=[container])
    return msgspec.structs.replace(pod, spec=spec)


def running_job(name: str, node: str, namespace: str = "ns", **metadata: Any) -> tuple[Pod, Placement]:
    """A Job of one pod of priority 0 that fills a node, and its Placement."""
    metadata = {"uid": f"{namespace}-{name}-0", **metadata}
    pod = with_gpus(member(name, 0, node, namespace=namespace, priority=0, metadata=metadata))
    _, made = plan(key_of(pod).placement_name, {pod.metadata.uid: node}, namespace)
    return pod, msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, complete=True))


Changes = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Node's name -> "spec" or "status" -> fields that differ."""


def node_objects(changes: Changes | None = None) -> dict[str, Node]:
    made: dict[str, Node] = {}
    for node in GRID:
        manifest = node.manifest(node.topology_labels)
        for part, fields in (changes or {}).get(node.name, {}).items():
            manifest[part] = {**manifest.get(part, {}), **fields}
        made[node.name] = msgspec.convert(manifest, Node)
    return made


def cluster_of(
    pods: Iterable[Pod],
    placements: Mapping[str, Placement] | None = None,
    changes: Changes | None = None,
    size: int | None = None,
) -> ClusterReading:
    return ClusterReading(tuple(pods), node_objects(changes), placements or {}, lambda _: OwnerFacts(size))


def scene_of(cluster: ClusterReading) -> Scene:
    return Artist(cluster, SETTINGS, COUNTING).scene()


class StillLive:
    """A scene that does not change, where the live ones would be."""

    def __init__(
        self,
        scene: Scene | None,
        size: int | None = None,
        owners: Mapping[str, Any] | None = None,
        records: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        budgets: Budgets | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._scene = scene
        self._size = size
        self._owners = owners or {}
        self._records = records
        self._budgets = budgets or Budgets()
        self._policy = policy
        self.history = History()
        if scene is not None:
            self.history.add(sample(scene.at, scene.picture, scene.gangs))

    def scene(self) -> Scene | None:
        return self._scene

    def wait(self, after: int, timeout_seconds: float) -> Scene | None:
        if self._scene is not None and self._scene.version <= after:
            time.sleep(timeout_seconds)
        return self._scene

    def unread(self) -> list[str]:
        return [] if self._scene else ["pods"]

    def facts(self) -> PassFacts:
        return PassFacts(
            lambda _: OwnerFacts(self._size), self._owners.get, self._records.get, self._policy,
            budgets=self._budgets,
        )  # fmt: skip


class NoEvents:
    """An API server that has no Events."""

    def json(self, method: str, path: str, **options: Any) -> Any:
        return {"items": []}


def page_of(
    scene: Scene | None,
    access: Access | None = None,
    size: int | None = None,
    owners: Mapping[str, Any] | None = None,
    store: ConfigurationStore | None = None,
    records: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    budgets: Budgets | None = None,
    policy: Policy | None = None,
) -> FlaskClient:
    """A client of the page, logged in on the laptop unless `access` says otherwise.

    owners: by kind. records: of extensions.
    """
    live, api = cast(Live, StillLive(scene, size, owners, records, budgets, policy)), cast(Api, NoEvents())
    login = access or LaptopAccess("me", SECRET)
    app = create_app(PageDependencies(live, SETTINGS, COUNTING, login, api, store=store))
    client = app.test_client()
    if access is None:
        client.set_cookie("topogate-ui", SECRET, domain="localhost")
    return client
