"""Ranks of any gang: one row in which every pod has a place of its own, leaders first."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sweeper.pods import decode, pod_json
from webhook.kube.objects import Pod
from webhook.workloads import marks
from webhook.workloads.ranks import ranks_by_uid

ROLES = st.sampled_from([*marks.ROLES, "alien", "other"])


def member(role: str, index: int) -> Pod:
    labels = {
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
    return decode(pod_json(f"{role}-{index}", metadata={"labels": labels}))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.sets(st.tuples(ROLES, st.integers(0, 40)), min_size=1, max_size=12))
def test_pods_stand_in_the_order_of_roles_and_of_numbers_and_keep_their_distance(
    members: set[tuple[str, int]],
) -> None:
    pods = {each: member(*each) for each in members}
    problems: list[str] = []
    found = ranks_by_uid(list(pods.values()), [], problems)
    ranks = {each: found[pod.metadata.uid] for each, pod in pods.items()}
    assert problems == []
    known = [*marks.ROLES, "alien", "other"]
    in_order = sorted(members, key=lambda each: (known.index(each[0]), each[1]))
    assert [ranks[each] for each in in_order] == sorted(set(ranks.values()))
    for role, index in members:
        for other, later in members:
            if role == other:
                assert ranks[other, later] - ranks[role, index] == later - index
