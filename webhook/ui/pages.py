"""The answers of the page's routes: the live scene, limited to the rights of the viewer."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from flask import Response, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from webhook.configuration.settings import Settings
from webhook.configuration.store import ConfigurationStore
from webhook.inquiry.documents import InputError
from webhook.kube.client import Api
from webhook.scheduling.gpus import Counting
from webhook.ui import whatif
from webhook.ui.answer_cache import AnswerCache
from webhook.ui.detail import Detail, detail, find
from webhook.ui.gang_events import GangEvents
from webhook.ui.gang_rows import GangRow
from webhook.ui.live import Live, Scene
from webhook.ui.picture import NodeTile, count_by_top_domain
from webhook.ui.redact import Rights, gangs_for, node_for, troubles_for
from webhook.ui.viewer_access import Access, CurrentViewer

MOST_STREAMS: Final = 64
"""The most streams of changes; further viewers get an error and retry later."""

MOST_STREAMS_A_VIEWER: Final = 8

STREAM_SECONDS: Final = 15.0
"""A stream sends at least one line in this time, to detect viewers who left."""

MOST_NODES: Final = 5_000
"""The most nodes of one answer; the page opens a larger domain by its subdomains."""

MOST_DETAILS: Final = 64
"""The most cached gangs in full: many viewers of a gang cost as much as one."""

LOCK_SECONDS: Final = 10.0
"""How long a question to the core waits for the previous one."""


@dataclass(frozen=True)
class PageDependencies:
    """The dependencies of the app. api: reads Events with this process's own rights.

    cluster: the displayed name of the cluster, "" if it has none. store: the configuration in force, for
    probes and metrics; None on a laptop.
    """

    live: Live
    settings: Settings
    counting: Counting
    access: Access
    api: Api
    cluster: str = ""
    store: ConfigurationStore | None = None


class UnavailableError(Exception):
    """There is nothing to show yet, or too many requests run at once; the message says which."""


class Pages:
    """The routes that need the live scene."""

    def __init__(self, dependencies: PageDependencies) -> None:
        self._of = dependencies
        self._streams = _Streams()
        self._events = GangEvents(dependencies.api)
        self._thinking = threading.Lock()
        self._details: AnswerCache[tuple[str, Rights], Detail] = AnswerCache(MOST_DETAILS)

    def readyz(self) -> Response:
        """Ready once the cluster has been read; names the missing collections, or an unusable file."""
        unread = self._of.live.unread()
        if unread:
            return as_text(503, f"not read yet: {', '.join(unread)}")
        remark = self._of.store.remark() if self._of.store else ""
        return as_text(200, "; ".join(filter(None, ("ok", remark))))

    def metrics(self) -> Response:
        """The metrics of the configuration."""
        registry = CollectorRegistry()
        if self._of.store:
            registry.register(self._of.store)
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    def login(self) -> Response:
        """Take a bearer token from the page's form."""
        return self._of.access.login(request.form.get("token", ""))

    def picture(self) -> Response:
        """Domains with their sums, and gangs; the page requests nodes one domain at a time."""
        scene, seen = self._seen()
        gangs, hidden = gangs_for(scene.gangs, seen.rights)
        picture = scene.picture
        return as_json(
            {
                "version": scene.version,
                "at": scene.at,
                "viewer": seen.name,
                "levels": picture.levels,
                "families": picture.families,
                "models": picture.models,
                "cluster": self._of.cluster,
                "room": scene.capacity,
                "troubles": troubles_for(scene.troubles, seen.rights),
                "domains": picture.domains,
                "nodes": len(picture.nodes),
                "unreadable": picture.unreadable,
                "gangs": [_short(row) for row in gangs],
                "hiddenGangs": hidden,
            }
        )

    def nodes(self) -> Response:
        """The nodes of a domain, or all nodes: at most MOST_NODES, and how many are left out.

        The parameter `brief` leaves out their pods and cards.
        """
        scene, seen = self._seen()
        if not seen.rights.nodes:
            return as_json({"error": "You may not list nodes; the map shows domains alone."}, 403)
        below = request.args.get("domain", "")
        shown = _brief if request.args.get("brief") else _in_full
        tiles = [
            tile
            for tile in scene.picture.nodes.values()
            if not below or tile.domain == below or tile.domain.startswith(below + "/")
        ]
        return as_json(
            {
                "version": scene.version,
                "nodes": [shown(node_for(tile, seen.rights)) for tile in tiles[:MOST_NODES]],
                "left": max(0, len(tiles) - MOST_NODES),
            }
        )

    def gang(self) -> Response:
        """One gang in full. The status is 404 also for a gang that the viewer may not see."""
        scene, seen = self._seen()
        row = self._row(scene, seen, request.args.get("id", ""))
        if row is None:
            return as_json(
                {"error": "There is no such gang, or you may not list the pods of its namespace."}, 404
            )
        found = self._details.get(scene.version, (row.id, seen.rights))
        if found is None:
            with self._alone():
                found = detail(row, scene, self._of.settings, self._of.live.facts(), seen.rights)
            self._details.put(scene.version, (row.id, seen.rights), found)
        if seen.rights.nodes:
            members = (each.node for each in row.members)
            found = msgspec.structs.replace(found, domains=count_by_top_domain(members, scene.picture.nodes))
        if seen.may_see_events(row.namespace):
            events = self._events.of(row)
            found = msgspec.structs.replace(found, events=events.lines, events_missing=events.missing)
        return as_json(found)

    def history(self) -> Response:
        """The samples of the last hours, or those after a time: only sums, which every viewer may see."""
        self._seen()
        try:
            since = float(request.args.get("since", "0"))
        except ValueError:
            raise InputError("since is not a number of seconds") from None
        return as_json({"samples": [each for each in self._of.live.history.samples() if each.at > since]})

    def changes(self) -> Response:
        """Server-sent events: the number of each new version, from the first picture on.

        They end with the viewer's token or session.
        """
        viewer = self._of.access.viewer()
        self._streams.take(viewer.user)
        stream = Response(self._version_events(self._of.access.watched()), content_type="text/event-stream")
        stream.call_on_close(lambda: self._streams.give_back(viewer.user))
        return stream

    def _version_events(self, is_viewer: Callable[[], bool]) -> Iterator[str]:
        version = -1
        while is_viewer():
            scene = self._of.live.wait(version, STREAM_SECONDS)
            if scene is None or scene.version == version:
                yield ": still here\n\n"
                continue
            version = scene.version
            yield f"data: {version}\n\n"

    def what_if(self) -> Response:
        """Place a manifest, or a changed gang, on the scene. See _Wanted."""
        scene, seen = self._seen()
        wanted, facts = _body(), self._of.live.facts()
        change, counting = whatif.WhatIfChange(wanted.size, wanted.level, wanted.model), self._of.counting
        if wanted.manifest:
            with self._alone():
                settings, rights = self._of.settings, seen.rights
                found = whatif.of_manifest(wanted.manifest, scene, settings, change, counting, rights, facts)
            return self._placed(found, scene, seen)
        row = self._row(scene, seen, wanted.gang)
        gang = find(row, scene, self._of.settings, facts) if row is not None else None
        if gang is None or not gang.gated:
            raise InputError("no waiting gang has that name; pass a manifest instead")
        view, settings = whatif.listed(scene.view, seen.rights), self._of.settings
        with self._alone():
            found = whatif.answer(gang, view, scene.snapshot, settings, change, counting, facts)
        return self._placed(found, scene, seen)

    @staticmethod
    def _placed(found: whatif.WhatIf, scene: Scene, seen: CurrentViewer) -> Response:
        """The answer, without names of nodes for viewers who may not list them."""
        if not seen.rights.nodes:
            return as_json(msgspec.structs.replace(found, places={}))
        domains = count_by_top_domain(found.places.values(), scene.picture.nodes)
        return as_json(msgspec.structs.replace(found, domains=domains))

    def _seen(self) -> tuple[Scene, CurrentViewer]:
        """The scene and the viewer. Raises NoViewerError, UnavailableError."""
        viewer = self._of.access.viewer()
        scene = self._of.live.scene()
        if scene is None:
            unread = ", ".join(self._of.live.unread()) or "the first picture"
            raise UnavailableError(f"Still reading the cluster: waiting for {unread}.")
        return scene, self._of.access.seen(viewer, scene.namespaces)

    @staticmethod
    def _row(scene: Scene, seen: CurrentViewer, wanted: str) -> GangRow | None:
        return next(
            (row for row in scene.gangs if row.id == wanted and seen.rights.may_list(row.namespace)), None
        )

    def _alone(self) -> "_QuestionLock":
        return _QuestionLock(self._thinking)


class _Streams:
    """Counts the streams of each viewer. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Counter[str] = Counter()

    def take(self, user: str) -> None:
        """Add a stream. Raises UnavailableError."""
        with self._lock:
            if self._of[user] >= MOST_STREAMS_A_VIEWER:
                raise UnavailableError(f"You have {MOST_STREAMS_A_VIEWER} of these pages open already")
            if self._of.total() >= MOST_STREAMS:
                raise UnavailableError(f"{MOST_STREAMS} pages receive updates already; try again later")
            self._of[user] += 1

    def give_back(self, user: str) -> None:
        """Remove a stream."""
        with self._lock:
            self._of[user] -= 1
            self._of += Counter()  # drops users without streams


class _QuestionLock:
    """Allows one question to the core at a time; the others fail after LOCK_SECONDS."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            raise UnavailableError("Other questions are being answered; try again in a moment.")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a what-if request."""

    manifest: str = ""
    gang: str = ""
    size: int | None = None
    level: str | None = None
    model: str | None = None


def _body() -> _Wanted:
    if request.mimetype != "application/json":
        raise InputError("Content-Type must be application/json")
    try:
        return msgspec.json.decode(request.get_data(), type=_Wanted)
    except msgspec.DecodeError as error:
        raise InputError(f"the question cannot be read: {error}") from None


def _short(row: GangRow) -> dict[str, Any]:
    """The row without its members."""
    fields: dict[str, Any] = msgspec.to_builtins(row)
    del fields["members"]
    return fields


def _in_full(tile: NodeTile) -> NodeTile:
    return tile


def _brief(tile: NodeTile) -> NodeTile:
    """The tile without its pods and cards, for a dense map."""
    return msgspec.structs.replace(tile, pods=[], cards=[])


def as_json(value: Any, status: int = 200) -> Response:
    """An answer in JSON; value: anything that msgspec can encode."""
    return Response(msgspec.json.encode(value), status, content_type="application/json")


def as_text(status: int, text: str) -> Response:
    """An answer in plain text."""
    return Response(text, status, content_type="text/plain; charset=utf-8")
