"""A gang of a known size of which fewer pods come says so within seconds, once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.reports import Answers, Copy, Reports
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause

SETTINGS = Settings(settle_seconds=5, patience_seconds=60)


def pods_of(count: int, **annotations: str) -> list[Pod]:
    metadata = {"annotations": {keys.GANG_ANNOTATION: "g", **annotations}}
    return [gpu_pod(f"p-{number}", metadata=metadata) for number in range(count)]


def four(count: int) -> list[Pod]:
    """So many pods of a gang of four."""
    return pods_of(count, **{keys.GANG_SIZE_ANNOTATION: "4"})


@dataclass
class Gang:
    """A gang whose pods come while passes are made and reported."""

    cluster: Nodes = field(default_factory=lambda: Nodes(4))
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.placing = Placing(self.cluster, SETTINGS)
        self.api = Answers()
        self.reports = Reports(Pass(self.api, cast(Any, Copy()), SETTINGS, announcer=self))

    def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
        if reason is EventReason.GANG_WAITS:
            self.events.append(note)

    def announce_on_node(self, node: Node, reason: EventReason, note: str) -> None:
        raise AssertionError

    def at(self, now: float, pods: Sequence[Pod]) -> tuple[Cause | None, float]:
        """A pass at that time: why the gang waits, None if it is placed, and when the next pass is due."""
        self.placing.clock.now = now
        self.cluster.pods = list(pods)
        orders = self.placing.one()
        self.reports.on_result(orders)
        self.api.bodies.clear()
        self.reports.report(self.placing.view(), self.placing.gangs())
        return next((each.cause for each in orders.outcomes), None), orders.due_seconds

    @property
    def status(self) -> str:
        """The reason that the last pass wrote into its Placement, "" if it wrote none."""
        return next((body["status"]["reason"] for body in self.api.bodies if "status" in body), "")


@pytest.mark.promise("R334")
def test_a_gang_of_which_pods_are_missing_has_its_reason_and_one_event_after_seconds() -> None:
    gang = Gang()
    assert gang.at(0, four(3)) == (Cause.INCOMPLETE, 5)
    assert (gang.events, gang.status) == ([], "")
    assert gang.at(5, four(3))[0] is Cause.MISSING_PODS
    (event,) = gang.events
    assert event == (
        "3 pods are there, 4 are expected; those that are there are placed once no other has come for 60 s"
    )
    assert gang.status == event
    for now in range(6, 60, 9):
        gang.at(now, four(3))
    assert len(gang.events) == 1


@pytest.mark.promise("R334")
def test_a_gang_that_is_complete_in_a_moment_has_no_event() -> None:
    gang = Gang()
    for now in range(4):
        gang.at(now, four(now + 1))
    assert gang.events == []


@pytest.mark.promise("R334")
def test_more_pods_that_come_one_by_one_change_the_reason_and_make_no_further_event() -> None:
    gang = Gang()
    for now, count in ((0, 1), (6, 1), (20, 2), (21, 2), (40, 3), (50, 3)):
        gang.at(now, four(count))
    assert len(gang.events) == 1
    assert gang.status.startswith("3 pods are there, 4 are expected")
    assert gang.at(51, four(4))[0] is None


@pytest.mark.parametrize("count", [1, 3])
def test_a_gang_of_unknown_size_has_no_event_since_it_is_placed_instead(count: int) -> None:
    gang = Gang()
    gang.at(0, pods_of(count))
    assert gang.at(5, pods_of(count))[0] is None
    assert gang.events == []
