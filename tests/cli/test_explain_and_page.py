"""The page explains a gang in the words of `topogate explain`."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from labeler.contract import keys
from tests.cli.explained_stories import Between, Story, stories, story_of_a_request_for_nodes
from tests.cli.explained_worlds import GPU, Step
from tests.cli.explanations import BLOCK, GRID, cluster, job_pods, planned, refused_by_kubelet
from tests.sweeper.sets import member
from tests.ui.scenes import COUNTING
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.explanation import explain
from webhook.inquiry.next_pass import VIEW_ALONE, facts_of, moment, owners_snapshotter
from webhook.inquiry.rehearsal import rehearse_manifest
from webhook.inquiry.simulation import place_each, read_pods, shipped_rules
from webhook.sweeper.observe.view import Moment
from webhook.ui.detail import detail
from webhook.ui.live import Artist
from webhook.ui.redact import EVERYTHING
from webhook.ui.whatif import WhatIf, WhatIfChange, of_manifest

SLICED: Final = {keys.SLICE_TOPOLOGY_ANNOTATION: "block", keys.SLICE_SIZE_ANNOTATION: "2"}


class Page:
    """The page on one reading of the cluster."""

    def __init__(self, reading: ClusterReading, choices: Settings, now: Moment) -> None:
        self.facts = replace(facts_of(reading), read=VIEW_ALONE.read)  # the scene has them, as in Live.facts
        self.settings = choices
        lost_owner = owners_snapshotter(reading, choices).view().lost_owners.of
        self.scene = Artist(
            reading, choices, COUNTING, owners=lambda: lost_owner, facts=lambda: self.facts, now=lambda: now
        ).scene()

    def explained(self) -> Iterator[list[str]]:
        """The sentences on each gang."""
        for row in self.scene.gangs:
            yield detail(row, self.scene, self.settings, self.facts, EVERYTHING).sentences

    def what_if(self, manifest: str) -> WhatIf:
        """Whether a manifest would be placed now."""
        return of_manifest(
            manifest, self.scene, self.settings, WhatIfChange(), COUNTING, facts=self.facts
        )  # fmt: skip


def differences(step: Step, choices: Settings, now: Moment) -> Iterator[tuple[list[str], list[str]]]:
    """What the page and the command say of a gang, where that differs."""
    for shown in Page(step.reading, choices, now).explained():
        whole = shown[0].split()[1]
        if shown[0].startswith("Pod "):
            namespace, _, name = whole.partition("/")
            printed = common(explain(step.reading, namespace, name, choices, now))
            if common(shown) != printed:
                yield common(shown), printed


def common(lines: Iterator[str] | list[str]) -> list[str]:
    """All but the line that only the command has, as it names accounts of others."""
    return [line for line in lines if not line.startswith("Fair order: ")]


@pytest.mark.promise("R175")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(stories())
def test_the_page_has_the_sentences_of_the_command(story: Story) -> None:
    """Plans are under way or lost, kubelets refuse pods, nodes fail, and leaders change."""
    assert_both_print_the_same(story)


@pytest.mark.parametrize("after_seconds", [0.0, 5.0])
def test_the_page_prints_what_becomes_of_a_request_for_nodes(after_seconds: float) -> None:
    shown = assert_both_print_the_same(story_of_a_request_for_nodes(after_seconds))
    assert any("the autoscaler refuses nodes" in line for line in shown)


def test_the_page_prints_what_it_cannot_know_of_a_request_for_nodes() -> None:
    story = story_of_a_request_for_nodes(after_seconds=90.0)
    shown = assert_both_print_the_same(replace(story, events=[Between(60)]))
    unknown = "When it began to find no nodes is not known here"
    assert any(line.startswith(unknown) for line in shown)


def assert_both_print_the_same(story: Story) -> list[str]:
    """Returns all that the page prints, step by step."""
    world, shown = story.world, list[str]()
    try:
        for step in itertools.chain([story.begin()], map(story.play, story.events)):
            assert list(differences(step, world.settings, world.moment)) == []
            shown += itertools.chain.from_iterable(
                Page(step.reading, world.settings, world.moment).explained()
            )
        return shown
    finally:
        world.close()


def with_a_plan_that_a_kubelet_refused() -> ClusterReading:
    pods = job_pods(2)
    entries = {"u0": GRID[0].name, "u1": GRID[1].name, "refused": GRID[0].name}
    return replace(planned(pods, entries=entries), read_failed=lambda: [refused_by_kubelet(pods[0])])


def with_a_plan_whose_domain_is_taken() -> ClusterReading:
    waiting = member("a0", "a", over=BLOCK)
    there = member("b0", "b", over=BLOCK, node=GRID[1].name)
    return planned([waiting], there, entries={waiting.metadata.uid: GRID[0].name})


LOST: Final = [with_a_plan_that_a_kubelet_refused, with_a_plan_whose_domain_is_taken]


@pytest.mark.parametrize("reading_of", LOST)
def test_the_page_shows_no_plan_that_the_sweeper_takes_to_be_invalid(
    reading_of: Callable[[], ClusterReading],
) -> None:
    shown = next(Page(reading_of(), Settings(), moment()).explained())
    assert shown[0].startswith("Pod ")
    assert not any(line.startswith("It is planned on ") for line in shown)


def of_all_nodes() -> dict[str, Any]:
    """A Job that uses all GPUs of the cluster."""
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: 8}}}
    spec = {"parallelism": len(GRID), "completions": len(GRID), "completionMode": "Indexed"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "all", "namespace": "ns"},
        "spec": {**spec, "template": template},
    }  # fmt: skip


@pytest.mark.parametrize("is_valid", [True, False])
def test_the_nodes_of_an_invalid_plan_are_free_for_what_if_and_simulate(is_valid: bool) -> None:
    reading = planned(job_pods(2)) if is_valid else with_a_plan_that_a_kubelet_refused()
    shown = Page(reading, Settings(), moment()).what_if(json.dumps(of_all_nodes()))
    assert shown.fits is not is_valid
    found = read_pods([of_all_nodes()], "the Job", rules=shipped_rules())
    (simulated,) = place_each(rehearse_manifest(reading, found, Settings()))
    assert bool(simulated.answer.placed) is not is_valid


def test_a_gang_whose_waiting_pods_make_no_whole_slice_is_shown() -> None:
    """As one of its pods has been bound without a gate."""
    first, second = job_pods(2, annotations=SLICED)
    bound = msgspec.structs.replace(first.spec, scheduling_gates=[], node_name=GRID[0].name)
    reading = cluster([msgspec.structs.replace(first, spec=bound), second], parallelism=2)
    (shown,) = Page(reading, Settings(), moment()).explained()
    assert any(line.startswith("Now: ") for line in shown)
