"""What hack/binding says of gangs that run below their minimum: see hack/soaks/partial_gangs.py."""

from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from hack.soaks.crowd import OURS
from hack.soaks.partial_gangs import JUDGED_SECONDS, PartialGangs, annotations_of

PATIENCE: Final = 60.0


@dataclass
class Story:
    """A gang, given to a checker."""

    minimum: int = 2
    now: float = 0.0
    checker: PartialGangs = field(init=False)

    def __post_init__(self) -> None:
        self.checker = PartialGangs(PATIENCE, clock=lambda: self.now)

    def pod(self, uid: str, node: str = "", *, kind: str = "MODIFIED", phase: str = "Pending") -> None:
        metadata = {"uid": uid, "namespace": OURS, "annotations": annotations_of("job-1", self.minimum)}
        body: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": {"phase": phase}}
        body["spec"] |= {"nodeName": node} if node else {}
        self.checker.pod(kind, body)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.checker.look()


@pytest.fixture
def story() -> Story:
    """Of which one pod of two has just been bound."""
    made = Story()
    made.pod("a")
    made.pod("b")
    made.pod("a", "n1")
    return made


def test_a_gang_below_its_minimum_is_named_once(story: Story) -> None:
    story.wait(JUDGED_SECONDS)
    story.wait(JUDGED_SECONDS)
    expected = (
        f"{OURS}/job-1 has 1 pods on nodes 5 s after its first was bound, and needs 2; "
        "2 are there or have succeeded, of which 0 have succeeded"
    )
    assert story.checker.faults == [expected]


def test_a_gang_that_has_its_minimum_in_time_is_well_whatever_it_loses_then(story: Story) -> None:
    story.wait(1.0)
    story.pod("b", "n2")
    story.pod("a", "n1", phase="Failed")
    story.wait(JUDGED_SECONDS)
    assert (story.checker.faults, story.checker.judged.total(), story.checker.slowest) == ([], 1, 1.0)


@pytest.mark.parametrize(
    ("loss", "cause"),
    [
        (lambda story: story.pod("b", kind="DELETED"), "pod deleted"),
        (lambda story: story.pod("a", "n1", phase="Failed"), "pod failed"),
        (lambda story: story.checker.node("DELETED", {"metadata": {"name": "n1"}}), "node lost"),
    ],
)
def test_what_it_has_lost_itself_is_excluded_and_counted(story: Story, loss: Any, cause: str) -> None:
    loss(story)
    story.wait(JUDGED_SECONDS)
    assert (story.checker.faults, dict(story.checker.excluded)) == ([], {cause: 1})
