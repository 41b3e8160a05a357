"""The mix of the GPU pods of a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import keys
from webhook.placement import Card, CardRequest, MixClass, NodeInfo, PodClass, Snapshot, Usage, vector
from webhook.placement.mix import MOST_CLASSES
from webhook.scheduling.gpus import Counting
from webhook.scheduling.pod_mix import PARTS, class_of, mix_of, mix_of_counts

GPU = "nvidia.com/gpu"
COUNTING = Counting((GPU, keys.I915))


def pod(gpus: int, cpu: int = 1000) -> PodClass:
    return PodClass(vector({"cpu": cpu, "pods": 1, GPU: gpus}))


def snapshot(*usage: Usage) -> Snapshot:
    cards = (Card("card0", {keys.I915: 10, keys.MILLICORES: 1000}),)
    node = NodeInfo("n", allocatable={"cpu": 64_000, "pods": 110, GPU: 8, keys.I915: 10}, cards=cards)
    return Snapshot.build([node], [("n", each) for each in usage])


@pytest.mark.promise("D37")
def test_pods_on_nodes_and_waiting_pods_of_one_class_count_together() -> None:
    there = Usage(dict(pod(2).requests))
    found = mix_of(snapshot(there, there), [pod(2), pod(8)], COUNTING)
    assert [(each.thousandths, each.count) for each in found.classes] == [(2000, 3072), (8000, 1024)]


def test_a_pod_with_a_share_of_a_card_is_one_class_wherever_it_is() -> None:
    amounts = {"cpu": 1000, "pods": 1, keys.I915: 1, keys.MILLICORES: 300}
    share = {keys.I915: 1, keys.MILLICORES: 300}
    waits = PodClass(vector(amounts), cards=(CardRequest(1, vector(share)),))
    found = mix_of(snapshot(Usage(amounts, {"card0": share})), [waits], COUNTING)
    (only,) = found.classes
    assert only == MixClass(vector(amounts), 300, PARTS, "", 1, vector(share))


def test_pods_without_gpus_are_not_in_the_mix() -> None:
    cpu_only = PodClass(vector({"cpu": 4000, "pods": 1}))
    assert class_of(cpu_only, COUNTING) is None
    found = mix_of(snapshot(Usage(dict(cpu_only.requests))), [cpu_only, pod(1)], COUNTING)
    assert [each.thousandths for each in found.classes] == [1000]


@pytest.mark.promise("D37")
def test_without_gpu_pods_the_mix_has_pods_of_one_two_four_and_eight_of_each_resource() -> None:
    found = mix_of(snapshot(), [], COUNTING)
    assert {(each.resource, each.thousandths) for each in found.classes} == {
        (name, 1000 * gpus) for name in (GPU, keys.I915) for gpus in (1, 2, 4, 8)
    }
    assert len({each.count for each in found.classes}) == 1


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
    frequent = max(known, key=lambda each: known[each])
    assert any(each.requests == frequent.requests for each in found.classes)
