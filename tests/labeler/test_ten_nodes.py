"""Ten labelers as processes, each with a token bound to its own pod, label ten nodes of a real API server."""

import contextlib
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hack.local.cluster import Cluster
from hack.local.processes import open_tied
from labeler.contract import keys
from labeler.contract.labels import decode_cards, decode_numa_map, decode_topology
from tests.labeler.installed import NAMESPACE, ROOT, Installed, install, register
from tests.support import audited

NODES = [f"n{number}" for number in range(10)]
INTERVAL_SECONDS = 1


def entry(number: int) -> dict[str, Any]:
    """Facts of one node: no two are equal."""
    cards = list(range(number, 3 * number + 1))
    return {
        "topology": ["cluster 1", f"rack-{number // 4}", f"host-{number}"],
        "cards": cards,
        "model": "Max_1550",
        "numa": {str(node): [card for card in cards if card % 2 == node] for node in (0, 1)},
    }


@dataclass
class Fleet:
    """The labelers' processes, by node."""

    installed: Installed
    facts: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, node: str) -> None:
        """Start (again) the labeler of a node with a fresh token of its pod."""
        command = [sys.executable, "-m", "labeler.main", "--source", "file", "--facts", str(self.facts)]
        command += ["--node-name", node, "--interval", str(INTERVAL_SECONDS)]
        command += ["--server", self.installed.cluster.server]
        command += ["--ca-file", str(self.installed.cluster.certificate_authority)]
        command += ["--token-file", str(self.installed.token_file(node))]
        with self._log(node).open("ab") as log:
            self.running[node] = open_tied(command, cwd=ROOT, stderr=log)

    def _log(self, node: str) -> Path:
        return self.facts.parent / f"{node}.log"

    def failed_attempts(self, node: str) -> int:
        """How often the labeler of a node could not publish."""
        return self._log(node).read_text().count("not published")

    @contextlib.contextmanager
    def failing(self, *nodes: str, attempts: int) -> Iterator[None]:
        """What the block begins lasts until these labelers have failed so often."""
        before = {node: self.failed_attempts(node) for node in nodes}
        yield
        self.installed.cluster.wait_for(
            f"{attempts} failed attempts of {', '.join(nodes)}",
            lambda: all(self.failed_attempts(node) >= count + attempts for node, count in before.items()),
        )

    def kill(self, node: str) -> None:
        """End a labeler without warning."""
        process = self.running.pop(node)
        process.kill()
        process.wait(90)

    def publish(self, entries: dict[str, Any]) -> None:
        """Replace the facts at once, as a mounted ConfigMap is."""
        partial = self.facts.with_suffix(".partial")
        partial.write_text(json.dumps(entries))
        partial.replace(self.facts)

    def wait_until_right(self, node: str, entry: dict[str, Any], seconds: float = 120) -> None:
        """Wait until a node's labels read back as these facts."""
        self.installed.cluster.wait_for(
            f"right labels on {node}", lambda: self._is_right(node, entry), seconds
        )

    def _is_right(self, node: str, entry: dict[str, Any]) -> bool:
        metadata = self.installed.node(node)["metadata"]
        labels = metadata["labels"]
        place = decode_topology(labels)
        original = json.loads(metadata.get("annotations", {}).get(keys.ORIGINAL_VALUES_ANNOTATION, "{}"))
        numa = {int(number): tuple(cards) for number, cards in entry["numa"].items() if cards}
        return (
            place is not None
            and [original.get(key, labels[key]) for key in place.family] == entry["topology"]
            and decode_cards(labels) == tuple(entry["cards"])
            and decode_numa_map(labels) == numa
        )


ENTRIES = {node: entry(number) for number, node in enumerate(NODES)}


@pytest.fixture(scope="module")
def all_running(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Ten labelers on ten nodes."""
    folder = tmp_path_factory.mktemp("fleet")
    fleet = Fleet(install(module_cluster, folder, len(NODES)), folder / "facts.json")
    fleet.publish(ENTRIES)
    try:
        for node in NODES:
            fleet.start(node)
        yield fleet
    finally:
        for process in fleet.running.values():
            process.send_signal(signal.SIGTERM)
        ended = [process.wait(90) for process in fleet.running.values()]
    assert ended == [0] * len(NODES)


@pytest.fixture
def fleet(all_running: Fleet) -> Fleet:
    """The same, each node labelled as ENTRIES says."""
    all_running.publish(ENTRIES)
    for node, facts in ENTRIES.items():
        all_running.wait_until_right(node, facts)
    return all_running


def verbs(cluster: Cluster) -> Counter[str]:
    """What labelers have asked of the API server, and how often. Who is not let in has no name there."""
    user = f"system:serviceaccount:{NAMESPACE}:labeler"
    return Counter(entry["verb"] for entry in audited(cluster) if entry["user"].get("username") == user)


def test_ten_labelers_write_nothing_while_nothing_changes(fleet: Fleet) -> None:
    cluster = fleet.installed.cluster
    before = verbs(cluster)
    cluster.wait_for("each to look twice", lambda: (verbs(cluster) - before)["get"] >= 2 * len(NODES))
    assert not {verb for verb in verbs(cluster) - before if verb != "get"}


def test_a_running_labeler_stays_below_forty_megabytes(fleet: Fleet) -> None:
    for process in fleet.running.values():
        status = Path(f"/proc/{process.pid}/status").read_text()
        (peak,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
        assert peak < 40 * 1024


def test_labels_follow_changed_facts(fleet: Fleet) -> None:
    fleet.publish(ENTRIES | {"n3": entry(7), "n5": {"topology": ["c", "r", "h"]}})
    fleet.wait_until_right("n3", entry(7))

    def has_no_cards_left() -> bool:
        return not [key for key in fleet.installed.node("n5")["metadata"]["labels"] if "gpu" in key]

    fleet.installed.cluster.wait_for("n5 to lose the labels of its cards", has_no_cards_left)
    fleet.wait_until_right("n4", entry(4))


@pytest.mark.promise("O224")
def test_a_node_keeps_its_labels_while_its_labeler_is_away(fleet: Fleet) -> None:
    before = fleet.installed.node("n6")["metadata"]["labels"]
    process = fleet.running.pop("n6")
    process.terminate()
    assert process.wait(90) == 0
    fleet.publish(ENTRIES | {"n6": entry(2)})
    assert fleet.installed.node("n6")["metadata"]["labels"] == before
    fleet.start("n6")
    fleet.wait_until_right("n6", entry(2))


def test_a_labeler_that_was_killed_labels_again_after_its_restart(fleet: Fleet) -> None:
    fleet.kill("n2")
    fleet.publish(ENTRIES | {"n2": entry(8)})
    fleet.start("n2")
    fleet.wait_until_right("n2", entry(8))


def test_a_node_that_was_deleted_and_recreated_is_labelled_again(fleet: Fleet) -> None:
    with fleet.failing("n6", attempts=1):
        fleet.installed.cluster.api().request("DELETE", "/api/v1/nodes/n6")
    register(fleet.installed.cluster, ["n6"])
    fleet.wait_until_right("n6", entry(6))


def test_a_labeler_continues_with_the_new_token_when_its_old_one_has_ended(fleet: Fleet) -> None:
    installed = fleet.installed
    name = installed.pod_on("n6")["metadata"]["name"]
    installed.cluster.api().request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
    installed.cluster.wait_for(
        "a pod in place of the one that the token was bound to",
        lambda: installed.pod_on("n6")["metadata"]["name"] != name,
    )
    fleet.publish(ENTRIES | {"n6": entry(7)})
    installed.token_file("n6")
    fleet.wait_until_right("n6", entry(7))


def test_removed_labels_come_back(fleet: Fleet) -> None:
    body = {"metadata": {"labels": {keys.CARDS_LABEL: None, keys.GPU_NUMBERS_LABEL: None}}}
    fleet.installed.cluster.api().request(
        "PATCH", "/api/v1/nodes/n9", body=body, content_type="application/merge-patch+json"
    )
    fleet.wait_until_right("n9", entry(9))


def test_labelers_outlive_a_time_without_the_api_server(fleet: Fleet) -> None:
    cluster = fleet.installed.cluster
    with fleet.failing(*NODES, attempts=2):
        cluster.stop("kube-apiserver")
        fleet.publish(ENTRIES | {"n1": entry(8)})
    alive = [process.poll() for process in fleet.running.values()]
    cluster.start("kube-apiserver")
    assert alive == [None] * len(NODES)
    fleet.wait_until_right("n1", entry(8), seconds=90)
    for number in (0, *range(2, 10)):
        fleet.wait_until_right(NODES[number], entry(number))
