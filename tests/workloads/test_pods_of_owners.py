"""An owner of each kind creates its pods, as the table of owner_cases has them."""

import pytest

from tests.workloads.objects import BY_NAME, JOBSET, read
from tests.workloads.owner_cases import CASES, Case
from webhook.kube.objects import Pod
from webhook.workloads.kinds import WORKLOADS
from webhook.workloads.ranks import own_rank


@pytest.mark.promise("R230")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_owner_creates_the_pods_of_its_gang_in_its_stages(case: Case) -> None:
    pods = BY_NAME[case.owner].pods(read(case.owner, case.spec, dict(case.status), dict(case.annotations)))
    assert (pods.size, pods.minimum, pods.is_staged) == (case.size, case.minimum, case.is_staged)
    if case.sets is not None:
        stages = [stage for each in pods.sets for stage in each.stages()]
        assert [(each.name, each.stage, list(each.ranks)) for each in stages] == case.sets


@pytest.mark.parametrize("case", [each for each in CASES.values() if each.sets], ids=lambda each: each.owner)
def test_the_labels_of_a_pod_have_the_rank_that_its_set_has(case: Case) -> None:
    for each in BY_NAME[case.owner].pods(read(case.owner, case.spec, {}, dict(case.annotations))).sets:
        numbers = [(group, index) for group in each.group_numbers for index in each.indices]
        pods = [Pod(metadata=each.metadata_of(*number)) for number in numbers if each.index_key]
        assert [own_rank(pod) for pod in pods] == list(each.ranks)[: len(pods)]


@pytest.mark.parametrize("name", ["jobset-exclusive", "lws-whose-leader-is-of-the-first-subgroup"])
def test_an_owner_with_domains_of_its_own_writes_that_on_its_pods(name: str) -> None:
    case = CASES[name]
    sets = BY_NAME[case.owner].pods(read(case.owner, case.spec, {}, dict(case.annotations))).sets
    assert all(each.annotations == case.annotations for each in sets)
    follows = [bool(at % 2) for at in range(len(sets))] if case.owner == JOBSET else [False] * len(sets)
    assert [each.follows for each in sets] == follows


def test_each_kind_of_owner_is_listed_once_and_has_a_case() -> None:
    assert len(BY_NAME) == len(WORKLOADS)
    assert {each.owner for each in CASES.values()} == {
        name for name in BY_NAME if not name.startswith("composite")
    }
