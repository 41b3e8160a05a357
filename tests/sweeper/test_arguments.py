"""The arguments of the sweeper, and what it answers about itself."""

import http.client
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from labeler.contract import keys
from tests.sweeper.pods import job_pod, no_size
from webhook.inquiry.reading import ClusterReading
from webhook.policy.values import Policy
from webhook.probes import serve
from webhook.sweeper.main import _report_missing_extra, _settings, parser
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.settings import levels_fault, parse


def test_an_ignored_namespace_is_left_alone() -> None:
    pods = (job_pod(0, namespace="theirs"), job_pod(0, namespace="ours"))
    settings = _settings(parser().parse_args(["--ignored-namespace", "theirs"]))
    view = Snapshotter(ClusterReading(pods, {}, {}, no_size), settings).view()
    assert [pod.metadata.namespace for pod in view.gated] == ["ours"]


@pytest.mark.parametrize(
    "arguments",
    [["--ignored-namespace", "a", "b"], ["--ignored-namespace", "a", "--ignored-namespace", "b"]],
    ids=["one flag", "the flag again"],
)
def test_several_namespaces_may_be_ignored(arguments: list[str]) -> None:
    assert _settings(parser().parse_args(arguments)).ignored_namespaces == {"a", "b"}


def test_the_interval_is_a_number_of_seconds() -> None:
    assert _settings(parser().parse_args(["--interval", "1.5"])).interval_seconds == 1.5


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/metrics", 200, "topogate_leader 0.0"),
        ("/healthz", 200, "ok"),
        ("/readyz", 503, "not complete"),
        ("/", 404, "there are"),
    ],
)
def test_how_it_is_can_be_asked(path: str, status: int, words: str) -> None:
    checks = {"/healthz": lambda: "", "/readyz": lambda: "the copy of the cluster is not complete yet"}
    server = serve("127.0.0.1", 0, Metrics().registry, lambda: None, checks)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == status
        assert words in answer.read().decode()
        connection.close()
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("resource_claims", "is_installed", "lines"), [(True, False, 1), (True, True, 0), (False, False, 0)]
)
def test_what_the_policy_asks_for_and_the_installation_lacks_is_logged(
    resource_claims: bool,
    is_installed: bool,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("webhook.sweeper.main.has_cel", lambda: is_installed)
    _report_missing_extra(Policy(resource_claims=resource_claims))
    assert len(caplog.messages) == lines
    assert all("run the image topogate-dra, or install topogate[dra]" in each for each in caplog.messages)


LEVELS: Final = "levels: {block: example.com/b, clique: example.com/c}"


@pytest.mark.parametrize(
    ("levels", "accepted", "fault"),
    [
        (LEVELS, keys.LEVEL_NAMES, "levels: the names (block, clique) differ from topologyLevels"),
        ("", ("block", "clique"), "write topologyLevels: [block, subblock, host] into the policy"),
        (LEVELS, ("block", "clique"), ""),
        ("", keys.LEVEL_NAMES, ""),
    ],
    ids=["only in the settings", "only in the policy", "in both", "in neither"],
)
def test_admission_accepts_the_levels_that_there_are(
    levels: str, accepted: tuple[str, ...], fault: str
) -> None:
    found = levels_fault(parse(levels, "the file"), Policy(topology_levels=accepted))
    assert (fault in found) if fault else not found


def test_it_does_not_start_while_admission_accepts_other_levels_than_there_are(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(LEVELS)
    (tmp_path / "policy.yaml").write_text("apiVersion: topogate.io/v1alpha1\nkind: AdmissionPolicy\n")
    flags = [f"--config={tmp_path}/settings.yaml", f"--policy={tmp_path}/policy.yaml"]
    program = [sys.executable, "-m", "webhook.sweeper.main", *flags, f"--kubeconfig={tmp_path}/none"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "differ from topologyLevels" in done.stderr) == (2, True), done.stderr
