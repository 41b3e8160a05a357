"""What hack/binding says of gangs that run below their minimum: see hack/soaks/partial_gangs.py."""

from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from hack.soaks.crowd import OURS
from hack.soaks.dying_sweeper import OF_POD_GROUPS, WRITES, kind_of, life_seconds
from hack.soaks.partial_gangs import JUDGED_SECONDS, PartialGangs, annotations_of
from hack.soaks.plan import SETTINGS

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


def test_one_that_has_it_too_late_is_below_it(story: Story) -> None:
    story.wait(JUDGED_SECONDS - 0.1)
    story.now += 0.2
    story.pod("b", "n2")
    story.wait(1.0)
    assert story.checker.below.total() == 1


def test_it_is_judged_again_once_none_of_it_was_bound(story: Story) -> None:
    story.pod("b", "n2")
    story.wait(JUDGED_SECONDS)
    for uid in "ab":
        story.pod(uid, "n1", kind="DELETED")
    story.wait(1.0)
    story.pod("c", "n1")
    story.pod("d")
    story.wait(JUDGED_SECONDS)
    assert (story.checker.judged.total(), story.checker.below.total()) == (1, 1)


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


def test_a_pod_that_succeeds_while_it_terminates_is_lost_all_the_same(story: Story) -> None:
    story.pod("b", "n2")
    story.wait(JUDGED_SECONDS)
    for uid in "ab":
        story.pod(uid, "n1", phase="Failed")
        story.pod(uid, "n1", phase="Succeeded")
        story.pod(uid, "n1", kind="DELETED", phase="Succeeded")
    assert not story.checker.faults


@pytest.mark.parametrize("begins_again", [True, False])
def test_a_pod_that_succeeded_and_was_deleted_with_its_job_counts_for_the_minimum(
    story: Story, begins_again: bool
) -> None:
    """Of a set of two Jobs one is over and removed; the other has lost its pod, and begins again."""
    story.pod("b", "n2")
    story.wait(JUDGED_SECONDS)
    story.pod("a", "n1", phase="Succeeded")
    story.pod("b", "n2", kind="DELETED")
    story.pod("a", "n1", kind="DELETED", phase="Succeeded")
    story.pod("c")
    story.pod("c", "n1" if begins_again else "")
    story.wait(JUDGED_SECONDS)
    assert (story.checker.faults, story.checker.judged.total()) == ([], 1 + begins_again)


def test_a_node_of_others_excuses_nothing(story: Story) -> None:
    story.checker.node("DELETED", {"metadata": {"name": "n2"}})
    story.wait(JUDGED_SECONDS)
    assert story.checker.faults


@pytest.mark.parametrize(("seconds", "is_excluded"), [(PATIENCE, True), (PATIENCE - 1, False)])
def test_a_pod_lost_before_excuses_a_gang_only_once_it_is_planned_without(
    seconds: float, is_excluded: bool
) -> None:
    story = Story()
    story.pod("a")
    story.pod("b")
    story.pod("b", kind="DELETED")
    story.wait(seconds)
    story.pod("a", "n1")
    story.wait(JUDGED_SECONDS)
    assert bool(story.checker.excluded) is is_excluded
    assert bool(story.checker.faults) is not is_excluded


@pytest.mark.parametrize("is_whole_between", [True, False])
def test_a_second_loss_begins_the_patience_again_only_if_the_gang_was_whole_between(
    is_whole_between: bool,
) -> None:
    story = Story(minimum=3)
    for uid in "abc":
        story.pod(uid)
    story.pod("b", kind="DELETED")
    if is_whole_between:
        story.pod("d")
    story.wait(PATIENCE - 1)
    story.pod("c", kind="DELETED")
    story.wait(1.0)
    story.pod("a", "n1")
    story.wait(JUDGED_SECONDS)
    assert bool(story.checker.faults) is is_whole_between
    assert bool(story.checker.excluded) is not is_whole_between


def test_pods_that_were_never_made_excuse_a_gang_as_lost_ones_do() -> None:
    story = Story()
    story.pod("a")
    story.wait(PATIENCE)
    story.pod("a", "n1")
    story.wait(JUDGED_SECONDS)
    assert story.checker.excluded.total() == 1


def test_a_gang_with_a_pod_that_came_past_admission_is_not_judged_where_gangs_are_bound_as_one() -> None:
    story = Story()
    story.checker.as_one = True
    story.pod("a", "n1")
    story.wait(JUDGED_SECONDS)
    assert dict(story.checker.excluded) == {"a pod without a PodGroup": 1}


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("PATCH", "/api/v1/namespaces/a/pods/b", "PATCH pods"),
        ("POST", "/apis/topogate.io/v1alpha1/namespaces/a/placements", "POST placements"),
        ("PATCH", "/apis/topogate.io/v1alpha1/namespaces/a/placements/b/status", "PATCH placements/status"),
        ("DELETE", "/apis/scheduling.k8s.io/v1alpha2/namespaces/a/podgroups/b", "DELETE podgroups"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/a/events", "POST events"),
        ("POST", "/api/v1/namespaces/a/pods/b/eviction", "POST pods/eviction"),
        ("DELETE", "/api/v1/namespaces/a/pods/b", "DELETE pods"),
    ],
)
def test_a_write_at_which_a_sweeper_dies_is_known_by_its_path(method: str, path: str, kind: str) -> None:
    assert kind_of(method, path) == kind
    assert kind in (*WRITES, *OF_POD_GROUPS)


def test_a_sweeper_that_is_to_die_at_a_repair_lives_long_enough_to_begin_one() -> None:
    """It counts from its own start for how long a pod is not bound."""
    assert life_seconds("DELETE pods") > 2 * SETTINGS["bind_seconds"] > life_seconds("PATCH pods")
