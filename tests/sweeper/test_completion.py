"""When a gang is complete, by the clock."""

from dataclasses import replace

import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.pods import job_pod
from webhook.configuration.settings import Settings
from webhook.sweeper.decide.missing_pods import Growth, grown, seconds_to_complete
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.sweeper.observe.membership import LostOwner

SETTINGS = Settings(settle_seconds=5, patience_seconds=60)
OPEN, STAGED, OF_THREE = OwnerFacts(None), OwnerFacts(3, staged=True), OwnerFacts(3)


class Case:
    """A gang whose pods come and go while the clock is moved."""

    def __init__(self, owner_facts: OwnerFacts) -> None:
        self.owner_facts = owner_facts
        self.clock = Clock()
        self.growth: Growth | None = None

    def gang(self, *numbers: int) -> PodGang:
        (gang,) = gather([job_pod(number) for number in numbers], [], lambda _key: self.owner_facts)
        return gang

    def remaining(self, now: float, *numbers: int) -> float:
        """What is still to be waited for when just these pods are there."""
        self.clock.now = now
        gang = self.gang(*numbers)
        self.growth = grown(self.growth, gang, gang.gated, now)
        return seconds_to_complete(gang, self.growth, SETTINGS, now)


@pytest.mark.promise("D22")
def test_a_gang_with_all_its_pods_is_complete_at_once() -> None:
    assert Case(OF_THREE).remaining(0, 0, 1, 2) == 0


@pytest.mark.promise("D22")
@pytest.mark.parametrize(
    ("owner_facts", "wait"),
    [(OPEN, 5), (STAGED, 5), (OF_THREE, 60)],
    ids=["of unknown size", "staged", "of three"],
)
def test_a_gang_with_too_few_pods_is_placed_as_it_is_once_it_has_been_quiet(
    owner_facts: OwnerFacts, wait: float
) -> None:
    case = Case(owner_facts)
    assert case.remaining(0, 0) == wait
    assert case.remaining(wait - 1, 0, 1) == wait, "a new pod begins it anew"
    assert case.remaining(2 * wait - 1, 0, 1) == 0


def test_a_running_pod_that_ends_does_not_restart_the_wait() -> None:
    gang = Case(OPEN).gang(0, 1)
    growth = grown(None, gang, gang.gated[1:], 0)
    rest = replace(gang, gated=gang.gated[1:])
    assert seconds_to_complete(rest, grown(growth, rest, rest.gated, 5), SETTINGS, 5) == 0


@pytest.mark.parametrize("facts", [OPEN, OwnerFacts(100)], ids=["of unknown size", "of known size"])
def test_a_gang_that_loses_waiting_pods_is_not_placed_before_that_ends(facts: OwnerFacts) -> None:
    """Its owner may be deleted, and nobody says so of a kind that may not be read."""
    case = Case(facts)
    case.remaining(0, *range(20))
    assert case.remaining(1000, *range(10)) == 5, "however long it has waited"
    assert case.remaining(1004, *range(5)) == 5
    assert case.remaining(1008, *range(5)) == 1


def test_pods_that_a_deletion_orphans_one_by_one_wait_for_one_another_as_new_pods_do() -> None:
    """However long the gang had waited before its owner was deleted."""
    case = Case(OPEN)
    case.remaining(0, *range(20))
    lost = replace(case.gang(*range(20)), lost_owner=LostOwner("its controller is deleted"))
    case.growth = grown(case.growth, lost, lost.gated, 1000)
    waits = [case.remaining(1001 + count, *range(count + 1)) for count in range(12)]
    assert waits == [5] * 12


def test_a_gang_that_was_whole_waits_for_a_pod_to_be_recreated_as_long_as_for_a_new_one() -> None:
    case = Case(OF_THREE)
    case.remaining(0, 0, 1, 2)
    assert case.remaining(100, 0, 1, 2) == 0
    assert case.remaining(101, 0, 1) == 59
    assert case.remaining(150, 0) == 10, "the loss of another does not begin it anew"


@pytest.mark.promise("R101")
@pytest.mark.parametrize(
    ("failed", "is_running", "wait"),
    [(1, False, 60), (4, False, 90), (7, False, 610), (500, False, 610), (7, True, 60)],
)
def test_pods_wait_for_others_that_the_job_controller_creates_after_failures(
    failed: int, is_running: bool, wait: float
) -> None:
    """As after a preemption: the pods that are there would hold GPUs for nothing until the others come."""
    case = Case(OwnerFacts(3, failed=lambda _: failed))
    case.remaining(0, 0, 1, 2)
    gang = case.gang(0)
    gang = replace(gang, gated=(), released=gang.gated) if is_running else gang
    assert case.growth is not None
    assert seconds_to_complete(gang, case.growth, SETTINGS, 0) == wait


def test_a_gang_in_stages_waits_for_replaced_pods_as_long_as_another() -> None:
    case = Case(OwnerFacts(3, staged=True, failed=lambda _: 7))
    assert case.remaining(0, 0) == 610
    assert case.remaining(300, 0, 1) == 310, "but not longer in all, as more pods may not come in this stage"


def test_a_gang_that_continues_with_fewer_pods_does_not_wait_for_the_job_controllers_delay() -> None:
    facts = OwnerFacts(3, failed=lambda _: 7, blocked=lambda: ("2999-01-01T00:00:00Z", "quota"))
    gang = Case(facts).gang(0)
    assert gang.blocked_reason
    assert seconds_to_complete(gang, Growth(frozenset(), 0.0), SETTINGS, 0) == 60


def test_a_gang_to_which_pods_come_without_end_is_placed_all_the_same() -> None:
    case = Case(OPEN)
    waits = [case.remaining(now, *range(now // 4 + 1)) for now in range(0, 64, 4)]
    assert waits[0] == 5
    assert waits[-1] == 0


def test_the_longest_wait_is_counted_from_when_the_present_pods_began_to_wait() -> None:
    case = Case(OPEN)
    case.remaining(0, 0)
    case.growth = grown(case.growth, case.gang(0), [], case.clock.now)
    assert case.remaining(100, 0, 1) == 5
