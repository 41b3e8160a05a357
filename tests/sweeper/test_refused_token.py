"""A sweeper whose token the API server refuses."""

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import yaml

from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.processes import open_tied


def answer(url: str) -> tuple[int, str]:
    """Status and text; 0 while nothing listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answers:
            return answers.status, answers.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_a_sweeper_whose_token_is_refused_is_not_ready_and_reports_nothing_that_it_does_not_know(
    cluster: Cluster, tmp_path: Path
) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{**each, "user": {"token": "nobody's"}} for each in config["users"]]
    file, port = tmp_path / "kubeconfig", free_port()
    file.write_text(yaml.safe_dump(config))
    words = ("--kubeconfig", str(file), "--metrics-address", "127.0.0.1", "--metrics-port", str(port))
    program = open_tied([sys.executable, "-m", "webhook.sweeper.main", *words], stderr=subprocess.DEVNULL)
    answers: list[tuple[int, str]] = []

    def is_reported() -> bool:
        answers.append(answer(f"http://127.0.0.1:{port}/readyz"))
        return answers[-1][0] == 503 and "401" in answers[-1][1]

    try:
        cluster.wait_for("the sweeper to say that it is not ready, and why", is_reported)
        status, metrics = answer(f"http://127.0.0.1:{port}/metrics")
    finally:
        program.terminate()
        program.wait()
    assert status == 200
    assert "topogate_leader 0.0" in metrics.splitlines()
    assert "\ntopogate_oldest_gated_pod_seconds " not in metrics
