"""Free GPUs that the next pod of the mix cannot use."""

from collections import Counter
from dataclasses import replace

from tests.placement.mixes import GPU, card_node, gpu_class, share_class, shared, with_mix
from tests.placement.small import node
from webhook.placement import MixClass, NodeInfo, vector
from webhook.placement.stranded_gpus import SHARES, TOO_FEW, stranded_gpus, stranded_words


def gpu_node(name: str, cpu: int, gpus: int) -> NodeInfo:
    return node(name, ("b", "s", name), cpu, **{GPU: gpus})


def test_a_class_of_another_model_does_not_count() -> None:
    """Else all GPUs of a model would be stranded for pods that never run on it."""
    idle = node("a", ("b", "s", "a"), 64, **{GPU: 8})
    of_model = replace(gpu_class(8000, 1), models=(("model", ("H100",)),))
    assert stranded_gpus(with_mix([idle], of_model, gpu_class(8000, 1))) == {}


def test_free_gpus_are_stranded_by_what_the_node_lacks() -> None:
    snapshot = with_mix([gpu_node("a", 1, 4), gpu_node("b", 64, 4)], gpu_class(8000, 1))
    assert stranded_gpus(snapshot) == {"a": {"cpu": 4000}}


def test_gpus_are_stranded_on_average_over_the_pods_of_the_mix() -> None:
    snapshot = with_mix([gpu_node("a", 64, 4)], gpu_class(1000, 8, 1), gpu_class(1000, 1, 3))
    assert stranded_gpus(snapshot) == {"a": {TOO_FEW: 1000}}


def test_the_scarcest_of_cpu_and_gpus_is_the_cause() -> None:
    """More CPU would not let a pod of eight GPUs run where one is free."""
    snapshot = with_mix([gpu_node("a", 40, 1), gpu_node("b", 6, 6)], gpu_class(64_000, 8))
    assert stranded_gpus(snapshot) == {"a": {TOO_FEW: 1000}, "b": {"cpu": 6000}}


def test_shares_of_cards_are_stranded_where_no_card_has_enough() -> None:
    usage = [("a", shared("card0", 700))]
    snapshot = with_mix([card_node("a", 1)], share_class(1000, 500), usage=usage)
    assert stranded_gpus(snapshot) == {"a": {SHARES: 300}}


def test_pods_of_another_vendor_strand_nothing() -> None:
    snapshot = with_mix([gpu_node("a", 64, 4), card_node("b", 1)], gpu_class(1000, 1), share_class(1000, 500))
    assert stranded_gpus(snapshot) == {}


def test_pods_of_whole_gpus_strand_no_parts_of_others_on_their_node() -> None:
    part = "nvidia.com/mig-1g.10gb"
    divided = node("a", ("b", "s", "a"), 64, **{GPU: 4, part: 14})
    of_parts = MixClass(vector({"cpu": 1000, "pods": 1, part: 1}), 1000, 1, part)
    assert stranded_gpus(with_mix([divided], gpu_class(1000, 1), of_parts)) == {}
    assert stranded_gpus(with_mix([divided], gpu_class(1000, 8), of_parts)) == {"a": {TOO_FEW: 4000}}


def test_the_words_name_the_largest_cause_first() -> None:
    words = stranded_words(Counter({"cpu": 22_000, SHARES: 8_600, "memory": 100}))
    assert words == "31 stranded: 22 lack cpu, 9 are shares of cards"
