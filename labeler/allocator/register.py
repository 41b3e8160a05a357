"""Keeps each plugin registered with the kubelet, through restarts of either.

The kubelet removes all sockets of its folder when it starts, and forgets a plugin whose stream of devices
ends. So both are watched: the plugin's socket, and whether the kubelet listens. Each registration serves on a
socket of a new name, because closing a server removes the file of its name, whichever server's it is by then.
"""

import contextlib
import fcntl
import logging
import secrets
import socket
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import grpc

from labeler.allocator import metrics
from labeler.allocator.listing import ListingError, PodResources
from labeler.allocator.plugin import HEALTHY, Plugin
from labeler.allocator.plugin_server import Serving, serve
from labeler.allocator.wire import deviceplugin_pb2 as wire

log: Final = logging.getLogger(__name__)

VERSION: Final = "v1beta1"
PREFIX: Final = "topogate-"
KUBELET: Final = "kubelet.sock"
LOOK_SECONDS: Final = 0.2
"""Between looks: a kubelet that starts again refuses pods until its plugins are registered."""
SUCCESSION_SECONDS: Final = 0.02
"""Between looks while the kubelet still lists devices of an allocator that has just ended."""
LISTEN_SECONDS: Final = 3.0
"""How long after a registration the kubelet may take to ask for the devices."""
REGISTER_SECONDS: Final = 3.0
"""How long it may take to answer a registration."""
COMPETITOR_SECONDS: Final = 3.0
"""How long healthy devices of the resource may outlive the allocator that offered them."""
_COMPETITOR_RETRY_SECONDS: Final = 5.0
_DOUBTS: Final = 2
"""So many looks in a row that find other devices than ours: one may be between two changes."""


class LockedError(Exception):
    """Another allocator serves this node."""


def lock(folder: Path, vendor: str) -> IO[str]:
    """Hold a vendor's cards of the node for this process.

    Raises LockedError, or OSError if the folder is not there.
    """
    file = (folder / f"{PREFIX}{vendor}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise LockedError(f"another allocator holds {file.name}") from None
    return file


class Registration:
    """One plugin's life with the kubelet."""

    def __init__(
        self,
        plugin: Plugin,
        folder: Path,
        kubelet: PodResources,
        competitors: Sequence[str] = (),
        vendor: str = "intel",
    ) -> None:
        """folder: the kubelet's of plugin sockets. competitors: other plugins' socket names."""
        self._vendor = vendor
        self._plugin = plugin
        self._folder = folder
        self._kubelet = kubelet
        self._competitors = tuple(competitors)
        self._server: Serving | None = None
        self._socket: Path | None = None
        self._registered_at = float("-inf")
        self._opened_before = 0
        self._try_at = 0.0
        self._look_at = 0.0
        self._doubts = 0
        self._competitor_since: float | None = None
        self.problem = "not registered yet"
        """Why the kubelet does not listen, "" while it does or there is nothing to offer."""

    def run(self, stop: threading.Event) -> None:
        """Look several times a second until stopped."""
        while not stop.is_set():
            try:
                self.poll(time.monotonic())
            except Exception:  # whatever it was, the next attempt must follow
                log.exception("%s: a step failed", self._plugin.resource)
            stop.wait(self.pause(time.monotonic()))
        self.close()

    def pause(self, now: float) -> float:
        """Seconds until the next look."""
        succeeds = self._competitor_since is not None and not self._is_conflict(now)
        return SUCCESSION_SECONDS if succeeds else LOOK_SECONDS

    def poll(self, now: float) -> None:
        """Do what is to be done now; now: seconds of a monotonic clock."""
        resource = self._plugin.resource
        metrics.REGISTERED.labels(resource).set(self._plugin.is_listened_to)
        if not self._plugin.devices():
            self.problem = ""  # nothing to offer: cards may come later
            return
        if self._server is not None and self._socket is not None and not self._socket.exists():
            log.info("%s: the kubelet has removed our socket, serving again", resource)
            self._stop_serving()
        if self._plugin.is_listened_to:
            self._watch_for_competitors(now)
            return
        self._look_at, self._doubts = now + _COMPETITOR_RETRY_SECONDS, 0
        is_pending = self._plugin.opened == self._opened_before and now - self._registered_at < LISTEN_SECONDS
        if now < self._try_at or is_pending:
            return
        if not (self._folder / KUBELET).exists():
            self.problem = f"there is no {self._folder / KUBELET}"
            self._competitor_since = None  # its next list may begin with our own devices of before
            return
        competitor = self._competitor(now)
        if competitor:
            self._try_at = now + (_COMPETITOR_RETRY_SECONDS if self._is_conflict(now) else self.pause(now))
            return
        self._register(now)

    def close(self) -> None:
        """Serve no more; the kubelet takes the devices for unhealthy from then on."""
        self._stop_serving()

    def _register(self, now: float) -> None:
        resource = self._plugin.resource
        try:
            if self._server is None:
                name = f"{self._vendor}-{resource.rpartition('/')[2]}"  # a path has 107 characters at most
                self._socket = self._folder / f"{PREFIX}{name}-{secrets.token_hex(4)}.sock"
                self._server = serve(self._plugin, self._socket)
            assert self._socket is not None, "a server has a socket"
            self._opened_before = self._plugin.opened
            register(self._folder / KUBELET, self._socket.name, self._plugin)
        except (OSError, grpc.RpcError) as error:
            problem = f"the kubelet does not take the registration: {_words(error)}"
            if problem != self.problem:
                log.warning("%s: %s", resource, problem)
            self.problem = problem
            return
        self._registered_at = now
        self.problem = ""
        metrics.REGISTRATIONS.labels(resource).inc()
        log.info("%s: registered with %d devices", resource, len(self._plugin.devices()))

    def _stop_serving(self) -> None:
        server, self._server, self._socket = self._server, None, None
        self._registered_at = float("-inf")
        if server is not None:
            server.stop()

    def _competitor(self, now: float) -> str:
        """The other plugin that offers the resource, "" for none; never two plugins for one resource."""
        found = next((name for name in self._competitors if _listens(self._folder / name)), "")
        if not found:
            try:
                devices = self._kubelet.healthy(self._plugin.resource)
            except ListingError as error:
                found, self.problem = "unknown", str(error)
                self._competitor_since = None  # not a competitor's fault
                return found
            found = f"a plugin with {len(devices)} devices" if devices else ""
        if not found:
            self._competitor_since = None
            metrics.CONFLICT.labels(self._plugin.resource).set(0)
            return ""
        if self._competitor_since is None:
            self._competitor_since = now
        self.problem = f"{found} offers {self._plugin.resource} already; remove it, or this allocator"
        if self._is_conflict(now):
            metrics.CONFLICT.labels(self._plugin.resource).set(1)
            log.error("not registered: %s", self.problem)
        return found

    def _is_conflict(self, now: float) -> bool:
        """What the kubelet still lists may be our own devices of before a restart: it drops them at once."""
        return self._competitor_since is not None and now - self._competitor_since >= COMPETITOR_SECONDS

    def _watch_for_competitors(self, now: float) -> None:
        """A plugin that registers after us takes the resource, and leaves it without devices when it ends.

        The kubelet does not report this and keeps listening to us; only its list of devices shows it.
        """
        if now < self._look_at:
            return
        self._look_at = now + _COMPETITOR_RETRY_SECONDS
        resource = self._plugin.resource
        found = next((name for name in self._competitors if _listens(self._folder / name)), "")
        if not found:
            devices = self._plugin.devices()
            own = {device.ID for device in devices if device.health == HEALTHY}
            try:
                listed = self._kubelet.healthy(resource)
            except ListingError as error:
                log.warning("%s: %s", resource, error)
                return
            self._doubts = 0 if listed == own else self._doubts + 1
            strange = listed - {device.ID for device in devices}
            if self._doubts >= _DOUBTS and strange:
                found = f"a plugin with {len(listed)} devices"
            elif self._doubts >= _DOUBTS:
                log.warning("%s: the kubelet has lost our devices, registering again", resource)
                self._stop_serving()
                self._try_at = now
        metrics.CONFLICT.labels(resource).set(bool(found))
        self.problem = f"{found} took {resource} over; remove it, or this allocator" if found else ""
        if found:
            log.error("%s", self.problem)


def register(kubelet: Path, endpoint: str, plugin: Plugin) -> None:
    """Register a plugin that is served with the kubelet. Raises grpc.RpcError."""
    with grpc.insecure_channel(
        f"unix:{kubelet}", options=[("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0)]
    ) as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=wire.RegisterRequest.SerializeToString,
            response_deserializer=wire.Empty.FromString,
        )
        request = wire.RegisterRequest(
            version=VERSION, endpoint=endpoint, resource_name=plugin.resource, options=plugin.options()
        )
        call(request, timeout=REGISTER_SECONDS)


def remove_leftovers(folder: Path, vendor: str) -> None:
    """Sockets of the vendor's allocators that were killed. Call it while holding the lock."""
    for path in folder.glob(f"{PREFIX}{vendor}-*.sock"):
        with contextlib.suppress(OSError):
            path.unlink()


def _listens(path: Path) -> bool:
    """Whether a server answers on a socket."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            probe.connect(str(path))
    except OSError:
        return False
    return True


def _words(error: Exception) -> str:
    if isinstance(error, grpc.RpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
