"""What is written to a Node: the difference, our own keys, and nothing when nothing changed (pure)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import keys
from labeler.labels import Wanted
from labeler.publisher import LabelChange, NodePublisher, describe, difference
from tests.labeler.played_node import PlayedNode

LEVELS = keys.PRERELEASE_TOPOLOGY
RACK, HOST, CARDS = "topology.gke.io/rack", "topology.gke.io/host", "gpu.intel.com/cards"
OWNED, ORIGINAL = keys.OWNED_LABELS_ANNOTATION, keys.ORIGINAL_VALUES_ANNOTATION
NAME = "labeler.topogate.io/gce-instance-name"
GPUS = (keys.INTEL_PREFIX, keys.GPU_PREFIX)


def node(labels: dict[str, str], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {"labels": labels, "annotations": annotations or {}}


def want(
    labels: dict[str, str], annotations: dict[str, str] | None = None, unknown: tuple[str, ...] = ()
) -> Wanted:
    return Wanted(labels, annotations or {}, unknown)


@pytest.mark.promise("R9")
@pytest.mark.parametrize("metadata", [{}, {"labels": None, "annotations": None}, node({})], ids=str)
def test_an_unlabelled_node_gets_its_labels_and_the_list_of_them(
    metadata: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    change = difference(metadata, want({RACK: "r", CARDS: "card0"}, {NAME: "n"}), LEVELS)
    assert change == LabelChange({RACK: "r", CARDS: "card0"}, {OWNED: f"{CARDS},{RACK}", NAME: "n"})
    assert caplog.text == "", "nothing is taken over"


def test_a_node_that_is_right_is_not_written() -> None:
    metadata = node({RACK: "r", "other": "x"}, {OWNED: RACK, NAME: "n", "other": "y"})
    assert not difference(metadata, want({RACK: "r"}, {NAME: "n"}), LEVELS)


def test_only_what_differs_is_written(caplog: pytest.LogCaptureFixture) -> None:
    metadata = node({RACK: "r", HOST: "old"}, {OWNED: f"{HOST},{RACK}"})
    assert difference(metadata, want({RACK: "r", HOST: "h"}), LEVELS) == LabelChange({HOST: "h"}, {})
    assert caplog.text == "", "its own label is nobody else's"


@pytest.mark.promise("R9")
def test_an_own_label_that_no_longer_holds_is_removed() -> None:
    metadata = node({RACK: "r", CARDS: "card0"}, {OWNED: f"{CARDS},{RACK}"})
    assert difference(metadata, want({RACK: "r"}), LEVELS) == LabelChange({CARDS: None}, {OWNED: RACK})


def test_when_nothing_holds_any_more_nothing_of_ours_stays() -> None:
    metadata = node({RACK: "r", "other": "x"}, {OWNED: RACK, NAME: "n", ORIGINAL: "{}", "other": "y"})
    assert difference(metadata, want({}), LEVELS) == LabelChange(
        {RACK: None}, {OWNED: None, NAME: None, ORIGINAL: None}
    )


@pytest.mark.promise("R9")
@pytest.mark.parametrize("label", ["gpu.intel.com/device-id.0300-56c1.count", RACK, "example.com/a"])
def test_a_label_that_another_client_wrote_stays(label: str) -> None:
    assert not difference(node({label: "theirs"}), want({}), LEVELS)


@pytest.mark.parametrize("key", ["example.com/a", "kubernetes.io/hostname", "topology.gke.io.evil/x", ""])
def test_a_list_of_own_labels_that_was_tampered_with_removes_nothing_foreign(key: str) -> None:
    metadata = node(
        {"example.com/a": "b", "kubernetes.io/hostname": "n", RACK: "r"}, {OWNED: f"{key},{RACK}"}
    )
    change = difference(metadata, want({RACK: "r"}), LEVELS)
    assert set(change.labels) == set()
    assert set(change.annotations) <= {OWNED}


def test_a_label_that_another_client_wrote_under_our_key_is_taken_over_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    change = difference(node({RACK: "theirs"}), want({RACK: "ours"}), LEVELS)
    assert change == LabelChange({RACK: "ours"}, {OWNED: RACK})
    assert f"taking over labels that somebody else wrote: {RACK}" in caplog.text


def test_labels_of_a_kind_that_is_unknown_stay_and_stay_ours() -> None:
    metadata = node({RACK: "r", CARDS: "card0"}, {OWNED: f"{CARDS},{RACK}"})
    assert difference(metadata, want({RACK: "new"}, unknown=GPUS), LEVELS) == LabelChange({RACK: "new"}, {})
    assert difference(metadata, want({CARDS: "card0"}, unknown=LEVELS), LEVELS) == LabelChange({}, {})


def test_a_label_of_another_client_does_not_become_ours_while_its_kind_is_unknown() -> None:
    change = difference(node({RACK: "theirs"}), want({CARDS: "card0"}, unknown=LEVELS), LEVELS)
    assert change == LabelChange({CARDS: "card0"}, {OWNED: CARDS})


def test_labels_of_a_known_kind_are_removed_although_another_kind_is_unknown() -> None:
    metadata = node({RACK: "r", CARDS: "card0"}, {OWNED: f"{CARDS},{RACK}"})
    assert difference(metadata, want({}, unknown=GPUS), LEVELS) == LabelChange({RACK: None}, {OWNED: CARDS})


def test_notes_stay_while_what_they_note_is_unknown() -> None:
    metadata = node({}, {NAME: "n", ORIGINAL: "{}"})
    assert difference(metadata, want({}, unknown=(*LEVELS, keys.LABELER_PREFIX)), LEVELS) == LabelChange()
    assert difference(metadata, want({}, unknown=(keys.LABELER_PREFIX,)), LEVELS) == LabelChange(
        {}, {ORIGINAL: None}
    )
    assert difference(metadata, want({}), LEVELS) == LabelChange({}, {NAME: None, ORIGINAL: None})


def test_labels_and_annotations_are_one_patch_of_the_node_that_was_read() -> None:
    node = PlayedNode()
    node.uid = "u"
    publisher = NodePublisher(node, LEVELS)  # type: ignore[arg-type]
    publisher.publish(want({RACK: "r"}))
    publisher.publish(want({RACK: "r"}))
    publisher.publish(want({RACK: "r"}, {NAME: "n"}))
    assert node.bodies == [
        {"metadata": {"labels": {RACK: "r"}, "annotations": {OWNED: RACK}, "uid": "u"}},
        {"metadata": {"annotations": {NAME: "n"}, "uid": "u"}},
    ]


def test_the_log_has_what_was_set_and_what_was_removed() -> None:
    change = LabelChange({RACK: "r", HOST: None}, {NAME: None, ORIGINAL: "{}"})
    assert describe(change) == f"{RACK}=r without labels {HOST} {ORIGINAL}={{}} without annotations {NAME}"


KEYS = st.sampled_from(
    [RACK, HOST, CARDS, "gpu.intel.com/tiles", "gpu.topogate.io/model", "foreign.io/a", "b"]
)
OURS = st.sampled_from([RACK, HOST, CARDS, "gpu.intel.com/tiles", "gpu.topogate.io/model"])
VALUES = st.sampled_from(["", "x", "y"])


@given(
    st.dictionaries(KEYS, VALUES),
    st.lists(KEYS, unique=True),
    st.dictionaries(OURS, VALUES),
    st.sampled_from([(), GPUS, LEVELS]),
)
def test_one_write_makes_a_node_right_and_touches_nobody_elses_labels(
    labels: dict[str, str], owned: list[str], wanted: dict[str, str], unknown: tuple[str, ...]
) -> None:
    metadata = node(labels, {OWNED: ",".join(owned)} if owned else {})
    goal = want(wanted, unknown=unknown)
    change = difference(metadata, goal, LEVELS)
    after = node(_merged(labels, change.labels), _merged(metadata["annotations"], change.annotations))
    assert not difference(after, goal, LEVELS)
    assert wanted.items() <= after["labels"].items()
    foreign = labels.keys() - wanted.keys() - set(owned)
    assert {key: labels[key] for key in foreign} == {key: after["labels"].get(key) for key in foreign}
    assert {key for key in labels if not key.startswith((*GPUS, "topology.gke.io/"))} <= after[
        "labels"
    ].keys()


def _merged(values: dict[str, str], change: Any) -> dict[str, str]:
    merged = {**values, **change}
    return {key: value for key, value in merged.items() if value is not None}
