"""Any metadata of pods, nodes, owners and namespaces: no defect, and the gang beside them is placed."""

from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from labeler.contract.key_reference import KEY_USES
from tests.sweeper.clock import Clock
from tests.sweeper.cluster import Nodes, gpu_pod
from tests.sweeper.edits import NoneFailed, Stored, defects_of
from tests.sweeper.empty_api import Empty
from tests.sweeper.preemptions import plan
from webhook.configuration.settings import Settings
from webhook.extensions.known import SWITCHES
from webhook.kube.collection import Listing
from webhook.kube.objects import Metadata, Namespace, Node, Pod
from webhook.sweeper.context import Pass
from webhook.sweeper.observe.cache import _NAMESPACES, ClusterCache
from webhook.sweeper.observe.owner_sizes import _Watched
from webhook.sweeper.observe.watches import WatchedCollection
from webhook.sweeper.sweep import Sweeper
from webhook.workloads import marks
from webhook.workloads.kinds import WORKLOADS


def keys_on(kind: str, part: str) -> list[str]:
    """The keys of the wire contract on objects of a kind, as "pod" and "annotation"."""
    uses = (use for uses in KEY_USES.values() for use in uses)
    found = {key for use in uses if kind in use.on and part in use.on for key in use.keys}
    return sorted(key for key in found if key == key.lower())


POD_ANNOTATIONS: Final = sorted({*keys_on("pod", "annotation"), *marks.ALL, *keys.REQUEST_ANNOTATIONS})
POD_LABELS: Final = sorted({*keys_on("pod", "label"), *marks.ALL})
NODE_ANNOTATIONS: Final = keys_on("Node", "annotation")
NODE_LABELS: Final = keys_on("Node", "label")

NUMBERS: Final = ["0", "1", "2", "-1", "1.5", "1e9", "9" * 9, "9" * 19, "9" * 5_000, "²", "١", "0x10", " 1"]
WORDS: Final = [
    "", "true", "no", "node", "block", "block:2", "subblock,node", "card0", "card0,card1|card1", "card0:gt0",
    "|" * 10_000, "card0=gpu.intel.com/i915:1", "0-0.1_1-2.3", "0.0-1.0", "[[[[", "{}", "null", "\0",
    "\x1b[2J",
    "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.9Z", "x" * 100_000, "\n",
    "[" * 50_000,
]  # fmt: skip
TEXT: Final = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.text(max_size=12))
LABEL: Final = st.one_of(
    st.from_regex(r"([A-Za-z0-9][A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True),
    st.sampled_from(["", "0", "1", "9" * 63, "card0.card1", "0.1", "0-0.1", "0.0-1.0", "a", "Z1"]),
)


def pods(number: int) -> st.SearchStrategy[Pod]:
    """A pod of another namespace: gated, running, or released and not bound."""

    def made(
        annotations: dict[str, str], labels: dict[str, str], state: str, resource: str, owner: str
    ) -> Pod:
        metadata: dict[str, Any] = {"namespace": "theirs", "uid": f"u{number}"}
        metadata |= {"annotations": annotations, "labels": labels}
        if owner:
            workload = OWNERS[owner]
            version = f"{workload.group}/{workload.versions[0]}"
            reference = {"apiVersion": version, "kind": owner, "name": "o", "uid": "o", "controller": True}
            metadata["ownerReferences"] = [reference]
        amounts = {resource: "1"}
        container = {"name": "c", "resources": {"limits": amounts, "requests": amounts}}
        spec: dict[str, Any] = {"node": "n0"} if state == "bound" else {}
        if state == "released":
            spec["schedulingGates"] = []
        pod = gpu_pod(f"their-{number}", metadata=metadata, **spec)
        containers = msgspec.convert([container], list[type(pod.spec.containers[0])])  # type: ignore[misc]
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))

    annotations = st.dictionaries(st.sampled_from(POD_ANNOTATIONS), TEXT, max_size=5)
    labels = st.dictionaries(st.sampled_from(POD_LABELS), LABEL, max_size=3)
    resources = st.sampled_from(["nvidia.com/gpu", keys.I915])
    states, owners = st.sampled_from(["gated", "bound", "released"]), st.sampled_from(["", *OWNERS])
    return st.builds(made, annotations, labels, states, resources, owners)


OWNERS: Final = {each.kind: each for each in WORKLOADS if each.kind in ("Job", "JobSet", "LeaderWorkerSet")}
SPECS: Final = {
    "Job": ("template",),
    "JobSet": ("replicatedJobs", 0, "template", "spec", "template"),
    "LeaderWorkerSet": ("leaderWorkerTemplate", "workerTemplate"),
}
"""Where the pod template stands."""


@st.composite
def owners(draw: st.DrawFn, kind: str) -> Any:
    """An owner named o, whose annotations and labels, and those of its pod template, are anything."""

    def metadata() -> dict[str, Any]:
        annotations = st.dictionaries(st.sampled_from(POD_ANNOTATIONS), TEXT, max_size=3)
        labels = st.dictionaries(st.sampled_from(POD_LABELS), LABEL, max_size=2)
        return {"annotations": draw(annotations), "labels": draw(labels)}

    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    body: Any = {"metadata": metadata(), "spec": {"containers": [container]}}
    for part in reversed(SPECS[kind]):
        body = [body] if part == 0 else {part: body}
    body |= {"parallelism": 2, "completions": 2, "replicas": 2}
    document = {"metadata": {"name": "o", "namespace": "theirs", "uid": "o", **metadata()}, "spec": body}
    return msgspec.convert(document, OWNERS[kind].struct)


def watched(cache: ClusterCache, owner: Any, kind: str) -> None:
    """A live copy with this owner."""
    workload = OWNERS[kind]
    collection = WatchedCollection(f"/{workload.resource}", workload.kind, workload.struct)
    copy = cache.watches.prepare(collection, lambda *_: None)
    copy._replace(Listing("1", {"theirs/o": owner}))
    copy._synced.set()
    cache.owners._watched[workload.name] = _Watched(workload, workload.versions[0], collection, copy)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """n0, whose labels and annotations are anything."""
    body = msgspec.to_builtins(Nodes(1).nodes["n0"])
    body["metadata"]["labels"] = draw(st.dictionaries(st.sampled_from(NODE_LABELS), LABEL, max_size=5))
    body["metadata"]["annotations"] = draw(
        st.dictionaries(st.sampled_from(NODE_ANNOTATIONS), TEXT, max_size=4)
    )
    body["status"]["allocatable"] |= {keys.I915: "2"}
    return msgspec.convert(body, Node)


namespaces: Final = st.builds(
    lambda labels, annotations: Namespace(Metadata("theirs", labels=labels, annotations=annotations)),
    st.dictionaries(st.sampled_from([*POD_LABELS, *NODE_LABELS]), LABEL, max_size=3),
    st.dictionaries(st.sampled_from([*POD_ANNOTATIONS, *NODE_ANNOTATIONS]), TEXT, max_size=3),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(pods(0), pods(1), pods(2)), nodes(), st.tuples(*(owners(kind) for kind in OWNERS)), namespaces
)
def test_whatever_is_written_on_objects_a_gang_beside_them_is_released_without_a_defect(
    theirs: tuple[Pod, ...], node: Node, above: tuple[Any, ...], namespace: Namespace
) -> None:
    there = {**Nodes(2).nodes, "n0": node}
    api, clock, cache = Stored(), Clock(), NoneFailed(Empty())
    cache.pods._replace(Listing("1", {f"x/{each.metadata.uid}": each for each in (*theirs, gpu_pod("wait"))}))
    cache.nodes._replace(Listing("1", there))
    namespaces_copy = cache.watches.prepare(_NAMESPACES, lambda *_: None)
    namespaces_copy._replace(Listing("1", {"theirs": namespace}))
    namespaces_copy._synced.set()
    for kind, owner in zip(OWNERS, above, strict=True):
        watched(cache, owner, kind)
    # Of the pods that are released, one is ours.
    plans = dict([plan("their", {"u0": "n0"}, namespace="theirs")])
    cache.placements._replace(Listing("1", plans))
    settings_ = Settings(settle_seconds=0, reserve_seconds=0)
    switches = tuple(each for each in SWITCHES if each.load().name != "scale_up")
    sweeper = Sweeper(Pass(api, cache, settings_, clock=clock, extensions=switches))
    assert not defects_of(sweeper, cache, clock)
    assert any("/pods/wait" in each for each in api.writes)
