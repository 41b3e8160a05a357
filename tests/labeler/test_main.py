"""The command as a person or a pod runs it: what it prints, how it ends, what it needs."""

import http.client
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from hack.local.controlplane import free_port
from hack.local.processes import open_tied
from labeler.config import Config, ConfigError, load_config, parse_config
from labeler.main import main
from tests.labeler.installed import ROOT

FACTS = '{"n1": {"topology": "/c/r 1/h", "cards": 2, "model": "Arc A770"}, "n2": {}}'


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A facts file; and no pod's environment."""
    for name in ("NODE_NAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "facts.json"
    path.write_text(FACTS)
    return str(path)


def test_a_dry_run_prints_labels_and_needs_no_server(facts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--source", "file", "--facts", facts, "--node-name", "n1", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gpu.intel.com/cards=card0.card1",
        "gpu.intel.com/gpu-numbers=0.1",
        "gpu.intel.com/memory.max=0",
        "gpu.intel.com/millicores=2000",
        "gpu.intel.com/tiles=2",
        "gpu.topogate.io/count=2",
        "gpu.topogate.io/has.Arc-A770=true",
        "gpu.topogate.io/model=Arc-A770",
        "gpu.topogate.io/vendor.intel=2",
        "topology.gke.io/cluster=c",
        "topology.gke.io/host=h",
        "topology.gke.io/rack=xbdb7cfb21ed7b2b29f744965d0a48fff",
        'annotation labeler.topogate.io/original-values={"topology.gke.io/rack": "r 1"}',
    ]


def test_a_dry_run_of_a_node_that_has_nothing_prints_nothing(
    facts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--source", "file", "--facts", facts, "--node-name", "n2", "--dry-run"]) == 0
    assert capsys.readouterr().out == ""


def test_a_dry_run_whose_source_fails_reports_why_and_exits_with_one(
    facts: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["--source", "file", "--facts", facts, "--node-name", "n9", "--dry-run"]) == 1
    assert f"source file: {facts}: no entry for node n9 among 2 nodes" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--dry-run"], "give either --config FILE or --source NAME"),
        (["--source", "file", "--config", "x", "--dry-run"], "give either --config FILE or --source NAME"),
        (["--source", "udev", "--facts", "x", "--dry-run"], "--facts belongs to --source file"),
        (["--source", "file", "--facts", "FACTS", "--dry-run"], "which node is this? give --node-name"),
        (["--source", "file", "--node-name", "n1", "--dry-run"], "the option path must name the facts file"),
        (["--source", "file", "--facts", "FACTS", "--node-name", "n1"], "this is no pod: give --server"),
        (
            [
                "--source",
                "file",
                "--facts",
                "FACTS",
                "--node-name",
                "n1",
                "--server",
                "https://x",
                "--ca-file",
                "/no",
            ],
            "there is no file /no",
        ),
        (["--config", "/nowhere.yaml", "--node-name", "n1"], "/nowhere.yaml: cannot be read"),
    ],
)
def test_a_mistake_of_the_command_line_is_one_sentence_and_status_two(
    facts: str, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main([facts if argument == "FACTS" else argument for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("topogate-labeler: ")
    assert sentence in line


@pytest.mark.parametrize("text", ["0", "0.5", "1d", "-5", "x", ""])
def test_an_interval_that_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"--interval={text}"])
    assert ended.value.code == 2
    assert "is no time of at least 1 s" in capsys.readouterr().err


def test_a_server_that_is_not_there_ends_a_single_run_with_one(
    facts: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("labeler.main.ONESHOT_SECONDS", 0.0)
    arguments = ["--source", "file", "--facts", facts, "--node-name", "n1", "--oneshot"]
    assert main([*arguments, "--server", "http://127.0.0.1:1", "--token-file", facts]) == 1
    assert "not published: GET http://127.0.0.1:1/api/v1/nodes/n1: no answer" in caplog.text


def test_a_labeler_of_a_json_file_loads_no_parser_nor_library_that_it_does_not_need(facts: str) -> None:
    script = (
        "import sys, labeler.main as m\n"
        f"m.main(['--source', 'file', '--facts', {facts!r}, '--node-name', 'n2', '--dry-run'])\n"
        "print([name for name in ('yaml', 'pyudev', 'kubernetes', 'msgspec') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_running_labeler_answers_probes_and_ends_on_a_signal(facts: str) -> None:
    port = free_port()
    command = [sys.executable, "-m", "labeler.main", "--source=file", f"--facts={facts}", "--node-name=n1"]
    command += ["--server=http://127.0.0.1:1", f"--token-file={facts}", f"--health-port={port}"]
    process = open_tied(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        assert _probe(port, "/healthz") == (200, b"ok")
        status, text = _probe(port, "/readyz", until=b"no answer")
        assert (status, b"no answer" in text) == (503, True)
    finally:
        process.terminate()
        assert process.wait(90) == 0


def _probe(port: int, path: str, until: bytes = b"") -> tuple[int, bytes]:
    deadline = time.monotonic() + 90
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read()
            if until in text or time.monotonic() > deadline:
                return answer.status, text
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
        finally:
            connection.close()
        time.sleep(0.05)


def test_a_port_that_is_taken_is_reported(facts: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["--source=file", f"--facts={facts}", "--node-name=n1", f"--health-port={port}"]
        assert main([*arguments, "--server=http://127.0.0.1:1"]) == 2
    assert f"--health-port {port}: " in capsys.readouterr().err


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.promise("O11")
def test_a_configuration_names_sources_in_order_with_their_options(tmp_path: Path) -> None:
    path = tmp_path / "labeler.yaml"
    path.write_text(
        "sources:\n- udev\n- file: {path: /etc/facts}\n"
        "levels: [a.io/x, a.io/y]\ninterval: 5\npci-group-level: 2\n"
    )
    assert load_config(path) == Config(
        sources=(("udev", {}), ("file", {"path": "/etc/facts"})),
        levels=("a.io/x", "a.io/y"),
        interval_seconds=5,
        pci_group_level=2,
    )


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (None, "must be a mapping"),
        ({}, "sources: must be a list"),
        ({"sources": []}, "sources: must be a list"),
        ({"sources": ["udev"], "levls": []}, "levls: unknown key; did you mean levels?"),
        ({"sources": ["udev", "udev"]}, "udev is listed twice"),
        ({"sources": [{"a": {}, "b": {}}]}, "neither a name nor one name with options"),
        ({"sources": [{"file": "path"}]}, "neither a name nor one name with options"),
        ({"sources": [5]}, "neither a name nor one name with options"),
        ({"sources": ["udev"], "levels": []}, "levels: must be a list"),
        ({"sources": ["udev"], "levels": ["a.io/x", "a.io/x"]}, "levels: must be a list of different"),
        ({"sources": ["udev"], "levels": ["rack"]}, "'rack' must be a label key with a prefix"),
        ({"sources": ["udev"], "interval": 0}, "interval: must be a number from 1 up"),
        ({"sources": ["udev"], "interval": "60s"}, "interval: must be a number"),
        ({"sources": ["udev"], "pci-group-level": -1}, "pci-group-level: must be a number from 0 up"),
        ({"sources": ["udev"], "feature-file": "x"}, "feature-file: must be an absolute path"),
    ],
)
def test_a_wrong_configuration_is_refused_with_file_and_place(document: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(document, "labeler.yaml")
    assert str(error.value).startswith("labeler.yaml: ")
    assert sentence in str(error.value)


@pytest.mark.promise("O52")
def test_all_mistakes_of_a_configuration_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        parse_config({"sources": [], "levls": [], "interval": "60s", "x": 1}, "labeler.yaml")
    assert str(error.value).splitlines() == [
        "labeler.yaml: levls: unknown key; did you mean levels?",
        "labeler.yaml: x: unknown key; known are sources, levels, interval, pci-group-level, feature-file",
        "labeler.yaml: sources: must be a list of at least one source",
        "labeler.yaml: interval: must be a number from 1 up, not '60s'",
    ]


def test_the_shipped_configurations_are_right() -> None:
    found = 0
    files = [*ROOT.glob("manifests/base/labeler.yaml"), *ROOT.glob("manifests/components/labeler*/*.yaml")]
    for file in files:
        for text in _config_texts(file):
            parse_config(yaml.safe_load(text), str(file))
            found += 1
    assert found >= 2


@pytest.mark.promise("W20")
def test_the_source_that_finds_gpus_is_shipped_switched_on() -> None:
    (text,) = _config_texts(ROOT / "manifests/base/labeler.yaml")
    assert [name for name, _ in parse_config(yaml.safe_load(text), "labeler.yaml").sources] == ["udev"]


def _config_texts(file: Path) -> list[str]:
    texts = []
    for document in yaml.safe_load_all(file.read_text()):
        patches = [yaml.safe_load(patch["patch"]) for patch in document.get("patches", [])]
        for each in [document, *patches]:
            if isinstance(each, dict) and each.get("kind") == "ConfigMap":
                texts.append(each["data"]["labeler.yaml"])
    return texts


@pytest.mark.promise("O311")
@pytest.mark.skipif("__import__('os').geteuid() != 0", reason="a mount namespace is root's to make")
def test_a_node_without_udev_is_looked_through_all_the_same() -> None:
    """In a namespace whose /run is empty, on the devices that this machine has."""
    command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
    command += [sys.executable, "-m", "labeler.main", "--source=udev", "--dry-run", "--node-name=n1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING source udev" not in done.stderr


@pytest.mark.parametrize(
    ("in_pod", "sentence"),
    [(False, "the Node is not known without an API server"), (True, "https://127.0.0.1:1.*no answer")],
    ids=["outside of a pod", "in a pod"],
)
def test_a_dry_run_reads_the_node_where_a_pod_can(
    facts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    in_pod: bool, sentence: str,
) -> None:  # fmt: skip
    config = tmp_path / "labeler.yaml"
    config.write_text(yaml.safe_dump({"sources": [{"node-labels": {"topology": ["example.com/rack"]}}]}))
    authority = tmp_path / "ca.crt"
    authority.touch()
    arguments = ["--config", str(config), "--node-name", "n1", "--dry-run", f"--token-file={facts}"]
    if in_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
        arguments.append(f"--ca-file={authority}")
    assert main(arguments) == 1
    assert re.search(sentence, caplog.text)


def test_a_dry_run_in_a_pod_without_credentials_needs_no_server(
    facts: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    assert main(["--source", "file", "--facts", facts, "--node-name", "n1", "--dry-run"]) == 0
    assert "gpu.topogate.io/count=2" in capsys.readouterr().out
