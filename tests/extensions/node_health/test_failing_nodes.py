"""Which nodes are bad, for whom and until when; over random failures against the rule in plain words."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.extensions.node_health.failing import proven
from webhook.configuration.settings import BadNodes
from webhook.extensions.node_health.failing_nodes import (
    FailingNode,
    FailingNodes,
    FailureState,
    GangFailure,
    NodeFacts,
    failing_nodes,
)

RULES = BadNodes(failures=3, avoid_seconds=1000, keep_seconds=5000, share=0.5)
NODES = {f"n{number}": NodeFacts("H100" if number < 6 else "A100") for number in range(8)}
NOW = 200


def of(*failures: GangFailure, rules: BadNodes = RULES, now: float = NOW) -> FailingNodes:
    return failing_nodes(failures, NODES, rules, now)


def avoided_by(namespace: str, found: FailingNodes) -> Mapping[str, FailingNode]:
    """The nodes that all pods of a namespace avoid."""
    return found.for_namespaces.get(namespace, found.for_all)


def three(node: str, *namespaces: str, at: int = 100) -> list[GangFailure]:
    return [
        proven(node, gang=f"{node}-g{number}", namespace=each, at=at)
        for number, each in enumerate(namespaces)
    ]


@pytest.mark.promise("O139")
def test_a_node_where_gangs_of_three_namespaces_failed_is_avoided_by_all() -> None:
    found = of(*three("n0", "a", "b", "c"))
    assert list(found.for_all) == ["n0"]
    assert list(avoided_by("nobody-s", found)) == ["n0"]
    assert found.for_all["n0"].gangs == 3


@pytest.mark.promise("O139")
@pytest.mark.parametrize("names", ["aab", "ab", "aaaaaab", "aaaa"])
def test_without_the_word_of_one_namespace_too_little_may_be_left(names: str) -> None:
    assert of(*three("n0", *names)).for_all == {}


@pytest.mark.promise("O139")
@pytest.mark.parametrize("names", ["aabb", "abc", "aaaabb"])
def test_without_the_word_of_any_namespace_enough_is_left(names: str) -> None:
    assert list(of(*three("n0", *names)).for_all) == ["n0"]


@pytest.mark.promise("O139")
def test_a_namespace_avoids_alone_where_only_its_own_gangs_failed() -> None:
    found = of(*three("n0", "a", "a", "a"))
    assert list(avoided_by("a", found)) == ["n0"]
    assert list(avoided_by("b", found)) == []


@pytest.mark.parametrize("state", [FailureState.OPEN, FailureState.CLEARED])
def test_what_is_not_proven_or_was_taken_back_does_not_count(state: FailureState) -> None:
    failures = three("n0", "a", "b", "c")
    failures[0] = replace(failures[0], state=state)
    assert of(*failures).for_all == {}


def test_one_gang_that_fails_often_is_one() -> None:
    failures = [
        replace(proven("n0", gang="g", namespace="a", at=at), pods=((f"u{at}", "n0"),))
        for at in (90, 100, 110)
    ]
    assert avoided_by("a", of(*failures)) == {}


@pytest.mark.promise("O135")
def test_a_gang_that_fails_on_another_node_too_counts_against_none() -> None:
    also = proven("n1", gang="n0-g0", namespace="a", state=FailureState.OPEN)
    assert of(*three("n0", "a", "b", "c"), also).for_all == {}


@pytest.mark.promise("O141")
def test_a_node_is_avoided_for_twice_as_long_with_each_further_gang_up_to_the_maximum() -> None:
    namespaces = "abcdefgh"
    untils = [of(*three("n0", *namespaces[:count])).for_all["n0"].until for count in range(3, 9)]
    assert untils == [1100, 2100, 4100, 5100, 5100, 5100]


@pytest.mark.promise("O139", "O141")
def test_a_node_is_used_again_when_its_time_is_over() -> None:
    assert of(*three("n0", "a", "b", "c"), now=1099).for_all
    assert not of(*three("n0", "a", "b", "c"), now=1100).for_all


def test_fresh_failures_of_one_namespace_make_it_no_longer() -> None:
    fresh = [proven("n0", gang=f"fresh{number}", namespace="h", at=900) for number in range(5)]
    alone = of(*three("n0", "a", "b", "c")).for_all["n0"].until
    assert of(*three("n0", "a", "b", "c"), *fresh).for_all["n0"].until <= alone + RULES.avoid_seconds


@pytest.mark.promise("W11")
def test_an_operator_s_reset_drops_failures_before_its_time_and_none_after() -> None:
    failures = three("n0", "a", "b", "c")
    assert not failing_nodes(failures, {**NODES, "n0": NodeFacts("H100", reset_at=100)}, RULES, NOW).for_all
    assert failing_nodes(failures, {**NODES, "n0": NodeFacts("H100", reset_at=99)}, RULES, NOW).for_all


def test_failures_of_an_earlier_node_of_the_same_name_do_not_count() -> None:
    failures = three("n0", "a", "b", "c")
    assert not failing_nodes(failures, {**NODES, "n0": NodeFacts("H100", since=101)}, RULES, NOW).for_all
    assert failing_nodes(failures, {**NODES, "n0": NodeFacts("H100", since=100)}, RULES, NOW).for_all


def test_a_node_that_is_gone_is_not_avoided() -> None:
    assert of(*three("gone", "a", "b", "c")).for_all == {}


@pytest.mark.promise("O141")
def test_of_each_model_a_share_is_avoided_the_worst_first() -> None:
    failures = [each for number in range(6) for each in three(f"n{number}", *"abcd"[: 3 + (number == 5)])]
    found = of(*failures, *three("n6", "a", "b", "c"), *three("n7", "a", "b", "c"))
    assert sorted(found.for_all) == ["n0", "n1", "n5", "n6"]


@pytest.mark.promise("O141")
def test_the_only_node_of_a_model_is_never_avoided() -> None:
    nodes = {**NODES, "n0": NodeFacts("rare")}
    assert not failing_nodes(three("n0", "a", "b", "c"), nodes, RULES, NOW).for_all


def test_nodes_that_fail_for_one_namespace_share_the_bound_with_those_that_all_avoid() -> None:
    rules = replace(RULES, share=0.2)
    found = of(*three("n0", "a", "b", "c"), *three("n1", "a", "a", "a"), rules=rules)
    assert list(avoided_by("a", found)) == ["n0"]


@pytest.mark.promise("O137")
def test_a_gang_avoids_where_it_has_failed_from_the_first_time_on() -> None:
    first = proven("n0", gang="g", namespace="a", state=FailureState.OPEN)
    assert of(first).for_gangs == {("a", "g"): {"n0"}}
    assert of(first, now=1100).for_gangs == {}


def test_a_gang_that_has_failed_on_three_nodes_avoids_none() -> None:
    failures = [proven(f"n{number}", gang="g", namespace="a", state=FailureState.OPEN) for number in range(3)]
    assert of(*failures).for_gangs == {}


# --- random failures ----------------------------------------------------------------------------


def failures_of(namespaces: str) -> st.SearchStrategy[list[GangFailure]]:
    return st.lists(
        st.builds(
            lambda namespace, gang, at, node, other, state: replace(
                proven(f"n{node}", gang=f"{namespace}{gang}", namespace=namespace, at=at, state=state),
                pods=((f"{at}", f"n{node}"), *(((f"{at}x", f"n{other}"),) if other is not None else ())),
            ),
            st.sampled_from(namespaces),
            st.integers(0, 5),
            st.integers(0, 1500),
            st.sampled_from([0, 0, 0, 1, 2, 6]),
            st.sampled_from([None] * 9 + [7]),
            st.sampled_from([FailureState.PROVEN] * 4 + [FailureState.OPEN, FailureState.CLEARED]),
        ),
        max_size=24,
    )


def failed_gangs(node: str, failures: list[GangFailure]) -> dict[tuple[str, str], int]:
    """The gangs that failed on a node, each with the time of its last failure."""
    found = {}
    for key in {(each.namespace, each.gang) for each in failures}:
        own = [each for each in failures if (each.namespace, each.gang) == key]
        if {name for each in own for _, name in each.pods} == {node}:
            times = [
                each.at
                for each in own
                if each.state is FailureState.PROVEN and len(each.pods) == 1 and each.at
            ]
            if times:
                found[key] = max(times)
    return found


def is_bad(node: str, failures: list[GangFailure], now: float) -> bool:
    """Whether all are to avoid a node, share or not: whichever namespace is left out."""
    against = failed_gangs(node, failures)
    for left_out in {namespace for namespace, _ in against}:
        times = [at for (namespace, _), at in against.items() if namespace != left_out]
        if len(times) < RULES.failures - 1:
            return False
        longer = 2 ** (len(times) - (RULES.failures - 1))
        if max(times) + min(longer * RULES.avoid_seconds, RULES.keep_seconds) <= now:
            return False
    return bool(against)


@given(failures_of("abc"), st.integers(0, 4000))
def test_random_failures_exclude_the_nodes_of_the_rule(failures: list[GangFailure], now: int) -> None:
    rules = replace(RULES, share=1)
    found = failing_nodes(failures, NODES, rules, now).for_all
    assert set(found) == {node for node in NODES if is_bad(node, failures, now)}


@pytest.mark.promise("O139")
@given(failures_of("abc"), failures_of("h"), st.integers(0, 4000))
def test_one_hostile_namespace_condemns_no_node_that_others_would_not_almost(
    honest: list[GangFailure], hostile: list[GangFailure], now: int
) -> None:
    found = failing_nodes([*honest, *hostile], NODES, replace(RULES, share=1), now)
    for node in found.for_all:
        assert len(failed_gangs(node, honest)) >= RULES.failures - 1
    alone = failing_nodes(honest, NODES, replace(RULES, share=1), now)
    for namespace in "abc":
        assert set(avoided_by(namespace, found)) - set(found.for_all) <= set(avoided_by(namespace, alone))
        assert {key: each for key, each in found.for_gangs.items() if key[0] != "h"} == alone.for_gangs


@pytest.mark.promise("O141")
@given(failures_of("abcde"), st.integers(0, 4000), st.floats(0, 1))
def test_whatever_fails_no_more_than_a_share_of_a_model_is_avoided(
    failures: list[GangFailure], now: int, share: float
) -> None:
    found = failing_nodes(failures, NODES, replace(RULES, share=share), now)
    sizes = Counter(facts.model for facts in NODES.values())
    for namespace in "abcdex":
        for model, count in Counter(each.model for each in avoided_by(namespace, found).values()).items():
            assert count <= max(1, share * sizes[model])
            assert count < sizes[model]


@pytest.mark.promise("O141")
def test_of_two_nodes_one_stays_in_use_whatever_the_share() -> None:
    failures = [*three("n6", "a", "b", "c"), *three("n7", "a", "b", "c")]
    assert len(of(*failures, rules=replace(RULES, share=1)).for_all) == 1
