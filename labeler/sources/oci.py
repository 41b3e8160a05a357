"""The place of an Oracle Cloud instance in its RDMA network, from its metadata service (version 2).

From the top: HPC island, network block, local block, host; GPUs of GB200 and GB300 have a memory fabric (an
NVLink domain) as well. Dedicated capacity pools have ``host/rdmaTopologyData`` with all of them. Other
shapes have ``networkBlockId``, ``rackId`` and ``id`` in the document ``host``, which stand for network
block, local block and host. https://github.com/oracle-quickstart/oci-hpc-oke, labeler of August 2026
"""

from collections.abc import Callable
from threading import Event
from typing import Final

from labeler.contract.keys import LABELER_PREFIX
from labeler.facts import Facts
from labeler.metadata import (
    Look,
    MetadataServer,
    complete_place,
    parse_object,
    text_fields,
    url_option,
)
from labeler.sources import Context, OptionError, Options

URL: Final = "http://169.254.169.254"
LEVELS: Final = {
    "hpc-island": "customerHPCIslandId",
    "network-block": "customerNetworkBlock",
    "local-block": "customerLocalBlock",
    "host": "customerHostId",
}
_FABRIC: Final = "gpu-memory-fabric"
_TOPOLOGY_FIELDS: Final = {**LEVELS, _FABRIC: "customerGpuMemoryFabric"}
_HOST_FIELDS: Final = {"network-block": "networkBlockId", "local-block": "rackId", "host": "id"}
_TOPOLOGY: Final = "rdmaTopologyData"
_FABRIC_ANNOTATION: Final = LABELER_PREFIX + "oci-gpu-memory-fabric"
_IDENTITY: Final = {
    LABELER_PREFIX + "oci-instance-id": "/opc/v2/instance/id",
    LABELER_PREFIX + "oci-region": "/opc/v2/instance/region",
}

OPTIONS: Final = ("from", "levels", "url")


def create(options: Options, context: Context) -> "OciSource":
    """Source with the options ``from`` (a level to begin at) or ``levels``, and ``url`` for tests.

    levels: names of levels, coarsest first, each one or several with "|" between, of which the first that the
    instance has counts, as in ``[network-block, gpu-memory-fabric|local-block, host]``.
    """
    server = MetadataServer(url_option("oci", options, URL), {"Authorization": "Bearer Oracle"})
    if "levels" in options:
        return OciSource(server, _levels(options))
    top = options.get("from", "network-block")
    if top not in LEVELS:
        raise OptionError(f"source oci: from must be one of {', '.join(LEVELS)}, is {top!r}")
    names = list(LEVELS)
    return OciSource(server, tuple(names[names.index(str(top)) :]))


def _levels(options: Options) -> tuple[str, ...]:
    levels = options["levels"]
    if "from" in options:
        raise OptionError("source oci: give either from or levels")
    if not isinstance(levels, list) or not levels or not all(isinstance(level, str) for level in levels):
        raise OptionError(f"source oci: levels must be a list of names, coarsest first, is {levels!r}")
    for name in (name for level in levels for name in level.split("|")):
        if name not in _TOPOLOGY_FIELDS:
            raise OptionError(f"source oci: levels: {name!r} is none of {', '.join(_TOPOLOGY_FIELDS)}")
    return tuple(levels)


class OciSource:
    """This instance's place; none where it is not part of an RDMA network."""

    def __init__(self, server: MetadataServer, levels: tuple[str, ...]) -> None:
        """levels: names of LEVELS and the memory fabric, from the top."""
        self._server = server
        self._levels = levels

    def discover(self) -> Facts:
        """Raises SourceError where the service has none, or a place with gaps."""
        look = self._server.look()
        identity = look.texts(_IDENTITY)
        place = look.attempt(lambda: self._place(look))
        if place and _FABRIC in place:
            identity[_FABRIC_ANNOTATION] = place[_FABRIC]
        topology = look.attempt(lambda: self._complete(place)) if place is not None else None
        return look.result(Facts(topology=topology, identity=identity))

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """The service reports no changes; the loop's interval finds them."""

    def _place(self, look: Look) -> dict[str, str] | None:
        """What is known of the place, by level; None where the instance is in no RDMA network."""
        data = look.get(f"/opc/v2/host/{_TOPOLOGY}")
        if data is not None and data.text:
            return text_fields(parse_object(data.text, _TOPOLOGY), _TOPOLOGY_FIELDS)
        host = look.get("/opc/v2/host")
        if host is None or not host.text:
            return None
        document = parse_object(host.text, "the host document")
        if isinstance(embedded := document.get(_TOPOLOGY), dict):
            return text_fields(embedded, _TOPOLOGY_FIELDS)
        place = text_fields(document, _HOST_FIELDS)
        return place if {"network-block", "local-block"} & place.keys() else None

    def _complete(self, place: dict[str, str]) -> tuple[str, ...]:
        return complete_place(place, self._levels, f"{_TOPOLOGY} or the host document")
