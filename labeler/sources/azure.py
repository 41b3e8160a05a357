"""Who an Azure virtual machine is and in which InfiniBand cluster, from the instance metadata service.

Azure publishes no switches. Machines of one placement group of a scale set are in one InfiniBand cluster. A
place is the zone (the region, where it has none), the placement group, and the machine. Machines outside of
a placement group have no place.
https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service
"""

from collections.abc import Callable
from threading import Event
from typing import Final

from labeler.contract.keys import LABELER_PREFIX
from labeler.facts import Facts, SourceError
from labeler.metadata import MetadataServer, parse_object, text_fields, url_option
from labeler.sources import Context, Options

URL: Final = "http://169.254.169.254"
_COMPUTE: Final = "/metadata/instance/compute?api-version=2021-02-01"
_IDENTITY: Final = {
    LABELER_PREFIX + "azure-vm-id": "vmId",
    LABELER_PREFIX + "azure-vm-size": "vmSize",
    LABELER_PREFIX + "azure-region": "location",
    LABELER_PREFIX + "azure-scale-set": "vmScaleSetName",
    LABELER_PREFIX + "azure-placement-group-id": "placementGroupId",
    LABELER_PREFIX + "azure-fault-domain": "platformFaultDomain",
}
_PLACE: Final = {"region": "location", "zone": "zone", "group": "placementGroupId", "machine": "vmId"}

OPTIONS: Final = ("url",)


def create(options: Options, context: Context) -> "AzureMetadataSource":
    """Source with the option ``url``, for tests."""
    return AzureMetadataSource(MetadataServer(url_option("azure", options, URL), {"Metadata": "true"}))


class AzureMetadataSource:
    """This machine's identity, and its place where it is in a placement group."""

    def __init__(self, server: MetadataServer) -> None:
        self._server = server

    def discover(self) -> Facts:
        """Raises SourceError where the service gives no answer, or one without the machine's id or region."""
        look = self._server.look()
        answer = look.get(_COMPUTE)
        if answer is None:
            raise SourceError(f"the metadata service has no {_COMPUTE}: this is no virtual machine of Azure")
        document = parse_object(answer.text, "the document compute")
        place = look.attempt(lambda: _place(text_fields(document, _PLACE)))
        return look.result(Facts(topology=place, identity=look.fields(document, _IDENTITY)))

    def watch(self, changed: Callable[[], None], stop: Event) -> None:
        """A machine's place changes with its start alone; the loop's interval finds it."""


def _place(known: dict[str, str]) -> tuple[str, str, str] | None:
    if missing := [name for name in ("region", "machine") if name not in known]:
        raise SourceError(f"the document compute has no {_PLACE[missing[0]]}, it has {known}")
    if "group" not in known:
        return None
    zone = f"{known['region']}-{known['zone']}" if "zone" in known else known["region"]
    return zone, known["group"], known["machine"]
