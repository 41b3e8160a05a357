"""Commands that end while the API server still holds the discovery of the owners of gangs."""

import threading
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.cli.unusual_server import Answer, Server, serving
from webhook.cli import main
from webhook.inquiry import cluster_state

FORBIDDEN: Final = (403, {"reason": "Forbidden", "message": 'pods is forbidden: User "u" cannot list'})
SECONDS: Final = 60.0
"""How long a test waits for what happens at once."""


class Hanging(Server):
    """Answers no question about the served APIs until it is released, and others once it has been asked."""

    def __init__(self, pods: Answer) -> None:
        super().__init__({"/pods": pods})
        self.is_asked, self.is_released = threading.Event(), threading.Event()
        self.threads_before = reading_threads()

    def answer(self, path: str) -> Answer:
        if urlsplit(path).path == "/apis":
            self.is_asked.set()
            self.is_released.wait(SECONDS)
        elif "/configmaps/" not in path:
            self.is_asked.wait(SECONDS)
        return super().answer(path)


def reading_threads() -> list[threading.Thread]:
    """The threads that read owners; one of an earlier test may be about to end."""
    return [each for each in threading.enumerate() if each.name == "owners"]


def ends_later(server: Hanging) -> bool:
    """Whether the thread that reads owners outlives the command, and ends once the server has answered."""
    (thread,) = (each for each in reading_threads() if each not in server.threads_before)
    server.is_released.set()
    thread.join(SECONDS)
    return not thread.is_alive()


def test_an_error_is_printed_while_discovery_hangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Hanging(FORBIDDEN)
    with serving(server, tmp_path) as kubeconfig:
        status = main.main(["gangs", "--kubeconfig", str(kubeconfig)])
        assert ends_later(server)
    assert status == 1
    assert 'pods is forbidden: User "u" cannot list' in capsys.readouterr().err


def test_an_interrupt_ends_the_reading_while_discovery_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Hanging(FORBIDDEN)

    def interrupted(*_: Any, **__: Any) -> None:
        assert server.is_asked.wait(SECONDS)
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_state, "read_all", interrupted)
    with serving(server, tmp_path) as kubeconfig:
        assert main.main(["gangs", "--kubeconfig", str(kubeconfig)]) == main.INTERRUPTED
        assert ends_later(server)
