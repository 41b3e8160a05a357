"""What of gangs' failures is kept, and when one speaks against its node."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.extensions.node_health.failing import reported
from webhook.extensions.node_health import failing_nodes as ledger
from webhook.extensions.node_health.failing_nodes import Failures, FailureState, GangFailure, Running
from webhook.extensions.node_health.pod_failures import NodeFailure


def stored_of(*failures: NodeFailure) -> Failures:
    found: Failures = ()
    for each in failures:
        found = ledger.with_failures(found, each)
    return found


@pytest.mark.promise("O132")
def test_of_pods_that_were_there_together_the_first_to_fail_is_stored() -> None:
    (stored,) = stored_of(reported("n0", 10), reported("n1", 11), reported("n2", 300))
    assert stored.node == "n0"


def test_the_first_is_stored_also_if_it_is_reported_last() -> None:
    (stored,) = stored_of(reported("n1", 11), reported("n0", 10))
    assert stored.node == "n0"


@pytest.mark.promise("O132")
def test_of_two_that_fail_in_one_second_neither_node_is_marked_as_failing() -> None:
    (stored,) = stored_of(reported("n0", 10), reported("n1", 10), reported("n2", 10))
    assert stored.node == ""


def test_two_pods_that_fail_together_on_one_node_speak_against_it() -> None:
    (stored,) = stored_of(reported("n0", 10, uid="x"), reported("n0", 10, uid="y"))
    assert stored.node == "n0"


def test_a_successor_that_fails_is_another_failure() -> None:
    stored = stored_of(reported("n0", 10), reported("n1", 40, created=20))
    assert [each.node for each in stored] == ["n0", "n1"]


def test_gangs_of_one_name_in_two_namespaces_are_two() -> None:
    assert len(stored_of(reported("n0", 10), reported("n0", 11, namespace="b"))) == 2


histories = st.lists(
    st.builds(
        lambda node, life, at, number: reported(
            f"n{node}", life * 10 + at, created=life * 10, uid=f"u{number}-{life}"
        ),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 9),
        st.integers(0, 5),
    ),
    max_size=12,
    unique_by=lambda each: each.uid,
)


def restated(history: list[NodeFailure]) -> list[tuple[int, frozenset[str]]]:
    """The rule in plain words: second by second, who failed first of those that were there."""
    found: list[tuple[int, frozenset[str]]] = []
    for second in sorted({each.at for each in history}):
        now = [each for each in history if each.at == second]
        # Another gang failed before, while this one was there already.
        firsts = [each for each in now if not any(each.created <= before < second for before, _ in found)]
        if firsts:
            found.append((second, frozenset(each.node for each in firsts)))
    return found


def shown(stored: Failures) -> list[tuple[int, bool, str]]:
    return sorted((each.at, bool(each.node), each.node) for each in stored)


@given(histories, st.randoms(use_true_random=False))
def test_histories_reported_in_their_order_are_stored_by_the_rule(
    history: list[NodeFailure], random: object
) -> None:
    expected = sorted(
        (second, len(nodes) == 1, min(nodes) if len(nodes) == 1 else "")
        for second, nodes in restated(history)
    )
    random.shuffle(history)  # type: ignore[attr-defined]
    history.sort(key=lambda each: each.at)
    assert shown(stored_of(*history)) == expected


@given(histories, st.randoms(use_true_random=False))
def test_of_one_life_the_order_in_which_failures_are_reported_does_not_matter(
    history: list[NodeFailure], random: object
) -> None:
    life = [replace(each, created=0) for each in history]
    in_order = shown(stored_of(*sorted(life, key=lambda each: each.at)))
    random.shuffle(life)  # type: ignore[attr-defined]
    assert shown(stored_of(*life)) == in_order


@given(histories)
def test_what_is_reported_again_adds_nothing_new(history: list[NodeFailure]) -> None:
    once = stored_of(*sorted(history, key=lambda each: each.at))
    for each in history:
        if any(each.uid in (uid for uid, _ in stored.pods) for stored in once):
            assert ledger.with_failures(once, each) is once


# --- what pods that run say ---------------------------------------------------------------------


def equal_pod(node: str, seconds: float, **fields: object) -> Running:
    found = Running("a", "g", "asks", 8, node, 0, seconds)
    return replace(found, **fields)  # type: ignore[arg-type]


def state_by(*running: Running, failure: NodeFailure | None = None) -> FailureState:
    (stored,) = ledger.judged(stored_of(failure or reported("n0", 100)), running, 10, 600)
    return stored.state


@pytest.mark.promise("O135")
def test_an_equal_pod_that_runs_elsewhere_for_longer_proves_a_failure() -> None:
    assert state_by(equal_pod("n1", 15)) is FailureState.PROVEN


@pytest.mark.promise("O135")
@pytest.mark.parametrize(
    "running",
    [
        equal_pod("n1", 14.9),
        equal_pod("n0", 15),
        equal_pod("n1", 15, namespace="b"),
        equal_pod("n1", 15, gang="other"),
        equal_pod("n1", 15, asks="other"),
    ],
    ids=[
        "not long enough",
        "on the same node",
        "of another namespace",
        "of another gang",
        "asks for other things",
    ],
)
def test_nobody_else_proves_it(running: Running) -> None:
    assert state_by(running) is FailureState.OPEN


@pytest.mark.promise("O135")
def test_two_nodes_that_failed_together_are_never_proven() -> None:
    (stored,) = ledger.judged(
        stored_of(reported("n0", 100), reported("n1", 100)), [equal_pod("n2", 1000)], 10, 600
    )
    assert stored.state is FailureState.OPEN


@pytest.mark.promise("O141")
def test_a_younger_pod_that_runs_well_there_takes_a_failure_back() -> None:
    assert state_by(equal_pod("n0", 600, gang="other", created=101)) is FailureState.CLEARED


@pytest.mark.promise("O141")
@pytest.mark.parametrize(
    "running",
    [
        equal_pod("n0", 599, created=101),
        equal_pod("n0", 600, created=100),
        equal_pod("n0", 600, created=101, gpus=7),
        equal_pod("n0", 600, created=101, namespace="b"),
    ],
    ids=["not long enough", "was there before", "has fewer GPUs", "of another namespace"],
)
def test_nobody_else_takes_it_back(running: Running) -> None:
    assert state_by(running) is FailureState.OPEN


def test_what_was_taken_back_stays_so() -> None:
    """Its pod is still there, as Jobs leave failed pods, and is reported again."""
    stored = ledger.judged(stored_of(reported("n0", 100)), [equal_pod("n0", 600, created=101)], 10, 600)
    again = ledger.with_failures(stored, reported("n0", 100))
    assert [each.state for each in ledger.judged(again, [equal_pod("n1", 999)], 10, 600)] == [
        FailureState.CLEARED
    ]


# --- bounds -------------------------------------------------------------------------------------


@pytest.mark.promise("O148")
def test_one_namespace_keeps_so_many_failures_and_drops_none_of_others() -> None:
    stored = stored_of(reported("n0", 1, namespace="b"))
    for number in range(ledger.MOST_OF_A_NAMESPACE + 10):
        stored = ledger.with_failures(stored, reported("n0", 100 + number, gang=f"g{number}"))
    assert sum(each.namespace == "a" for each in stored) == ledger.MOST_OF_A_NAMESPACE
    assert min(each.at for each in stored if each.namespace == "a") == 110
    assert sum(each.namespace == "b" for each in stored) == 1


@pytest.mark.parametrize("apart", [0, 1], ids=["at once", "one by one"])
@pytest.mark.parametrize("namespaces", [1, 20], ids=["of one", "of many"])
def test_more_than_are_stored_add_nothing_new_when_they_are_reported_again(
    namespaces: int, apart: int
) -> None:
    """So pods that crash by the thousand are taken in once, not in each pass."""
    history = [
        reported("n0", 100 + number * apart, gang=f"g{number}", namespace=f"ns{number % namespaces}")
        for number in range(max(ledger.MOST_OF_A_NAMESPACE, ledger.MOST * (namespaces > 1)) + 40)
    ]
    once = ledger.with_failures((), *history)
    assert len(once) < len(history)
    assert ledger.with_failures(once, *history) is once


@pytest.mark.promise("O148")
def test_all_together_are_bounded_and_who_has_most_loses_its_oldest() -> None:
    stored: Failures = ()
    for number in range(ledger.MOST + 30):
        namespace = f"ns{number % 30}" if number else "rare"
        stored = ledger.with_failures(stored, reported("n0", number, gang=f"g{number}", namespace=namespace))
    assert len(stored) == ledger.MOST
    assert any(each.namespace == "rare" for each in stored)


def test_old_failures_are_forgotten() -> None:
    stored = stored_of(reported("n0", 100), reported("n0", 200, gang="h"))
    assert [each.gang for each in ledger.unexpired(stored, 1100, 1000)] == ["h"]


def test_a_failure_is_a_value() -> None:
    assert GangFailure.first(reported("n0", 10)) == GangFailure.first(reported("n0", 10))
