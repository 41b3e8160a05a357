"""The configuration under a running process, and the command that checks it."""

import json
from pathlib import Path

import pytest

from tests.admission.harness import MANIFESTS
from webhook.cli.main import main
from webhook.configuration.file import Configuration
from webhook.configuration.store import ConfigurationStore

HEAD = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"
TIERS = "tiers: [{name: low, priorityClassName: l}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "configuration.yaml"
    made.write_text(HEAD + TIERS)
    return made


@pytest.mark.promise("O54")
def test_a_store_keeps_the_old_configuration_while_the_file_is_broken_or_gone(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ConfigurationStore([file])
    for number, content in enumerate(("gates: x", None), start=1):
        file.unlink() if content is None else file.write_text(content)
        store.refresh()
        store.refresh()
        assert caplog.text.count("configuration_rejected") == number
        assert store.remark().startswith("the configuration on disk is not in force: ")
        assert (store.generation, len(store.policy.tiers)) == (1, 1)
    file.write_text(HEAD)
    store.refresh()
    assert (store.faults, store.remark(), store.generation) == ([], "", 2)
    assert store.configuration == Configuration()


@pytest.mark.promise("O54")
@pytest.mark.parametrize(
    ("change", "is_reported"), [("gatePrefix: a.io/wait-\n", True), ("gangs: {settle: 1s}\n", False)]
)
def test_the_log_reports_conditions_of_the_api_server_that_are_to_be_rendered(
    file: Path, caplog: pytest.LogCaptureFixture, change: str, is_reported: bool
) -> None:
    store = ConfigurationStore([file])
    file.write_text(HEAD + TIERS + change)
    store.refresh()
    assert store.generation == 2
    assert ("Run topogate config render" in caplog.text) is is_reported


@pytest.mark.parametrize("content", [None, "broken: ["])
def test_a_file_that_comes_back_unchanged_clears_the_fault(file: Path, content: str | None) -> None:
    store, before = ConfigurationStore([file]), file.read_text()
    file.unlink() if content is None else file.write_text(content)
    store.refresh()
    assert store.faults
    file.write_text(before)
    store.refresh()
    assert store.faults == []


def test_a_defect_in_the_reader_is_a_fault_that_stays_until_a_good_version_comes(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = ConfigurationStore([file])
    file.write_text(HEAD)

    def fail(*_: object) -> Configuration:
        raise TypeError("unforeseen")

    with monkeypatch.context() as patched:
        patched.setattr("webhook.configuration.store.parse_files", fail)
        for _ in range(2):
            store.refresh()
            assert store.faults == ["cannot be read: TypeError; see the log"]
        assert caplog.text.count("Traceback") == 1, "the same file is not read again"
    assert (store.generation, len(store.policy.tiers)) == (1, 1)


# --- topogate config ----------------------------------------------------------------------------------


def test_config_check_accepts_the_shipped_configmap(capsys: pytest.CaptureFixture[str]) -> None:
    files = (MANIFESTS / "configuration.yaml", MANIFESTS / "labeler.yaml")
    assert main(["config", "check", *map(str, files)]) == 0
    assert "ok: 3 tiers, 5 GPU models, 6 GPU resources" in capsys.readouterr().out


@pytest.mark.promise("O52")
def test_config_check_names_every_fault_of_every_file_and_fails(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, gone, deep = (tmp_path / name for name in ("bad.yaml", "none.yaml", "deep.yaml"))
    bad.write_text(HEAD + "gatePrefix: '-'\nlevels: []\n")
    deep.write_text("[" * 20_000)
    assert main(["config", "check", *map(str, (bad, file, gone, deep))]) == 1
    output = capsys.readouterr()
    assert f"{bad}: levels: unknown key" in output.err
    assert f"{bad}: gatePrefix: must be a prefix of a gate's name, not '-'" in output.err
    assert f"{gone}: cannot be read: No such file" in output.err
    assert f"{deep}: document: is nested too deeply" in output.err
    assert f"{file}: ok" in output.out


@pytest.mark.parametrize("beside", ["priorityclasses.yaml", "labeler.yaml"])
def test_config_check_checks_the_configuration_in_a_file_with_other_objects(
    beside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [(MANIFESTS / name).read_text() for name in (beside, "configuration.yaml")]
    file = tmp_path / "all.yaml"
    file.write_text("\n---\n".join(texts).replace("gatePrefix", "gatePrefx"))
    assert main(["config", "check", str(file)]) == 1
    assert "gatePrefx: unknown key; did you mean gatePrefix?" in capsys.readouterr().err


def test_config_check_fails_without_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(MANIFESTS / "priorityclasses.yaml")]) == 1
    assert "pass a configuration" in capsys.readouterr().err


@pytest.mark.parametrize("data", ["{other: x}", "[1]", "7", "", "{configuration.yaml: {}}"])
def test_config_check_reports_a_configmap_without_a_configuration(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"kind: ConfigMap\nmetadata: {{name: topogate-configuration}}\ndata: {data}\n")
    assert main(["config", "check", str(path)]) == 1
    assert "has no configuration.yaml with a text" in capsys.readouterr().err


@pytest.mark.promise("O403")
def test_config_check_reports_a_labeler_whose_levels_the_configuration_does_not_have(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(HEAD + "topology: {levels: {rack: x.io/rack, host: x.io/host}}\n")
    assert main(["config", "check", str(file), str(MANIFESTS / "labeler.yaml")]) == 1
    assert "the labeler writes topology.gke.io/cluster" in capsys.readouterr().err


def test_config_migrate_prints_a_configuration_that_config_check_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("settle_seconds: 2\npass_seconds: 3\n")
    assert main(["config", "migrate", str(old)]) == 0
    output = capsys.readouterr()
    assert "pass_seconds is dropped: a pass places gangs for 10 seconds" in output.err
    new.write_text(output.out)
    assert main(["config", "check", str(new)]) == 0


def test_config_schema_prints_what_an_editor_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["gatePrefix"]["description"]
