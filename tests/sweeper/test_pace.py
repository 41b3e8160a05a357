"""How often work is done that only keeps something up to date."""

import pytest

from tests.sweeper.clock import Clock
from webhook.sweeper.pace import Pace


@pytest.mark.parametrize(
    ("took", "due_in"), [(0.0, 5.0), (0.2, 10.0), (4.0, 60.0)], ids=["at least", "by its share", "at most"]
)
def test_work_is_due_again_by_what_it_took_within_bounds(took: float, due_in: float) -> None:
    clock = Clock()
    pace = Pace(0.02, clock, least=5.0, most=60.0)
    assert pace.is_due
    with pace.work():
        clock.now += took
    clock.now += due_in - 0.001
    assert not pace.is_due
    clock.now += 0.002
    assert pace.is_due


def test_work_that_failed_is_due_at_once() -> None:
    pace = Pace(0.02, Clock(), least=5.0)
    with pytest.raises(ValueError, match="not foreseen"), pace.work():
        raise ValueError("not foreseen")
    assert pace.is_due
