"""The collector leaves alone what lasts, for as long as it does, and nothing else."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from webhook.sweeper.process import lasting, no_longer, seldom_collected


class Knot:
    """An object that refers to itself: only the collector removes it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """No other test is to have its garbage kept."""
    yield
    gc.unfreeze()


def test_what_was_made_meanwhile_is_not_looked_through_until_it_lasts_no_longer() -> None:
    with lasting():
        seen = weakref.ref(Knot())
    gc.collect()
    assert seen() is not None
    no_longer()
    gc.collect()
    assert seen() is None


def test_what_is_made_afterwards_is_collected_as_ever() -> None:
    with lasting():
        pass
    seen = weakref.ref(Knot())
    gc.collect()
    assert seen() is None


def test_a_reading_that_fails_leaves_nothing_to_last() -> None:
    before = gc.get_freeze_count()
    with pytest.raises(RuntimeError), lasting():
        raise RuntimeError
    assert gc.get_freeze_count() == before


def test_the_collector_hardly_runs_while_a_process_leads_and_then_as_before() -> None:
    before = gc.get_threshold()
    with seldom_collected():
        assert gc.get_threshold() > before
    assert gc.get_threshold() == before
    with pytest.raises(RuntimeError), seldom_collected():
        raise RuntimeError
    assert gc.get_threshold() == before
