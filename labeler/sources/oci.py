"""The place of an Oracle Cloud instance in its RDMA network, from its metadata service (version 2).

From the top: HPC island, network block, local block, host. The option ``from`` names the level to begin at:
``network-block`` (the default) gives three levels, ``hpc-island`` four.
"""

import json
from collections.abc import Callable
from threading import Event
from typing import Final

from labeler.contract.keys import LABELER_PREFIX
from labeler.facts import Facts, SourceError
from labeler.metadata import MetadataServer, url_option
from labeler.sources import Context, OptionError, Options, check_options

URL: Final = "http://169.254.169.254"
LEVELS: Final = {
    "hpc-island": "customerHPCIslandId",
    "network-block": "customerNetworkBlock",
    "local-block": "customerLocalBlock",
    "host": "customerHostId",
}
_IDENTITY: Final = {
    LABELER_PREFIX + "oci-instance-id": "/opc/v2/instance/id",
    LABELER_PREFIX + "oci-region": "/opc/v2/instance/region",
}


def create(options: Options, context: Context) -> "OciSource":
    """Source with the options ``from`` and ``url``."""
    check_options("oci", options, ("from", "url"))
    top = options.get("from", "network-block")
    if top not in LEVELS:
        raise OptionError(f"source oci: from must be one of {', '.join(LEVELS)}, is {top!r}")
    server = MetadataServer(url_option("oci", options, URL), {"Authorization": "Bearer Oracle"})
    names = list(LEVELS)
    return OciSource(server, tuple(names[names.index(str(top)) :]))


class OciSource:
    """This instance's place; none where it is not part of an RDMA network."""

    def __init__(self, server: MetadataServer, levels: tuple[str, ...]) -> None:
        """levels: of LEVELS, from the top."""
        self._server = server
        self._levels = levels

    def discover(self) -> Facts:
        """Raises SourceError where the service does not tell, or tells a place with gaps."""
        answers = {key: self._server.get(path) for key, path in _IDENTITY.items()}
        identity = {key: answer.text for key, answer in answers.items() if answer and answer.text}
        data = self._server.get("/opc/v2/host/rdmaTopologyData")
        if data is None or not data.text:
            return Facts(identity=identity)
        return Facts(topology=self._place(data.text), identity=identity)

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """The service cannot tell of changes; the loop's interval finds them."""

    def _place(self, text: str) -> tuple[str, ...]:
        try:
            data = json.loads(text)
            place = tuple(data[LEVELS[level]] for level in self._levels)
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"rdmaTopologyData without {error} in {text[:200]!r}") from error
        if not all(isinstance(level, str) and level for level in place):
            raise SourceError(f"rdmaTopologyData has an empty level: {text[:200]!r}")
        return place
