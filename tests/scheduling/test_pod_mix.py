"""The mix of the GPU pods of a cluster."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.pods import decode
from webhook.placement import (
    Card,
    CardRequest,
    Mix,
    MixClass,
    NodeInfo,
    PodClass,
    Requirement,
    Rules,
    Snapshot,
    Term,
    Usage,
    vector,
)
from webhook.placement.mix import MOST_CLASSES
from webhook.scheduling.convert import usage_of
from webhook.scheduling.gpus import Counting
from webhook.scheduling.pod_mix import PARTS, RunningClasses, class_of, counts_of, mix_of, mix_of_counts

GPU = "nvidia.com/gpu"
MODEL = keys.GPU_MODEL_LABEL
COUNTING = Counting((GPU, keys.I915))


def pod(gpus: int, cpu: int = 1000) -> PodClass:
    return PodClass(vector({"cpu": cpu, "pods": 1, GPU: gpus}))


def snapshot(*usage: Usage) -> Snapshot:
    cards = (Card("card0", {keys.I915: 10, keys.MILLICORES: 1000}),)
    node = NodeInfo("n", allocatable={"cpu": 64_000, "pods": 110, GPU: 8, keys.I915: 10}, cards=cards)
    return Snapshot.build([node], [("n", each) for each in usage])


def mix_beside(there: Snapshot, waiting: list[PodClass]) -> Mix:
    """The mix of the pods on these nodes and of waiting ones."""
    return mix_of(there, counts_of(waiting, COUNTING), COUNTING)


@pytest.mark.promise("D37")
def test_pods_on_nodes_and_waiting_pods_of_one_class_count_together() -> None:
    there = Usage(dict(pod(2).requests))
    found = mix_beside(snapshot(there, there), [pod(2), pod(8)])
    assert [(each.thousandths, each.count) for each in found.classes] == [(2000, 3072), (8000, 1024)]


def test_a_pod_with_a_share_of_a_card_is_one_class_wherever_it_is() -> None:
    amounts = {"cpu": 1000, "pods": 1, keys.I915: 1, keys.MILLICORES: 300}
    share = {keys.I915: 1, keys.MILLICORES: 300}
    waits = PodClass(vector(amounts), cards=(CardRequest(1, vector(share)),))
    found = mix_beside(snapshot(Usage(amounts, {"card0": share})), [waits])
    (only,) = found.classes
    assert only == MixClass(vector(amounts), 300, PARTS, "", 1, vector(share))


def test_pods_without_gpus_are_not_in_the_mix() -> None:
    cpu_only = PodClass(vector({"cpu": 4000, "pods": 1}))
    assert class_of(cpu_only, COUNTING) is None
    found = mix_beside(snapshot(Usage(dict(cpu_only.requests))), [cpu_only, pod(1)])
    assert [each.thousandths for each in found.classes] == [1000]


@pytest.mark.promise("D37")
def test_without_gpu_pods_the_mix_has_pods_of_one_two_four_and_eight_of_each_resource() -> None:
    found = mix_beside(snapshot(), [])
    assert {(each.resource, each.thousandths) for each in found.classes} == {
        (name, 1000 * gpus) for name in (GPU, keys.I915) for gpus in (1, 2, 4, 8)
    }
    assert len({each.count for each in found.classes}) == 1


USAGES = [Usage(dict(pod(gpus).requests)) for gpus in (0, 1, 1, 2, 8)]
ON_NODES = st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from(USAGES), max_size=3).map(tuple))


@given(st.lists(ON_NODES, max_size=6))
def test_counting_only_changed_pods_gives_the_same_counts(
    steps: list[dict[str, tuple[Usage, ...]]],
) -> None:
    """One usage may be on several nodes, and several times on one."""
    before, known = None, RunningClasses()
    for there in steps:
        before = Snapshot.of([NodeInfo(name) for name in there], there, previous=before)
        known = known.after(before.blocks, COUNTING)
        assert known.counts == RunningClasses().after(before.blocks, COUNTING).counts
        every = [usage for usages in there.values() for usage in usages]
        assert known.counts.total() == sum(usage.requests.get(GPU, 0) > 0 for usage in every)


@pytest.mark.promise("D37")
@given(st.dictionaries(st.integers(1, 500), st.integers(1, 9999), min_size=1, max_size=200), st.randoms())
def test_a_mix_has_few_classes_and_does_not_depend_on_the_order(counts: dict[int, int], dice: object) -> None:
    classes = {class_of(pod(1 + n % 8, 100 * n), COUNTING): count for n, count in counts.items()}
    known = {each: count for each, count in classes.items() if each is not None}
    shuffled = list(known.items())
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    found = mix_of_counts(known)
    assert found == mix_of_counts(dict(shuffled))
    assert len(found.classes) == min(MOST_CLASSES, len(known))
    assert all(each.count > 0 for each in found.classes)
    largest = max(known, key=lambda each: known[each] * each.thousandths)
    assert any(each.requests == largest.requests for each in found.classes)


@pytest.mark.promise("D37")
def test_of_many_classes_those_with_the_most_gpus_are_in_the_mix() -> None:
    """Large pods are rare, and the first that find no node if the mix does not know them."""
    small = {class_of(pod(1, 1000 + n), COUNTING): 3 for n in range(2 * MOST_CLASSES)}
    large = class_of(pod(8), COUNTING)
    found = mix_of_counts({each: count for each, count in (small | {large: 1}).items() if each is not None})
    assert max(each.thousandths for each in found.classes) == 8000


def test_a_few_more_pods_leave_the_mix_as_it_is() -> None:
    """Else each pod that comes would make the values of all nodes invalid."""
    found = [mix_beside(snapshot(), [pod(2)] * count + [pod(8)] * 10) for count in range(31, 40)]
    assert len({each.classes for each in found}) <= 2


@pytest.mark.promise("D37")
@pytest.mark.parametrize(
    "rules",
    [
        Rules(selector=((MODEL, "H100"), ("zone", "a"))),
        Rules(affinity=(Term((Requirement(MODEL, "In", ("H100",)), Requirement("zone", "Exists"))),)),
        Rules(affinity=(Term((Requirement(MODEL, "In", ("H100",)),)),) * 2),
    ],
    ids=["selector", "affinity", "either of two equal terms"],
)
def test_pods_that_require_a_model_are_a_class_of_their_own(rules: Rules) -> None:
    asked = replace(pod(2), rules=rules)
    there = Usage(dict(pod(2).requests), labels=((MODEL, ("H100",)), ("zone", ("a",))))
    found = mix_beside(snapshot(there), [asked, pod(2)])
    assert [each.models for each in found.classes] == [(), ((MODEL, ("H100",)),)]
    assert [each.count for each in found.classes] == [1024, 2048]


def test_a_running_pod_counts_with_the_model_of_its_selector() -> None:
    asked = {"name": "main", "resources": {"limits": {GPU: "2"}}}
    manifest = {
        "metadata": {"name": "p", "namespace": "a", "uid": "u"},
        "spec": {"containers": [asked], "nodeSelector": {MODEL: "H100"}, "nodeName": "n"},
    }
    (only,) = mix_beside(snapshot(usage_of(decode(manifest))), []).classes
    assert only.models == ((MODEL, ("H100",)),)


def test_a_pod_that_may_run_on_other_models_too_requires_none() -> None:
    either = Rules(
        affinity=(Term((Requirement(MODEL, "In", ("H100",)),)), Term((Requirement("a", "Exists"),)))
    )
    only = class_of(replace(pod(1), rules=either), COUNTING)
    assert only is not None
    assert only.models == ()
