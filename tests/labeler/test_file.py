"""Facts from files: what is written is what is meant, and everything else is refused with its place."""

import json
import re
import threading
from pathlib import Path

import pytest
import yaml

from hack.local.build import ROOT
from labeler.config import parse_config
from labeler.contract import keys
from labeler.facts import Facts, Gpu, SourceError
from labeler.labels import wanted
from labeler.sources import Context, create_source, file

ENTRY = {
    "topology": ["c", "r", "h"],
    "cards": 2,
    "model": "Max_1550",
    "tiles-per-card": 2,
    "memory-bytes-per-card": 100,
    "numa": {0: [0], 1: [1]},
}


def facts(tmp_path: Path, text: str, node: str = "n1") -> Facts:
    path = tmp_path / "facts"
    path.write_text(text)
    return create_source("file", {"path": str(path)}, Context(node)).discover()


@pytest.mark.promise("O12")
@pytest.mark.parametrize(
    "text",
    [
        "n1: /c/r/h\nn2: /x/y/z",
        "n1: [c, r, h]",
        "n1: {topology: /c/r/h}",
        '{"n1": "/c/r/h"}',
        "/c/r/h\n",
        '"/c/r/h"',
    ],
    ids=["line a node", "list", "field", "JSON", "file of one node", "JSON of one node"],
)
def test_a_place_can_be_written_in_any_of_these_ways(tmp_path: Path, text: str) -> None:
    assert facts(tmp_path, text) == Facts(topology=("c", "r", "h"))


@pytest.mark.parametrize("path", ["/a", "/a/b/c/d/e"])
def test_a_place_may_have_any_depth(tmp_path: Path, path: str) -> None:
    assert facts(tmp_path, f"n1: {path}").topology == tuple(path.split("/")[1:])


@pytest.mark.parametrize("dump", [json.dumps, lambda entry: f"{entry}"], ids=["JSON", "YAML"])
def test_an_entry_has_cards_with_model_tiles_memory_and_numa_nodes(tmp_path: Path, dump: object) -> None:
    assert callable(dump)
    found = facts(tmp_path, str(dump({"n1": ENTRY})))
    assert found == Facts(
        topology=("c", "r", "h"),
        gpus=tuple(Gpu(n, "intel", "Max_1550", numa_node=n, tiles=2, memory_bytes=100) for n in (0, 1)),
    )
    assert wanted(found, keys.PRERELEASE_TOPOLOGY).labels == {
        "topology.gke.io/cluster": "c",
        "topology.gke.io/rack": "r",
        "topology.gke.io/host": "h",
        "gpu.intel.com/gpu-numbers": "0.1",
        "gpu.intel.com/cards": "card0.card1",
        "gpu.intel.com/millicores": "2000",
        "gpu.intel.com/memory.max": "200",
        "gpu.intel.com/tiles": "4",
        "gpu.intel.com/numa-gpu-map": "0-0_1-1",
        "gpu.topogate.io/count": "2",
        "gpu.topogate.io/vendor.intel": "2",
        "gpu.topogate.io/model": "Max_1550",
        "gpu.topogate.io/has.Max_1550": "true",
    }


def test_card_numbers_may_have_gaps(tmp_path: Path) -> None:
    assert [gpu.card for gpu in facts(tmp_path, "n1: {cards: [3, 1]}").gpus or ()] == [1, 3]


def test_no_cards_is_not_the_same_as_cards_that_are_not_spoken_of(tmp_path: Path) -> None:
    assert facts(tmp_path, "n1: {cards: 0}").gpus == ()
    assert facts(tmp_path, "n1: {}").gpus is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("n2: /a/b/c", "no entry for node n1 among 1 nodes"),
        ("", "must map node names"),
        ("[1, 2]", "must map node names"),
        ("n1: 5", "n1: must be a path or a mapping"),
        ("n1: /a//b", "has an empty level"),
        ("n1: ''", "has an empty level"),
        ("n1: []", "has an empty level"),
        ("n1: [a, 5]", "must be a path"),
        ("n1: {topology: {a: b}}", "n1.topology: must be a path"),
        ("n1: {card: 8}", "n1.card: unknown key; did you mean cards?"),
        ("n1: {cards: eight}", "n1.cards: must be a whole number"),
        ("n1: {cards: -1}", "n1.cards: must be a whole number"),
        ("n1: {cards: true}", "n1.cards: must be a whole number"),
        ("n1: {cards: 100000}", "at most 1024"),
        ("n1: {cards: [0, 0]}", "names a card twice"),
        ("n1: {model: x}", "n1.model: says something of cards, but there is no field cards"),
        ("n1: {cards: 1, model: 7}", "n1.model: must be a text"),
        ("n1: {cards: 1, vendor: Intel Corp}", "n1.vendor: must be a word"),
        ("n1: {cards: 1, tiles-per-card: 0}", "n1.tiles-per-card: must be a whole number from 1"),
        ("n1: {cards: 1, memory-bytes-per-card: 16Gi}", "n1.memory-bytes-per-card: must be a whole number"),
        ("n1: {cards: 2, numa: [0]}", "n1.numa: must map"),
        ("n1: {cards: 2, numa: {0: [2]}}", "n1.numa.0: card 2 is not a card of this node"),
        (
            "n1: {cards: 2, numa: {0: [1], 1: [1]}}",
            "n1.numa.1: card 1 is not a card of this node, or named twice",
        ),
        ("n1: {cards: 2, numa: {x: [1]}}", "n1.numa: must be a whole number"),
        ("n1: /a/b/c\nn1: /d/e/f", "'n1' is written twice"),
        ('{"n1": "/a", "n1": "/b"}', "'n1' is written twice"),
        ("n1: {cards: 1, cards: 2}", "'cards' is written twice"),
        ("n1: [", "neither YAML nor JSON"),
        ('{"a":' * 50_000, "is nested too deeply"),
        ("{[1]: 2}", "neither YAML nor JSON"),
        ('{"n1": }', "n1: must be a path or a mapping, is None"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_file_and_place(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(SourceError) as error:
        facts(tmp_path, text)
    assert sentence in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "facts"))


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    source = create_source("file", {"path": str(tmp_path / "none")}, Context("n1"))
    with pytest.raises(SourceError, match=f"{tmp_path / 'none'}: cannot be read"):
        source.discover()


@pytest.mark.parametrize("is_watched_before", [True, False], ids=["while watched", "before it is watched"])
def test_a_file_that_changes_after_it_was_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_watched_before: bool
) -> None:
    """The watch begins beside the first look, on a busy machine long after it."""
    monkeypatch.setattr(file, "_WATCH_SECONDS", 0.01)
    path = tmp_path / "facts"
    path.write_text("n1: /a/b/c")
    source = create_source("file", {"path": str(path)}, Context("n1"))
    source.discover()
    changed, stop = threading.Event(), threading.Event()
    watch = threading.Thread(target=source.watch, args=(changed.set, stop))
    try:
        if is_watched_before:
            watch.start()
            assert not changed.wait(0.2)
        path.write_text("n1: /a/b/other")
        if not is_watched_before:
            watch.start()
        assert changed.wait(90)
    finally:
        stop.set()
        watch.join(90)
    assert source.discover().topology == ("a", "b", "other")


def test_the_list_of_nodes_on_the_page_gives_each_node_its_place(tmp_path: Path) -> None:
    page = (ROOT / "docs/operators/topology.md").read_text()
    (example,) = re.findall(r"^```yaml\n(labeler:.+?)^```", page, re.MULTILINE | re.DOTALL)
    values = yaml.safe_load(example)["labeler"]
    assert values.keys() <= yaml.safe_load((ROOT / "manifests/values.yaml").read_text())["labeler"].keys()
    sources = dict(parse_config(values["config"], "page").sources)
    assert sources["file"] == {"path": "/etc/topogate/facts.yaml"}
    found = facts(tmp_path, values["facts"], "node-2")
    assert found.topology == ("block-a", "subblock-3", "host-18")
