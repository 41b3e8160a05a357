"""Claims, volumes, storage classes and what drivers tell, kept current for pods that wait with such volumes.

Nobody waits for these: without the right to read them pods are placed as if their volumes were everywhere,
and the user is told so.
"""

from collections.abc import Callable

from webhook.kube import drivers
from webhook.kube.client import Api
from webhook.kube.drivers import CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment
from webhook.kube.informer import Informer
from webhook.kube.storage import (
    CLAIMS,
    CLASSES,
    VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from webhook.scheduling.storage import Storage


class Volumes:
    """Live copies of all that decides where volumes can be used. Safe for use by many threads."""

    def __init__(self, api: Api, on_change: Callable[[], None]) -> None:
        """Prepare. on_change is called, in some thread, when something has changed and was asked for."""
        self._on_change = on_change
        self._is_wanted = False
        self._claims = Informer(api, CLAIMS, PersistentVolumeClaim, on_event=self._note)
        self._volumes = Informer(api, VOLUMES, PersistentVolume, on_event=self._note)
        self._classes = Informer(api, CLASSES, StorageClass, on_event=self._note)
        self._nodes = Informer(api, drivers.NODES, CSINode, on_event=self._note)
        self._drivers = Informer(api, drivers.DRIVERS, CSIDriver, on_event=self._note)
        self._capacities = Informer(api, drivers.CAPACITIES, CSIStorageCapacity, on_event=self._note)
        self._attachments = Informer(api, drivers.ATTACHMENTS, VolumeAttachment, on_event=self._note)
        self._all = (
            self._claims, self._volumes, self._classes,
            self._nodes, self._drivers, self._capacities, self._attachments,
        )  # fmt: skip

    def start(self) -> None:
        """Begin to list and watch."""
        for each in self._all:
            each.start()

    def stop(self) -> None:
        """End all watches."""
        for each in self._all:
            each.stop()

    def storage(self) -> Storage | None:
        """What is known now, None before all has been read. Only asked for when a waiting pod has volumes."""
        self._is_wanted = True
        if not all(each.synced for each in self._all):
            return None
        return Storage(
            self._claims.items(),
            self._volumes.items(),
            self._classes.items(),
            self._nodes.items(),
            self._drivers.items(),
            list(self._capacities.items().values()),
            list(self._attachments.items().values()),
        )

    def nobody_waits(self) -> None:
        """No waiting pod has volumes: changes need not be told until storage() is called again."""
        self._is_wanted = False

    def _note(self, before: object, after: object) -> None:
        if self._is_wanted:
            self._on_change()
