"""The page takes up a new configuration: its worker ends, and gunicorn starts another one."""

import os
import signal
import threading
from pathlib import Path

import pytest

from webhook.configuration.store import ConfigurationStore
from webhook.ui.serve_page import end_when_changed

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
