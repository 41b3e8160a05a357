"""What `topogate map` and `topogate gangs` print."""

import json

import msgspec
import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from tests.support import install_definitions, register_nodes
from tests.ui.busy import busy_scene
from tests.ui.scenes import bound_pod, cluster_of, scene_of
from webhook.cli.main import main
from webhook.cli.map import WIDTH, bar, holders, lines, model_lines
from webhook.configuration.file import Configuration
from webhook.ui.availability import ModelCapacity
from webhook.ui.picture import DomainTile, NodeTile, Picture, PodTile


def domain(gpus: int, used: int = 0, waiting: int = 0, name: str = "b0") -> DomainTile:
    return DomainTile(f"1/{name}", "", 0, name, gpus, used, waiting, [0, 0, 0, 0], 0)


@pytest.mark.promise("R198")
@pytest.mark.parametrize(
    ("gpus", "used", "waiting", "want"),
    [
        (64, 0, 0, "." * WIDTH),
        (64, 64, 0, "#" * WIDTH),
        (64, 32, 0, "#" * (WIDTH // 2) + "." * (WIDTH // 2)),
        (64, 32, 32, "#" * (WIDTH // 2) + "+" * (WIDTH // 2)),
        (6400, 1, 0, "#" + "." * (WIDTH - 1)),
        (0, 0, 0, "." * WIDTH),
        (8, 16, 0, "#" * WIDTH),
    ],
    ids=["free", "full", "half", "half waited for", "one of many", "no GPU", "more used than there is"],
)
def test_a_bar_has_the_proportions_of_its_domain(gpus: int, used: int, waiting: int, want: str) -> None:
    assert bar(domain(gpus, used, waiting), is_coloured=False) == want


@pytest.mark.promise("R198")
def test_a_domain_stands_below_its_parent_with_its_sums() -> None:
    picture = scene_of(cluster_of([bound_pod("a", "node-b0-s0-h00")])).picture
    printed = list(lines(picture.domains, is_coloured=False))
    assert [line.split()[0] for line in printed] == ["b0", "s0", "s1", "b1", "s0", "s1"]
    assert "8 used" in printed[1]
    assert printed[1].startswith("  s0")


def test_what_is_reserved_for_a_gang_is_drawn_separately_from_what_is_free() -> None:
    reserved = msgspec.structs.replace(domain(64, 32), reserved=16)
    assert bar(reserved, is_coloured=False) == "#" * 16 + "=" * 8 + "." * 8
    assert "32 free, 16 of them reserved of 64 GPUs" in next(iter(lines([reserved], is_coloured=False)))


def test_a_model_has_its_free_gpus_and_what_is_stranded_of_them() -> None:
    capacity = ModelCapacity("H100", 512, 120, 48, [], "31 stranded: 22 lack cpu, 9 are shares of cards")
    expected = "H100: 120 free of 512; 31 stranded: 22 lack cpu, 9 are shares of cards"
    assert [*model_lines([capacity])] == [expected]


@pytest.mark.promise("R198")
def test_a_domain_shows_the_gpus_of_each_gang_in_it() -> None:
    drawn = busy_scene().picture
    (block,) = (each for each in drawn.domains if each.level == 0 and each.name == "b2")
    assert holders(drawn, 0)[block.id] == [
        "search/Job/embed: 48 GPUs, 6 pods", "vision/Job/detector: 32 GPUs, 4 pods",
    ]  # fmt: skip
    below = [
        line
        for domain, drawn_lines in holders(drawn, 1).items()
        if domain.startswith(block.id)
        for line in drawn_lines
    ]
    assert sum(int(line.partition(": ")[2].split()[0]) for line in below) == 48 + 32


def test_nodes_that_are_reserved_are_named_with_the_gang() -> None:
    pods = [PodTile("ns", "alone", 1, "bound"), PodTile("ns", "other", 2, "planned", "Job/x")]
    tile = NodeTile("n", "1/b0/s0/h0", "", 8, 3, 0, "used", pods=pods, reserved_for="ns/Job/waits")
    drawn = Picture(["block"], ["f"], [], {"n": tile}, [])
    assert holders(drawn, 0) == {
        "1/b0": ["ns/Job/x: 2 GPUs, 1 pod", "ns/alone: 1 GPU, 1 pod", "1 node reserved for ns/Job/waits"]
    }


def test_colours_are_for_terminals_alone() -> None:
    assert "\033" in bar(domain(8, 4), is_coloured=True)
    assert "\033" not in bar(domain(8, 4), is_coloured=False)


def test_a_name_that_a_terminal_would_obey_is_printed_escaped() -> None:
    (line,) = lines([domain(8, name="b\033[2J0")], is_coloured=False)
    assert "\033" not in line


@pytest.mark.promise("R198", "R199")
def test_map_and_gangs_read_a_real_cluster(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    install_definitions(cluster)
    register_nodes(cluster, nodes.grid(nodes.Shape(nodes=4, blocks=2, subblocks=1)))
    connection = ["--kubeconfig", str(cluster.kubeconfig)]
    assert main(["map", *connection]) == 0
    assert "0 used" in capsys.readouterr().out
    assert main(["map", "-o", "json", "--level", "block", *connection]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["b0", "b1"]
    path = "/api/v1/namespaces/default/pods"
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    pod = {"metadata": {"name": "alone"}, "spec": {"nodeName": "node-b1-s0-h00", "containers": [container]}}
    cluster.api().request("POST", path, body=pod)
    assert main(["map", "-o", "wide", "--level", "block", *connection]) == 0
    b0, b1, holder, free = capsys.readouterr().out.splitlines()
    assert (b0.split()[0], b1.split()[0], holder.strip()) == ("b0", "b1", "default/alone: 8 GPUs, 1 pod")
    assert free == "NVIDIA-H100-80GB-HBM3: 24 free of 32"
    assert main(["gangs", *connection]) == 0
    assert capsys.readouterr().out == "No gang waits or runs in namespace default.\n"


@pytest.mark.parametrize(
    ("words", "namespaces", "elsewhere"),
    [
        (["-n", "search"], {"search"}, "9 more in other namespaces: topogate gangs -A"),
        (["-A"], {"research", "search", "vision", "guest"}, ""),
    ],
    ids=["one", "all"],
)
def test_gangs_are_those_of_one_namespace_unless_all_are_asked_for(
    words: list[str], namespaces: set[str], elsewhere: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("webhook.cli.session.connect", lambda options: None)
    monkeypatch.setattr("webhook.cli.scene.configuration_of", lambda *_: Configuration())
    monkeypatch.setattr("webhook.cli.scene.scene", lambda *_: busy_scene())
    assert main(["gangs", *words]) == 0
    shown = capsys.readouterr()
    assert {line.split()[0] for line in shown.out.splitlines()[1:]} == namespaces
    assert shown.err.strip() == elsewhere


@pytest.fixture
def default_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with the default configuration."""
    monkeypatch.setattr("webhook.cli.session.connect", lambda options: None)
    monkeypatch.setattr("webhook.cli.scene.configuration_of", lambda *_: Configuration())


@pytest.mark.usefixtures("default_levels")
def test_a_level_that_there_is_not_is_named_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["map", "--level", "galaxy"]) == 2
    assert "block, subblock, host" in capsys.readouterr().err


@pytest.mark.usefixtures("default_levels")
def test_a_level_that_is_not_drawn_is_a_sentence_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["map", "--level", "node"]) == 2
    assert "use one of block, subblock, host; single nodes are on the page" in capsys.readouterr().err
