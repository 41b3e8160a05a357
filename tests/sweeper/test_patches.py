"""The release patch: what it leaves of a pod, and what it refuses to touch.

Applied by the jsonpatch package here; tests/cluster asks the API server the same.
"""

import copy
from typing import Any

import jsonpatch
import pytest

from labeler.contract import keys
from tests.sweeper.pods import decode, pod_json
from webhook.sweeper.apply import patches
from webhook.sweeper.observe.plans import pinned_node

PIN = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
NAMED = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def released(pod: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """The pod after its release to node n1."""
    operations = patches.release_patch(decode(pod), "n1", annotations or {})
    result: dict[str, Any] = jsonpatch.apply_patch(copy.deepcopy(pod), operations)
    return result


def with_terms(*terms: dict[str, Any]) -> dict[str, Any]:
    return pod_json(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}})


def terms_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    terms: list[dict[str, Any]] = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return terms


@pytest.mark.promise("R8")
@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param(None, id="no affinity"),
        pytest.param({}, id="an empty affinity"),
        pytest.param({"nodeAffinity": {}}, id="an empty node affinity"),
        pytest.param({"podAntiAffinity": {}}, id="only pod anti-affinity"),
        pytest.param(
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}, id="preferred only"
        ),
    ],
)
def test_a_pod_without_required_node_affinity_gets_one_term_with_the_pin(
    affinity: dict[str, Any] | None,
) -> None:
    spec: dict[str, Any] = {} if affinity is None else {"affinity": affinity}
    pod = pod_json(**spec)
    after = released(pod)
    assert terms_of(after) == [{"matchFields": [PIN]}]
    for key, value in (affinity or {}).items():
        assert value.items() <= after["spec"]["affinity"][key].items()


@pytest.mark.promise("R8")
def test_the_pin_is_appended_to_every_term_and_earlier_requirements_stay_first() -> None:
    after = released(with_terms({"matchExpressions": [SSD]}, {"matchFields": [NAMED]}))
    assert terms_of(after) == [
        {"matchExpressions": [SSD], "matchFields": [PIN]},
        {"matchFields": [NAMED, PIN]},
    ]


def test_an_empty_term_stays_empty_because_it_matches_nothing() -> None:
    assert terms_of(released(with_terms({}, {"matchExpressions": [SSD]})))[0] == {}


def test_a_pod_whose_terms_are_all_empty_is_refused_with_what_to_do() -> None:
    with pytest.raises(patches.UnpinnableError, match=r"only empty terms.*correct the affinity"):
        patches.release_patch(decode(with_terms({}, {})), "n1", {})


@pytest.mark.promise("W12")
@pytest.mark.parametrize("position", [0, 1, 2])
def test_our_gate_is_removed_and_those_of_others_stay_in_their_order(position: int) -> None:
    gates = [{"name": "quota.example.com/a"}, {"name": "quota.example.com/b"}]
    pod = pod_json(schedulingGates=[*gates[:position], {"name": keys.GATE}, *gates[position:]])
    assert released(pod)["spec"]["schedulingGates"] == gates


@pytest.mark.promise("W12")
def test_several_gates_with_our_prefix_are_all_removed() -> None:
    names = [
        "gke.io/topology-aware-auto-scheduling",
        "other.example.com/x",
        "gke.io/topology-aware-auto-my-job",
    ]
    pod = pod_json(schedulingGates=[{"name": name} for name in names])
    assert released(pod)["spec"]["schedulingGates"] == [{"name": "other.example.com/x"}]


@pytest.mark.parametrize("metadata", [{}, {"annotations": {}}, {"annotations": {"a/b": "c"}}], ids=str)
def test_annotations_are_added_to_whatever_is_there(metadata: dict[str, Any]) -> None:
    pod = pod_json(metadata=metadata)
    after = released(pod, {"gas-ts": "1", "odd~key/with": "2"})
    assert after["metadata"]["annotations"] == {
        **metadata.get("annotations", {}),
        "gas-ts": "1",
        "odd~key/with": "2",
    }


STALE = dict.fromkeys(keys.GAS_ANNOTATIONS, "of another pod")


@pytest.mark.parametrize(
    "given",
    [
        {keys.GAS_TIMESTAMP_ANNOTATION: "1", keys.GAS_CARDS_ANNOTATION: "card0"},
        dict.fromkeys(keys.GAS_ANNOTATIONS, "ours"),
        {},
    ],
    ids=["cards without tiles", "cards and tiles", "no cards"],
)
@pytest.mark.parametrize("others", [{"a/b": "c"}, {}], ids=["beside others", "alone"])
def test_a_released_pod_keeps_no_cards_that_its_author_copied_from_another_pod(
    given: dict[str, str], others: dict[str, str]
) -> None:
    after = released(pod_json(metadata={"annotations": {**others, **STALE}}), given)
    assert after["metadata"]["annotations"] == {**others, **given}


@pytest.mark.promise("R8")
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"metadata": {"uid": "another"}}, id="a pod of the same name that is another"),
        pytest.param({"schedulingGates": [{"name": "other.example.com/x"}]}, id="our gate is gone"),
        pytest.param(
            {"schedulingGates": [{"name": "other.example.com/x"}, {"name": keys.GATE}]}, id="gates moved"
        ),
    ],
)
def test_a_pod_that_is_not_what_was_seen_is_not_touched(changed: dict[str, Any]) -> None:
    operations = patches.release_patch(decode(pod_json()), "n1", {"gas-ts": "1"})
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(pod_json(**changed), operations)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pod_json(), id="no affinity"),
        pytest.param(with_terms({"matchExpressions": [SSD]}, {"matchFields": [NAMED]}, {}), id="three terms"),
    ],
)
def test_where_a_released_pod_is_pinned_can_be_read_back(pod: dict[str, Any]) -> None:
    assert pinned_node(decode(pod)) is None
    assert pinned_node(decode(released(pod))) == "n1"


def test_a_pod_with_an_escape_beside_the_pin_is_not_taken_for_pinned() -> None:
    assert pinned_node(decode(with_terms({"matchFields": [PIN]}, {"matchExpressions": [SSD]}))) is None
