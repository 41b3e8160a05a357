"""`topogate logs`, `exec` and `attach` reach real containers."""

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.local import node
from hack.local.cluster import Cluster
from tests.node.conftest import clean_real
from tests.support import create_namespace

ECHO = 'echo "started $JOB_COMPLETION_INDEX"; while read -r line; do echo "got $line"; done; exec sleep 1000'
"""Of each worker: a line, then one for each line that is typed into it."""


class Person:
    """Who types commands about one Job of two workers."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.namespace = create_namespace(cluster)
        self._cluster = cluster
        kubectl = folder / "kubectl"
        kubectl.write_text(f'#!/bin/sh\nexec {shlex.join(cluster.programs.commands["kubectl"])} "$@"\n')
        kubectl.chmod(0o700)
        self._environment = {"PATH": str(folder), "HOME": str(folder)}

    def types(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(words), input=stdin, env=self._environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    def converses(self, *words: str, typed: str) -> str:
        """The first line that comes after a line was typed; the typist stays until then."""
        with subprocess.Popen(
            self._command(words), env=self._environment, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            patience = threading.Timer(60, process.kill)
            patience.start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(typed)
            process.stdin.flush()
            line = process.stdout.readline()
            process.terminate()
            patience.cancel()
            return line

    def _command(self, words: tuple[str, ...]) -> list[str]:
        connection = ("--kubeconfig", str(self._cluster.kubeconfig), "-n", self.namespace)
        return [sys.executable, "-m", "webhook.cli.main", words[0], *connection, *words[1:]]

    def starts_a_job(self) -> None:
        container = {
            "name": "c", "image": "topogate.local/busybox:1", "imagePullPolicy": "Never",
            "command": ["sh", "-c", ECHO], "stdin": True,
        }  # fmt: skip
        pod = {
            "nodeSelector": {node.REAL_LABEL: ""}, "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0, "containers": [container],
        }  # fmt: skip
        spec = {"completionMode": "Indexed", "parallelism": 2, "completions": 2, "template": {"spec": pod}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
        self._cluster.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=json.dumps(job))
        self._cluster.kubectl(
            "wait", "-n", self.namespace, "--for=jsonpath={.status.ready}=2", "job/train", "--timeout=120s"
        )


@pytest.fixture(scope="module")
def person(real_control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    clean_real(real_control_plane)
    made = Person(real_control_plane, tmp_path_factory.mktemp("bin"))
    made.starts_a_job()
    yield made
    clean_real(real_control_plane)


@pytest.mark.promise("R150")
def test_the_logs_of_all_workers_stand_behind_their_ranks(person: Person) -> None:
    assert person.types("logs", "job/train").stdout == "[0] started 0\n[1] started 1\n"
    assert person.types("logs", "train", "--rank", "1").stdout.endswith("started 1\n")


@pytest.mark.promise("R150")
@pytest.mark.parametrize("rank", [0, 1])
def test_exec_runs_a_command_in_the_worker_of_a_rank_and_ends_with_its_status(
    person: Person, rank: int
) -> None:
    found = person.types(
        "exec", "train", "--rank", str(rank), "--", "sh", "-c", "echo $JOB_COMPLETION_INDEX; exit 7"
    )
    assert (found.stdout, found.returncode) == (f"{rank}\n", 7)


@pytest.mark.promise("R150")
def test_exec_without_a_command_is_a_shell(person: Person) -> None:
    assert person.types("exec", "train", stdin="echo one; echo two\n").stdout == "one\ntwo\n"


@pytest.mark.promise("R150")
def test_what_is_typed_after_attach_reaches_the_worker(person: Person) -> None:
    assert person.converses("attach", "train", "--rank", "1", typed="hello\n") == "got hello\n"
    assert "[1] got hello" in person.types("logs", "train").stdout


def test_a_worker_that_there_is_not_is_a_sentence(person: Person) -> None:
    found = person.types("exec", "train", "--rank", "5", "--", "true")
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "topogate exec: train has no worker of rank 5; it is Running\n"
