"""fairOrder of the configuration: what it means, and every fault by its path."""

import pytest

from tests.configuration.wrong import HEAD, MODELS, WRONG_FAIR_ORDER
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import parse
from webhook.policy.fair import HOUR, FairOrder


def fair_order(section: str) -> FairOrder:
    found = parse(f"{HEAD}{MODELS}fairOrder: {section}").policy.fair_order
    assert found is not None
    return found


@pytest.mark.promise("O83")
def test_switched_on_it_needs_no_thought() -> None:
    assert fair_order("{}") == FairOrder(6 * HOUR, 12 * HOUR, "", {}, {})


@pytest.mark.promise("O62")
@pytest.mark.parametrize(
    ("account", "weight"),
    [("team-a", 3), ("team-b", 2), ("team-b-ci", 0.5), ("other", 1.5), ("unit=x", 4), ("unit=y1", 5)],
)
def test_an_exact_name_counts_before_patterns_and_of_those_the_longest(account: str, weight: float) -> None:
    weights = '{"*": 1.5, "team-*": 2, "team-*-ci": 0.5, team-a: 3, "unit=x": 4, "unit=y*": 5}'
    assert fair_order(f"{{accountLabel: unit, weights: {weights}}}").weight(account) == weight


@pytest.mark.promise("O83")
def test_a_namespace_without_an_entry_weighs_1() -> None:
    assert fair_order("{weights: {a: 3}}").weight("b") == 1


@pytest.mark.promise("O62")
def test_namespaces_with_the_same_value_of_the_label_are_one_account() -> None:
    fair = fair_order("{accountLabel: example.com/team}")
    assert fair.account("a", {"example.com/team": "ml"}) == fair.account("b", {"example.com/team": "ml"})
    assert fair.account("c", {}) == "c"
    assert fair.account("ml", {}) != fair.account("a", {"example.com/team": "ml"})


@pytest.mark.promise("O62")
def test_costs_are_of_models_of_the_catalogue_however_they_are_spelt() -> None:
    fair = fair_order("{modelCosts: {rtx4090: 0.5}}")
    assert (fair.cost("RTX 4090"), fair.cost("H100")) == (0.5, 1)


@pytest.mark.parametrize("section", WRONG_FAIR_ORDER)
def test_a_fault_is_named_by_its_path(section: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        fair_order(section)
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith(WRONG_FAIR_ORDER[section])
