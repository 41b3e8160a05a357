"""The arguments of the sweeper, and what it answers about itself."""

import http.client

import pytest

from tests.sweeper.pods import job_pod, no_size
from webhook.configuration.file import parse
from webhook.inquiry.cluster_state import ClusterReading
from webhook.policy.values import Policy
from webhook.probes import serve
from webhook.sweeper.main import _report_missing_extra
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.snapshotter import Snapshotter

HEAD = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"


def test_an_excluded_namespace_is_left_alone() -> None:
    pods = (job_pod(0, namespace="theirs"), job_pod(0, namespace="ours"))
    settings = parse(f"{HEAD}namespaces: {{excluded: [theirs]}}").settings
    view = Snapshotter(ClusterReading(pods, {}, {}, no_size), settings).view()
    assert [pod.metadata.namespace for pod in view.gated] == ["ours"]


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
def test_what_the_configuration_asks_for_and_the_installation_lacks_is_logged(
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
