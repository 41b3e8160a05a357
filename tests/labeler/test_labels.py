"""From facts to labels: legal values, originals kept, and models that a selector can name."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import keys
from labeler.contract.label_codecs import decode_cards, decode_numa_map, decode_pci_groups
from labeler.contract.legal_values import is_legal_value, legal_value
from labeler.facts import NO_CARD, Facts, Gpu, SourceError, merge
from labeler.labels import model_labels, wanted

LEVELS = keys.PRERELEASE_TOPOLOGY
ALLOCATOR = Path(__file__).resolve().parents[2] / "manifests/components/allocator/allocator.yaml"


@pytest.mark.promise("W18")
def test_a_value_that_is_no_legal_label_is_hashed_and_its_original_stays() -> None:
    want = wanted(Facts(topology=("eu west", "r" * 64, "h-1")), LEVELS)
    assert want.labels == {
        "topology.gke.io/cluster": legal_value("eu west"),
        "topology.gke.io/rack": legal_value("r" * 64),
        "topology.gke.io/host": "h-1",
    }
    assert json.loads(want.annotations[keys.ORIGINAL_VALUES_ANNOTATION]) == {
        "topology.gke.io/cluster": "eu west",
        "topology.gke.io/rack": "r" * 64,
    }


def test_the_note_of_original_values_does_not_depend_on_the_order_of_levels() -> None:
    want = wanted(Facts(topology=("eu west", "r r", "h-1")), ("b.io/level", "a.io/level", "c.io/level"))
    assert (
        want.annotations[keys.ORIGINAL_VALUES_ANNOTATION] == '{"a.io/level": "r r", "b.io/level": "eu west"}'
    )


def test_cards_have_no_pci_groups_unless_these_are_asked_for() -> None:
    cards = Facts(gpus=(Gpu(0, "intel", pci_path=("a",)), Gpu(1, "intel", pci_path=("a",))))
    assert decode_pci_groups(wanted(cards, LEVELS).labels) == ()
    assert decode_pci_groups(wanted(cards, LEVELS, 1).labels) == ((0, 1),)


def test_legal_values_need_no_note() -> None:
    assert wanted(Facts(topology=("c", "r", "h")), LEVELS).annotations == {}


def test_levels_of_any_names_and_number_can_be_configured() -> None:
    levels = ("example.com/dc", "example.com/row", "example.com/rack", "example.com/host")
    assert wanted(Facts(topology=("1", "2", "3", "4")), levels).labels == dict(
        zip(levels, "1234", strict=True)
    )


def test_a_place_of_another_depth_names_both() -> None:
    with pytest.raises(SourceError, match=r"a place of 2 levels .*for 3 labels.*topology\.gke\.io/rack"):
        wanted(Facts(topology=("a", "b")), LEVELS)


GPUS = st.builds(
    Gpu,
    card=st.integers(0, 200),
    vendor=st.sampled_from(["intel", "nvidia"]),
    numa_node=st.none() | st.integers(-1, 40000),
    tiles=st.integers(1, 4),
    memory_bytes=st.integers(0, 2**64),
    skipped=st.sampled_from(["", "why"]),
    pci_path=st.lists(st.sampled_from("ab"), max_size=4).map(tuple),
)


@pytest.mark.parametrize(("unusable", "memory"), [(2**63 - 2, 2**63), (2**63 - 1, 2), (2**64, 2)])
def test_the_overflow_of_a_driver_is_no_amount_of_memory(unusable: int, memory: int) -> None:
    cards = (Gpu(0, "intel", memory_bytes=2), Gpu(1, "intel", memory_bytes=unusable))
    assert wanted(Facts(gpus=cards), LEVELS).labels[keys.MEMORY_MAX] == str(memory)


@pytest.mark.promise("W19")
@given(st.lists(GPUS, unique_by=lambda gpu: gpu.card, max_size=40), st.integers(0, 4))
def test_readers_find_exactly_the_cards_that_were_discovered(gpus: list[Gpu], level: int) -> None:
    labels = wanted(Facts(gpus=tuple(gpus)), LEVELS, level).labels
    used = sorted(
        (gpu for gpu in gpus if gpu.vendor == "intel" and not gpu.skipped), key=lambda gpu: gpu.card
    )
    assert decode_cards(labels) == tuple(gpu.card for gpu in used)
    node_of = {card: node for node, cards in decode_numa_map(labels).items() for card in cards}
    assert node_of == {gpu.card: gpu.numa_node for gpu in used if gpu.numa_node in range(32768)}
    group_of = {card: group for group in decode_pci_groups(labels) for card in group}
    ancestors = {gpu.card: gpu.pci_path[:level] for gpu in used if 0 < level <= len(gpu.pci_path)}
    assert group_of == {
        card: tuple(other for other in ancestors if ancestors[other] == path)
        for card, path in ancestors.items()
    }
    assert all(is_legal_value(value) for value in labels.values())


def test_the_first_source_with_a_value_wins_and_identities_are_joined() -> None:
    first = Facts(topology=("a",), identity={"x": "1"})
    second = Facts(topology=("b",), gpus=(), identity={"x": "2", "y": "3"})
    assert merge([first, second]) == Facts(("a",), (), {"x": "1", "y": "3"})
    assert merge([]) == Facts()


@pytest.mark.promise("W20")
@pytest.mark.parametrize(
    ("gpus", "model"),
    [
        ([("a", False)] * 2, "a"),
        ([("a", False), ("b", False)], None),
        ([("a", False), ("i", True)], "a"),
        ([("i", True)], "i"),
        ([("", False)], None),
        ([("a", False), ("", False)], None),
    ],
    ids=["alike", "mixed", "beside an integrated one", "integrated alone", "nameless", "one nameless"],
)
def test_a_node_has_a_model_only_where_its_gpus_are_homogeneous(
    gpus: list[tuple[str, bool]], model: str | None
) -> None:
    found = [Gpu(n, "intel", name, integrated=integrated) for n, (name, integrated) in enumerate(gpus)]
    labels = model_labels(found)
    assert labels.get(keys.GPU_MODEL_LABEL) == model
    for name in {name for name, _ in gpus if name}:
        assert labels[f"gpu.topogate.io/has.{name}"] == "true"


@pytest.mark.promise("O10")
@pytest.mark.parametrize(
    ("models", "label"),
    [
        (["GeForce RTX 4090"], {keys.FALLDIO_GPU: "rtx4090"}),
        (["H100 PCIe", "H100 PCIe"], {keys.FALLDIO_GPU: "h100pcie"}),
        (["A10", "L4"], {}),
        ([""], {}),
        ([], {}),
    ],
    ids=["one", "alike", "mixed", "nameless", "none"],
)
def test_the_model_is_labelled_as_gputasks_name_it_only_where_that_is_asked_for(
    models: list[str], label: dict[str, str]
) -> None:
    facts = Facts(gpus=tuple(Gpu(n, "nvidia", name) for n, name in enumerate(models)))
    made = wanted(facts, keys.PRERELEASE_TOPOLOGY, falldio=True).labels
    assert {key: made[key] for key in made if key == keys.FALLDIO_GPU} == label
    assert keys.FALLDIO_GPU not in wanted(facts, keys.PRERELEASE_TOPOLOGY).labels


@pytest.mark.parametrize(
    ("vendor", "gpus", "count"),
    [
        ("intel", [Gpu(0, "intel", skipped="wedged", broken=True)], "0"),
        ("nvidia", [Gpu(NO_CARD, "nvidia", skipped="off the bus", broken=True), Gpu(0, "intel")], "0"),
        ("intel", [Gpu(0, "intel", skipped="wedged", broken=True), Gpu(1, "intel")], "1"),
        ("intel", [Gpu(0, "intel", skipped="shared out"), Gpu(1, "nvidia")], None),
    ],
    ids=["the only one", "the last of its vendor", "one of two", "whole to no container, but not broken"],
)
def test_a_vendor_with_broken_gpus_alone_keeps_its_label_with_no_gpu(
    vendor: str, gpus: list[Gpu], count: str | None
) -> None:
    labels = wanted(Facts(gpus=tuple(gpus), broken=("one",)), LEVELS).labels
    assert labels.get(keys.GPU_VENDOR_COUNT_PREFIX + vendor) == count
    used = sum(not gpu.skipped for gpu in gpus)
    assert labels.get(keys.GPU_COUNT_LABEL) == (str(used) if used else None)


def test_the_allocator_stays_on_a_node_of_which_the_last_card_breaks() -> None:
    (daemon_set,) = (
        item for item in yaml.safe_load_all(ALLOCATOR.read_text()) if item["kind"] == "DaemonSet"
    )
    affinity = daemon_set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    facts = Facts(gpus=(Gpu(0, "intel", skipped="wedged", broken=True),), broken=("one",))
    labels = {"kubernetes.io/os": "linux"} | dict(wanted(facts, LEVELS).labels)
    for rule in term["matchExpressions"]:
        assert rule["operator"] in ("Exists", "In")
        assert rule["key"] in labels
        assert labels[rule["key"]] in rule.get("values", [labels[rule["key"]]])


@pytest.mark.promise("W19")
def test_a_gpu_without_a_card_number_counts_and_hides_no_card() -> None:
    cards = (Gpu(0, "intel", numa_node=1, pci_path=("a",)), Gpu(2, "intel", numa_node=1, pci_path=("a",)))
    without = Gpu(NO_CARD, "intel", driver="vfio-pci", numa_node=1, pci_path=("a",))
    labels = wanted(Facts(gpus=(without, *cards, Gpu(NO_CARD, "nvidia"))), LEVELS, 1).labels
    assert (decode_cards(labels), decode_numa_map(labels)) == ((0, 2), {1: (0, 2)})
    assert (decode_pci_groups(labels), labels[keys.MILLICORES]) == (((0, 2),), "2000")
    assert labels[keys.GPU_COUNT_LABEL] == "4"
    alone = wanted(Facts(gpus=(without,)), LEVELS, 1).labels
    assert (alone[keys.TILES], alone[keys.GPU_COUNT_LABEL], decode_cards(alone)) == ("0", "1", ())


def test_each_partition_mode_has_its_own_label() -> None:
    split = [Gpu(n, "amd", compute_partition="DPX", memory_partition="NPS4") for n in range(2)]
    labels = wanted(Facts(gpus=(*split, Gpu(2, "amd", memory_partition="NPS1"))), LEVELS).labels
    assert labels[keys.GPU_COMPUTE_PARTITION_LABEL] == "DPX"
    assert labels[keys.GPU_MEMORY_PARTITION_LABEL] == "mixed"
    modes = {keys.GPU_COMPUTE_PARTITION_LABEL, keys.GPU_MEMORY_PARTITION_LABEL}
    assert not modes & wanted(Facts(gpus=(Gpu(0, "amd"),)), LEVELS).labels.keys()


@pytest.mark.parametrize("length", [61, 80])
def test_a_long_model_still_makes_a_legal_key(length: int) -> None:
    labels = model_labels([Gpu(0, "nvidia", "N" * length)])
    (key,) = (key for key in labels if key.startswith(keys.GPU_HAS_MODEL_PREFIX))
    assert len(key.partition("/")[2]) <= 63
