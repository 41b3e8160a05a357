"""Helpers that several kinds of tests share."""

import contextlib
import functools
import ipaddress
import itertools
import json
import os
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import yaml

from hack.local import nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.node import REAL_LABEL
from hack.local.nodes import SimulatedNode
from webhook.kube.client import APPLY_PATCH, MERGE_PATCH, Api, ApiError

SYSTEM_NAMESPACES: Final = {"default", "kube-system", "kube-public", "kube-node-lease"}
_numbers = itertools.count()
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

# What a test may leave behind at cluster scope, and which of it is not the control plane's own.
_OURS: Final[list[tuple[str, Callable[[dict[str, Any]], bool]]]] = [
    ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", lambda _: True),
    ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", lambda _: True),
    ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", lambda _: True),
    ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", lambda _: True),
    ("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", lambda _: True),
    ("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", lambda _: True),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        lambda item: not item["metadata"]["name"].startswith("system-"),
    ),
    *(
        (path, lambda item: item["metadata"]["name"].startswith("topogate"))
        for path in (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        )
    ),
    ("/api/v1/nodes", lambda item: REAL_LABEL not in item["metadata"].get("labels", {})),
    ("/api/v1/namespaces", lambda item: item["metadata"]["name"] not in SYSTEM_NAMESPACES),
]


def register_nodes(
    cluster: Cluster, new: Sequence[SimulatedNode], *, labelled: bool = True, tainted: bool = False
) -> None:
    """Create nodes, and wait until they take pods."""
    nodes.register(cluster.api(), new, labelled=labelled, tainted=tainted)
    wait_for_nodes(cluster, new)


def wait_for_nodes(cluster: Cluster, new: Sequence[SimulatedNode]) -> None:
    """Wait until nodes take pods that have been created.

    The API server gives each a taint until a controller has seen that it is ready, some 0.3 s later: of nodes
    made together some would be skipped, and a gang would get other nodes than it is to.
    """
    api, names = cluster.api(), {each.name for each in new}

    def are_ready() -> bool:
        found = [
            each for each in api.json("GET", "/api/v1/nodes")["items"] if each["metadata"]["name"] in names
        ]
        taints = [taint["key"] for each in found for taint in each["spec"].get("taints", ())]
        return len(found) == len(names) and not any(key.startswith("node.kubernetes.io/") for key in taints)

    cluster.wait_for("the new nodes to take pods", are_ready)


def create_namespace(cluster: Cluster, labels: dict[str, str] | None = None) -> str:
    """Make a namespace with a name of its own and wait until pods can be made in it."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    cluster.make_namespace(name, labels)
    return name


def exists(api: Api, path: str) -> bool:
    """Whether an object is there."""
    try:
        api.request("GET", path)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


def delete(api: Api, path: str) -> None:
    """Delete an object now; one that is not there is fine."""
    try:
        api.request("DELETE", path, query={"gracePeriodSeconds": "0"})
    except ApiError as error:
        if error.status not in (404, 409):  # 409: a namespace that is being deleted already
            raise


def clean(cluster: Cluster) -> None:
    """Remove what tests have left: policies and webhooks first, since they may refuse the rest."""
    api = cluster.api()
    for path, is_ours in _OURS:
        for item in _listed(api, path):
            if is_ours(item):
                delete(api, f"{path}/{item['metadata']['name']}")
    cluster.wait_for("no pod of another test", functools.partial(_delete_pods, api), seconds=150)
    # Test namespaces have names of their own; those of the manifests are created again by the next test.
    for name in ("topogate-system", "topogate-labeler"):
        if exists(api, f"/api/v1/namespaces/{name}"):
            _finalize(api, name)
            path = f"/api/v1/namespaces/{name}"
            cluster.wait_for(f"namespace {name} to be gone", functools.partial(_is_gone, api, path))


def _finalize(api: Api, namespace: str) -> None:
    """Empty a namespace that is being deleted, and end it.

    Its controller does so as well, but only once it has waited for 5 s (namespaceDeletionGracePeriod).
    """
    for base in ("/api/v1", *(f"/apis/{each}" for each in _served(api))):
        for kind in api.json("GET", base)["resources"]:
            if kind["namespaced"] and "deletecollection" in kind["verbs"]:
                path = f"{base}/namespaces/{namespace}/{kind['name']}"
                delete(api, path)
    path = f"/api/v1/namespaces/{namespace}"
    try:
        found = api.json("GET", path)
        api.request("PUT", f"{path}/finalize", body={**found, "spec": {"finalizers": []}})
    except ApiError as error:
        if error.status not in (404, 409):  # 409: its controller was quicker
            raise


def _served(api: Api) -> list[str]:
    """The version of each group of APIs that its makers prefer."""
    return [each["preferredVersion"]["groupVersion"] for each in api.json("GET", "/apis")["groups"]]


def install_definitions(cluster: Cluster) -> None:
    """Make the API server serve Placements, as the manifests have them."""
    definition = yaml.safe_load((ROOT / "manifests" / "base" / "placements.yaml").read_text())
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    api, query = cluster.api(), {"fieldManager": "kubectl", "force": "true"}
    if not _is_established(api.json("PATCH", path, body=definition, query=query, content_type=APPLY_PATCH)):
        cluster.wait_for("Placements to be served", lambda: _is_established(api.json("GET", path)))


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()  # null where it is new
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def delete_namespace(cluster: Cluster, name: str) -> None:
    """Remove a namespace and wait until its pods use no node any more."""
    api, at_once = cluster.api(), {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
    for path in (f"/apis/batch/v1/namespaces/{name}/jobs", f"/api/v1/namespaces/{name}/pods"):
        # Hundreds of pods one after another, in one request.
        api.request("DELETE", path, query=at_once, timeout_seconds=60)
    delete(api, f"/api/v1/namespaces/{name}")
    pods = f"/api/v1/namespaces/{name}/pods"

    def are_gone() -> bool:
        left = _listed(api, pods)
        for item in left:
            _remove_finalizers(api, f"{pods}/{item['metadata']['name']}", item["metadata"])
        return not left

    cluster.wait_for(f"the pods of {name} to be gone", are_gone)


def audited(cluster: Cluster) -> list[dict[str, Any]]:
    """The audit log with all that was answered before: it is written a moment later, in that order."""
    last = f"last-{os.getpid()}-{next(_numbers)}"
    delete(cluster.api(), f"/api/v1/namespaces/default/pods/{last}")  # noted as well
    lines: list[str] = []

    def is_there() -> bool:
        whole, _, _ = cluster.log("audit").read_text().rpartition("\n")
        lines[:] = whole.splitlines()
        return last in whole

    cluster.wait_for("the audit log", is_there)
    return [json.loads(line) for line in lines]


def listened_on(sessions: set[int]) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses on which the processes of these sessions take connections by TCP."""
    inodes = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[3]) in sessions:
                inodes |= {file.readlink().name for file in stat.with_name("fd").iterdir()}
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in inodes:
                words = bytes.fromhex(local.partition(":")[0])
                packed = b"".join(words[n : n + 4][::-1] for n in range(0, len(words), 4))
                found.add(ipaddress.ip_address(packed))
    return found


def _listed(api: Api, path: str) -> list[dict[str, Any]]:
    """The metadata of all objects of a kind, of which there are none where the server does not know it."""
    try:
        return list(api.json("GET", path, accept=_METADATA_ONLY)["items"] or ())  # null where there are none
    except ApiError as error:
        if error.status == 404:
            return []
        raise


def _delete_pods(api: Api) -> bool:
    """Delete all pods; returns whether there were none. Controllers may make some for a moment more."""
    pods = _listed(api, "/api/v1/pods")
    for item in pods:
        metadata = item["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        delete(api, path)
        _remove_finalizers(api, path, metadata)
    return not pods


def _remove_finalizers(api: Api, path: str, metadata: dict[str, Any]) -> None:
    """Spare a pod that is deleted, with its namespace, the wait for watchers of its end.

    The Job controller, which counts it, backs off for up to half a minute after pods that have failed.
    """
    if "deletionTimestamp" not in metadata or not metadata.get("finalizers"):
        return
    try:
        api.request("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    except ApiError as error:
        if error.status != 404:
            raise


def _is_gone(api: Api, path: str) -> bool:
    return not exists(api, path)


def wait_for_pods(
    cluster: Cluster,
    namespace: str,
    condition: Callable[[list[dict[str, Any]]], bool],
    what: str,
    seconds: float = 120,
) -> list[dict[str, Any]]:
    """Wait until the pods of a namespace satisfy a condition; returns them as they are then."""
    api = cluster.api()
    pods: list[dict[str, Any]] = []

    def holds() -> bool:
        pods[:] = api.json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return condition(pods)

    cluster.wait_for(what, holds, seconds)
    return pods


@contextlib.contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    """Let a server answer in a thread of its own, which ends with it."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def work_of(call: Callable[[], object]) -> int:
    """How many instructions of bytecode a call takes: like a clock, but the same on any machine."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
