"""The page takes up a new configuration: its worker ends, and gunicorn starts another one."""

import os
import signal
import threading
from pathlib import Path

import pytest
from gunicorn.arbiter import Arbiter

from tests.ui.scenes import cluster_of, page_of, scene_of
from webhook.configuration.store import ConfigurationStore
from webhook.ui.serve_page import PageServer, end_when_changed, options

HEAD = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"


@pytest.mark.promise("O54")
def test_a_worker_ends_once_the_configuration_has_changed_and_not_for_a_faulty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, ended = tmp_path / "configuration.yaml", threading.Event()
    file.write_text(HEAD)
    store = ConfigurationStore([file])

    def kill(process: int, number: int) -> None:
        assert (process, number) == (os.getpid(), signal.SIGTERM)
        ended.set()

    monkeypatch.setattr(os, "kill", kill)
    stop = end_when_changed(store, 0.01)
    file.write_text("broken: [")
    while not store.faults:
        stop.wait(0.01)
    assert not ended.is_set()
    file.write_text(HEAD + "gangs: {settle: 1s}\n")
    assert ended.wait(60)
    stop.set()


@pytest.mark.promise("O54")
def test_a_worker_that_is_started_beside_a_faulty_file_has_the_last_good_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, passed_on = tmp_path / "configuration.yaml", list[float]()
    file.write_text(HEAD)
    store = ConfigurationStore([file])

    def pass_on(_: Arbiter) -> None:
        passed_on.append(store.settings.settle_seconds)

    def supervise(arbiter: Arbiter) -> None:
        for change in ("", "gangs: {settle: 1s}\n", "broken: ["):
            file.write_text(HEAD + change)
            arbiter.manage_workers()

    monkeypatch.setattr(Arbiter, "manage_workers", pass_on)
    monkeypatch.setattr(Arbiter, "run", supervise)
    with caplog.at_level("INFO"):
        PageServer(options("127.0.0.1:0"), None, store).run()
    assert passed_on == [5, 1, 1]
    assert store.faults
    assert "configuration_" not in caplog.text, "the worker reports changes, and once is enough"


@pytest.mark.promise("O54")
def test_a_faulty_configuration_is_shown_by_probe_and_metric(tmp_path: Path) -> None:
    file = tmp_path / "configuration.yaml"
    file.write_text(HEAD)
    store = ConfigurationStore([file])
    page = page_of(scene_of(cluster_of({})), store=store)
    assert (page.get("/readyz").text, page.get("/readyz").status_code) == ("ok", 200)
    file.write_text(HEAD + "gangz: {}\n")
    store.refresh()
    expected = "ok; the configuration on disk is not in force: gangz: unknown key; did you mean gangs?"
    assert (page.get("/readyz").text, page.get("/readyz").status_code) == (expected, 200)
    assert "topogate_configuration_rejected 1.0" in page.get("/metrics").text
