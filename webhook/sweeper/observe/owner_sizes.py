"""The owners that state a gang's size: those that the cluster serves, discovered again as that changes.

An owner that is not served, not allowed or not readable only leaves sizes unknown; it never delays the rest.
"""

import functools
import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import structs

from labeler.contract import keys
from webhook.kube.client import Api, ApiError
from webhook.kube.collection import SILENCE_SECONDS
from webhook.kube.complaints import Complaint
from webhook.kube.discovery import served
from webhook.kube.informer import Informer, pause_seconds
from webhook.kube.jitter import jitter
from webhook.kube.objects import Metadata, OwnerReference
from webhook.sweeper.observe.delayed_jobs import DelayedJobs
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts
from webhook.sweeper.observe.watches import WatchedCollection, Watches
from webhook.text import printable, sentence_list
from webhook.workloads.builtin import Job, Owner
from webhook.workloads.kinds import WORKLOADS, Workload
from webhook.workloads.pod_sets import OwnedPods
from webhook.workloads.sets import JobSet, completed_beside

# --- controllers that cannot make pods ----------------------------------------------------------------
# A quota is used up, say, or a policy refuses them.

_WITHOUT_OWNER: Final = frozenset({"Pod", "Gang", "Group"})
"""Kinds of gangs whose name is not that of an object."""

_CREATING_PODS: Final = frozenset({"Job", "StatefulSet"})
"""Kinds that create their pods themselves: train-2 is another one than train."""

Key = TypeVar("Key")


DatedMessage = tuple[str, str]
"""When, and the message; ("", "") for none."""

NOTHING: Final[DatedMessage] = "", ""


class Complaints:
    """The newest complaint about each object, indexed by name, since any user may write Events."""

    def __init__(self, complaints: Iterable[Complaint]) -> None:
        self._by_uid: dict[tuple[str, str], DatedMessage] = {}
        self._by_kind: dict[tuple[str, str, str], DatedMessage] = {}
        by_name: dict[tuple[str, str], DatedMessage] = {}
        for each in complaints:
            namespace, about, message = each.metadata.namespace, each.involved_object, (each.at, each.message)
            _note(self._by_uid, (namespace, about.uid), message)
            _note(self._by_kind, (namespace, about.kind, about.name), message)
            _note(by_name, (namespace, about.name), message)
        self._by_name = by_name
        self._names = sorted(by_name)
        self._newest = [[by_name[name] for name in self._names]]
        """[k][i]: the newest among 2**k names from the i-th on."""
        while (width := 1 << len(self._newest)) <= len(self._names):
            narrow = self._newest[-1]
            pairs = zip(narrow, narrow[width // 2 :], strict=False)
            self._newest.append([max(pair) for pair in pairs])

    def blocked_reason(self, key: GangKey, creators: Iterable[str] | None = None) -> DatedMessage:
        """When one of a gang's controllers last reported that it cannot create a pod, and why.

        creators: the names of the objects that create a set's pods and that it owns. Where that is not known,
        these are all names of the set's, a dash and more, though some may be of another set.
        """
        if key.kind in _WITHOUT_OWNER:
            return NOTHING
        found = [
            self._by_uid.get((key.namespace, key.id), NOTHING),
            self._by_kind.get((key.namespace, key.kind, key.name), NOTHING),
        ]
        if key.kind not in _CREATING_PODS:
            names = (key.name, *(creators or ()))
            found += (self._by_name.get((key.namespace, name), NOTHING) for name in names)
            if creators is None:  # the next character after a dash is the dot
                found.append(self._between((key.namespace, f"{key.name}-"), (key.namespace, f"{key.name}.")))
        at, message = max(found)
        return at, printable(message)

    def _between(self, first: tuple[str, str], end: tuple[str, str]) -> DatedMessage:
        """The newest about names from the first one on, before the end."""
        start, stop = bisect_left(self._names, first), bisect_left(self._names, end)
        if start >= stop:
            return NOTHING
        level = (stop - start).bit_length() - 1
        newest = self._newest[level]
        return max(newest[start], newest[stop - (1 << level)])


def _note(there: dict[Key, DatedMessage], key: Key, message: DatedMessage) -> None:
    there[key] = max(there.get(key, NOTHING), message)


CHECK_SECONDS: Final = 180.0
"""How often the served APIs are discovered again."""
SOONER_SECONDS: Final = 10.0
"""How soon they are discovered again when a gang appears whose kind of owner is not known to be served."""

_MOST_SOUGHT: Final = 8192
"""So many gangs of kinds that are not known to be served make discovery run sooner only once each."""

OPTIONAL: Final = {
    ("resource.k8s.io", resource): ("v1",)
    for resource in ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
}
"""Group and resource of optional APIs without owners that extensions read -> versions of them."""

_PATIENCE: Final = 3
"""How often the API server is asked again, before anything may act, for what it could not serve. A
CustomResourceDefinition whose conversion webhook is away is never readable ("storage is initializing")."""

_MOST_CREATORS: Final = 1000
"""So many names are looked up; an author may write any number of replicas."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Watched:
    """A kind that is watched. known: the pods of owners that were asked about, by uid."""

    workload: Workload[Any]
    version: str
    collection: WatchedCollection[Any]
    informer: Informer[Any]
    known: dict[str, tuple[Owner, OwnedPods]] = field(default_factory=dict)

    def pods(self, owner: Owner) -> OwnedPods:
        """The pods of an owner; every pass asks for those of each gang that waits."""
        known = self.known.get(owner.metadata.uid)
        if known is not None and known[0] is owner:
            return known[1]
        pods = self.workload.pods(owner)
        self.known[owner.metadata.uid] = owner, pods
        return pods

    @property
    def refusal(self) -> str:
        """The API server's answer, if it has refused lists or watches for long; "" without one."""
        error, informer = self.informer.error, self.informer
        if error is None or not error.status:
            return ""
        is_stale = informer.silence_seconds > SILENCE_SECONDS
        is_lasting = is_stale if informer.synced else informer.failures > _PATIENCE
        return str(error) if is_lasting else ""


class _OwnedJobs:
    """The Jobs of each owner of Jobs. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str], dict[str, Job]] = {}

    def on_change(self, before: Job | None, after: Job | None) -> None:
        """Note that a Job was added (before is None), changed, or deleted (after is None)."""
        with self._lock:
            for job in filter(None, (before, after)):
                if (owner := job.metadata.controller) is None:
                    continue
                identity = job.metadata.namespace, owner.uid
                jobs = self._jobs.setdefault(identity, {})
                if job is after:
                    jobs[job.metadata.uid] = job
                else:
                    jobs.pop(job.metadata.uid, None)
                if not jobs:
                    del self._jobs[identity]

    def of(self, owner: Owner) -> list[Job]:
        """The Jobs of an owner."""
        with self._lock:
            return list(self._jobs.get((owner.metadata.namespace, owner.metadata.uid), {}).values())


class Owners:
    """Live copies of the owners of gangs. Safe for use by many threads.

    A thread discovers which kinds and versions are served, so that a slow answer delays no pass.
    """

    def __init__(
        self,
        api: Api,
        on_change: Callable[[], None],
        watches: Watches | None = None,
        *,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        """Prepare; start() begins. on_change is called, in some thread, when a size may have changed.

        watches: the registry, None for one of its own.
        """
        self._api = api
        self._watches = watches or Watches(api)
        self._on_change = on_change
        self._check_seconds = check_seconds
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._refused: dict[str, str] = {}
        self._versions: Mapping[str, str] = {}
        self._delayed_jobs = DelayedJobs()
        self._owned_jobs = _OwnedJobs()
        self._complete = threading.Event()
        self._synced = False
        self._wake = threading.Event()
        self._seek_once = functools.lru_cache(_MOST_SOUGHT)(lambda gang_hash: self._wake.set())
        self._stopping = threading.Event()
        self._checked = float("-inf")
        self._thread = threading.Thread(target=self._run, name="owners", daemon=True)

    def start(self) -> None:
        """Begin to discover and watch what is served."""
        self._thread.start()

    def stop(self) -> None:
        """End all watches."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._watches.drop([each.collection for each in self._watched.values()])

    @property
    def synced(self) -> bool:
        """Whether the served APIs are known and all of them were read once, or are refused.

        It stays True: an API that is served later only adds sizes.
        """
        if not self._synced and self._complete.is_set():
            self._synced = all(each.informer.synced or each.refusal for each in self._all())
        return self._synced

    @property
    def served(self) -> tuple[str, ...]:
        """The watched resources: "jobs.batch/v1" and so on."""
        return tuple(f"{each.workload.name}/{each.version}" for each in self._all())

    @property
    def versions(self) -> Mapping[str, str]:
        """Which kinds of owners, and optional APIs, are served, readable or not: "jobs.batch" -> "v1"."""
        return self._versions

    @property
    def refused(self) -> dict[str, str]:
        """The resources that are served but cannot be read, or no longer, and why."""
        of_watched = {each.workload.name: why for each in self._all() if (why := each.refusal)}
        with self._lock:
            return self._refused | of_watched

    @property
    def undecodable(self) -> dict[str, int]:
        """How many objects of each kind that is watched could not be decoded ("jobs.batch": 0)."""
        return {each.workload.name: len(each.informer.undecodable) for each in self._all()}

    def facts(
        self, gang: GangKey, blocked: Callable[[Iterable[str] | None], DatedMessage] = lambda _: NOTHING
    ) -> OwnerFacts:
        """The facts of a gang's controller; none where two owners of one name disagree.

        blocked: takes creators, see Complaints.blocked_reason, and returns OwnerFacts.blocked.
        """
        found = [self._pods(each, owner) for each, owner in self._find(gang)]
        failed = functools.partial(self._delayed_jobs.most_failures, gang)
        missing = "" if found else self._why_groupless(gang)
        return facts_of(found, blocked=lambda: blocked(creators(found)), failed=failed, missing=missing)

    def _pods(self, watched: _Watched, owner: Owner) -> OwnedPods:
        """The pods of an owner; its size without those that have completed, as far as its Jobs are known."""
        pods = watched.pods(owner)
        completed = completed_beside(owner, self._owned_jobs.of(owner)) if isinstance(owner, JobSet) else 0
        return structs.replace(pods, size=max(0, (pods.size or 0) - completed)) if completed else pods

    def _why_groupless(self, gang: GangKey) -> str:
        """The sentence on a PodGroup that pods name and that is not known, "" for other gangs.

        It does not exist, or cannot be read: without its minimum, too few pods might be placed.
        Of kinds that the cluster does not serve none is expected: the marks were copied from elsewhere.
        """
        if gang.kind != "PodGroup" or gang.id != gang.name:
            return ""
        or_state = f"or state on them by {keys.GANG_SIZE_ANNOTATION} how many belong together"
        if unreadable := sorted(_POD_GROUPS & self.refused.keys()):
            rights = f"give topogate-sweeper the right to read {sentence_list(unreadable)}"
            return f"PodGroup {gang.name} of these pods cannot be read: {rights}, {or_state}"
        if not any(each.informer.synced for each in self._all() if each.workload.name in _POD_GROUPS):
            return ""
        return f"PodGroup {gang.name} of these pods does not exist: create it, {or_state}"

    def reference(self, gang: GangKey) -> OwnerReference | None:
        """The object that represents a gang, such as a JobSet; None if it is unknown or not the only one."""
        found = [
            OwnerReference(
                f"{each.workload.group}/{each.version}",
                each.workload.owner or each.workload.kind,
                owner.metadata.name,
                owner.metadata.uid,
            )
            for each, owner in self._find(gang)
        ]
        return found[0] if len(found) == 1 else None

    def metadata_of(self, namespace: str, reference: OwnerReference) -> Metadata | None:
        """The metadata of the owner of this kind and name, whatever its uid; None if it is not known."""
        for each in self._all():
            workload = each.workload
            if (workload.owner or workload.kind, workload.group) == (reference.kind, reference.group):
                owner = each.informer.get(f"{namespace}/{reference.name}")
                return owner.metadata if owner is not None else None
        return None

    def job(self, namespace: str, name: str, uid: str) -> Job | None:
        """A Job as it is known, None if it is not."""
        found = (owner for _, owner in self._find(GangKey(namespace, "Job", name, uid)))
        return next((owner for owner in found if isinstance(owner, Job)), None)

    def all_of(self, name: str) -> Mapping[str, Any] | None:
        """The owners of a kind ("jobs.batch") by "namespace/name"; None if not served or not read."""
        found = next((each.informer for each in self._all() if each.workload.name == name), None)
        return found.items() if found is not None and found.synced else None

    # --- the existing objects -------------------------------------------------------------------

    def _all(self) -> list[_Watched]:
        with self._lock:
            return list(self._watched.values())

    def _find(self, gang: GangKey) -> Iterator[tuple[_Watched, Owner]]:
        """The possible owners of a gang. Its id is the uid of one of them where pods have that."""
        is_known = False
        for each in self._all():
            if each.workload.kind != gang.kind or each.workload.id_prefix != _id_prefix(gang.id):
                continue
            is_known = True
            owner = each.informer.get(f"{gang.namespace}/{gang.name}")
            if owner is None:
                continue
            if gang.id and each.workload.by_uid and owner.metadata.uid != gang.id:
                continue  # a later one of the same name
            yield each, owner
        if not is_known and gang.kind in _KINDS:
            # Perhaps installed since; every pass asks about every gang. An author may give an owner a name of
            # a megabyte, so hashes are kept.
            self._seek_once(hash(gang))

    def _note(self, workload: Workload[Any], before: Owner | None, after: Owner | None) -> None:
        if workload.struct is Job:
            jobs = cast(Job | None, before), cast(Job | None, after)
            self._delayed_jobs.on_change(*jobs)
            self._owned_jobs.on_change(*jobs)
        watched = self._watched.get(workload.name)
        if before is not None and watched is not None:
            watched.known.pop(before.metadata.uid, None)
        if _facts(workload, before) != _facts(workload, after):
            self._on_change()

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._checked = time.monotonic()
            self._wake.clear()
            try:
                is_final = self._check()
                failures = 0 if is_final else failures + 1
                if is_final or failures > _PATIENCE:
                    self._complete.set()
            except (ApiError, msgspec.DecodeError) as error:
                failures += 1
                logger.warning("discovery_failed error=%r", str(error))
            except Exception:  # a defect must not end the thread: sizes would stay unknown for ever
                failures += 1
                logger.exception("discovery_failed")
            if failures:
                self._stopping.wait(pause_seconds(failures))
            else:
                self._wake.wait(self._check_seconds * jitter(0.8, 1.0))
                self._stopping.wait(self._checked + SOONER_SECONDS - time.monotonic())

    def _check(self) -> bool:
        """Watch what is served, and stop watching the rest; returns False if some may be readable soon.

        Raises ApiError if the served APIs cannot be read.
        """
        self._versions = versions = self._served()
        for name, each in list(self._watched.items()):
            if versions.get(name) != each.version:
                self._unwatch(name, each)
        errors = self._watch_all(versions)
        self._note_refused({name: str(error) for name, error in errors.items()})
        return not any(error.is_transient for error in errors.values())

    def _watch_all(self, versions: Mapping[str, str]) -> dict[str, ApiError]:
        """Watch what is served; returns the API server's answer for those that cannot be read."""
        errors: dict[str, ApiError] = {}
        for workload in WORKLOADS:
            if workload.name not in versions or workload.name in self._watched or self._stopping.is_set():
                continue
            try:
                self._watch(workload, versions[workload.name])
            except ApiError as error:
                if not error.status:
                    raise
                errors[workload.name] = error
        return errors

    def _unwatch(self, name: str, each: _Watched) -> None:
        with self._lock:
            del self._watched[name]
        self._watches.drop([each.collection])
        logger.info("owner_gone resource=%s version=%s", name, each.version)

    def _note_refused(self, refused: dict[str, str]) -> None:
        """Record the resources that cannot be read, and why."""
        for name, reason in refused.items():
            if self._refused.get(name) != reason:
                logger.error("owner_unreadable resource=%s error=%r", name, reason)
        with self._lock:
            self._refused = refused

    def _served(self) -> dict[str, str]:
        """Name of a resource -> the best served version of it that we can read."""
        wanted = {(each.group, each.resource): each.versions for each in WORKLOADS}
        found = served(self._api, {**wanted, **OPTIONAL})
        return {f"{resource}.{group}": version for (group, resource), version in found.items()}

    def _watch(self, workload: Workload[Any], version: str) -> None:
        """Begin to watch. Raises ApiError if it cannot be read."""
        path = f"/apis/{workload.group}/{version}/{workload.resource}"
        # Asked first, because a copy that is never complete would hold up everybody.
        self._api.request("GET", path, query={"limit": "1"})
        collection = WatchedCollection(path, workload.kind, workload.struct)
        informer = self._watches.follow(collection, functools.partial(self._note, workload))
        with self._lock:
            self._watched[workload.name] = _Watched(workload, version, collection, informer)
        logger.info("owner_served resource=%s version=%s", workload.name, version)


_KINDS: Final = frozenset(workload.kind for workload in WORKLOADS)
_POD_GROUPS: Final = frozenset(
    workload.name for workload in WORKLOADS if workload.kind == "PodGroup" and not workload.id_prefix
)
_ID_PREFIXES: Final = frozenset(workload.id_prefix for workload in WORKLOADS) - {""}


def _id_prefix(gang_id: str) -> str:
    """Of a gang's id, as kinds have it."""
    return next((each for each in _ID_PREFIXES if gang_id.startswith(each)), "")


def creators(found: Sequence[OwnedPods]) -> list[str] | None:
    """The names of the objects that create the pods of these owners; None if unknown, or too many."""
    names = [name for pods in found for name in pods.creators(_MOST_CREATORS)]
    return names if names and len(names) < _MOST_CREATORS else None


def facts_of(found: Sequence[OwnedPods], **more: Any) -> OwnerFacts:
    """The facts of a gang, by the pods of each of its possible owners. more: other facts."""
    is_staged = any(each.is_staged for each in found)
    return OwnerFacts(
        _agreed(each.size for each in found),
        is_staged,
        found[0].beside if is_staged and len(found) == 1 else (),
        _agreed(each.minimum for each in found),
        devices=lambda: _agreed(each.ask_for_devices for each in found),
        described=found[0].sets if len(found) == 1 else (),
        **more,
    )


def _agreed(values: Iterable[T]) -> T | None:
    """The fact on which all owners agree; None where they disagree, or there are none."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _facts(workload: Workload[Any], owner: Owner | None) -> object:
    """The facts on which a gang depends; its pod sets follow from these."""
    if owner is None:
        return None
    pods = workload.pods(owner)
    failed = owner.status.failed if isinstance(owner, Job) else None
    return owner.metadata.uid, pods.size, pods.minimum, pods.is_staged, getattr(owner, "spec", None), failed
