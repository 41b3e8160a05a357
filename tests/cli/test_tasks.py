"""The subcommands about tasks: what they make of words, what they say of mistakes, and what they import."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labeler.contract import keys
from tests.kube.copies import kubeconfig
from webhook.cli import enter, main, ps, run, session, stop_command, task_logs, works
from webhook.cli.main import COMMANDS
from webhook.cli.works import JOB, TASK, Work
from webhook.kube.client import ApiError


def arguments_of(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["run", *words])


def test_help_is_given_without_what_only_a_connection_needs() -> None:
    commands: list[list[str]] = [[], ["ps"], ["run"], ["logs"], ["stop"]]
    program = (
        "import sys; from webhook.cli.main import main\n"
        f"for command in {commands!r}:\n"
        "    try: main([*command, '--help'])\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "    unwanted = {'kubernetes', 'urllib3', 'msgspec', 'yaml', 'numpy', 'cryptography'}\n"
        "    heavy = unwanted & set(sys.modules)\n"
        "    assert not heavy, (command, heavy)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)


def test_a_command_connects_without_client_packages(tmp_path: Path) -> None:
    """They would take longer to load than the rest of the command to run."""
    commands = [
        ["ps"], ["run", "--image", "x"], ["logs", "x"], ["stop", "x"], ["restart", "x"], ["top"],
    ]  # fmt: skip
    connection = ["--kubeconfig", str(kubeconfig(tmp_path, {"token": "t"})), "--context", "mine"]
    program = (
        "import sys; from webhook.cli.main import main\n"
        f"for command in {commands!r}:\n"
        f"    assert main([*command, *{connection!r}]) == 1, command\n"
        "    assert 'webhook.kube.client' in sys.modules, 'no connection was tried'\n"
        "    unwanted = {'kubernetes', 'requests', 'urllib3', 'numpy', 'cryptography', 'flask'}\n"
        "    heavy = unwanted & set(sys.modules)\n"
        "    assert not heavy, (command, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("Connection refused")) == (0, len(commands)), done.stderr


@pytest.mark.parametrize(
    "command",
    [["ps"], ["top"], ["logs", "x"], ["stop", "x"], ["run", "--image", "x"], ["explain", "x"]],
    ids=str,
)
def test_a_kubeconfig_that_is_not_there_is_a_sentence_and_status_1(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main.main([*command, "--kubeconfig", str(tmp_path / "none")]) == 1
    output = capsys.readouterr().err
    assert output.startswith(f"topogate {command[0]}: no connection to a cluster")
    assert len(output.splitlines()) == 1


def test_a_variable_without_a_value_is_a_sentence_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["run", "-e", "NAME"]) == 2
    assert capsys.readouterr().err == "topogate run: --env 'NAME' is not NAME=VALUE\n"


@pytest.mark.promise("R150")
def test_run_becomes_a_task_with_just_what_was_asked() -> None:
    options = arguments_of(
        "--image", "reg/pytorch:24", "-g", "8", "-m", "h100", "--workers", "2", "-e", "A=b=c",
        "--required", "block", "-n", "team", "--name", "t", "--", "python", "-m", "x",
    )  # fmt: skip
    assert run.task_of(options) == {
        "apiVersion": "falldio.com/v1",
        "kind": "GPUTask",
        "metadata": {"name": "t", "namespace": "team"},
        "spec": {
            "gpu-amount": "8", "workers": 2, "image": "reg/pytorch:24", "gpu": "h100",
            "command": ["python", "-m", "x"], "env": [{"name": "A", "value": "b=c"}],
            "topology": {"required": "block"},
        },
    }  # fmt: skip


@pytest.mark.promise("R161")
def test_the_service_of_a_gang_selects_its_workers_before_they_are_ready_and_is_deleted_with_the_task() -> (
    None
):
    service = run.service_of({"metadata": {"name": "t", "namespace": "team", "uid": "u"}})
    assert service["metadata"] == {
        "name": "t",
        "namespace": "team",
        "ownerReferences": [{"apiVersion": "falldio.com/v1", "kind": "GPUTask", "name": "t", "uid": "u"}],
    }
    assert service["spec"] == {
        "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {keys.TASK_LABEL: "t"},
    }  # fmt: skip


@pytest.mark.parametrize("image", ["reg:5000/Team/PyTorch_2.1:24@sha256:00", "7zip", "", "x" * 80])
def test_a_name_is_made_of_the_image_and_may_be_a_tasks(image: str) -> None:
    name = run.task_of(arguments_of("-n", "n", *(("--image", image) if image else ())))["metadata"]["name"]
    assert name[0].isalpha()
    assert name.replace("-", "").isalnum()
    assert name == name.lower()
    assert len(name) <= 50


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (61, "1m1s"), (3600, "1h"), (90061, "1d1h"), (-5, "0s")]
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert session.span(seconds) == text


def work(kind: str, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None) -> Work:
    metadata = {"name": "w", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return Work(kind, {"metadata": metadata, "spec": spec or {}, "status": status or {}})


@pytest.mark.promise("R150")
@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "Waiting"),
        ({"ready": 1}, "Running"),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, "Suspended"),
        ({"conditions": [{"type": "Suspended", "status": "False"}], "ready": 1}, "Running"),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, "Succeeded"),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, "Failed"),
    ],
)
def test_a_jobs_state_has_the_words_of_a_task(status: dict[str, Any], state: str) -> None:
    assert work(JOB, status=status).state == state


@pytest.mark.promise("R150")
@pytest.mark.parametrize("written", ["w", "gputask/w", "task/w"])
def test_ps_takes_the_names_that_it_prints_and_those_that_others_take(written: str) -> None:
    assert written in ps._names(work(TASK))
    assert ps._names(work(JOB)) == {"w", "job/w", "jobs/w"}


def test_a_jobs_gpus_are_counted_over_its_containers() -> None:
    limits = [{"nvidia.com/gpu": "2", "cpu": "8"}, {"nvidia.com/mig-1g.5gb": 1}, {"memory": "1Gi"}]
    limits += [{"nvidia.com/gpu.shared": "1"}]
    containers = [{"resources": {"limits": each}} for each in limits]
    assert works.gpus_of(work(JOB, {"template": {"spec": {"containers": containers}}})) == 4
    assert works.gpus_of(work(TASK, {"gpu-amount": "4"})) == 4


@pytest.mark.promise("R150")
def test_lines_of_several_workers_stand_behind_their_ranks() -> None:
    assert task_logs._prefixed(3, "text", 12) == "[ 3] text"
    assert task_logs._prefixed(0, "text", 1) == "text"


def test_exec_hands_on_what_chooses_the_cluster_and_the_command(tmp_path: Path) -> None:
    options = argparse.Namespace(
        command="exec", kubeconfig=tmp_path / "k", context="c", container=None, words=["ls", "-l"]
    )
    words = enter.command("/bin/kubectl", options, "team", "pod-0")
    assert words == [
        "/bin/kubectl", "--kubeconfig", str(tmp_path / "k"), "--context", "c", "exec", "-i", "-n", "team",
        "pod-0", "--", "ls", "-l",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    ["exec t -r 1 -- ls -l --", "exec -r 1 t -- ls -l --", "run -m h100 -- ls -l --", "run -- ls -l --"],
)
def test_what_stands_behind_two_dashes_is_the_command(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []

    def started(options: argparse.Namespace) -> int:
        seen.append(options)
        return 0

    for module in (enter, run):
        monkeypatch.setattr(module, "run", started)
    assert main.main(words.split()) == 0
    assert seen[0].words == ["ls", "-l", "--"]


def test_two_dashes_where_no_command_is_wanted_end_the_options(tmp_path: Path) -> None:
    assert main.main(["ps", "--kubeconfig", str(tmp_path / "none"), "--", "t"]) == 1
    assert main.main(["logs", "--kubeconfig", str(tmp_path / "none"), "--", "t"]) == 1


def test_without_a_kubeconfig_kubectl_reads_those_that_we_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", f"one{os.pathsep}two")
    options = argparse.Namespace(command="attach", kubeconfig=None, context=None, container=None)
    assert session.kubeconfigs_of(options) == (Path("one"), Path("two"))
    assert enter.command("/bin/kubectl", options, "team", "pod-0") == [
        "/bin/kubectl", "attach", "-i", "-n", "team", "pod-0",
    ]  # fmt: skip


@pytest.mark.promise("O210")
def test_a_command_in_a_pod_without_a_kubeconfig_has_the_rights_of_its_service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    options = argparse.Namespace(command="doctor", kubeconfig=None, context=None)
    with pytest.raises(session.SessionError, match="from this pod's ServiceAccount"):
        session.connect(options)
    (tmp_path / "none").write_text("{}")
    with pytest.raises(session.SessionError, match="from kubeconfig"):
        session.connect(options)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_names_every_command_and_the_shell_can_read_it(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in COMMANDS)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so that only the names were looked at")
    read = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, timeout=120)
    assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.parametrize(
    ("shell", "ask"),
    [
        ("bash", "COMP_WORDS=(topogate dr); COMP_CWORD=1; _topogate; echo ${COMPREPLY[*]}"),
        ("fish", "complete -C 'topogate dr'"),
    ],
)
def test_a_shell_completes_what_was_begun(
    shell: str, ask: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so that its completion cannot be asked")
    assert main.main(["completion", shell]) == 0
    file = tmp_path / "completion"
    file.write_text(f"{capsys.readouterr().out}\n{ask}\n")
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    asked = subprocess.run([shell, str(file)], text=True, capture_output=True, env=environment, timeout=120)
    assert asked.stdout.split() == ["drain"], asked.stderr


def test_the_namespace_is_the_kubeconfigs_where_none_is_given(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "current-context: a\ncontexts:\n- {name: a, context: {namespace: mine}}\n- {name: b, context: {}}\n"
    )
    options = argparse.Namespace(namespace=None, kubeconfig=file, context=None)
    assert session.namespace_of(options) == "mine"
    assert session.namespace_of(argparse.Namespace(namespace=None, kubeconfig=file, context="b")) == "default"
    assert session.namespace_of(argparse.Namespace(namespace="x", kubeconfig=file, context=None)) == "x"


@pytest.mark.promise("R150")
def test_a_table_row_has_gang_size_model_and_reason() -> None:
    spec = {"gpu-amount": "8", "workers": 3, "gpu": "h100", "priority": "high"}
    row = ps._row(work(TASK, spec, {"phase": "Waiting", "reason": "Needs room."}), {})
    assert row[:6] == ["w", "3x8", "h100", "high", "Waiting", "-"]
    assert row[-1] == "Needs room."


@pytest.mark.promise("R150")
@pytest.mark.parametrize("end", [KeyboardInterrupt(), ApiError(0, "Unreachable", "no answer")], ids=repr)
def test_an_interrupted_restart_reports_that_the_job_is_suspended(
    end: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ending:
        def request(self, method: str, path: str, **_: Any) -> bytes:
            return b"{}"

        def json(self, method: str, path: str, **_: Any) -> Any:
            raise end

    job = Work(JOB, {"metadata": {"name": "w", "namespace": "n", "uid": "u"}, "spec": {}, "status": {}})
    with pytest.raises(type(end)):
        stop_command._restart(Ending(), job)  # type: ignore[arg-type]
    assert "Job w is suspended now; `topogate restart job/w` resumes it." in capsys.readouterr().err


def test_a_run_without_arguments_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["run"]) == 2
    assert "nothing to run: pass --image IMAGE or -- COMMAND" in capsys.readouterr().err
