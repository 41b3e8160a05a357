"""Several kubeconfigs count as one, as kubectl counts them: the first to say something wins."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.local.build import programs
from webhook.kube.client import Api, ConnectError
from webhook.kube.identity import Fixed
from webhook.kube.kubeconfig import context_of, identity_of, of_this_person, read


def config(server: str, token: str, **more: Any) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": f"https://{server}"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": token}}],
        **more,
    }


def written(folder: Path, *contents: Any) -> list[Path]:
    """Files in folders of their own."""
    files = [folder / str(number) / "config" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(content))
    return files


def test_the_first_file_wins_whole_entries_and_the_current_context(tmp_path: Path) -> None:
    first = config("one", "t1")
    second = config("two", "t2", **{"current-context": "x"})
    second["users"].append({"name": "other", "user": {"token": "t3"}})
    second["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "other"}})
    files = written(tmp_path, first, second)
    identity = identity_of(files)
    assert (identity.server, identity.credential) == ("https://one", Fixed("Bearer t1"))
    identity = identity_of(files, "y")
    assert (identity.server, identity.credential) == ("https://one", Fixed("Bearer t3"))


def test_paths_count_from_the_file_that_names_them(tmp_path: Path) -> None:
    cluster = {"server": "https://s", "certificate-authority": "../ca"}
    user = {"exec": {"command": "./give", "apiVersion": "client.authentication.k8s.io/v1"}}
    first = {"clusters": [{"name": "c", "cluster": cluster}], "current-context": "x"}
    second = config("two", "t")
    second["users"] = [{"name": "u", "user": user}]
    files = written(tmp_path, first, second)
    (tmp_path / "ca").write_text("authority")
    answer = {
        "apiVersion": user["exec"]["apiVersion"], "kind": "ExecCredential", "status": {"token": "given"}
    }  # fmt: skip
    program = files[1].parent / "give"
    program.write_text(f"#!{sys.executable}\nprint({json.dumps(answer)!r})\n")
    program.chmod(0o700)
    identity = identity_of(files)
    assert identity.authority == "authority"
    assert identity.credential is not None
    assert identity.credential.header() == "Bearer given"


def test_of_several_files_those_that_are_not_there_or_empty_are_skipped(tmp_path: Path) -> None:
    files = written(tmp_path, None, config("s", "t", **{"current-context": "x"}))
    assert identity_of([tmp_path / "none", *files]).server == "https://s"
    with pytest.raises(ConnectError, match=r"none.*nowhere.*No such file"):
        Api.connect([tmp_path / "none", tmp_path / "nowhere"], user_agent="test")


def test_the_one_of_several_files_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    good, bad = written(tmp_path, config("s", "t", **{"current-context": "x"}), ["no", "mapping"])
    with pytest.raises(ConnectError, match=f"{bad}: it is not a mapping"):
        Api.connect([good, bad], user_agent="test")


@pytest.mark.parametrize(
    ("variable", "files"),
    [
        (None, ["home/.kube/config"]),
        ("", ["home/.kube/config"]),
        ("a", ["a"]),
        ("a::b:", ["a", "b"]),
    ],
    ids=str,
)
def test_the_environment_names_the_files(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, files: list[str]
) -> None:
    monkeypatch.setenv("HOME", "home")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if variable is not None:
        monkeypatch.setenv("KUBECONFIG", variable.replace(":", os.pathsep))
    assert of_this_person() == tuple(map(Path, files))


NAMES = st.sampled_from(["a", "b"])


def entries(kind: str, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    entry = st.fixed_dictionaries({"name": NAMES, kind: inner})
    return st.lists(entry, max_size=2, unique_by=lambda each: each["name"])


SERVERS = st.fixed_dictionaries({"server": st.sampled_from(["https://1", "https://2"])})
TOKENS = st.fixed_dictionaries({}, optional={"token": st.sampled_from("tu")})
CONTEXTS = st.fixed_dictionaries(
    {"cluster": NAMES, "user": NAMES}, optional={"namespace": st.sampled_from(["team", "crew"])}
)
FILES = st.fixed_dictionaries(
    {
        "clusters": entries("cluster", SERVERS),
        "users": entries("user", TOKENS),
        "contexts": entries("context", CONTEXTS),
        "current-context": NAMES | st.just(""),
    }
)


@settings(max_examples=12, deadline=None)  # kubectl takes a tenth of a second each time
@given(st.lists(FILES, min_size=2, max_size=3))
def test_kubectl_reads_the_same_out_of_several_files(
    tmp_path_factory: pytest.TempPathFactory, contents: list[dict[str, Any]]
) -> None:
    files = written(tmp_path_factory.mktemp("files"), *contents)
    command = [*programs().commands["kubectl"], "config", "view", "--raw", "--output", "json"]
    environment = {**os.environ, "KUBECONFIG": os.pathsep.join(map(str, files))}
    shown = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    ours = read(files)
    assert (ours.get("current-context") or "") == shown["current-context"]
    for kind in ("cluster", "context", "user"):
        theirs = {each["name"]: each[kind] for each in shown[f"{kind}s"] or ()}
        assert {each["name"]: each[kind] for each in ours[f"{kind}s"]} == theirs


def test_the_namespace_is_that_of_the_merged_context(tmp_path: Path) -> None:
    first = {"current-context": "x"}
    second = config("s", "t")
    second["contexts"][0]["context"]["namespace"] = "team"
    assert context_of(read(written(tmp_path, first, second)))["namespace"] == "team"
