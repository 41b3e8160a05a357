"""What a kubeconfig, an environment and a credential plugin make of their user."""

import base64
import contextlib
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hack.local.cluster import Cluster
from tests.kube.copies import kubeconfig
from webhook.kube.client import Api, ApiError, ConnectError
from webhook.kube.identity import Fixed, Identity, _environment_proxy, of_this_pod
from webhook.kube.kubeconfig import identity_of
from webhook.kube.plugin import CredentialPlugin
from webhook.kube.transport import manager_of

VERSION = "client.authentication.k8s.io/v1"
PROXIES = [f"{scheme}_proxy" for scheme in ("http", "https", "no")]


def written(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """A kubeconfig with one context."""
    path = folder / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443/", **cluster}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "me"}}],
        "users": [{"name": "me", "user": user}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# --- files -----------------------------------------------------------------------------------------


def test_data_overrides_files_and_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"{name} of a file")
    cluster = {"certificate-authority": "ca", "tls-server-name": "other", "proxy-url": "http://proxy:3128"}
    user = {
        "client-certificate": "cert", "client-certificate-data": encoded("cert of data"), "client-key": "key",
        "as": "somebody",
    }  # fmt: skip
    assert identity_of(written(tmp_path, cluster, user)) == Identity(
        "https://api.example:6443",
        authority="ca of a file",
        certificate="cert of data",
        key="key of a file",
        server_name="other",
        proxy="http://proxy:3128",
        acting_as="somebody",
    )


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({}, None),
        ({"token": "t"}, "Bearer t"),
        ({"token": "t", "tokenFile": "token"}, "Bearer of the file"),
        ({"username": "u", "password": "p"}, f"Basic {encoded('u:p')}"),
        ({"token": "t", "exec": {"command": "never-run"}}, "Bearer t"),
    ],
    ids=["none", "token", "token-file", "password", "token-before-plugin"],
)
def test_a_user_proves_itself_by_what_the_kubeconfig_holds(
    tmp_path: Path, user: dict[str, Any], header: str | None
) -> None:
    (tmp_path / "token").write_text("of the file\n")
    credential = identity_of(written(tmp_path, {}, user)).credential
    assert (credential.header() if credential is not None else None) == header


def test_the_named_context_overrides_the_current_one(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "mine"})
    assert identity_of(path).credential is None
    assert identity_of(path, "mine").credential == Fixed("Bearer mine")


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": ""}, {}, "cluster c names no server by a URL"),
        ({"certificate-authority-data": "%"}, {}, "certificate-authority-data is not base64"),
        ({"certificate-authority": "none"}, {}, "No such file"),
        ({"certificate-authority-data": encoded("no PEM")}, {}, "authority cannot be read as PEM"),
        ({}, {"client-key-data": encoded("k")}, "only one of client-certificate and client-key is set"),
        ({}, {"client-key-data": encoded("k"), "client-certificate-data": encoded("c")}, "or are not PEM"),
        ({}, {"as-groups": ["g"]}, "as-groups is not supported"),
        ({}, {"exec": {"apiVersion": VERSION}}, "names no command"),
        ({}, {"exec": {"command": "c", "apiVersion": "v0"}}, "apiVersion v0 is not supported"),
        ({}, {"exec": {"command": "nowhere-to-be-found", "apiVersion": VERSION, "installHint": "get it"}},
         "nowhere-to-be-found cannot be run: get it"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_file(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], words: str
) -> None:
    path = written(tmp_path, cluster, user)
    with pytest.raises(ConnectError, match=words) as refused:
        Api.connect(path, user_agent="test")
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(("context", "words"), [("none", "no context none; there are: x"), (None, "choose")])
def test_a_context_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, context: str | None, words: str
) -> None:
    path = written(tmp_path, {}, {})
    path.write_text(path.read_text().replace("current-context: x", ""))
    with pytest.raises(ValueError, match=words):
        identity_of(path, context)


def test_users_of_an_auth_provider_are_read_by_the_kubernetes_package(tmp_path: Path) -> None:
    token = f"e30.{encoded(json.dumps({'exp': 9999999999})).rstrip('=')}.x"
    provider = {"name": "oidc", "config": {"id-token": token}}
    identity = identity_of(written(tmp_path, {}, {"auth-provider": provider}))
    assert identity.server == "https://api.example:6443"
    assert identity.credential is not None
    assert identity.credential.header() == f"Bearer {token}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)
URL = st.sampled_from(["https://a", "http://a:x", "https://[a", "a", ""])
EXEC = {"command": st.just("false"), "apiVersion": st.just(VERSION), "args": JSON, "env": JSON}
CLUSTER = st.fixed_dictionaries(
    {"server": URL | JSON}, optional={"proxy-url": URL | JSON, "extensions": JSON}
)
USER = st.fixed_dictionaries(
    {},
    optional={
        "token": JSON,
        "tokenFile": JSON,
        "client-key-data": JSON,
        "exec": JSON | st.fixed_dictionaries({}, optional=EXEC),
    },
)
PARTS = {
    "context": JSON | st.just({"cluster": "x", "user": "x"}),
    "cluster": JSON | CLUSTER,
    "user": JSON | USER,
}


def section(kind: str) -> st.SearchStrategy[Any]:
    return JSON | st.lists(st.fixed_dictionaries({"name": st.just("x"), kind: PARTS[kind]}), max_size=2)


@given(st.fixed_dictionaries({f"{kind}s": section(kind) for kind in PARTS}))
def test_whatever_a_kubeconfig_holds_it_is_an_identity_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-kubeconfig"
    path.write_text(yaml.safe_dump({**content, "current-context": "x"}))
    with contextlib.suppress(ConnectError):
        Api.connect(path, user_agent="test")


# --- pods ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pod_is_its_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("of the pod")
    (tmp_path / "ca.crt").write_text("authority")
    identity = of_this_pod(tmp_path)
    assert (identity.server, identity.authority) == (server, "authority")
    assert identity.credential is not None
    assert identity.credential.header() == "Bearer of the pod"


# --- TLS and proxies -------------------------------------------------------------------------------


@pytest.mark.parametrize("brief", [False, True])
def test_a_server_is_believed_by_its_authority_and_name_alone(
    cluster: Cluster, tmp_path: Path, brief: bool
) -> None:
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    entry = content["clusters"][0]["cluster"]

    def version(**changes: Any) -> str:
        path = tmp_path / "kubeconfig"
        changed = {
            **content,
            "clusters": [{"name": content["clusters"][0]["name"], "cluster": entry | changes}],
        }
        path.write_text(yaml.safe_dump(changed))
        return str(Api.connect(path, user_agent="test", brief=brief).json("GET", "/version")["major"])

    authority = ("certificate-authority", "certificate-authority-data")
    unknown = dict.fromkeys(authority)
    assert version() == "1"
    assert version(**{"tls-server-name": "localhost"}) == "1"
    assert version(**unknown, **{"insecure-skip-tls-verify": True}) == "1"
    with pytest.raises(ApiError, match="certificate"):
        version(**unknown)
    with pytest.raises(ApiError, match="stranger"):
        version(**{"tls-server-name": "stranger"})


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        ("https://api:6443", {}, ""),
        ("https://api:6443", {"http_proxy": "http://p"}, ""),
        ("https://api:6443", {"https_proxy": "http://p"}, "http://p"),
        ("https://api:6443", {"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ("https://api.corp:6443", {"https_proxy": "http://p", "no_proxy": ".corp"}, ""),
        ("https://api.corp:6443", {"https_proxy": "http://p", "no_proxy": "x, *.corp"}, ""),
        ("https://api.corp:6443", {"https_proxy": "http://p", "no_proxy": "api.corp:6443"}, ""),
        ("https://api.corp:6443", {"https_proxy": "http://p", "no_proxy": "api.corp:443"}, "http://p"),
        ("https://apicorp:6443", {"https_proxy": "http://p", "no_proxy": "corp"}, "http://p"),
        ("https://api:6443", {"https_proxy": "http://p", "no_proxy": "*"}, ""),
        ("https://10.96.0.1:443", {"https_proxy": "http://p", "no_proxy": "10.96.0.0/12"}, ""),
        (
            "https://10.1.0.1:443",
            {"https_proxy": "http://p", "no_proxy": "10.96.0.0/12,nonsense/99"},
            "http://p",
        ),
        ("https://[fd00::1]:443", {"https_proxy": "http://p", "no_proxy": "fd00::/8"}, ""),
        ("https://127.0.0.1:6443", {"https_proxy": "http://p"}, ""),
        ("https://localhost:6443", {"https_proxy": "http://p"}, ""),
    ],
)
def test_the_proxy_of_the_environment_is_taken_but_where_it_is_excepted(
    monkeypatch: pytest.MonkeyPatch, server: str, environment: dict[str, str], proxy: str
) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _environment_proxy(server) == proxy


def test_the_users_proxy_overrides_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://other:1")
    pool: Any = manager_of(Identity("https://api:6443", proxy="http://me:secret@mine:3128"), 1)
    assert str(pool.proxy).endswith("mine:3128")
    assert pool.proxy_headers == {"proxy-authorization": f"Basic {encoded('me:secret')}"}


def test_the_clients_key_stays_on_no_disk(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(context: ssl.SSLContext, certificate: str, key: str) -> None:
        seen.extend(Path(each).stat().st_mode & 0o777 for each in (certificate, key))
        load(context, certificate, key)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    Api.connect(cluster.kubeconfig, user_agent="test")
    assert seen == [0o600, 0o600]
    assert list(tmp_path.iterdir()) == []


# --- plugins ---------------------------------------------------------------------------------------


def plugin(folder: Path, status: dict[str, Any], clock: Any = lambda: 0.0, **spec: Any) -> CredentialPlugin:
    """One that counts its calls, and leaves what it was given."""
    program = folder / "plugin"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\nfrom pathlib import Path\n"
        f"calls = Path({str(folder / 'calls')!r})\n"
        "calls.open('a').write('.')\n"
        f"Path({str(folder / 'told')!r}).write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"text = json.dumps({{'apiVersion': {VERSION!r}, 'kind': 'ExecCredential', 'status': {status!r}}})\n"
        "print(text.replace('CALL', str(len(calls.read_text()))).replace('ENV', os.environ.get('ENV', '')))\n"
    )
    program.chmod(0o700)
    cluster = {
        "server": "https://s", "certificate-authority-data": "x",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
    }  # fmt: skip
    return CredentialPlugin({"command": str(program), "apiVersion": VERSION, **spec}, cluster, clock)


def test_a_plugin_is_asked_once_and_again_before_its_token_ends(tmp_path: Path) -> None:
    now = 0.0
    asked = plugin(
        tmp_path, {"token": "CALL-ENV", "expirationTimestamp": "1970-01-01T00:10:00Z"}, lambda: now,
        env=[{"name": "ENV", "value": "set"}],
    )  # fmt: skip
    assert [asked.header(), asked.header()] == ["Bearer 1-set", "Bearer 1-set"]
    now = 595.0
    assert asked.header() == "Bearer 2-set"


def test_a_plugin_is_asked_again_when_its_token_is_refused(tmp_path: Path) -> None:
    asked = plugin(tmp_path, {"token": "CALL"})
    assert asked.header() == "Bearer 1"
    assert asked.renew("Bearer 1")
    assert asked.renew("Bearer 1"), "another thread has renewed it since"
    assert asked.header() == "Bearer 2"


def test_a_plugin_that_has_no_other_token_is_believed(tmp_path: Path) -> None:
    asked = plugin(tmp_path, {"token": "same"})
    assert asked.header() == "Bearer same"
    assert not asked.renew("Bearer same")


@pytest.mark.parametrize("provides_info", [True, False])
def test_a_plugin_gets_the_cluster_info_if_the_kubeconfig_asks_for_it(
    tmp_path: Path, provides_info: bool
) -> None:
    plugin(tmp_path, {"token": "t"}, provideClusterInfo=provides_info, interactiveMode="Never").header()
    spec = json.loads((tmp_path / "told").read_text())["spec"]
    cluster = {"server": "https://s", "certificate-authority-data": "x", "config": {"audience": "a"}}
    assert spec == ({"interactive": False, "cluster": cluster} if provides_info else {"interactive": False})


def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    given = plugin(tmp_path, {"clientCertificateData": "cert", "clientKeyData": "key"})
    assert given.certificate() == ("cert", "key")
    assert given.header() == ""


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "neither token nor certificate"),
        ({"clientCertificateData": "c"}, "without its key"),
        ({"token": "t", "expirationTimestamp": "soon"}, "'soon' as the time of expiry"),
    ],
)
def test_what_a_plugin_gives_wrongly_is_named(tmp_path: Path, status: dict[str, Any], words: str) -> None:
    wrong = plugin(tmp_path, status)
    with contextlib.suppress(ValueError):
        wrong.certificate()  # a wrong time counts when it is asked for the next time
    with pytest.raises(ValueError, match=words):
        wrong.certificate()


def test_a_plugin_that_needs_a_person_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ValueError, match="must ask a person, and there is no terminal"):
        plugin(tmp_path, {"token": "t"}, interactiveMode="Always").header()


def test_a_plugin_that_fails_later_is_an_answer_that_did_not_come(tmp_path: Path) -> None:
    program = tmp_path / "once"
    program.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/done ] && exit 3\ntouch {tmp_path}/done\n"
        f'echo \'{{"apiVersion": "{VERSION}", "kind": "ExecCredential", "status": '
        '{"token": "t", "expirationTimestamp": "1970-01-01T00:00:00Z"}}\'\n'
    )
    program.chmod(0o700)
    path = written(tmp_path, {}, {"exec": {"command": "./once", "apiVersion": VERSION}})
    api = Api.connect(path, user_agent="test")
    with pytest.raises(ApiError, match=r"no credential .*once ended with status 3"):
        api.request("GET", "/version")
