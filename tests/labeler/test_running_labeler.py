"""A labeler as a process, with a token bound to its own pod, labels a node of a real API server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hack.local.cluster import Cluster
from hack.local.processes import open_tied
from labeler.contract.label_codecs import decode_cards, decode_topology
from tests.labeler.installed import ROOT, Installed, install, register

NODE = "n0"


def entry(*cards: int) -> dict[str, Any]:
    return {"topology": ["cluster", "rack", "host"], "cards": list(cards), "model": "Max_1550"}


@dataclass
class Labeler:
    """The process, and the facts that it publishes."""

    installed: Installed
    facts: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it with a fresh token of its pod."""
        cluster = self.installed.cluster
        command = [sys.executable, "-m", "labeler.main", "--source", "file", "--facts", str(self.facts)]
        command += ["--node-name", NODE, "--interval", "1", "--server", cluster.server]
        command += ["--ca-file", str(cluster.certificate_authority)]
        command += ["--token-file", str(self.installed.token_file(NODE))]
        with self.log.open("ab") as log:
            self.process = open_tied(command, cwd=ROOT, stderr=log)

    @property
    def log(self) -> Path:
        return self.facts.with_suffix(".log")

    def stop(self) -> None:
        """End it, as the kubelet does."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(90) == 0

    def publish(self, facts: dict[str, Any]) -> None:
        """Replace the facts at once, as a mounted ConfigMap is."""
        partial = self.facts.with_suffix(".partial")
        partial.write_text(json.dumps({NODE: facts}))
        partial.replace(self.facts)

    def labels(self) -> dict[str, str]:
        return dict(self.installed.node(NODE)["metadata"]["labels"])

    def wait_until_right(self, *cards: int) -> None:
        """Wait until the labels of the node read back as these cards at their place."""

        def is_right() -> bool:
            labels = self.labels()
            return decode_topology(labels) is not None and decode_cards(labels) == cards

        self.installed.cluster.wait_for(f"the cards {cards}", is_right)


@pytest.fixture(scope="module")
def labeler(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labeler]:
    """One that has labelled its node."""
    folder = tmp_path_factory.mktemp("labeler")
    made = Labeler(install(module_cluster, folder, 1), folder / "facts.json")
    made.publish(entry(0, 1))
    made.start()
    made.wait_until_right(0, 1)
    yield made
    made.stop()


@pytest.mark.promise("O224")
def test_a_node_keeps_its_labels_while_its_labeler_is_away(labeler: Labeler) -> None:
    before = labeler.labels()
    labeler.stop()
    labeler.publish(entry(2))
    assert labeler.labels() == before
    labeler.start()
    labeler.wait_until_right(2)


def test_a_node_that_was_deleted_and_recreated_is_labelled_again(labeler: Labeler) -> None:
    cluster = labeler.installed.cluster
    cluster.api().request("DELETE", f"/api/v1/nodes/{NODE}")
    cluster.wait_for("a failed attempt", lambda: "not published" in labeler.log.read_text())
    labeler.publish(entry(3))
    register(cluster, [NODE])
    labeler.wait_until_right(3)
