"""What is kept of an object while it lives: nothing that its author can make as large as he likes."""

import sys
from typing import Any

import jsonpatch
import msgspec
import pytest

from labeler.contract import annotations, keys
from tests.sweeper.pods import decode, job_pod, pod_json
from webhook.kube import annotation_lengths, sharing
from webhook.kube.annotation_lengths import is_too_long, most_characters
from webhook.kube.containers import ActualResources
from webhook.kube.objects import Node, NodeMetadata, Pod, PodStatus
from webhook.placement import PlacementError
from webhook.scheduling import convert
from webhook.sweeper.apply import patches
from webhook.sweeper.decide.gang_question import question
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather, key_of
from webhook.workloads import marks

QUARTER = 256 * 1024
"""Bytes that the API server takes of all annotations of an object together."""


def pod(**texts: str) -> Pod:
    return decode(pod_json(metadata={"annotations": texts}))


def with_annotation(key: str, value: str) -> Pod:
    return pod(**{key: value})


def gang_of(*pods: Pod) -> PodGang:
    (gang,) = gather(pods, [], lambda _: OwnerFacts())
    return gang


def stored_bytes(pod: Pod) -> int:
    texts = pod.metadata.annotations
    return sum(sys.getsizeof(text) for pair in texts.items() for text in pair)


def test_annotations_that_nobody_reads_are_not_stored() -> None:
    many = {f"example.com/{number}": "x" * 100 for number in range(2000)}
    assert stored_bytes(pod(**many)) < 200
    assert stored_bytes(pod(note="x" * QUARTER)) < 200
    assert stored_bytes(pod(**{"topogate.io/no-such-wish": "x" * QUARTER})) < 200


@pytest.mark.promise("S1")
def test_of_annotations_that_are_read_no_more_is_stored_than_makes_sense() -> None:
    read = annotation_lengths.SHORT | annotation_lengths.LONG
    hostile = dict.fromkeys(read, "x" * QUARTER)
    assert stored_bytes(pod(**hostile)) < 16 * 1024
    largest = {key: "x" * most_characters(key) for key in read}
    assert stored_bytes(pod(**largest)) < 64 * 1024


NEVER_READ_HERE = {
    keys.OWNED_LABELS_ANNOTATION,
    keys.ORIGINAL_VALUES_ANNOTATION,
    keys.BROKEN_GPUS_ANNOTATION,
}
"""Two by the labeler and one by `topogate doctor`, which have objects of their own."""


@pytest.mark.parametrize("name", sorted(name for name in vars(keys) if name.endswith("_ANNOTATION")))
def test_an_annotation_that_has_a_name_in_the_contract_is_stored(name: str) -> None:
    """So that nobody reads a new one in vain."""
    key = getattr(keys, name)
    if key in annotation_lengths.OF_NODES:
        assert NodeMetadata(annotations={key: "x"}).annotations == {key: "x"}
        assert pod(**{key: "x"}).metadata.annotations == annotation_lengths.OTHER_ANNOTATIONS
        return
    assert (pod(**{key: "x"}).metadata.annotations == {key: "x"}) == (key not in NEVER_READ_HERE)


@pytest.mark.promise("W11")
@pytest.mark.parametrize("present", [{}, {"topogate.io/reset-failures": "2026-02-01T00:00:00Z"}], ids=str)
def test_a_reset_of_failures_under_its_name_in_v0_1_counts_unless_the_present_name_is_there(
    present: dict[str, str],
) -> None:
    old = {"topogate.io/forgive-failures": "2026-01-01T00:00:00Z"}
    reset = NodeMetadata(annotations={**old, **present}).annotations[keys.RESET_FAILURES_ANNOTATION]
    assert reset == ("2026-02-01T00:00:00Z" if present else "2026-01-01T00:00:00Z")


def test_a_value_that_is_read_is_stored_as_it_is() -> None:
    texts = {key: "x" * most_characters(key) for key in annotation_lengths.SHORT | annotation_lengths.LONG}
    assert min(map(len, texts.values())) > 253, "the longest name of an object"
    assert pod(**texts, other="gone").metadata.annotations == texts


def test_the_cards_of_a_large_pod_are_read_whole() -> None:
    """50 containers with all tiles of 16 cards each."""
    slot = tuple(annotations.SlotCard(card, (0, 1)) for card in range(16))
    texts = annotations.encode_allocation([slot] * 50, 1_764_000_000_000_000_000)
    assert max(map(len, texts.values())) > 10_000
    stored = pod(**texts).metadata.annotations
    assert annotations.decode_allocation(stored, 50) == annotations.decode_allocation(texts, 50)


def test_an_allocation_that_is_too_long_reserves_no_cards_as_any_that_cannot_be_read() -> None:
    long = with_annotation(keys.GAS_CARDS_ANNOTATION, ",".join(["card0"] * 40_000))
    assert convert.usage_of(long).cards == {}


@pytest.mark.promise("S1")
@pytest.mark.parametrize("key", sorted(annotation_lengths.NEVER_SHORTENED))
def test_a_request_that_is_too_long_is_reported_and_not_ignored(key: str) -> None:
    gang = gang_of(with_annotation(key, "x" * (most_characters(key) + 1)))
    with pytest.raises(PlacementError) as raised:
        question(gang, gang.gated, {})
    assert f"annotation {key} of pod p is longer than topogate reads" in str(raised.value)
    assert f"of at most {most_characters(key)} characters" in str(raised.value)
    assert len(str(raised.value)) < 300


def test_two_gangs_whose_names_are_too_long_are_not_one() -> None:
    ends = ("a", "b", "b")
    one, two, same = (key_of(with_annotation(keys.GANG_ANNOTATION, "x" * 5000 + end)) for end in ends)
    assert one != two
    assert two == same


def test_a_size_that_is_too_long_is_no_size() -> None:
    (gang,) = gather(
        [job_pod(0, annotations={keys.GANG_SIZE_ANNOTATION: "1" * 5000})], [], lambda _: OwnerFacts(4)
    )
    assert gang.size == 4
    assert "not a positive integer" in gang.problems[0]
    assert gang.fault == ""


@pytest.mark.parametrize(
    "texts", [{}, {"theirs": "stays"}, {keys.GANG_ANNOTATION: "g", "theirs": "stays"}], ids=str
)
def test_a_release_leaves_annotations_that_were_not_stored_on_the_pod(texts: dict[str, str]) -> None:
    raw = pod_json(metadata={"annotations": texts} if texts else {})
    written = {keys.GAS_CARDS_ANNOTATION: "card0"}
    after: Any = jsonpatch.apply_patch(raw, patches.release_patch(decode(raw), "n", written))
    assert after["metadata"]["annotations"] == texts | written


def test_what_stands_for_a_long_value_differs_from_every_value() -> None:
    (stored,) = with_annotation(keys.GANG_ANNOTATION, "x" * 5000).metadata.annotations.values()
    assert is_too_long(stored)
    assert not is_too_long("x" * 10)


@pytest.mark.promise("S1")
def test_sentences_repeat_a_bounded_part_of_what_authors_write() -> None:
    """A gang of 200 pods that contradict each other in every request, with values as long as are read."""
    request_keys = (
        *marks.GANG_SIZE_KEYS,
        keys.REQUIRED_TOPOLOGY_ANNOTATION,
        keys.PREFERRED_TOPOLOGY_ANNOTATION,
    )
    pods = [
        job_pod(number, annotations=dict.fromkeys(request_keys, f"{number}" + "x" * 1000))
        for number in range(200)
    ]
    (gang,) = gather(pods, [], lambda _: OwnerFacts())
    assert 3 < len(gang.problems) <= 6
    assert max(map(len, gang.problems)) < 500


# --- equal parts -------------------------------------------------------------------------------------------


def equal_pod(number: int, **spec: Any) -> Pod:
    """One of many pods of a Job."""
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "8", "cpu": "1"}}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    metadata = {"labels": {"a-label-key-of-more-than-32-bytes": "v" * 40}, "ownerReferences": [owner]}
    body: dict[str, Any] = {"containers": [container], "tolerations": [toleration], "nodeName": "a-node"}
    return decode(pod_json(f"p{number}", metadata=metadata, **(body | spec)))


def test_what_is_equal_in_two_pods_is_stored_once() -> None:
    one, two = equal_pod(1), equal_pod(2)
    assert one.spec.containers is two.spec.containers
    assert one.spec.tolerations is two.spec.tolerations
    assert one.spec.node_name is two.spec.node_name
    assert one.metadata.owner_references is two.metadata.owner_references
    for texts in zip(one.metadata.labels.items(), two.metadata.labels.items(), strict=True):
        assert [each is other for each, other in zip(*texts, strict=True)] == [True, True]


@pytest.mark.parametrize("amounts", [("1", "2"), ("8", 8), (1, 1.5)], ids=str)
def test_what_is_not_equal_stays_as_it_is(amounts: tuple[object, object]) -> None:
    found = []
    for number, amount in enumerate(amounts):
        container = {"name": "c", "resources": {"requests": {"x.com/y": amount}}}
        found.append(
            equal_pod(number, containers=[container]).spec.containers[0].resources.requests["x.com/y"]
        )
    assert tuple(found) == amounts


def test_a_number_that_is_too_large_to_be_shared_is_read_all_the_same() -> None:
    container = {"name": "c", "resources": {"requests": {"x.com/y": 10**30}}}
    raw = str(pod_json(containers=[container])).replace("'", '"').encode()
    pod = msgspec.json.decode(raw, type=Pod)
    assert pod.spec.containers[0].resources.requests == {"x.com/y": 10**30}


def test_what_is_remembered_of_hostile_pods_is_bounded() -> None:
    for number in range(sharing.MOST + 10):
        equal_pod(number, nodeName=f"n{number}", nodeSelector={"a": str(number)})
    huge = equal_pod(0, nodeSelector={str(number): "x" * 60 for number in range(1000)})
    assert len(sharing._parts) <= sharing.MOST
    assert len(sharing._texts) <= sharing.MOST
    assert not [key for _, key in sharing._parts if len(key) > sharing.LARGEST]
    assert len(huge.spec.node_selector) == 1000


def test_of_conditions_those_are_stored_that_are_read() -> None:
    conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "PodScheduled", "Ready")]
    raw = pod_json() | {"status": {"conditions": conditions}}
    assert [each.type for each in decode(raw).status.conditions] == ["PodScheduled"]
    node = msgspec.convert({"metadata": {"name": "n"}, "status": {"conditions": conditions}}, Node)
    assert [each.type for each in node.status.conditions] == ["Ready"]


@pytest.mark.parametrize(
    ("phase", "status", "is_unready"),
    [
        ("Running", "False", True),
        ("Running", "Unknown", True),
        ("Running", "True", False),
        ("Pending", "False", False),
    ],
)
def test_of_a_pod_that_runs_is_stored_whether_it_is_ready(
    phase: str, status: str, *, is_unready: bool
) -> None:
    reported = {"type": "Ready", "status": status, "message": "containers with unready status: [c]"}
    found = decode(pod_json() | {"status": {"phase": phase, "conditions": [reported]}}).status
    assert found.is_unready == is_unready
    assert [each.message for each in found.conditions] == [""] * is_unready


def reporting(requests: dict[str, str], **status: Any) -> Pod:
    """A running pod with a container that requests so much, and what its kubelet says of that."""
    container = {"name": "c", "resources": {"requests": requests}}
    own = {"name": "c", "state": {"running": {}}, **status}
    body = pod_json(containers=[container], resources={"requests": requests})
    of_pod = {key: own[key] for key in ("resources", "allocatedResources") if key in own}
    return decode({**body, "status": {"phase": "Running", "containerStatuses": [own], **of_pod}})


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
        {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}},
    ],
    ids=["nothing", "what it has", "what it has and what is set aside"],
)
def test_of_a_container_that_has_what_it_requests_nothing_is_stored(status: dict[str, Any]) -> None:
    assert reporting({"cpu": "1"}, **status).status == PodStatus(phase="Running")


def test_of_a_container_that_is_resized_its_requests_are_stored() -> None:
    has = {"requests": {"cpu": "1"}, "limits": {"cpu": "9"}}
    pod = reporting({"cpu": "2"}, resources=has, allocatedResources={"cpu": "2"})
    (status,) = pod.status.container_statuses
    assert status.resources == pod.status.resources == ActualResources(requests={"cpu": "1"})
    assert status.allocated_resources == pod.status.allocated_resources == {"cpu": "2"}


def test_of_a_container_that_is_only_troubled_no_resources_are_stored() -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    pod = reporting({"cpu": "1"}, state=waits, resources={"requests": {"cpu": "1"}})
    (status,) = pod.status.container_statuses
    assert (status.is_troubled, status.resources) == (True, None)
