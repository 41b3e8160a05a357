"""Which plans `topogate explain` takes to be valid: those that the sweeper does."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.cli.explanations import BLOCK, GRID, explained, job_pods, planned, refused_by_kubelet
from tests.sweeper.pods import decode
from tests.sweeper.sets import member
from webhook.extensions.native_gangs.own_pod_groups import COLLECTIONS, FINALIZER, BindGroup
from webhook.sweeper.observe.watches import WatchedCollection
from webhook.workloads.pod_group_names import bind_group_name


@pytest.mark.parametrize("is_older", [True, False], ids=["older plan", "newer plan"])
def test_a_plan_is_valid_on_a_node_whose_kubelet_refused_the_gang_only_if_it_is_newer(is_older: bool) -> None:
    """An older one still names the pod that was refused."""
    pods = job_pods(2)
    entries = {"u0": GRID[0].name, "u1": GRID[1].name} | ({"refused": GRID[0].name} if is_older else {})
    reading = replace(planned(pods, entries=entries), read_failed=lambda: [refused_by_kubelet(pods[0])])
    assert ("about to be released" in explained(reading)) is not is_older
    assert ("next pass places it" in explained(reading)) is is_older


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ({}, "It is planned on n0, and is not released yet."),
        ({"ns": 2}, "It is planned on n0 and about to be released."),
        (None, "It is planned on n0 and about to be released."),
    ],
    ids=["missing", "there", "not served"],
)
def test_a_pod_whose_pod_group_is_missing_is_not_about_to_be_released(
    groups: Mapping[str, int] | None, sentence: str
) -> None:
    made = job_pods(2)
    name = bind_group_name(made[0].metadata.labels, {}, "", "")
    pods = [
        decode(
            {
                **(body := msgspec.to_builtins(pod)),
                "spec": body["spec"] | {"schedulingGroup": {"podGroupName": name}},
            }
        )
        for pod in made
    ]

    def objects(collection: WatchedCollection[Any]) -> Mapping[str, BindGroup] | None:
        if groups is None or collection is not COLLECTIONS[-1]:
            return None
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        metadata = {"namespace": "ns", "name": name, "uid": "g", "finalizers": [FINALIZER]}
        group = msgspec.convert({"metadata": metadata, "spec": spec}, BindGroup)
        return {f"{namespace}/{name}": group for namespace in groups}

    reading = replace(planned(pods), read_objects=objects)
    assert sentence.replace("n0", GRID[0].name) in explained(reading)


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_plan_is_invalid_once_others_have_taken_its_exclusive_domain(is_taken: bool) -> None:
    waiting = member("a0", "a", over=BLOCK)
    there = [member("b0", "b", over=BLOCK, node=GRID[1].name)] if is_taken else []
    reading = planned([waiting], *there, entries={waiting.metadata.uid: GRID[0].name})
    found = explained(reading, "a0", namespace=waiting.metadata.namespace)
    assert ("about to be released" in found) is not is_taken
