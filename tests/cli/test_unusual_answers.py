"""Commands beside what is odd: names that mean more than a name, rights that lack, servers that are none,
readers that go, and disks that are full. A sentence each, and an exit status."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.unusual_server import Answer, Server, serving
from webhook.cli import main

META: Final = {
    "namespace": "default",
    "uid": "u",
    "resourceVersion": "1",
    "creationTimestamp": "2026-11-22T00:00:00Z",
}
GPU: Final = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
FORBIDDEN: Final = (
    403,
    {"reason": "Forbidden", "message": 'gputasks.falldio.com is forbidden: User "u" cannot'},
)


def job(name: str) -> dict[str, Any]:
    return {"metadata": {**META, "name": name}, "spec": {"template": {"spec": GPU}}, "status": {"ready": 1}}


def task(name: str) -> dict[str, Any]:
    """As it stands in a list, in which objects have no kind of their own."""
    return {"metadata": {**META, "name": name}, "spec": {"gpu-amount": "1"}, "status": {"phase": "Running"}}


def items(*found: dict[str, Any]) -> Answer:
    return 200, {"metadata": {}, "items": list(found)}


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(server: Server, *words: str) -> tuple[int, str, str]:
        with serving(server, tmp_path) as kubeconfig:
            status = main.main([*words, "--kubeconfig", str(kubeconfig)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


Run = Callable[..., tuple[int, str, str]]
NO_APIS: Final[dict[str, Answer]] = {"/apis": (200, {"groups": []})}
WELL: Final = {
    "/gputasks/t0": (200, task("t0")), "/gputasks": items(task("t0")), "/jobs": items(), "/pods": items(),
}  # fmt: skip


# --- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["t0?x=y", "t0#", "..", "t0/../t1", "?x", "é", "T0", "a" * 254, "t%30", " t0", "t0\n"]
)
@pytest.mark.parametrize("command", ["logs", "stop", "restart", "explain"])
def test_what_is_no_name_is_a_sentence_and_reaches_no_server(run: Run, command: str, name: str) -> None:
    server = Server(WELL)
    status, _, err = run(server, command, name)
    assert status in (1, 2)
    assert (len(err.splitlines()), err.startswith(f"topogate {command}: ")) == (1, True)
    assert server.asked == []


@pytest.mark.parametrize("name", ["kube-system/pods?x", "a/b", "..", "", "A", "a.b", "é", "a" * 64])
@pytest.mark.parametrize("command", [["ps"], ["logs", "t0"], ["run", "--image", "x"]], ids=str)
def test_what_is_no_namespace_is_a_sentence_and_reaches_no_server(
    run: Run, command: list[str], name: str
) -> None:
    server = Server(WELL)
    status, _, err = run(server, *command, "-n", name)
    assert (status, "is not a namespace name" in err, server.asked) == (2, True, [])


# --- rights ------------------------------------------------------------------------------------------


@pytest.mark.promise("R150")
def test_who_may_not_read_tasks_still_sees_jobs_and_a_note(run: Run) -> None:
    server = Server({"/gputasks": FORBIDDEN, "/jobs": items(job("j0")), "/placements": items()})
    status, out, err = run(server, "ps")
    assert (status, "j0" in out, "GPUTasks are not shown: gputasks.falldio.com is forbidden" in err) == (
        0,
        True,
        True,
    )


def test_who_may_not_read_jobs_still_sees_tasks_and_a_note(run: Run) -> None:
    status, out, err = run(Server({**WELL, "/jobs": FORBIDDEN}), "ps")
    assert (status, "t0" in out, "Jobs are not shown: " in err) == (0, True, True)


def test_who_may_not_read_tasks_names_a_job_without_its_kind(run: Run) -> None:
    server = Server({"/gputasks/j0": FORBIDDEN, "/jobs/j0": (200, job("j0")), "/pods": items()})
    status, _, err = run(server, "logs", "j0")
    assert (status, err) == (1, "topogate logs: j0 has no pods yet\n")


@pytest.mark.promise("R150")
@pytest.mark.parametrize("command", [["ps"], ["logs", "x"]], ids=str)
def test_who_may_read_neither_gets_the_servers_words(run: Run, command: list[str]) -> None:
    status, _, err = run(Server({"s": FORBIDDEN, "/x": FORBIDDEN}), *command)
    assert (status, "is forbidden" in err, len(err.splitlines())) == (1, True, 1)


def test_who_may_read_no_owners_gets_an_answer_without_log_lines(tmp_path: Path) -> None:
    """In a process of its own, since pytest configures logging."""
    jobs = {"resources": [{"name": "jobs", "verbs": ["list", "watch"]}]}
    server = Server(
        {
            "/apis": (200, {"groups": [{"name": "batch", "versions": [{"version": "v1"}]}]}),
            "/apis/batch/v1": (200, jobs),
            "/jobs": FORBIDDEN,
            **dict.fromkeys(("/pods", "/nodes", "/placements", "/events"), items()),
        }
    )
    with serving(server, tmp_path) as kubeconfig:
        words = program("explain", "pod/x", "--kubeconfig", str(kubeconfig))
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "/apis/batch/v1/jobs?limit=1" in server.asked
    sentence = "topogate explain: there is no unfinished pod x in namespace default\n"
    assert (done.returncode, done.stderr) == (1, sentence)


# --- output ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_machine_readable_list_is_a_list_of_whole_objects_however_many(
    run: Run, count: int, form: str
) -> None:
    import yaml

    jobs = [job(f"j{number}") for number in range(count)]
    tasks = [task(f"t{number}") for number in range(count)]
    _, out, _ = run(Server({"/gputasks": items(*tasks), "/jobs": items(*jobs)}), "ps", "-o", form)
    found = yaml.safe_load(out)
    assert (found["apiVersion"], found["kind"]) == ("v1", "List")
    kinds = [(each["apiVersion"], each["kind"]) for each in found["items"]]
    assert sorted(kinds) == [("batch/v1", "Job")] * count + [("falldio.com/v1", "GPUTask")] * count


def test_a_job_that_has_failed_is_explained_by_its_own_message(run: Run) -> None:
    failed = {"type": "Failed", "status": "True", "message": "Job has reached the specified backoff limit"}
    ended = {**job("j0"), "status": {"conditions": [failed]}}
    status, out, _ = run(Server({"/jobs/j0": (200, ended)}), "explain", "job/j0")
    assert (status, out) == (0, "Job default/j0 is Failed: Job has reached the specified backoff limit\n")


# --- servers and disks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"<html>log in</html>", b"", b"[]", b"1" * 5000, b"null"], ids=lambda body: str(body[:9])
)
@pytest.mark.parametrize(
    "command",
    [
        ["ps"],
        ["top"],
        ["logs", "x"],
        ["run", "--image", "x"],
        ["stop", "x"],
        ["explain", "x"],
        ["doctor"],
        ["gangs"],
        ["map"],
    ],
    ids=str,
)
def test_a_server_that_is_no_api_server_is_a_sentence(run: Run, command: list[str], body: bytes) -> None:
    status, out, err = run(Server({"": (200, body)}), *command)
    assert status == 1
    assert "is it an API server?" in err + out
    assert "Traceback" not in err


def test_run_beside_a_server_that_makes_nothing_is_a_sentence(run: Run) -> None:
    status, _, err = run(Server({"": (200, {})}), "run", "--image", "x")
    assert (status, "did not return the created task" in err) == (1, True)


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Server({}), tmp_path) as kubeconfig:
        address = kubeconfig.read_text().partition("'")[2].partition("'")[0]
    assert main.main(["ps", "--kubeconfig", str(kubeconfig)]) == 1
    assert f"got no answer from {address}: [Errno 111] Connection refused" in capsys.readouterr().err


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "webhook.cli.main", *words]


@pytest.mark.parametrize("words", [["ps"], ["ps", "-o", "json"], ["completion", "bash"]], ids=str)
def test_a_full_disk_is_a_sentence(words: list[str], tmp_path: Path) -> None:
    with serving(Server(WELL), tmp_path) as kubeconfig, Path("/dev/full").open("w") as full:
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        done = subprocess.run(
            program(*words), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=environment
        )
    assert (done.returncode, done.stderr) == (
        1, f"topogate {words[0]}: No space left on device: the output cannot be written\n",
    )  # fmt: skip


def test_an_output_that_is_closed_is_no_mistake(tmp_path: Path) -> None:
    with serving(Server(WELL), tmp_path) as kubeconfig:
        words = ["sh", "-c", 'exec "$@" >&-', "sh", *program("ps", "--kubeconfig", str(kubeconfig))]
        done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_following_logs_ends_when_their_reader_has_gone(tmp_path: Path) -> None:
    pod = {
        "metadata": {**META, "name": "t0-0"}, "spec": {},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c"}]},
    }  # fmt: skip
    gone = threading.Event()

    def lines(handler: Any) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while not gone.wait(0.02):
            try:
                handler.wfile.write(b"7\r\na line\n\r\n")
            except OSError:
                return

    with serving(Server({**WELL, "/pods": items(pod)}), tmp_path, lines) as kubeconfig:
        words = program("logs", "-f", "t0", "--kubeconfig", str(kubeconfig))
        started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert started.stdout is not None
        assert started.stderr is not None
        assert started.stdout.readline() == "a line\n"
        started.stdout.close()
        try:
            assert started.wait(90) == 0
        finally:
            gone.set()
            started.kill()
        assert "Traceback" not in started.stderr.read()
        started.stderr.close()


POLICY: Final = {
    "metadata": {"name": "topogate-configuration"},
    "data": {
        "configuration.yaml": "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"
        "models: [{name: H100, labels: {model: h100}}]\ntiers: [{name: low, priorityClassName: gpu-low}]\n"
    },
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-m", "h1000"], 'no GPU model "h1000"; did you mean H100?'),
        (["-p", "urgent"], 'priority: no tier "urgent"; allowed here: low'),
        (["--required", "rack"], 'no level "rack"; known: block, subblock, host and node'),
    ],
    ids=["model", "priority", "level"],
)
def test_a_misspelled_request_starts_no_task(run: Run, words: list[str], expected: str) -> None:
    server = Server({"/topogate-policy": (200, POLICY), "/gputasks": (200, task("t"))})
    status, out, err = run(server, "run", "--image", "x", *words)
    assert (status, out) == (2, "")
    assert expected in err
    assert not [path for path in server.asked if "gputasks" in path], "nothing was sent"


@pytest.mark.parametrize("command", ["ps", "gangs"])
def test_an_empty_answer_about_a_missing_namespace_reports_it(run: Run, command: str) -> None:
    nothing = {"/pods": items(), "/nodes": items(), "/placements": items()}
    server = Server({"/gputasks": items(), "/jobs": items(), **nothing, **NO_APIS})
    status, _, err = run(server, command, "-n", "nosuchns")
    assert (status, "there is no namespace nosuchns" in err) == (1, True)


@pytest.mark.parametrize("command", ["logs", "stop", "explain"])
def test_a_name_that_is_misspelled_is_reported_with_the_one_that_is_meant(run: Run, command: str) -> None:
    empty = dict.fromkeys(("/nodes", "/placements", "/events"), items())
    server = Server({**WELL, **empty, **NO_APIS, "/gputasks": items(task("train"))})
    status, _, err = run(server, command, "trai")
    assert (status, "there is no task or job trai in namespace default; did you mean train?" in err) == (
        1,
        True,
    )
