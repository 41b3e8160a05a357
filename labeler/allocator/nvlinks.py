"""Which NVIDIA GPUs are joined by NVLinks, asked of NVIDIA's library (the extra ``nvidia`` of the package).

The library is opened for each look and closed after it: one that stays open knows nothing of a driver that
was loaded again, and keeps it from being unloaded.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

log: Final = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""How long an answer is good. Links come up after the driver, on NVSwitches only by the fabric manager."""
ANSWER_SECONDS: Final = 3.0
"""How long a pod waits for a look. The first one starts GPUs that nobody uses and nothing keeps started."""

Links = Mapping[frozenset[str], int]
"""How many NVLinks join two GPUs, by their PCI addresses. Links to switches join every two GPUs there."""


def library() -> Any:
    """NVIDIA's library; None where it is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


class NvLinks:
    """The links of one node, looked at now and then."""

    def __init__(
        self, nvml: Any, clock: Callable[[], float] = time.monotonic, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        """nvml: the library, None without one."""
        self._nvml = nvml
        self._clock = clock
        self._answer_seconds = answer_seconds
        self._links: Links = {}
        self._good_until = float("-inf")
        self._problem = ""
        self._starting = threading.Lock()
        self._look: threading.Thread | None = None

    def now(self, gpus: Collection[str]) -> Links:
        """The links, as they were up to a minute ago; the last known ones where the library does not answer.

        gpus: the PCI addresses of all GPUs, also of those that do not answer. The look has a thread of its
        own: a driver in trouble may never answer, and the kubelet asks without a limit of time.
        """
        with self._starting:
            if self._nvml is None or self._clock() < self._good_until:
                return self._links
            if self._look is not None and self._look.is_alive():
                return self._links  # it was waited for already
            look = self._look = threading.Thread(
                target=self._refresh, args=(gpus,), name="nvlinks", daemon=True
            )
            look.start()
        look.join(self._answer_seconds)
        if look.is_alive():
            self._log_problem(
                f"NVIDIA's library does not answer within {self._answer_seconds:g} s, the last known NVLinks "
                f"count ({len(self._links)}): run nvidia-smi on the node, which may hang as well"
            )
        return self._links

    def _refresh(self, gpus: Collection[str]) -> None:
        """Look once, however long that takes."""
        try:
            self._nvml.nvmlInit()
            try:
                handles = handles_of(self._nvml)
                self._links = links_of(self._nvml, handles, gpus)
            finally:
                self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            self._log_problem(
                f"NVLinks cannot be looked at, the last known ones count ({len(self._links)}): {error}"
            )
            return
        unseen = ", ".join(sorted(set(gpus) - handles.keys()))
        self._log_problem(
            f"NVIDIA's library does not see {unseen}, so their NVLinks are not known: they are lost, or the "
            "allocator's container has not got all cards"
            if unseen
            else ""
        )
        self._good_until = self._clock() + LOOK_SECONDS

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("%s", problem)
        self._problem = problem


def links_of(nvml: Any, handles: Mapping[str, Any], gpus: Collection[str] = ()) -> Links:
    """The links of the GPUs that answer, by a library with NVML's functions. Raises its NVMLError.

    handles: of the GPUs that answer, as `handles_of` finds them. gpus: also those that do not.
    """
    known = {*handles, *gpus}
    links: dict[frozenset[str], int] = {}
    switched: dict[str, int] = {}
    for address, handle in handles.items():
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                    continue
                other = address_of(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
            except nvml.NVMLError:
                continue  # this card has fewer links, or its driver has NVLinks switched off
            if other in known:
                pair = frozenset((address, other))
                links[pair] = links.get(pair, 0) + (address < other)  # each link is reported from both ends
            else:
                switched[address] = switched.get(address, 0) + 1
    for one in switched:
        for other in switched:
            if one < other:
                links[frozenset((one, other))] = min(switched[one], switched[other])
    return links


def handles_of(nvml: Any) -> dict[str, Any]:
    """The library's handles by PCI address; a GPU that is lost hides no other. Raises its NVMLError."""
    handles = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            handles[address_of(nvml.nvmlDeviceGetPciInfo(handle).busId)] = handle
        except nvml.NVMLError as error:
            log.debug("GPU %d does not answer: %s", index, error)
    return handles


def address_of(bus_id: bytes | str) -> str:
    """NVML's 00000000:3A:00.0 as the kernel writes it."""
    text = (bus_id.decode() if isinstance(bus_id, bytes) else bus_id).lower()
    domain, _, rest = text.partition(":")
    return f"{int(domain, 16):04x}:{rest}"
