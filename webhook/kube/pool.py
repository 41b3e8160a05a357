"""The transport of programs that run for long: urllib3's pool of connections, for many threads."""

from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection

from webhook.kube.identity import CONNECT_SECONDS, Identity, keep_alive_options, proxy_of, tls_of


class Pool:
    """Connections under one identity. Safe for use by many threads."""

    errors: Final = (urllib3.exceptions.HTTPError, OSError)
    """What `send` and the answer raise where no answer comes, or only a part of it."""
    unsent: Final = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
    """Those of them where there was no connection to send by."""

    def __init__(self, identity: Identity, size: int) -> None:
        """size: so many connections are kept alive. Raises OSError, ValueError."""
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
        """One request, never repeated. Raises `errors`."""
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
        """Close the idle connections, now: the manager would leave that to the garbage collector."""
        pools = [self.manager.pools.get(key) for key in self.manager.pools.keys()]  # noqa: SIM118 (it has no iterator)
        self.manager.clear()
        for pool in pools:
            if pool is not None:
                pool.close()


def manager_of(identity: Identity, size: int) -> urllib3.PoolManager:
    """Connections under that identity, at most `size` of them kept alive. Raises OSError, ValueError."""
    usual = [each for each in HTTPConnection.default_socket_options if isinstance(each[2], int)]
    options: dict[str, Any] = {"maxsize": size, "socket_options": [*usual, *keep_alive_options()]}
    if urlsplit(identity.server).scheme == "https":
        options["ssl_context"] = tls_of(identity)
        if identity.server_name:
            options["server_hostname"] = identity.server_name
    if not identity.is_verified:
        # Who wrote insecure-skip-tls-verify knows it, and kubectl does not repeat it either.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    proxy = proxy_of(identity)
    if not proxy:
        return urllib3.PoolManager(**options)
    if urlsplit(proxy).scheme.startswith("socks"):
        import importlib.util

        if importlib.util.find_spec("socks") is None:  # urllib3 would only warn
            raise ValueError(f"proxy {proxy} needs the package PySocks: pip install PySocks")
        from urllib3.contrib.socks import SOCKSProxyManager

        return SOCKSProxyManager(proxy, **options)
    secret = urllib3.util.parse_url(proxy).auth
    headers = urllib3.make_headers(proxy_basic_auth=secret) if secret else None
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
