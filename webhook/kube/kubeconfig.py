"""Reads kubeconfigs: the identity of one of their contexts.

It follows "Organizing Cluster Access Using kubeconfig Files" and the v1 Config type of client-go. With
several files, the first one that has an entry or a value wins. Paths in a kubeconfig are relative to it.
Inline data overrides a file, and a tokenFile overrides a token. The kubernetes package handles users with an
auth-provider, which client-go has replaced by plugins.
"""

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from webhook.kube.identity import Credential, Fixed, Identity

_NOT_SERVED: Final = ("as-uid", "as-groups", "as-user-extra")
_SECTIONS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def of_this_person() -> tuple[Path, ...]:
    """The default kubeconfigs: those of $KUBECONFIG, else ~/.kube/config."""
    listed = tuple(Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each)
    return listed or (Path.home() / ".kube" / "config",)


def identity_of(files: Path | Sequence[Path], context: str | None = None) -> Identity:
    """The identity of a context, by default the current one.

    Raises OSError, or ValueError whose message names what is missing.
    """
    files = [files] if isinstance(files, Path) else files
    content = read(files)
    chosen = context_of(content, context)
    cluster = _entry(content, "cluster", chosen.get("cluster"))
    user = _entry(content, "user", chosen["user"]) if chosen.get("user") else {}
    if "auth-provider" in user:
        return _by_the_package(files, context)
    for key in _NOT_SERVED:
        if user.get(key):
            raise ValueError(f"user {chosen['user']}: {key} is not supported, only `as` is")
    server = _server(cluster, chosen.get("cluster"))
    authority = _pem(cluster, "certificate-authority")
    credential, certificate, key = _proof(user, cluster)
    return Identity(
        server.rstrip("/"),
        authority=authority,
        certificate=certificate,
        key=key,
        is_verified=not cluster.get("insecure-skip-tls-verify"),
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or ""),
        acting_as=str(user.get("as") or ""),
        credential=credential,
    )


def _server(cluster: Mapping[str, Any], name: object) -> str:
    """The URL of the API server. Raises ValueError."""
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ValueError(f"cluster {name} names no server by a URL")
    return server


def read(files: Sequence[Path]) -> dict[str, Any]:
    """The merged content of kubeconfigs, with absolute paths; missing files count as empty.

    Raises OSError if all files are missing, or ValueError if one is not a YAML mapping.
    """
    merged: dict[str, Any] = {}
    missing: list[OSError] = []
    for file in (each.expanduser().absolute() for each in files):
        try:
            content = _read_one(file)
        except FileNotFoundError as error:
            missing.append(error)
            continue
        except ValueError as error:
            raise (ValueError(f"{file}: {error}") if len(files) > 1 else error) from None
        for key, value in content.items():
            if kind := _SECTIONS.get(key):
                _add(merged.setdefault(key, []), kind, value, file.parent)
            else:
                merged[key] = merged.get(key) or value
    if missing and len(missing) == len(files):
        raise missing[0]
    return merged


def _read_one(file: Path) -> dict[str, Any]:
    try:
        content = yaml.load(file.read_text(), _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from error
    if not isinstance(content, dict | None):
        raise ValueError("it is not a mapping, so it is not a kubeconfig")
    return content or {}


def _add(entries: list[dict[str, Any]], kind: str, found: Any, folder: Path) -> None:
    """Add the entries of a file whose names are new, with absolute paths."""
    for entry in found if isinstance(found, list) else ():
        if isinstance(entry, dict) and all(entry.get("name") != each.get("name") for each in entries):
            inner = entry.get(kind)
            entries.append({**entry, kind: _rooted(inner, folder)} if isinstance(inner, dict) else entry)


def _rooted(inner: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A cluster or a user with absolute paths. A plugin without a slash stays as it is, for $PATH."""
    made = {**inner, **{key: str(folder / str(inner[key])) for key in _PATHS if inner.get(key)}}
    plugin = inner.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command")):
        made["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    return made


def context_of(content: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """A context by its name, or the current one. Raises ValueError."""
    name = name or content.get("current-context")
    if not name:
        raise ValueError("it has no current-context: choose a context")
    return _entry(content, "context", name)


def _entry(content: Mapping[str, Any], kind: str, name: Any) -> dict[str, Any]:
    section = content.get(f"{kind}s")
    entries = [each for each in section if isinstance(each, dict)] if isinstance(section, list) else []
    found = next((each for each in entries if each.get("name") == name), None)
    if found is None:
        there = ", ".join(str(each.get("name")) for each in entries) or "none"
        raise ValueError(f"it has no {kind} {name}; there are: {there}")
    inner = found.get(kind) or {}
    if not isinstance(inner, dict):
        raise ValueError(f"its {kind} {name} is not a mapping")
    return inner


def _proof(user: dict[str, Any], cluster: dict[str, Any]) -> tuple[Credential | None, str, str]:
    """The credential, and the certificate and key of the client."""
    certificate, key = _pem(user, "client-certificate"), _pem(user, "client-key")
    if bool(certificate) != bool(key):
        raise ValueError("only one of client-certificate and client-key is set")
    if user.get("tokenFile"):
        from webhook.kube.tokens import TokenFile  # it loads logging, and few users need it

        return TokenFile(Path(user["tokenFile"])), certificate, key
    if user.get("token"):
        return Fixed(f"Bearer {user['token']}"), certificate, key
    if user.get("username"):
        words = f"{user['username']}:{user.get('password') or ''}"
        return Fixed(f"Basic {base64.b64encode(words.encode()).decode()}"), certificate, key
    if user.get("exec"):
        from webhook.kube.plugin import CredentialPlugin  # it loads subprocess, and few users need it

        plugin = CredentialPlugin(user["exec"], cluster)
        given = plugin.certificate()
        return plugin, *(given or (certificate, key))
    return None, certificate, key


def _pem(entry: dict[str, Any], key: str) -> str:
    data = entry.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(str(data), validate=True).decode()
        except ValueError as error:
            raise ValueError(f"{key}-data is not base64 of PEM: {error}") from error
    return Path(entry[key]).read_text() if entry.get(key) else ""


def _by_the_package(files: Sequence[Path], context: str | None) -> Identity:
    """The identity by the kubernetes package, which has the auth-providers."""
    from kubernetes import config
    from kubernetes.client import Configuration

    found = Configuration()
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=os.pathsep.join(map(str, files)), context=context, client_configuration=found
        )
    except config.ConfigException as error:
        raise ValueError(str(error)) from error

    class Provided:
        """Reads the credential from the package each time, since the package renews it."""

        def header(self) -> str:
            return found.get_api_key_with_prefix("BearerToken", "authorization") or ""

        def renew(self, refused: str) -> bool:
            return self.header() != refused

    def text(path: str | None) -> str:
        return Path(path).read_text() if path else ""

    return Identity(
        str(found.host).rstrip("/"),
        authority=text(found.ssl_ca_cert),
        certificate=text(found.cert_file),
        key=text(found.key_file),
        is_verified=bool(found.verify_ssl),
        server_name=str(found.tls_server_name or ""),
        proxy=str(found.proxy or ""),
        credential=Provided(),
    )
