"""From facts to labels: legal values, originals kept, and models that a selector can name."""

import json

import pytest

from labeler.contract import keys
from labeler.contract.values import legal_value
from labeler.facts import Facts, Gpu, SourceError, merge
from labeler.labels import model_labels, wanted

LEVELS = keys.PRERELEASE_TOPOLOGY


def test_a_value_that_is_no_legal_label_is_hashed_and_its_original_kept() -> None:
    want = wanted(Facts(topology=("eu west", "r" * 64, "h-1")), LEVELS)
    assert want.labels == {
        "topology.gke.io/cluster": legal_value("eu west"),
        "topology.gke.io/rack": legal_value("r" * 64),
        "topology.gke.io/host": "h-1",
    }
    assert json.loads(want.annotations[keys.ORIGINAL_VALUES_ANNOTATION]) == {
        "topology.gke.io/cluster": "eu west",
        "topology.gke.io/rack": "r" * 64,
    }


def test_legal_values_need_no_note() -> None:
    assert wanted(Facts(topology=("c", "r", "h")), LEVELS).annotations == {}


def test_levels_of_any_names_and_number_can_be_configured() -> None:
    levels = ("example.com/dc", "example.com/row", "example.com/rack", "example.com/host")
    assert wanted(Facts(topology=("1", "2", "3", "4")), levels).labels == dict(
        zip(levels, "1234", strict=True)
    )


def test_a_place_of_another_depth_names_both() -> None:
    with pytest.raises(SourceError, match=r"a place of 2 levels .*for 3 labels.*topology\.gke\.io/rack"):
        wanted(Facts(topology=("a", "b")), LEVELS)


def test_the_first_source_that_says_something_wins_and_identities_are_joined() -> None:
    first = Facts(topology=("a",), identity={"x": "1"})
    second = Facts(topology=("b",), gpus=(), identity={"x": "2", "y": "3"})
    assert merge([first, second]) == Facts(("a",), (), {"x": "1", "y": "3"})
    assert merge([]) == Facts()


@pytest.mark.parametrize(
    ("gpus", "model"),
    [
        ([("a", False)] * 2, "a"),
        ([("a", False), ("b", False)], None),
        ([("a", False), ("i", True)], "a"),
        ([("i", True)], "i"),
        ([("", False)], None),
        ([("a", False), ("", False)], None),
    ],
    ids=["alike", "mixed", "beside an integrated one", "integrated alone", "nameless", "one nameless"],
)
def test_a_node_has_a_model_only_where_its_gpus_are_alike(
    gpus: list[tuple[str, bool]], model: str | None
) -> None:
    found = [Gpu(n, "intel", name, integrated=integrated) for n, (name, integrated) in enumerate(gpus)]
    labels = model_labels(found)
    assert labels.get(keys.GPU_MODEL_LABEL) == model
    for name in {name for name, _ in gpus if name}:
        assert labels[f"gpu.topogate.io/has.{name}"] == "true"


def test_a_long_model_still_makes_a_legal_key() -> None:
    labels = model_labels([Gpu(0, "nvidia", "N" * 80)])
    (key,) = (key for key in labels if key.startswith(keys.GPU_HAS_MODEL_PREFIX))
    assert len(key.partition("/")[2]) <= 63
