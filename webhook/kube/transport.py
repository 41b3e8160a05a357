"""The transport of long-running programs: the connections of the kubernetes package, under our identity.

The package makes the connection pool (TLS, proxies, SOCKS, server name, keep-alive). We use no more of it:

- call_api has no time-out for the whole call besides the one for the connection, and sends a JSON patch in
  bytes as a strategic merge patch.
- Its kubeconfig uses the last current-context of two files, ignores `as`, and continues anonymously if a
  plugin fails. See kubeconfig.
- Its leader election never stops leading while the server hangs. See lease.
"""

from typing import Final
from urllib.parse import urlsplit

import urllib3
from kubernetes.client import ApiClient, Configuration
from urllib3.connection import HTTPConnection

from webhook.kube.identity import CONNECT_SECONDS, Identity, keep_alive_options, proxy_of, tls_of


class Transport:
    """Connections under one identity. Thread-safe."""

    errors: Final = (urllib3.exceptions.HTTPError, OSError)
    """Exceptions of `send` and of the answer if it is missing or incomplete."""
    unsent: Final = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
    """Those of them without a connection, so that nothing was sent."""

    def __init__(self, identity: Identity, size: int) -> None:
        """size: the number of connections kept alive. Raises OSError, ValueError."""
        self.manager = manager_of(identity, size)

    def send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: dict[str, str],
        seconds: float,
        preload: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        """One request without retries. Raises `errors`."""
        return self.manager.request(
            method,
            url,
            body=body,
            headers=headers,
            timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds, total=seconds),
            retries=False,
            redirect=False,
            preload_content=preload,
        )

    def close(self) -> None:
        """Close the idle connections now; the manager would leave that to the garbage collector."""
        pools = [self.manager.pools.get(key) for key in self.manager.pools.keys()]  # noqa: SIM118 (it has no iterator)
        self.manager.clear()
        for pool in pools:
            if pool is not None:
                pool.close()


def manager_of(identity: Identity, size: int) -> urllib3.PoolManager:
    """The package's connections under that identity, `size` kept alive. Raises OSError, ValueError."""
    usual = [each for each in HTTPConnection.default_socket_options if isinstance(each[2], int)]
    configuration = Configuration(
        host=identity.server, retries=0, tls_server_name=identity.server_name or None
    )
    configuration.verify_ssl = identity.is_verified
    configuration.connection_pool_maxsize = size
    configuration.socket_options = [*usual, *keep_alive_options()]
    configuration.no_proxy = None  # proxy_of has applied it, as Go programs do
    configuration.proxy = proxy_of(identity) or None
    if configuration.proxy:
        secret = urllib3.util.parse_url(configuration.proxy).auth
        configuration.proxy_headers = urllib3.make_headers(proxy_basic_auth=secret) if secret else None
    if not identity.is_verified:
        # The user chose insecure-skip-tls-verify, and kubectl does not warn either.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    try:
        manager: urllib3.PoolManager = ApiClient(configuration).rest_client.pool_manager
    except ImportError as error:
        raise ValueError(
            f"proxy {configuration.proxy} needs the package PySocks: pip install PySocks"
        ) from error
    if urlsplit(identity.server).scheme == "https":
        # The package would read keys from files for each connection; this way they are not left on disk.
        manager.connection_pool_kw["ssl_context"] = tls_of(identity)
    return manager
