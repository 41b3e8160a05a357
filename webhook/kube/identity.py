"""The identity of a client of an API server, and the connection options that follow from it.

This module does not import the kubernetes package, which takes half a second to load: commands must start
fast. See transport for long-running programs, and brief for commands.
"""

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

CONNECT_SECONDS: Final = 5.0
"""The longest wait for a connection; less if the whole call has a shorter time-out."""
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9))
"""As in client-go: a connection that a firewall has dropped is detected within three minutes."""


class Credential(Protocol):
    """A credential for the Authorization header. Thread-safe."""

    def header(self) -> str:
        """The current value of the Authorization header."""

    def renew(self, refused: str) -> bool:
        """Renew after a refusal; returns whether the header has changed."""


class Fixed(NamedTuple):
    """A constant credential."""

    value: str

    def header(self) -> str:
        """The constant value."""
        return self.value

    def renew(self, refused: str) -> bool:
        """Always False."""
        return False


class Identity(NamedTuple):
    """One user of one API server.

    server: its URL. authority: the trusted CA (PEM), "" for the system's. certificate, key: the client's
    (PEM). server_name: the expected name in the server's certificate, if not its address. proxy: a URL, ""
    for the environment's. acting_as: the user to impersonate.
    """

    server: str
    authority: str = ""
    certificate: str = ""
    key: str = ""
    is_verified: bool = True
    server_name: str = ""
    proxy: str = ""
    acting_as: str = ""
    credential: Credential | None = None


def is_in_pod() -> bool:
    """Whether this process has a pod's ServiceAccount."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def of_this_pod(folder: Path = SERVICE_ACCOUNT) -> Identity:
    """The identity of the pod's own ServiceAccount. Raises OSError, or ValueError outside of a pod."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ValueError(
            "KUBERNETES_SERVICE_HOST and _PORT are not set: this is not a pod, so name a kubeconfig"
        )
    from webhook.kube.tokens import TokenFile

    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token = TokenFile(folder / "token")
    return Identity(server, authority=(folder / "ca.crt").read_text(), credential=token)


def tls_of(identity: Identity) -> ssl.SSLContext:
    """The TLS context of an identity. Raises OSError, ValueError."""
    if identity.is_verified:
        try:
            context = ssl.create_default_context(cadata=identity.authority or None)
        except ssl.SSLError as error:
            raise ValueError(f"the certificate authority cannot be read as PEM: {error}") from error
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if identity.certificate:
        with _on_disk(identity.certificate, identity.key) as (certificate, key):
            try:
                context.load_cert_chain(certificate, key)
            except ssl.SSLError as error:
                raise ValueError(
                    f"the client's certificate and key do not match, or are not PEM: {error}"
                ) from error
    return context


@contextlib.contextmanager
def _on_disk(*texts: str) -> Iterator[list[str]]:
    """Private temporary files with these texts, since OpenSSL reads certificates and keys only from files."""
    import tempfile  # it loads slowly, and not every command needs it

    with tempfile.TemporaryDirectory(prefix="topogate-") as folder:
        paths = [Path(folder) / str(number) for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.touch(0o600)
            path.write_text(text)
        yield [str(path) for path in paths]


def keep_alive_options() -> list[tuple[int, int, int]]:
    """Socket options that detect a dead connection."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):  # macOS has other names
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


# --- proxies ------------------------------------------------------------------------------------------


def proxy_of(identity: Identity) -> str:
    """The URL of the proxy for the server, "" for none."""
    return identity.proxy or _environment_proxy(identity.server)


def _environment_proxy(server: str) -> str:
    """The proxy for a server by the environment's variables, "" for none; by the rules of Go programs."""
    address = urlsplit(server)
    proxy = _variable(f"{address.scheme}_proxy")
    if not proxy or _is_direct(address.hostname or "", address.port, _variable("no_proxy")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.upper()) or ""


def _is_direct(host: str, port: int | None, rules: str) -> bool:
    """Whether a host needs no proxy: it is loopback, or matches one of the rules (*, names, networks)."""
    import ipaddress  # few users have a proxy

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for rule in (each.strip().lower() for each in rules.split(",")):
        name = rule.removesuffix(f":{port}").removeprefix("*").removeprefix(".")
        if rule == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return True
        if address is not None and "/" in rule:
            with contextlib.suppress(ValueError, TypeError):  # ignore a rule that is not a network
                if address in ipaddress.ip_network(rule, strict=False):
                    return True
    return False
