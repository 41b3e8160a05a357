"""What all commands share: options, statuses, and what is printed where, as docs/users/commands.md says."""

import argparse
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from hack.local.build import ROOT
from tests.ui.scenes import cluster_of, scene_of
from webhook.cli import main, session, terminal
from webhook.cli import map as tree
from webhook.cli.main import COMMANDS
from webhook.kube.client import ApiError

PAGE: Final = (ROOT / "docs/users/commands.md").read_text()
JOB: Final = """\
apiVersion: batch/v1
kind: Job
metadata: {name: x}
spec:
  template:
    spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}], restartPolicy: Never}
"""
WORDS: Final[dict[str, list[str]]] = {
    "run": ["--image", "x"],
    "logs": ["x"],
    "exec": ["x"],
    "attach": ["x"],
    "stop": ["x"],
    "restart": ["x"],
    "explain": ["x"],
    "drain": ["--release"],
    "lint": ["--cluster", "job.yaml"],
    "simulate": ["job.yaml"],
}
"""What a command needs beside the cluster."""
LOCAL: Final[dict[str, list[str]]] = {
    "config": ["check", "-", "--against", "-"],
    "completion": ["bash"],
}
"""Commands that ask no cluster, and their words."""
ASKING: Final = [each for each in COMMANDS if each not in LOCAL]


def words_of(command: str, server: str, folder: Path) -> list[str]:
    """A command line, beside a kubeconfig of this server."""
    (folder / "job.yaml").write_text(JOB)
    file = folder / "kubeconfig"
    file.write_text(
        f"current-context: c\nclusters: [{{name: k, cluster: {{server: '{server}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    if command in LOCAL:
        return [command, *LOCAL[command]]
    more = ["rotate"] if command == "certs" else WORDS.get(command, [])
    return [command, *more, "--kubeconfig", str(file)]


def start(words: list[str], folder: Path) -> "subprocess.Popen[str]":
    """A command of its own, which takes Ctrl-C also where a shell in the background has it ignored."""
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heed}; import sys; from webhook.cli.main import main; sys.exit(main({words!r}))"
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def silent() -> Iterator[tuple[str, threading.Event]]:
    """The address of a server that takes a connection and says nothing; whether one was made."""
    asked = threading.Event()
    open_sockets: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            try:
                while True:
                    open_sockets.append(server.accept()[0])
                    open_sockets[-1].recv(1)
                    asked.set()
            except OSError:
                pass  # the test is over

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
        server.shutdown(socket.SHUT_RDWR)
    for each in open_sockets:
        each.close()


# --- exit statuses -------------------------------------------------------------------------------------


@pytest.mark.promise("R243")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_status_2_and_a_sentence_on_standard_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([*words_of(command, "http://127.0.0.1:1", tmp_path), "--nonsense"])
    output = capsys.readouterr()
    assert ended.value.code == 2
    assert "--nonsense" in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    ("typed", "output"),
    [
        ("gang", "there is no command 'gang'; did you mean gangs?"),
        ("simulat", "there is no command 'simulat'; did you mean simulate?"),
        ("xyz", "there is no command 'xyz'; see --help"),
    ],
)
def test_a_misspelled_command_is_status_2_and_names_the_one_that_is_meant(
    typed: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([typed, "-n", "x"])
    assert ended.value.code == 2
    assert output in capsys.readouterr().err


@pytest.mark.promise("R243")
@pytest.mark.parametrize("command", ASKING)
def test_an_api_server_that_is_not_there_is_status_1_and_one_line_on_standard_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(words_of(command, "http://127.0.0.1:1", tmp_path)) == 1
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith(f"topogate {command}")
    assert "http://127.0.0.1:1" in line


@pytest.mark.promise("R243")
@pytest.mark.parametrize("command", ASKING)
def test_ctrl_c_while_the_cluster_is_asked_is_status_130_without_a_traceback(
    command: str,
    silent: tuple[str, threading.Event],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, asked = silent
    words = words_of(command, address, tmp_path)
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    presses = threading.Thread(target=press_ctrl_c_once_it_waits, args=(asked,))
    presses.start()
    try:
        status = main.main(words)
    finally:
        presses.join()
        signal.signal(signal.SIGINT, before)
    assert (status, *capsys.readouterr()) == (130, "", "topogate: interrupted\n")


def press_ctrl_c_once_it_waits(asked: threading.Event) -> None:
    """Interrupt the main thread once the server is asked."""
    waiting = threading.main_thread()
    assert waiting.ident is not None
    asked.wait(30)
    wait_until_it_waits(Path(f"/proc/self/task/{waiting.native_id}"))
    signal.pthread_kill(waiting.ident, signal.SIGINT)


def wait_until_it_waits(thread: Path) -> None:
    """Until a thread sleeps for a while: Python loses an interrupt that comes within a finalizer."""
    deadline, asleep = time.monotonic() + 30, 0
    while asleep < 5 and time.monotonic() < deadline:
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.02)


def test_a_process_ends_at_ctrl_c_though_a_thread_still_reads(
    silent: tuple[str, threading.Event], tmp_path: Path
) -> None:
    address, asked = silent
    process = start(words_of("gangs", address, tmp_path), tmp_path)
    try:
        assert asked.wait(60), process.stderr and process.stderr.read()
        wait_until_it_waits(Path(f"/proc/{process.pid}"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (130, "", "topogate: interrupted\n")


@pytest.mark.promise("R243")
@pytest.mark.parametrize("command", LOCAL)
def test_ctrl_c_is_status_130_without_a_cluster_too(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"{main.module_of(command)}.run", interrupted)
    assert main.main(words_of(command, "", tmp_path)) == main.INTERRUPTED
    assert capsys.readouterr().err == "topogate: interrupted\n"


def test_the_page_has_the_statuses_of_all_commands() -> None:
    table = PAGE.partition("## Exit status\n")[2].partition("\nThese")[0]
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == ["0", "1", "2", str(main.INTERRUPTED)]


# --- options -------------------------------------------------------------------------------------------

COMMON: Final = {
    "-n": "--namespace", "-A": "--all-namespaces", "-l": "--selector", "-o": "--output", "-w": "--watch",
}  # fmt: skip


def helped(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main.main([command, *(["rotate"] if command == "certs" else []), "--help"])
    return capsys.readouterr().out


@pytest.mark.promise("R243")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_common_option_means_the_same_everywhere_and_stands_on_the_page(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = helped(command, capsys).partition("\noptions:\n")[2]
    found = [short for short, long in COMMON.items() if re.search(rf"^  {short}\b[^\n]*{long}", text, re.M)]
    assert found == [short for short in COMMON if re.search(rf"^  {short}\b", text, re.M)], text
    (listed,) = re.findall(rf"^\| `{command}` \| (.+) \|$", PAGE.partition("## Exit")[0], re.MULTILINE)
    assert re.findall(r"`(-\w)`", listed) == found


def test_the_old_short_option_of_run_works_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words_of("run", "http://127.0.0.1:1", tmp_path)
    assert main.main([*words, "-w", "2"]) == 1
    assert "-w is deprecated" in capsys.readouterr().err
    assert main.main([*words, "--workers", "2"]) == 1
    assert "deprecated" not in capsys.readouterr().err


def test_a_selector_that_the_api_server_cannot_read_is_a_mistake() -> None:
    def refused() -> int:
        raise ApiError(400, "BadRequest", "GET /x: unable to parse requirement")

    options = argparse.Namespace(command="ps", selector="a b")
    assert session.guarded(options, refused) == 2
    options.selector = None
    assert session.guarded(options, refused) == 1


# --- the terminal --------------------------------------------------------------------------------------

ROWS: Final = [("NAME", "REASON"), ("x", "r" * 100)]


@contextmanager
def on_a_terminal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Iterator[None]:
    """Standard output is a terminal of 40 columns."""
    master, slave = pty.openpty()
    with monkeypatch.context() as patch, os.fdopen(slave, "w") as out:
        for name, value in {"COLUMNS": "40", "NO_COLOR": "", "TERM": "xterm", **environment}.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdout", out)
        yield
    os.close(master)


@pytest.mark.promise("R243")
def test_on_a_terminal_a_long_reason_is_cut_with_an_ellipsis_unless_all_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with on_a_terminal(monkeypatch):
        cut, whole = terminal.table(ROWS), terminal.table(ROWS, is_full_width=True)
    assert [len(line) for line in cut.splitlines()] == [13, 40]
    assert cut.endswith("r...")
    assert whole.endswith("r" * 100)


@pytest.mark.parametrize("columns", ["60", "100", "200"])
def test_the_map_fits_the_terminal(columns: str) -> None:
    domains = scene_of(cluster_of([])).picture.domains
    printed = list(tree.lines(domains, is_coloured=False, most=int(columns)))
    assert max(map(len, printed)) <= int(columns)


@pytest.mark.promise("R243")
def test_in_a_pipe_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert terminal.table(ROWS).endswith("r" * 100)


@pytest.mark.promise("R243")
@pytest.mark.parametrize(
    ("environment", "wanted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
)
def test_a_terminal_has_colours_unless_the_environment_forbids_them(
    environment: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_a_terminal(monkeypatch, **environment):
        assert terminal.is_coloured() is wanted


# --- the next command ----------------------------------------------------------------------------------

WITHOUT_NEXT: Final = {"logs", "exec", "attach", "drain", "ui", "config", "certs", "completion"}
"""Commands that show what another program prints, serve, or are run by operators and programs."""


def done(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    """A command that has done what it was to do."""
    monkeypatch.setattr(f"{main.module_of(command)}.run", lambda options: 0)
    assert main.main([*words_of(command, "http://127.0.0.1:1", folder), *more]) == 0


@pytest.mark.parametrize("command", main.NEXT)
def test_on_a_terminal_a_command_ends_with_a_hint_for_the_next_one(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with on_a_terminal(monkeypatch):
        done(command, tmp_path, monkeypatch)
    hint = capsys.readouterr().err
    assert hint == main.NEXT[command] + "\n"
    named = re.findall(r"topogate ([a-z]+)", hint.replace("Is topogate well", ""))
    assert named
    assert set(named) <= COMMANDS.keys() - {command}


@pytest.mark.parametrize("command", main.NEXT)
def test_a_pipe_and_a_program_get_no_hint(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done(command, tmp_path, monkeypatch)
    with on_a_terminal(monkeypatch):
        done(command, tmp_path, monkeypatch, "-o", "name" if command in ("stop", "restart") else "json")
    assert capsys.readouterr().err == ""


def test_every_command_has_a_hint_or_a_reason_to_have_none() -> None:
    assert COMMANDS.keys() - main.NEXT.keys() == WITHOUT_NEXT


@pytest.mark.promise("R243")
def test_a_pipe_has_no_colours() -> None:
    assert not terminal.is_coloured()
