"""One reading of the cluster: everything that a pass of the sweeper would see, listed once."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

import msgspec

from webhook.configuration.cluster import read_configuration
from webhook.configuration.document import ConfigurationError
from webhook.kube import drivers, placements, volume_objects
from webhook.kube.client import Api, ApiError
from webhook.kube.complaints import EVENTS, FAILED_CREATE, Complaint
from webhook.kube.decoding import decoded, key_of
from webhook.kube.disruption_budgets import BUDGETS, PodDisruptionBudget
from webhook.kube.objects import Metadata, Namespace, Node, ObjectList, OwnerReference, Pod
from webhook.kube.placements import Placement
from webhook.kube.state_config_map import path_of
from webhook.kube.times import since_1970
from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.scheduling.budgets import Budgets
from webhook.scheduling.storage import Storage
from webhook.sweeper.observe.cache import FAILED, NAMESPACES, NODES, PODS, UNFINISHED
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts
from webhook.sweeper.observe.lost_owners import MOST_LEVELS
from webhook.sweeper.observe.membership import LostOwner, has_owners
from webhook.sweeper.observe.owner_existence import OwnerExistence
from webhook.sweeper.observe.owner_sizes import Complaints, Owners
from webhook.sweeper.observe.watches import WatchedCollection

PAGE_SIZE: Final = 500
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/topogate-system/leases/topogate-sweeper"
OWNERS_SECONDS: Final = 10.0

T = TypeVar("T")

LostOwnerOf = Callable[[Pod], LostOwner | None]
"""As LostOwners.of."""

LookUpOwner = Callable[[str, OwnerReference], Metadata | None]
"""As Owners.metadata_of."""


@dataclass(frozen=True)
class ClusterReading:
    """One reading of the cluster."""

    pods: tuple[Pod, ...]
    nodes: Mapping[str, Node]
    placements: Mapping[str, Placement]
    size_of: Callable[[GangKey], OwnerFacts]
    read_storage: Callable[[], Storage | None] = lambda: None
    read_namespaces: Callable[[], NamespaceLabels | None] = lambda: None
    read_record: Callable[[str], Mapping[str, str] | None] = lambda _: None
    read_owners: Callable[[str], Mapping[str, Any] | None] = lambda _: None
    read_objects: Callable[[WatchedCollection[Any]], Mapping[str, Any] | None] = lambda _: None
    read_policy: Callable[[], Policy | None] = lambda: None
    read_budgets: Callable[[], Budgets] = Budgets
    read_failed: Callable[[], Sequence[Pod]] = tuple
    read_leads_since: Callable[[], float | None] = lambda: None
    read_lost_owners: Callable[[Sequence[Pod]], LostOwnerOf] = lambda _: has_owners

    @classmethod
    def read(cls, api: Api) -> "ClusterReading":
        """List what is needed. Raises ApiError."""
        with _owners(api) as owners:
            pods = tuple(read_all(api, PODS, Pod, fieldSelector=UNFINISHED))
            nodes = {node.metadata.name: node for node in read_all(api, NODES, Node)}
            found = {_name(each): each for each in read_all(api, placements.ALL, Placement)}
        return cls(
            pods,
            nodes,
            found,
            _asker(api, owners),
            functools.cache(lambda: _storage(api)),
            functools.cache(lambda: _namespaces(api)),
            functools.cache(lambda name: record_of(api, name)),
            owners.all_of,
            functools.cache(lambda collection: _objects(api, collection)),
            functools.cache(lambda: _policy(api)),
            functools.cache(lambda: _budgets(api)),
            functools.cache(lambda: tuple(read_all(api, PODS, Pod, fieldSelector=FAILED))),
            functools.cache(lambda: leads_since(api)),
            lambda pods: _lost_owners(api, owners.metadata_of, pods),
        )

    @classmethod
    def read_nodes(cls, api: Api) -> "ClusterReading":
        """Only nodes, and devices as far as they may be read: what is there. Raises ApiError."""
        return cls(
            (),
            {node.metadata.name: node for node in read_all(api, NODES, Node)},
            {},
            lambda key: OwnerFacts(None),
            read_objects=functools.cache(lambda collection: _objects(api, collection)),
        )

    @classmethod
    def read_usage(cls, api: Api) -> "ClusterReading":
        """The same with pods: what is in use. Raises ApiError."""
        return replace(
            cls.read_nodes(api),
            pods=tuple(read_all(api, PODS, Pod, fieldSelector=UNFINISHED)),
            read_lost_owners=lambda pods: _lost_owners(api, lambda *_: None, pods),
        )

    def pod_items(self) -> Iterable[Pod]:
        """All unfinished pods."""
        return self.pods

    def node_items(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return self.nodes

    def current_placements(self) -> Mapping[str, Placement]:
        """Placements by "namespace/name"."""
        return self.placements

    def storage(self, is_wanted: bool) -> Storage | None:
        """Claims and volumes, read on first use; None if the user may not read them."""
        return self.read_storage() if is_wanted else None

    def namespace_labels(self) -> NamespaceLabels | None:
        """Labels by namespace, None if the user may not read them."""
        return self.read_namespaces()

    def record(self, name: str) -> Mapping[str, str] | None:
        """The data of an extension's record (a ConfigMap), None if the user may not read it."""
        return self.read_record(name)

    def read_collections(
        self, collections: Sequence[WatchedCollection[Any]]
    ) -> Mapping[Hashable, Mapping[str, Any]]:
        """The collections that are served and may be read, each by "namespace/name"."""
        found = {each: self.read_objects(each) for each in collections}
        return {each: objects for each, objects in found.items() if objects is not None}

    def policy(self) -> Policy | None:
        """Admission's policy, None if it is invalid, or the user may not read it."""
        return self.read_policy()

    def budgets(self) -> Budgets:
        """The PodDisruptionBudgets; of a user who may not read them, unread ones."""
        return self.read_budgets()

    def lost_owners(self, is_asked: Callable[[Pod], bool], gone: Sequence[Pod] = ()) -> LostOwnerOf:
        """Returns which controller of a pod does not exist, see LostOwners.of.

        is_asked: of which pods that matters. Others count as having all controllers: each may take a request.
        gone: pods that do not exist any more, and of which it matters.
        """
        pods = [*gone, *filter(is_asked, self.pods)]
        lost_owner, uids = self.read_lost_owners(pods), {pod.metadata.uid for pod in pods}
        return lambda pod: lost_owner(pod) if pod.metadata.uid in uids else None

    def failed(self) -> Sequence[Pod]:
        """The pods that have failed and still exist. Raises ApiError."""
        return self.read_failed()

    def leads_since(self) -> float | None:
        """Since when the sweeper's leader leads, in seconds since 1970; None if the user may not know."""
        return self.read_leads_since()

    def owners(self, name: str) -> Mapping[str, Any] | None:
        """Owners of a kind ("jobs.batch") by "namespace/name"; None where they are not served or read."""
        return self.read_owners(name)


def _objects(api: Api, collection: WatchedCollection[Any]) -> Mapping[str, Any] | None:
    query = {"labelSelector": collection.label_selector} if collection.label_selector else {}
    try:
        return {key_of(each): each for each in read_all(api, collection.path, collection.struct, **query)}
    except ApiError as error:
        if error.status not in (401, 403, 404):
            raise
        return None


def _namespaces(api: Api) -> NamespaceLabels | None:
    try:
        return {each.metadata.name: each.metadata.labels for each in read_all(api, NAMESPACES, Namespace)}
    except ApiError as error:
        if error.status not in (401, 403):
            raise
        return None


def _storage(api: Api) -> Storage | None:
    try:
        return Storage(
            {
                _name(each): each
                for each in read_all(api, volume_objects.CLAIMS, volume_objects.PersistentVolumeClaim)
            },
            {
                each.metadata.name: each
                for each in read_all(api, volume_objects.VOLUMES, volume_objects.PersistentVolume)
            },
            {
                each.metadata.name: each
                for each in read_all(api, volume_objects.CLASSES, volume_objects.StorageClass)
            },
            {each.metadata.name: each for each in read_all(api, drivers.NODES, drivers.CSINode)},
            {each.metadata.name: each for each in read_all(api, drivers.DRIVERS, drivers.CSIDriver)},
            list(read_all(api, drivers.CAPACITIES, drivers.CSIStorageCapacity)),
            list(read_all(api, drivers.ATTACHMENTS, drivers.VolumeAttachment)),
        )
    except ApiError as error:
        if error.status not in (401, 403):
            raise
        return None


def record_of(api: Api, name: str) -> Mapping[str, str] | None:
    """The data of an extension's record (a ConfigMap), {} where there is none, None if it cannot be read."""
    try:
        return api.json("GET", path_of(name)).get("data") or {}
    except ApiError as error:
        return {} if error.status == 404 else None  # the rest of the explanation does not need it


def _policy(api: Api) -> Policy | None:
    try:
        return read_configuration(api).policy
    except (ApiError, ConfigurationError):
        return None  # the rest of the explanation does not need it


def leads_since(api: Api) -> float | None:
    """Since when the sweeper's leader leads, in seconds since 1970; None if the user may not know."""
    try:
        return since_1970((api.json("GET", LEASE).get("spec") or {}).get("acquireTime"))
    except ApiError:
        return None  # gangs are then believed to have been seen all the time


def _budgets(api: Api) -> Budgets:
    try:
        return Budgets(read_all(api, BUDGETS, PodDisruptionBudget))
    except ApiError as error:
        if error.status not in (401, 403, 404):
            raise
        return Budgets(is_read=False)


class _WithMetadata(Protocol):
    @property
    def metadata(self) -> Metadata: ...


def read_all(api: Api, path: str, kind: type[T], **query: str) -> Iterator[T]:
    """Every object of a collection, page by page. Raises ApiError."""
    decoder = msgspec.json.Decoder(ObjectList[kind])  # type: ignore[valid-type]
    more = {"limit": str(PAGE_SIZE), **query}
    while True:
        text = api.request("GET", path, query=more, timeout_seconds=60)
        try:
            page = decoded(decoder, text)
        except msgspec.DecodeError as error:
            raise api.unreadable("GET", path, text) from error
        yield from page.items
        if not page.metadata.continue_:
            return
        more["continue"] = page.metadata.continue_


def _lost_owners(api: Api, known: LookUpOwner, pods: Sequence[Pod]) -> LostOwnerOf:
    """Asks the API server for the controllers of these pods that are not known, level by level."""

    @functools.cache
    def is_leaving(namespace: str) -> bool:
        try:
            found = api.json("GET", f"{NAMESPACES}/{namespace}")
        except ApiError:
            return False  # the rest of the explanation does not need it
        return bool(found["metadata"].get("deletionTimestamp"))

    existence = OwnerExistence(api, known, lambda: None, is_leaving=is_leaving)
    for _ in range(MOST_LEVELS):
        lost = existence.lookup()
        if all(found is None or found.is_confirmed for found in map(lost, pods)):
            break
        existence.answer_all()
    return existence.lookup()


def _asker(api: Api, owners: Owners) -> Callable[[GangKey], OwnerFacts]:
    """Ask the controllers that the cluster serves."""
    complaints: list[Complaint] = []
    with contextlib.suppress(ApiError):  # a user who may not read Events gets the rest of the explanation
        complaints += read_all(api, EVENTS, Complaint, fieldSelector=FAILED_CREATE)
    failed_creations = Complaints(complaints)
    return lambda key: owners.facts(key, functools.partial(failed_creations.blocked_reason, key))


@contextlib.contextmanager
def _owners(api: Api) -> Iterator[Owners]:
    """The owners of gangs, read while the block runs, and for at most OWNERS_SECONDS after it.

    Sizes are unknown where an owner cannot be read in time. An error in the block ends the reading at once.
    """
    owners = Owners(api, lambda: None)
    owners.start()
    # Beside the command, which does not wait for a server that hangs; owners that were read are kept.
    stopping = threading.Thread(target=owners.stop, name="stop owners", daemon=True)
    try:
        yield owners
        deadline = time.monotonic() + OWNERS_SECONDS
        while not owners.synced and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        stopping.start()
    if owners.synced:
        stopping.join()


def _name(item: _WithMetadata) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"
