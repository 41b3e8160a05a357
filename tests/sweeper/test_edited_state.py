"""Any content of storage and device objects, of records and of the configuration: no pass has a defect."""

import copy
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, gpu_pod
from tests.sweeper.edits import NoneFailed, Stored, any_json, defects_of, edited, paths_in
from tests.sweeper.empty_api import Empty
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import from_document
from webhook.configuration.keys import Document
from webhook.configuration.reader import FaultList
from webhook.configuration.schema import SCHEMA
from webhook.configuration.settings import Settings
from webhook.extensions import device_claims
from webhook.extensions.fair_order import account_use
from webhook.extensions.known import SWITCHES
from webhook.extensions.node_health import avoided_nodes
from webhook.kube import drivers, volume_objects
from webhook.kube.collection import Listing
from webhook.kube.decoding import Reader
from webhook.kube.objects import Pod
from webhook.kube.state_config_map import path_of
from webhook.policy.fair import FairOrder
from webhook.policy.values import Policy
from webhook.sweeper.context import Pass
from webhook.sweeper.observe.cache import VOLUMES
from webhook.sweeper.observe.watches import WatchedCollection
from webhook.sweeper.sweep import Sweeper

SETTINGS: Final = Settings(settle_seconds=0, reserve_seconds=0)
UNUSUAL: Final = any_json(
    "0", "-1", "1e400", "9" * 5_000, "1Ei", "many", "In", "NotIn", "Gt", "Lt", "yes", "Available", "Bound",
    "n1", "c0", "c1", "c2", "v0", "v1", "s0", "s1", "d0", "their-0", "ReadWriteOncePod", "Block",
    "Immediate", "WaitForFirstConsumer", "kubernetes.io/no-provisioner",
)  # fmt: skip


def swept(
    api: Stored, cache: NoneFailed, *others: Pod, settings: Settings = SETTINGS, **surroundings: Any
) -> list[str]:
    """The defects of some passes over these pods and one that asks for a GPU alone."""
    clock, pods = Clock(), {f"x/{each.metadata.uid}": each for each in (*others, gpu_pod("wait"))}
    cache.pods._replace(Listing("1", pods))
    nodes = Nodes(4, gpus=2)
    for name in list(nodes.nodes):
        nodes.label(name, {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a"})
    cache.nodes._replace(Listing("1", nodes.nodes))
    sweeper = Sweeper(Pass(api, cache, settings, clock=clock, **surroundings))
    return defects_of(sweeper, cache, clock)


# --- storage ------------------------------------------------------------------------------------------


def claim(name: str, annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    metadata = {"name": name, "namespace": "theirs", "annotations": {**(annotations or {})}}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def on(node: str) -> dict[str, Any]:
    name = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [name]}]}}


TO_BE_MADE: Final = {"key": "kubernetes.io/hostname", "values": ["n0", "n1"]}
STORAGE: Final[dict[str, list[dict[str, Any]]]] = {
    volume_objects.CLAIMS: [
        claim("c0", {volume_objects.BIND_COMPLETED: "yes"}, volumeName="v0", storageClassName="s0"),
        claim("c1", storageClassName="s0"),
        claim("c2", storageClassName="s1"),
    ],
    volume_objects.VOLUMES: [
        {
            "metadata": {"name": "v0", "labels": {"topology.kubernetes.io/zone": "a__b"}},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nodeAffinity": on("n0"),
                "claimRef": {"namespace": "theirs", "name": "c0", "uid": "u"},
                "csi": {"driver": "d0", "volumeHandle": "h"}, "storageClassName": "s0",
            },
            "status": {"phase": "Bound"},
        },
        {
            "metadata": {"name": "v1"},
            "spec": {
                "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "nodeAffinity": on("n2"),
                "storageClassName": "s1", "volumeMode": "Filesystem",
            },
            "status": {"phase": "Available"},
        },
    ],
    volume_objects.CLASSES: [
        {
            "metadata": {"name": "s0"}, "provisioner": "d0", "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [TO_BE_MADE]}],
        },
        {
            "metadata": {"name": "s1"}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    ],
    drivers.NODES: [
        {"metadata": {"name": name}, "spec": {"drivers": [{"name": "d0", "allocatable": {"count": 2}}]}}
        for name in ("n0", "n1")
    ],
    drivers.DRIVERS: [{"metadata": {"name": "d0"}, "spec": {"storageCapacity": True}}],
    drivers.CAPACITIES: [
        {
            "metadata": {"name": "x", "namespace": "storage"}, "storageClassName": "s0", "capacity": "9Gi",
            "maximumVolumeSize": "5Gi", "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "n1"}},
        },
    ],
    drivers.ATTACHMENTS: [
        {
            "metadata": {"name": "a"},
            "spec": {"attacher": "d0", "nodeName": "n1", "source": {"persistentVolumeName": "v0"}},
        },
    ],
}  # fmt: skip
"""A bound claim, one whose volume is to be provisioned, and one that waits for a free volume."""


def with_volume(name: str, claim_name: str, node: str = "") -> Pod:
    metadata = {"namespace": "theirs", "uid": name}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]
    return gpu_pod(name, node=node, metadata=metadata, volumes=volumes)


THEIRS: Final = tuple(with_volume(f"their-{number}", f"c{number}") for number in range(3))


def storing(documents: Mapping[str, list[Any]]) -> NoneFailed:
    """A live copy with these storage objects."""
    cache = copied(NoneFailed(Empty()), VOLUMES, documents)
    assert cache.storage(True) is not None
    return cache


def copied(
    cache: NoneFailed, collections: Iterable[WatchedCollection[Any]], documents: Mapping[str, list[Any]]
) -> NoneFailed:
    """With these objects; what cannot be decoded is left out, as by a watch."""
    for each in collections:
        reader, items = Reader(each.path, each.struct), dict[str, Any]()
        for document in documents[each.path]:
            with suppress(msgspec.DecodeError):  # not even its name can be read
                item, key, _ = reader.object(msgspec.Raw(msgspec.json.encode(document)))
                items |= {key: item} if item is not None else {}
        live = cache.watches.prepare(each, lambda *_: None)
        live._replace(Listing("1", items))
        live._synced.set()
    return cache


def test_pods_with_these_volumes_are_released() -> None:
    api = Stored()
    assert not swept(api, storing(STORAGE), *THEIRS)
    assert all(any(f"/pods/{each.metadata.name}" in write for write in api.writes) for each in THEIRS)


@hypothesis_settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(sorted(paths_in(STORAGE), key=str)), UNUSUAL), max_size=4))
def test_whatever_storage_objects_contain_a_gang_beside_them_is_released_without_a_defect(
    edits: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    documents: dict[str, Any] = copy.deepcopy(STORAGE)
    for path, value in edits:
        if len(path) > 1:
            documents = edited(documents, path, value)
    api = Stored()
    assert not swept(api, storing(documents), *THEIRS, with_volume("there", "c0", node="n0"))
    assert any("/pods/wait" in each for each in api.writes)


# --- devices ------------------------------------------------------------------------------------------


class WithDevices(NoneFailed):
    """A live copy of an API server that serves claims on devices."""

    def served(self) -> Mapping[str, str]:
        names = (each.path.rpartition("/")[2] for each in device_claims.COLLECTIONS)
        return {f"{name}.resource.k8s.io": "v1" for name in names}


TAINT: Final = {"key": "x", "value": "y", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
TOLERATED: Final = {"tolerations": [{"key": "x", "operator": "Exists", "effect": "NoSchedule"}]}


def of_devices(node: str, slices: int = 1, **more: Any) -> dict[str, Any]:
    """A slice of a node, whose pool has so many; more: of its spec."""
    attributes = {"model": {"string": "H100"}, "index": {"int": 0}, "driver": {"version": "1.0.0"}}
    device: dict[str, Any] = {
        "name": "g0", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}},
    }  # fmt: skip
    if slices > 1:
        device["consumesCounters"] = [{"counterSet": "c", "counters": {"engines": {"value": "1"}}}]
    tainted = {"name": "g1", "attributes": {"model": {"string": "H100"}}, "taints": [TAINT]}
    spec = {
        "driver": "gpu.example.com", "nodeName": node, "devices": [device, tainted],
        "pool": {"name": node, "generation": 1, "resourceSliceCount": slices},
    }  # fmt: skip
    return {"metadata": {"name": f"{node}-{len(more)}"}, "spec": {**spec, **more}}


REQUEST: Final[dict[str, Any]] = {
    "devices": {
        "requests": [
            {
                "name": "r",
                "exactly": {
                    "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
                    "selectors": [{"cel": {"expression": 'device.attributes["gpu.example.com"].index == 0'}}],
                    **TOLERATED,
                },
            },
            {
                "name": "s",
                "firstAvailable": [{"name": "a", "deviceClassName": "gpu", "count": 1, **TOLERATED}],
            },
        ],
        "constraints": [{"requests": ["r", "s"], "matchAttribute": "gpu.example.com/model"}],
    },
}  # fmt: skip
GIVEN: Final = {
    "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "n0", "device": "g0"}]},
    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n0"]}
    ]}]},
}  # fmt: skip
DEVICES: Final[dict[str, list[dict[str, Any]]]] = {
    device_claims.SLICES.path: [
        *(of_devices(node) for node in ("n0", "n2")),
        of_devices("n1", 2),
        of_devices(
            "n1", 2, devices=[], sharedCounters=[{"name": "c", "counters": {"engines": {"value": "7"}}}]
        ),
    ],
    device_claims.CLASSES.path: [
        {
            "metadata": {"name": "gpu"},
            "spec": {
                "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
                "extendedResourceName": "example.com/gpu",
            },
        },
    ],
    device_claims.CLAIMS.path: [
        {"metadata": {"name": "d0", "namespace": "theirs", "uid": "d0"}, "spec": REQUEST,
         "status": {"allocation": GIVEN, "reservedFor": [{"resource": "pods", "name": "there", "uid": "u"}]}},
        {"metadata": {"name": "d1", "namespace": "theirs", "uid": "d1"}, "spec": REQUEST},
    ],
    device_claims.TEMPLATES.path: [
        {"metadata": {"name": "t0", "namespace": "theirs"}, "spec": {"spec": REQUEST}},
    ],
}  # fmt: skip


def with_claim(name: str, node: str = "", **source: str) -> Pod:
    metadata = {"namespace": "theirs", "uid": name}
    return gpu_pod(name, node=node, metadata=metadata, resourceClaims=[{"name": "c", **source}])


def swept_with(documents: Mapping[str, list[Any]]) -> tuple[list[str], Stored]:
    """The defects of passes over pods with claims and these objects, and what was written."""
    api, extension = Stored(), device_claims.DEVICE_CLAIMS
    cache = copied(WithDevices(Empty()), device_claims.COLLECTIONS, documents)
    (switch,) = [each for each in SWITCHES if each.load() is extension]
    others = (
        with_claim("there", "n0", resourceClaimName="d0"),
        with_claim("their-0", resourceClaimName="d1"),
        with_claim("their-1", resourceClaimTemplateName="t0"),
    )
    return swept(api, cache, *others, extensions=(switch,)), api


def test_pods_with_these_claims_are_released() -> None:
    defects, api = swept_with(DEVICES)
    assert not defects
    assert all(any(f"/pods/their-{number}" in write for write in api.writes) for number in range(2))


@hypothesis_settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(sorted(paths_in(DEVICES), key=str)), UNUSUAL), max_size=4))
def test_whatever_slices_classes_and_claims_contain_a_gang_beside_them_is_released_without_a_defect(
    edits: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    documents: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(DEVICES))
    for path, value in edits:
        if len(path) > 1:
            documents = edited(documents, path, value)
    defects, api = swept_with(documents)
    assert not defects
    assert any("/pods/wait" in each for each in api.writes)


# --- records ------------------------------------------------------------------------------------------


class Recorded(Stored):
    """An API server that also has the records of extensions."""

    def __init__(self, records: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self.records = {path_of(name): dict(data) for name, data in records.items()}

    def request(self, method: str, path: str, *, body: Any = None, **options: Any) -> bytes:
        if path not in self.records:
            return super().request(method, path, body=body, **options)
        if method == "PATCH":
            self.records[path] |= body["data"]
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "data": self.records[path]})


RECORDS: Final[dict[str, Any]] = {
    avoided_nodes.NAME: {
        "failures": [
            {
                "namespace": "ns", "gang": "Job/x", "created": 1, "cause": "exit", "at": 2, "ran": 3,
                "gpus": 4, "asks": "x", "pods": [["n0", "x"]],
            },
        ],
        "avoided": [],
    },
    account_use.NAME: {
        account_use.KEY: {
            "version": 1, "at": "2026-01-01T00:00:00+00:00", "halfLifeSeconds": 60, "accountLabel": "x",
            "modelCosts": {"H100": 2.0},
            "accounts": {"ns": {"weight": 1.0, "gpuSeconds": {"H100": 5.0}, "gpus": {"H100": 1}}},
        },
    },
}  # fmt: skip


def texts(records: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The same as the API server stores it; it accepts texts alone."""
    return {
        name: {key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
               for key, value in data.items()}
        for name, data in records.items()
    }  # fmt: skip


@hypothesis_settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted((each for each in paths_in(RECORDS) if len(each) > 1), key=str)), UNUSUAL
        ),
        max_size=3,
    )
)
def test_whatever_a_person_makes_of_the_records_a_gang_is_released_without_a_defect(
    edits: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    records: dict[str, Any] = copy.deepcopy(RECORDS)
    for path, value in edits:
        records = edited(records, path, value)
    api = Recorded(texts(records))
    switches = tuple(each for each in SWITCHES if each.load().name in ("node_health", "fair_order"))
    assert len(switches) == len(RECORDS)
    policy = Policy(fair_order=FairOrder())
    found = swept(api, NoneFailed(Empty()), extensions=switches, policy=lambda: policy)
    assert not found
    assert any("/pods/wait" in each for each in api.writes)


# --- the configuration --------------------------------------------------------------------------------

RULES: Final = {"defaultTier": "low", "maximumTier": "low", "defaultModel": "H100"}
WRITTEN: Final = {
    "apiVersion": "topogate.io/v1beta1",
    "kind": "Configuration",
    "tiers": [{"name": "low", "priorityClassName": "low"}, {"name": "high", "priorityClassName": "high"}],
    "models": [
        {"name": "H100", "aliases": ["h"], "labels": {"a.io/b": "c"}, "resources": ["nvidia.com/gpu"]}
    ],
    "namespaces": {"excluded": ["x"], "rules": {"*": RULES}},
    "topology": {"levels": [{"block": "a.io/block"}, {"rack": "a.io/rack"}]},
    "fairOrder": {"accountLabel": "team", "weights": {"ns": 2}, "modelCosts": {"H100": 2}},
    "makeRoom": {},
}
CONFIGURATION: Final[dict[str, Any]] = msgspec.json.decode(
    msgspec.json.encode(msgspec.convert(FaultList().checked(WRITTEN, SCHEMA), Document))
)
"""One with all keys."""

USUAL: Final[dict[type, st.SearchStrategy[Any]]] = {
    bool: st.booleans(),
    int: st.sampled_from([0, 1, 2, 100, 1000]),
    float: st.sampled_from([0, 1, 0.5, 1e-300, 1.0]),
    str: st.sampled_from([
        "0s", "1s", "99999h", "*", "?*", "[!a]", "n0", "ns", "", "low", "high", "off", "soft", "hard", "H100",
        "headroom", "podgroup", "leave", "check-capacity", "cpu", "nvidia.com/*", "a.io/rack", "a.io/b",
        "kubernetes.io/hostname", "Job.batch", "Pod", "default-scheduler",
    ]),
    list: st.sampled_from([
        [], ["*"], ["nvidia.com/*"], ["Job.batch"], ["ns"], ["theirs"], ["a.io/rack"], ["x.io/*", "cpu"],
        [{"block": "kubernetes.io/hostname"}], [{"a": ["a.io/b", "a.io/c"]}, {"b": ["a.io/d", "a.io/e"]}],
    ]),
    dict: st.sampled_from([{}, {"cpu": 0}, {"ns": 1e-300}, {"ns": 1000}, {"nvidia.com/gpu": 1000}]),
}  # fmt: skip
"""By the type of what was there before, values of which many are accepted."""


def edit_of(path: tuple[str | int, ...]) -> st.SearchStrategy[tuple[tuple[str | int, ...], Any]]:
    there: Any = CONFIGURATION
    for part in path:
        there = there[part]
    return st.tuples(st.just(path), st.one_of(USUAL[type(there)], USUAL[type(there)], UNUSUAL))


def test_the_configuration_with_all_keys_is_accepted() -> None:
    assert from_document(CONFIGURATION, "the configuration").settings.moves.is_on


@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(sorted(paths_in(CONFIGURATION), key=str)).flatmap(edit_of), min_size=1, max_size=10
    )
)
def test_an_edit_of_the_configuration_is_refused_or_no_pass_has_a_defect(
    edits: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    document = CONFIGURATION
    for path, value in edits:
        tried = edited(copy.deepcopy(document), path, value)
        with suppress(ConfigurationError):
            from_document(tried, "the configuration")
            document = tried
    found = from_document(document, "the configuration")
    switches = tuple(each for each in SWITCHES if each.load().name != "scale_up")
    assert not swept(
        Stored(), NoneFailed(Empty()), *THEIRS, settings=replace(found.settings, settle_seconds=0),
        extensions=switches, policy=lambda: found.policy,
    )  # fmt: skip
