"""Who talks to which API server, and the pool of connections that follows from it.

The rest of the project imports no kubernetes package: its models take half a second to load, which a person
at a terminal waits for and every replica keeps in memory.
"""

import contextlib
import importlib.util
import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.util.ssl_ import create_urllib3_context

from webhook.kube.tokens import TokenFile

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9))
"""As client-go asks the kernel: a connection that a firewall has forgotten is found out in three minutes."""


class Credential(Protocol):
    """What proves who asks. Safe for use by many threads."""

    def header(self) -> str:
        """The value of an Authorization header, as it is now."""

    def renew(self, refused: str) -> bool:
        """After a header was refused: whether there is another one now."""


@dataclass(frozen=True)
class Fixed:
    """A credential that does not change."""

    value: str

    def header(self) -> str:
        """The value it was made with."""
        return self.value

    def renew(self, refused: str) -> bool:
        """There is no other."""
        return False


@dataclass(frozen=True)
class Identity:
    """One user of one API server.

    server: its URL. authority: whom to trust (PEM), the system's where empty. certificate, key: the client's
    (PEM). server_name: what the server's certificate must be for, if not its address. proxy: a URL, "" to ask
    the environment. acting_as: the user to impersonate.
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


def of_this_pod(folder: Path = SERVICE_ACCOUNT) -> Identity:
    """The pod's own ServiceAccount. Raises OSError, or ValueError outside of a pod."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ValueError(
            "KUBERNETES_SERVICE_HOST and _PORT are not set: this is no pod, so name a kubeconfig"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token = TokenFile(folder / "token")
    return Identity(server, authority=(folder / "ca.crt").read_text(), credential=token)


def pool_of(identity: Identity, size: int) -> urllib3.PoolManager:
    """Connections under that identity, at most `size` of them kept alive. Raises OSError, ValueError."""
    options: dict[str, Any] = {"maxsize": size, "socket_options": _socket_options()}
    if urlsplit(identity.server).scheme == "https":
        options["ssl_context"] = _context(identity)
        if identity.server_name:
            options["server_hostname"] = identity.server_name
    proxy = identity.proxy or _environment_proxy(identity.server)
    if not proxy:
        return urllib3.PoolManager(**options)
    if urlsplit(proxy).scheme.startswith("socks"):
        if importlib.util.find_spec("socks") is None:  # urllib3 would only warn
            raise ValueError(f"proxy {proxy} needs the package PySocks: pip install PySocks")
        from urllib3.contrib.socks import SOCKSProxyManager

        return SOCKSProxyManager(proxy, **options)
    secret = urllib3.util.parse_url(proxy).auth
    headers = urllib3.make_headers(proxy_basic_auth=secret) if secret else None
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **options)


def _context(identity: Identity) -> ssl.SSLContext:
    required = ssl.CERT_REQUIRED if identity.is_verified else ssl.CERT_NONE
    context = create_urllib3_context(cert_reqs=required)
    if not identity.is_verified:
        # Who wrote insecure-skip-tls-verify knows it, and kubectl does not repeat it either.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    try:
        if identity.authority:
            context.load_verify_locations(cadata=identity.authority)
        elif identity.is_verified:
            context.load_default_certs()
    except ssl.SSLError as error:
        raise ValueError(f"the certificate authority cannot be read as PEM: {error}") from error
    if identity.certificate:
        with _on_disk(identity.certificate, identity.key) as (certificate, key):
            try:
                context.load_cert_chain(certificate, key)
            except ssl.SSLError as error:
                raise ValueError(
                    f"the client's certificate and key do not go together, or are no PEM: {error}"
                ) from error
    return context


@contextlib.contextmanager
def _on_disk(*texts: str) -> Iterator[list[str]]:
    """Files for as long as OpenSSL reads them, which it does from files alone; for nobody else to read."""
    with tempfile.TemporaryDirectory(prefix="topogate-") as folder:
        paths = [Path(folder) / str(number) for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.touch(0o600)
            path.write_text(text)
        yield [str(path) for path in paths]


def _socket_options() -> list[tuple[int, int, int]]:
    options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):  # not everywhere: macOS has other names
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return [(level, option, value) for level, option, value in options if isinstance(value, int)]


# --- proxies of the environment -----------------------------------------------------------------


def _environment_proxy(server: str) -> str:
    """The proxy that the environment names for a server, "" for none; read as Go's programs read it."""
    address = urlsplit(server)
    proxy = _variable(f"{address.scheme}_proxy")
    if not proxy or _is_direct(address.hostname or "", address.port, _variable("no_proxy")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.upper()) or ""


def _is_direct(host: str, port: int | None, rules: str) -> bool:
    """Whether a host is reached without the proxy: loopback, or one of the rules: *, names, networks."""
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
            with contextlib.suppress(ValueError, TypeError):  # what is no network excepts nothing
                if address in ipaddress.ip_network(rule, strict=False):
                    return True
    return False
