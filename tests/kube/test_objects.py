"""What is kept of an object while it lives: nothing that its author can make as large as he likes."""

import sys
from typing import Any

import jsonpatch
import pytest

from labeler.contract import annotations, keys
from tests.sweeper.pods import decode, job_pod, pod_json
from webhook.kube import convert
from webhook.kube.objects import LONG_ANNOTATION, SHORT_ANNOTATION, Pod, is_too_long
from webhook.placement import PlacementError
from webhook.sweeper import patches, plan
from webhook.sweeper.gangs import OwnerSays, PodGang, gather, key_of

QUARTER = 256 * 1024
"""Bytes that the API server takes of all annotations of an object together."""


def pod(**texts: str) -> Pod:
    return decode(pod_json(metadata={"annotations": texts}))


def with_annotation(key: str, value: str) -> Pod:
    return pod(**{key: value})


def gang_of(*pods: Pod) -> PodGang:
    (gang,) = gather(pods, [], lambda _: OwnerSays())
    return gang


def kept_bytes(pod: Pod) -> int:
    texts = pod.metadata.annotations
    return sum(sys.getsizeof(text) for pair in texts.items() for text in pair)


def test_annotations_that_nobody_reads_are_not_kept() -> None:
    many = {f"example.com/{number}": "x" * 100 for number in range(2000)}
    assert kept_bytes(pod(**many)) < 200
    assert kept_bytes(pod(note="x" * QUARTER)) < 200
    assert kept_bytes(pod(**{"topogate.io/no-such-wish": "x" * QUARTER})) < 200


def test_of_annotations_that_are_read_no_more_is_kept_than_makes_sense() -> None:
    read = keys.SHORT_ANNOTATIONS | keys.LONG_ANNOTATIONS
    hostile = dict.fromkeys(read, "x" * QUARTER)
    assert kept_bytes(pod(**hostile)) < 16 * 1024
    largest = dict.fromkeys(keys.SHORT_ANNOTATIONS, "x" * SHORT_ANNOTATION)
    largest |= dict.fromkeys(keys.LONG_ANNOTATIONS, "x" * LONG_ANNOTATION)
    assert kept_bytes(pod(**largest)) < 100 * 1024


def test_a_value_that_is_read_is_kept_as_it_is() -> None:
    texts = dict.fromkeys(keys.SHORT_ANNOTATIONS, "x" * SHORT_ANNOTATION)
    assert pod(**texts, other="gone").metadata.annotations == texts


def test_the_cards_of_a_large_pod_are_read_whole() -> None:
    """50 containers with all tiles of 16 cards each."""
    slot = tuple(annotations.CardShare(card, (0, 1)) for card in range(16))
    texts = annotations.encode_allocation([slot] * 50, 1_764_000_000_000_000_000)
    assert max(map(len, texts.values())) > 10_000
    kept = pod(**texts).metadata.annotations
    assert annotations.decode_allocation(kept, 50) == annotations.decode_allocation(texts, 50)


def test_an_allocation_that_is_too_long_books_no_cards_like_any_that_cannot_be_read() -> None:
    long = with_annotation(keys.GAS_CARDS_ANNOTATION, ",".join(["card0"] * 40_000))
    assert convert.usage_of(long).cards == {}


@pytest.mark.parametrize("key", sorted(keys.WISH_ANNOTATIONS))
def test_a_wish_that_is_too_long_is_told_and_not_passed_over(key: str) -> None:
    gang = gang_of(with_annotation(key, "x" * (SHORT_ANNOTATION + 1)))
    with pytest.raises(PlacementError) as told:
        plan.question(gang, gang.gated, {})
    assert f"annotation {key} of pod p is longer than topogate reads" in str(told.value)
    assert "1025 of at most 1024" in str(told.value)
    assert len(str(told.value)) < 300


def test_two_gangs_whose_names_are_too_long_are_not_one() -> None:
    ends = ("a", "b", "b")
    one, two, same = (key_of(with_annotation(keys.GANG_ANNOTATION, "x" * 5000 + end)) for end in ends)
    assert one != two
    assert two == same


def test_a_size_that_is_too_long_is_no_size() -> None:
    (gang,) = gather(
        [job_pod(0, annotations={keys.GANG_SIZE_ANNOTATION: "1" * 5000})], [], lambda _: OwnerSays(4)
    )
    assert gang.size == 4
    assert "no positive integer" in gang.problems[0]
    assert gang.fault == ""


@pytest.mark.parametrize(
    "texts", [{}, {"theirs": "stays"}, {keys.GANG_ANNOTATION: "g", "theirs": "stays"}], ids=str
)
def test_a_release_leaves_annotations_that_were_not_kept_on_the_pod(texts: dict[str, str]) -> None:
    raw = pod_json(metadata={"annotations": texts} if texts else {})
    written = {keys.GAS_CARDS_ANNOTATION: "card0"}
    after: Any = jsonpatch.apply_patch(raw, patches.release_patch(decode(raw), "n", written))
    assert after["metadata"]["annotations"] == texts | written


def test_what_stands_for_a_long_value_is_told_from_a_value() -> None:
    (kept,) = with_annotation(keys.GANG_ANNOTATION, "x" * 5000).metadata.annotations.values()
    assert is_too_long(kept)
    assert not is_too_long("x" * 10)


def test_sentences_repeat_a_bounded_part_of_what_authors_write() -> None:
    """A gang of 200 pods that contradict each other in every wish, with values as long as are read."""
    wishes = (*keys.GANG_SIZE_KEYS, keys.REQUIRED_TOPOLOGY_ANNOTATION, keys.PREFERRED_TOPOLOGY_ANNOTATION)
    pods = [
        job_pod(number, annotations=dict.fromkeys(wishes, f"{number}" + "x" * 1000)) for number in range(200)
    ]
    (gang,) = gather(pods, [], lambda _: OwnerSays())
    assert 3 < len(gang.problems) <= 6
    assert max(map(len, gang.problems)) < 500
