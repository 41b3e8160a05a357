"""Device classes, slices, claims and templates, kept current from the first pod on that waits with claims.

Nothing of it is read before, but for the classes, of which there are few: they say which extended resources
are claims, and whether there are GPUs to count. On a cluster without claims it costs nothing, and needs not
be served.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from webhook.devices.selectors import Selectors
from webhook.devices.supply import Supply
from webhook.kube.client import Api, ApiError
from webhook.kube.devices import (
    CLAIMS,
    CLASSES,
    GROUP,
    SLICES,
    TEMPLATES,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from webhook.kube.informer import Informer

FIRST_SECONDS: Final = 3.0
"""How long the pass that meets the first claim waits for all of it to be read."""

ASK_AGAIN_SECONDS: Final = 600.0
"""How often an API server without claims is asked whether it has them by now."""

NOT_FOUND: Final = 404

UNREAD: Final = (
    "the devices of the cluster have not been read yet: the sweeper needs the right to list and watch "
    "{missing} of resource.k8s.io"
)


class Devices:
    """Live copies of all that decides who gets which devices. Safe for use by many threads."""

    def __init__(self, api: Api, on_change: Callable[[], None], on_freed: Callable[[], None]) -> None:
        """Prepare. on_change is called, in some thread, when something has changed and was asked for.

        on_freed: called when more may be free than before, or other devices.
        """
        self._on_change = on_change
        self._on_freed = on_freed
        self._is_complete = False
        self._is_wanted = self._is_started = self._reads_classes = False
        self._api = api
        self._ask_again = 0.0
        self._is_stale = True
        self._slices = Informer(api, SLICES, ResourceSlice, on_event=self._note)
        self._classes = Informer(api, CLASSES, DeviceClass, on_event=self._note_class)
        self._claims = Informer(api, CLAIMS, ResourceClaim, on_event=self._note_claim)
        self._templates = Informer(api, TEMPLATES, ResourceClaimTemplate, on_event=self._note)
        self._all: dict[str, Informer[Any]] = {
            "resourceslices": self._slices,
            "deviceclasses": self._classes,
            "resourceclaims": self._claims,
            "resourceclaimtemplates": self._templates,
        }
        self._supply = Supply(Selectors(time.monotonic))

    def stop(self) -> None:
        """End all watches."""
        for each in self._all.values():
            if self._is_started or (each is self._classes and self._reads_classes):
                each.stop()

    def supply(self) -> Supply:
        """What is known now. Only asked for when a waiting pod has claims."""
        self._is_wanted = True
        if not self._is_started:
            self._start()
        missing = [name for name, each in self._all.items() if not each.synced]
        self._supply.problem = UNREAD.format(missing=", ".join(missing)) if missing else ""
        if missing:
            return self._supply
        if not self._is_complete or self._supply.is_undecided:
            self._is_complete = True
            self._is_stale = True
            self._on_freed()
        if self._is_stale:
            self._is_stale = False  # before the copies are read: what changes meanwhile is read again
            self._supply.update(
                self._slices.items().values(),
                self._classes.items(),
                self._claims.items(),
                self._templates.items(),
            )
        return self._supply

    def _start(self) -> None:
        """Begin to read, and wait a moment."""
        self._is_started = True
        for each in self._all.values():
            if each is not self._classes or not self._reads_classes:
                each.start()
        self._reads_classes = True
        deadline = time.monotonic() + FIRST_SECONDS
        for each in self._all.values():
            each.wait_synced(max(0.0, deadline - time.monotonic()))

    def classes(self) -> Mapping[str, DeviceClass]:
        """The DeviceClasses by name; none while they are not known.

        Where claims are not served at all, that is asked again now and then.
        """
        if not self._reads_classes:
            if time.monotonic() < self._ask_again:
                return {}
            if not _serves(self._api):
                self._ask_again = time.monotonic() + ASK_AGAIN_SECONDS
                return {}
            self._reads_classes = True
            self._classes.start()
            self._classes.wait_synced(FIRST_SECONDS)
        return self._classes.items()

    def nobody_waits(self) -> None:
        """No waiting pod has claims: changes need not be told until supply() is called again."""
        self._is_wanted = False

    def _note_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """A claim that is given devices takes room, and who is meant to use it changes none."""
        if before is None or after is None or _frees_devices(before, after):
            self._on_freed()
        self._is_stale = True
        if self._is_wanted:
            self._on_change()

    def _note_class(self, before: DeviceClass | None, after: DeviceClass | None) -> None:
        self._note(before, after)
        if not self._is_wanted:
            self._on_change()

    def _note(self, before: object, after: object) -> None:
        self._on_freed()
        self._is_stale = True
        if self._is_wanted:
            self._on_change()


def _serves(api: Api) -> bool:
    """Whether the API server has claims; what cannot be asked is believed to be there."""
    try:
        api.request("GET", GROUP)
    except ApiError as error:
        return error.status != NOT_FOUND
    return True


def _frees_devices(before: ResourceClaim, after: ResourceClaim) -> bool:
    allocation = before.status.allocation
    is_going = before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
    return (
        is_going
        or before.spec != after.spec
        or (allocation is not None and allocation != after.status.allocation)
    )
