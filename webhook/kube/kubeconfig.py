"""Reads a kubeconfig: the identity of one of its contexts.

Written from "Organizing Cluster Access Using kubeconfig Files" and the v1 Config type of client-go. Files
that a kubeconfig names count relative to it; data in it goes before files, a tokenFile before a token.
Users of an auth-provider, which client-go has given up for plugins, are left to the kubernetes package.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from webhook.kube.identity import Credential, Fixed, Identity

_NOT_SERVED: Final = ("as-uid", "as-groups", "as-user-extra")
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def identity_of(file: Path, context: str | None = None) -> Identity:
    """Whom a context makes of its reader; without a name the current one.

    Raises OSError, or ValueError with a sentence that names what is missing.
    """
    content = read(file)
    chosen = context_of(content, context)
    cluster = _entry(content, "cluster", chosen.get("cluster"))
    user = _entry(content, "user", chosen["user"]) if chosen.get("user") else {}
    if "auth-provider" in user:
        return _by_the_package(file, context)
    for key in _NOT_SERVED:
        if user.get(key):
            raise ValueError(f"user {chosen['user']}: {key} is not understood, only `as` is")
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise ValueError(f"cluster {chosen.get('cluster')} names no server by a URL")
    folder = file.expanduser().absolute().parent
    authority = _pem(cluster, "certificate-authority", folder)
    credential, certificate, key = _proof(user, cluster, folder)
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


def read(file: Path) -> dict[str, Any]:
    """The content of a kubeconfig. Raises OSError, or ValueError if it is no mapping in YAML."""
    try:
        content = yaml.load(file.expanduser().read_text(), _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("it holds no mapping, so it is no kubeconfig")
    return content


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
        raise ValueError(f"its {kind} {name} is no mapping")
    return inner


def _proof(user: dict[str, Any], cluster: dict[str, Any], folder: Path) -> tuple[Credential | None, str, str]:
    """A credential, and the certificate and key of the client."""
    certificate, key = _pem(user, "client-certificate", folder), _pem(user, "client-key", folder)
    if bool(certificate) != bool(key):
        raise ValueError("of client-certificate and client-key there is only one")
    if user.get("tokenFile"):
        from webhook.kube.tokens import TokenFile  # few people have one, and it loads logging

        return TokenFile(folder / str(user["tokenFile"])), certificate, key
    if user.get("token"):
        return Fixed(f"Bearer {user['token']}"), certificate, key
    if user.get("username"):
        words = f"{user['username']}:{user.get('password') or ''}"
        return Fixed(f"Basic {base64.b64encode(words.encode()).decode()}"), certificate, key
    if user.get("exec"):
        from webhook.kube.plugin import CredentialPlugin  # few need it, and it loads subprocess

        plugin = CredentialPlugin(user["exec"], cluster, folder)
        given = plugin.certificate()
        return plugin, *(given or (certificate, key))
    return None, certificate, key


def _pem(entry: dict[str, Any], key: str, folder: Path) -> str:
    data = entry.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(str(data), validate=True).decode()
        except ValueError as error:
            raise ValueError(f"{key}-data is no base64 of PEM: {error}") from error
    return (folder / str(entry[key])).read_text() if entry.get(key) else ""


def _by_the_package(file: Path, context: str | None) -> Identity:
    """The same by the kubernetes package, for its auth-providers."""
    from kubernetes import config
    from kubernetes.client import Configuration

    found = Configuration()
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=str(file), context=context, client_configuration=found
        )
    except config.ConfigException as error:
        raise ValueError(str(error)) from error

    class Provided:
        """Asks the package each time: it renews what has expired."""

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
