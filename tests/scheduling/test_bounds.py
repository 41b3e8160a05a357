"""Whatever rules, requests and host ports a namespace's pods carry: work is bounded, others stay exact."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling import neighbours
from tests.scheduling.conflicts import NAMESPACES, PODS, away_from, body
from tests.scheduling.neighbours import HOSTNAME, Body, may_share
from tests.sweeper.pods import decode
from webhook.kube.objects import Pod
from webhook.scheduling import antiaffinity, coarser, conflicts, convert
from webhook.scheduling.antiaffinity import AntiAffinityTerm
from webhook.scheduling.conflicts import Conflicts
from webhook.scheduling.rule_shares import lumps


def without(key: str) -> Body:
    """A term against pods without a label: such terms are found by nothing but their namespace."""
    selector = {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}
    return {"topologyKey": HOSTNAME, "labelSelector": selector}


def flood(pods: int, terms: int) -> list[Pod]:
    return [
        decode(body(f"p{pod}", anti=[without(f"k{pod}-{term}") for term in range(terms)], namespace="flood"))
        for pod in range(pods)
    ]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The namespaces of the pods that are compared with a term."""
    seen: list[str] = []
    plain = AntiAffinityTerm.repels

    def repels(self: AntiAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
        seen.append(namespace)
        return plain(self, namespace, labels)

    monkeypatch.setattr(AntiAffinityTerm, "repels", repels)
    return seen


@pytest.mark.promise("S49")
def test_not_every_pod_is_compared_with_every_term_of_its_namespace(compared: list[str]) -> None:
    waiting = flood(60, 20)
    rules = conflicts.between(waiting, [])
    taken = [rules.takes(pod) for pod in waiting]
    assert len(compared) <= 2 * len(waiting) * coarser.MOST_EQUIVALENT
    assert all(taken)
    assert not neighbours.taken_together(rules, waiting[:2])


def test_nearly_equal_terms_are_the_fewer_the_more_pods_are_compared_with_them(
    compared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coarser, "MOST_COMPARISONS", 100)

    def one_of_many(number: int) -> Pod:
        equivalents = {"key": "ab"[number % 2], "operator": "In", "values": ["x"]}
        apart = {"key": "c", "operator": "NotIn", "values": [f"{number}"]}
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": [equivalents, apart]}}
        return decode(body(f"p{number}", {"a": "x", "b": "x", "c": f"{number}"}, [term]))

    waiting = [one_of_many(number) for number in range(40)]
    terms = conflicts.between(waiting, []).terms
    assert list(terms) == [f"anti-affinity with pods {key}=x of namespace ns" for key in "ab"]
    assert len(compared) <= 100


def test_labels_that_many_terms_share_find_none_of_those_that_have_one_of_their_own(
    compared: list[str],
) -> None:
    """As of many Jobs of one kind, each of which wants nodes of its own."""

    def of_job(number: int) -> Pod:
        labels = {"app": "train", "job": f"j{number}"}
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
        return decode(body(f"p{number}", labels, [term]))

    waiting = [of_job(number) for number in range(200)]
    rules = conflicts.between(waiting, [])
    assert len(rules.terms) == len(compared) == 200
    assert not rules.coarser
    assert neighbours.taken_together(rules, waiting)


def test_one_namespace_s_flood_leaves_the_terms_of_others_exact() -> None:
    good = [decode(body(name, {"app": "v"}, [away_from("v"), without("spare")])) for name in "ab"]
    rules = conflicts.between([*flood(40, 20), *good], [])
    alone = conflicts.between(good, [])
    assert [rules.takes(pod) for pod in good] == [alone.takes(pod) for pod in good]


def test_a_flood_of_terms_is_one_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarser, "MOST_TERMS", 10)
    waiting = [decode(body(f"p{n}", {"app": f"v{n}"}, [away_from(f"v{n}")])) for n in range(11)]
    assert list(conflicts.between(waiting[:10], []).terms) != [
        "anti-affinity with pods of any kind of namespace ns"
    ]
    assert list(conflicts.between(waiting, []).terms) == [
        "anti-affinity with pods of any kind of namespace ns"
    ]


def test_a_pod_carries_so_many_terms_and_beyond_one_that_repels_all() -> None:
    (pod,) = flood(1, 1000)
    terms = antiaffinity.terms_of(pod)
    assert len(terms) == antiaffinity.MOST_PARTS + 1
    assert terms[-1].name == "anti-affinity with pods of any kind of namespace flood"


def test_a_term_of_very_many_values_is_not_read() -> None:
    pod = decode(body(anti=[away_from(*(f"v{n}" for n in range(1000))), away_from("x")]))
    assert [len(term.requirements) for term in antiaffinity.terms_of(pod)] == [1, 0]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    waiting=st.lists(PODS, min_size=2, max_size=4),
    there=st.lists(PODS, max_size=2),
    bounds=st.tuples(st.integers(0, 1), st.integers(1, 3), st.integers(1, 3)),
)
def test_where_terms_are_too_many_pods_are_never_let_together_that_must_not_be(
    waiting: list[Body], there: list[Body], bounds: tuple[int, int, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarser, "MOST_EQUIVALENT", bounds[0])
        patch.setattr(coarser, "MOST_TERMS", bounds[1])
        patch.setattr(antiaffinity, "MOST_PARTS", bounds[2])
        wanting, assigned = [decode(pod) for pod in waiting], [decode(pod) for pod in there]
        rules = neighbours.between(wanting, assigned)
        for number, pod in enumerate(waiting):
            if neighbours.taken_together(rules, [wanting[number]], assigned):
                assert all(may_share(pod, other, NAMESPACES) for other in there)
        if neighbours.taken_together(rules, wanting[:2]):
            assert may_share(waiting[0], waiting[1], NAMESPACES)


# --- shares ---------------------------------------------------------------------------------------


@pytest.mark.promise("S49")
@pytest.mark.parametrize("assigned", [[], ["flood"]], ids=["only waiting", "also assigned"])
def test_what_one_namespace_has_too_much_of_touches_no_other(assigned: Sequence[str]) -> None:
    good = [decode(body(name, {"app": "v"}, [away_from("v")], [{"hostPort": 80}])) for name in "ab"]
    many = [
        decode(body(f"p{n}", {"app": f"v{n}"}, [away_from(f"v{n}")], namespace="flood")) for n in range(50)
    ]
    there = many[:1] if assigned else []
    rules = neighbours.between([*good, *many], there, most=10)
    assert len(rules.capacity) == 10
    assert neighbours.taken_together(rules, good[:1], there)
    assert neighbours.taken_together(rules, [good[0], many[1]])
    assert not neighbours.taken_together(rules, good)
    assert not neighbours.taken_together(rules, [many[0], many[0]])


def test_pods_that_lumped_terms_of_another_namespace_repel_may_be_together() -> None:
    theirs = [
        decode(body(f"p{n}", {}, [away_from("v", "w", f"v{n}", namespaces=["ns"])], namespace="flood"))
        for n in range(20)
    ]
    mine = [decode(body(name, {"app": "v"})) for name in "ab"]
    rules = neighbours.between([*mine, *theirs], most=4)
    assert neighbours.taken_together(rules, mine)
    assert not neighbours.taken_together(rules, [mine[0], theirs[0]])


WANTED = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.integers(0, 30).map(str), unique=True, max_size=20), min_size=1
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(wanted=WANTED, most=st.integers(1, 12))
def test_shares_keep_their_bound_and_who_wants_no_more_than_a_share_has_it(
    wanted: dict[str, list[str]], most: int
) -> None:
    lumped = lumps(wanted, most, "lump")
    names = {name for each in wanted.values() for name in each}
    assert len({lumped.get(name, name) for name in names}) <= most
    assert lumped.keys() <= names
    for each in wanted.values():
        if len(each) <= (most - 1) // len(wanted):
            assert lumped.keys().isdisjoint(each)


def test_rules_that_stand_for_others_do_not_serve_where_more_are_to_be_stood_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coarser, "MOST_EQUIVALENT", 1)
    waiting: list[Any] = [decode(body(f"p{n}", {}, [without(f"k{n}")])) for n in range(4)]
    some: Conflicts = conflicts.between(waiting[:3], [])
    assert some.serves(conflicts.between(waiting[:2], []))
    assert not some.serves(conflicts.between(waiting, []))


MANY = 10_000


def required(*terms: list[dict[str, Any]]) -> Body:
    selector = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}


def lacks(number: int) -> dict[str, Any]:
    return {"key": f"k{number}", "operator": "DoesNotExist"}


def requesting(number: int) -> Body:
    amounts = {f"example.com/r{each}": "1" for each in range(number)}
    return {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}


def spelled(number: int) -> dict[str, Body]:
    """Pods with so many conditions on their node, in each field."""
    tolerations = [{"key": f"k{each}", "operator": "Exists"} for each in range(number)]
    return {
        "terms": required(*([lacks(each)] for each in range(number))),
        "expressions": required([lacks(each) for each in range(number)]),
        "tolerations": {"tolerations": tolerations},
        "resources": requesting(number),
    }


@pytest.mark.promise("S49")
@pytest.mark.parametrize("field", spelled(0))
def test_a_pod_with_more_conditions_than_each_node_is_compared_with_waits_for_a_reason(field: str) -> None:
    few, many = (convert.pod_class_of(decode(body("p") | {"spec": spelled(n)[field]})) for n in (100, MANY))
    assert few.problem == ""
    assert "10,00" in many.problem
    assert str(convert.MOST_CONDITIONS) in many.problem
    assert (many.requests, many.rules.size) == ((), 0)


def test_preferences_beyond_the_bound_are_not_compared_with_nodes() -> None:
    preferred = [
        {"weight": 1, "preference": {"matchExpressions": [lacks(each) for each in range(number)]}}
        for number in (100, 20, MANY, 1)
    ]
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}
    found = convert.pod_class_of(decode(body("p") | {"spec": spec}))
    assert [len(term.expressions) for _, term in found.preferred.terms] == [100, 20]
