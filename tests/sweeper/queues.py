"""Nodes whose reader guesses whom it serves, leaders that release pods there, and an API server that answers
as asked."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import jsonpatch
import msgspec

from labeler.contract import keys
from labeler.contract.annotations import encode_timestamp
from tests.sweeper.applies import Applies
from tests.sweeper.clock import Clock
from tests.sweeper.mortal import Killed
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.releases import Never
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Node, Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.apply.release import LOST_SECONDS
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Orders, Pair
from webhook.sweeper.decide.release_queue import ReleaseQueue, SentReleases, Timestamps
from webhook.sweeper.observe.view import View

FIRST_STAMP = 1_764_000_000_000_000_000
BIND_SECONDS = 5.0
ANSWERED_SECONDS = 29.0
"""A release may be late by as much where it was answered that something is wrong."""


@dataclass(frozen=True)
class Answer:
    """What the API server answers a release. arrives: after how many seconds it is done all the same.

    is_undone: whether a foreign mutating webhook has put back what was to be written. dies: the leader dies
    right "before" the release is written, or right "after" it.
    """

    error: ApiError | None = None
    arrives: float | None = None
    is_undone: bool = False
    dies: str = ""


WELL = Answer()
DENIED = Answer(ApiError(503, "", 'PATCH /p: admission webhook "w" denied the request: not now'))
BROKEN = Answer(
    ApiError(500, "InternalError", 'PATCH /p: Internal error occurred: failed calling webhook "w": refused')
)
BUSY = Answer(ApiError(429, "TooManyRequests", "PATCH /p: too many requests"))
FORBIDDEN = Answer(ApiError(403, "Forbidden", "PATCH /p: a policy forbids it"))
NO_CONNECTION = Answer(ApiError(0, "Unreachable", "PATCH /p: refused", is_sent=False))
TIMED_OUT = ApiError(504, "Timeout", "PATCH /p: request did not complete within requested timeout")
LOST = ApiError(0, "Unreachable", "PATCH /p: got no answer")
ANSWERED_GONE = Answer(
    ApiError(404, "NotFound", 'PATCH /p: admission webhook "w" denied the request: no such pod')
)
ANSWERED_LATE = Answer(
    ApiError(408, "Timeout", 'PATCH /p: admission webhook "w" denied the request: too late')
)
UNDONE = Answer(is_undone=True)
HANGS = Answer(TIMED_OUT)
IS_LOST = Answer(LOST)


@dataclass
class Server(Api):
    """One node, pods planned there in this order, and what becomes of their releases."""

    raws: dict[str, dict[str, Any]]
    """By name. A pod is replaced, not changed, so that what a late watch shows stays as it was."""
    planned: dict[str, PlannedPod]
    """By uid, as the plans say. Tests change it."""
    answers: Callable[[str, str], Answer]
    """(namespace, method) -> the next Answer, of the pod that is asked for."""
    asked: str = ""
    bind_seconds: Callable[[str], float] = lambda _: BIND_SECONDS
    """By pod, from its release on."""
    clock: Clock = field(default_factory=Clock)
    arriving: list[tuple[float, str, Any]] = field(default_factory=list)
    released: dict[str, float] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    orphans: set[str] = field(default_factory=set)
    """Pods whose releases were under way when the leader died that had sent them."""
    overlaps: list[set[str]] = field(default_factory=list)
    """Pods that were under way on one node together."""
    seen: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    busy: threading.Lock = field(default_factory=threading.Lock)
    _host = "server"

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        with self.busy:
            return self._answer(method, path.rpartition("/")[2], body)

    def _answer(self, method: str, name: str, body: Any) -> bytes:
        self.asked, raw = name, self.raws[name]
        answer = self.answers(raw["metadata"]["namespace"], method)
        if method == "GET":
            self.read.append(name)
            if answer.error:
                raise answer.error
            return msgspec.json.encode(raw)
        self.tried.append(name)
        if answer.arrives is not None:
            self.arriving.append((self.clock.now + answer.arrives, name, body))
        if answer.dies == "after":
            self.write(name, body)
        if answer.dies:
            raise Killed
        if answer.error:
            raise answer.error
        if not answer.is_undone and not self.write(name, body):
            raise ApiError(422, "Invalid", "PATCH /p: a test failed")
        return b"{}"

    def write(self, name: str, body: Any) -> bool:
        try:
            self.raws[name] = jsonpatch.apply_patch(self.raws[name], body)
        except jsonpatch.JsonPatchException:
            return False
        node = self.planned[f"uid-{name}"].node
        there = [each for each in self.released if self.planned[f"uid-{each}"].node == node]
        if pending := {each for each in there if not self.is_bound(each)}:
            self.overlaps.append({name, *pending})
        self.released[name] = self.clock.now
        return True

    def leader_dies(self) -> None:
        """What it has sent may arrive after it."""
        self.orphans |= {name for _, name, _ in self.arriving}

    def bound_at(self, name: str) -> float:
        return self.released[name] + self.bind_seconds(name)

    def is_bound(self, name: str) -> bool:
        return name in self.released and self.clock.now >= self.bound_at(name)

    def advance(self, seconds: float) -> None:
        """What arrives meanwhile arrives."""
        end = self.clock.now + seconds
        while self.arriving and min(self.arriving, key=lambda each: each[0])[0] <= end:
            first = min(self.arriving, key=lambda each: each[0])
            self.arriving.remove(first)
            self.clock.now = max(self.clock.now, first[0])
            self.write(first[1], first[2])
        self.clock.now = end

    def pods(self, lag: float) -> list[Pod]:
        """As a watch shows them that is late by `lag` seconds."""
        self.seen.append((self.clock.now, {name: self.shown(name) for name in self.raws}))
        late = [raws for at, raws in self.seen if at <= self.clock.now - lag] or [self.seen[0][1]]
        return [decode(raw) for raw in late[-1].values()]

    def shown(self, name: str) -> dict[str, Any]:
        raw = self.raws[name]
        return {**raw, "spec": {**raw["spec"], "nodeName": "n0"}} if self.is_bound(name) else raw

    def cards_given(self, admit_seconds: float) -> dict[str, str]:
        """Whose cards each pod on the node got, once all are bound.

        The kubelet admits pods one after the other as they were bound, each in so many seconds. The reader
        gives the cards of the pod with the lowest gas-ts among those that are bound and have none (Intel's
        plugin up to 0.32).
        """
        stamps = {
            name: self.raws[name]["metadata"]["annotations"][keys.GAS_TIMESTAMP_ANNOTATION]
            for name in self.released
        }
        given: dict[str, str] = {}
        now = 0.0
        for name in sorted(self.released, key=self.bound_at):
            now = max(now, self.bound_at(name)) + admit_seconds
            pending = [each for each in stamps if self.bound_at(each) <= now and each not in given.values()]
            given[name] = min(pending, key=stamps.__getitem__)
        return given


class Leader:
    """What a leader knows, and its passes. behind: by how much its time of day has been set back."""

    def __init__(self, server: Server, planned: dict[str, PlannedPod], lag: float = 0.0) -> None:
        self.server, self.planned, self.lag = server, planned, lag
        self.nodes: dict[str, Node] = {}
        clock = server.clock
        cache = cast(Any, SimpleNamespace(expect=lambda _: None))
        event = cast(Any, Never())
        self.applier = Applies(Pass(server, cache, Settings(), stopping=event, clock=clock))
        self.sent, self.timestamps, self.began = SentReleases(), Timestamps(), clock.now
        self.behind = 0.0
        self.paused: dict[str, float] = {}

    def one(self) -> float:
        """One pass; returns when the next is due."""
        server, now = self.server, self.server.clock.now
        pods = server.pods(min(self.lag, now - self.began))
        gated = [pod for pod in pods if pod.spec.scheduling_gates]
        others = [pod for pod in pods if not pod.spec.scheduling_gates]
        named = {(pod.metadata.namespace, pod.metadata.uid) for pod in pods}
        written = tuple(
            server.planned[pod.metadata.uid] for pod in gated if pod.metadata.uid in server.planned
        )
        view = self.view = View(
            gated, others, self.nodes, {}, dict(self.planned), named=named, written=written
        )
        self.sent = self.sent.seen(view, now)
        queue = self.queue = ReleaseQueue(view, self.sent, self.applier.table, now)
        waiting = [
            (pod, self.planned[pod.metadata.uid])
            for pod in gated
            if pod.metadata.uid in self.planned
            and pod.metadata.uid not in self.sent
            and self.paused.get(pod.metadata.namespace, 0.0) <= now
        ]
        taken = self.stamped(queue.take(waiting))
        done = self.applier.apply(Orders(releases=taken, reads=tuple(queue.reads)), view)
        self.sent = self.sent.after(done, view, now, self.now_ns())
        self.paused |= {refused.gang.namespace: now + 5 for refused in done.refused}
        return min(queue.due_seconds, done.again_seconds, 30.0)

    def now_ns(self) -> int:
        return FIRST_STAMP + int((self.server.clock.now - self.behind) * 1e9)

    def stamped(self, pairs: Sequence[Pair]) -> tuple[Pair, ...]:
        """As the sweeper stamps what it releases of earlier plans."""
        view = self.view
        planned = (each.annotations for each in self.server.planned.values())
        self.timestamps.observe(
            [*planned, *(pod.metadata.annotations for pod in (*view.gated, *view.others))]
        )
        found = []
        for pod, entry in pairs:
            stamp = encode_timestamp(self.timestamps.next(self.now_ns()))
            annotations = entry.annotations | {keys.GAS_TIMESTAMP_ANNOTATION: stamp}
            found.append((pod, msgspec.structs.replace(entry, annotations=annotations)))
        return tuple(found)

    def close(self) -> None:
        self.applier.close()


def cluster(answers: Any, *namespaces: str) -> tuple[Server, dict[str, PlannedPod]]:
    """A pod for each namespace given, planned one after the other a millisecond apart."""
    raws, planned = {}, {}
    for number, namespace in enumerate(namespaces):
        name = f"{namespace}-{number}"
        raws[name] = pod_json(name, metadata={"namespace": namespace})
        stamp = str(FIRST_STAMP - 10**9 + number * 10**6)
        cards = {keys.GAS_CARDS_ANNOTATION: "card0", keys.GAS_TIMESTAMP_ANNOTATION: stamp}
        planned[f"uid-{name}"] = PlannedPod(name, f"uid-{name}", "n0", annotations=cards)
    return Server(raws, planned, answers), planned


def passes(leader: Leader, seconds: float) -> list[tuple[str, float]]:
    """The pods that are released within that time, in order, each with its second."""
    server = leader.server
    end = server.clock.now + seconds
    try:
        while server.clock.now < end:
            server.advance(min(max(leader.one(), 0.01), 2.0))
    finally:
        leader.close()
    assert not server.overlaps, "two are under way on the node at one time"
    return sorted(server.released.items(), key=lambda each: each[1])


def given_to(hostile: Answer) -> Any:
    """Releases in the namespace "bad" are answered so; others, and pods that are read, well."""
    return lambda namespace, method: hostile if namespace == "bad" and method == "PATCH" else WELL


def one_by_one(*releases: Answer, then: Answer, reads: Sequence[Answer] = ()) -> Any:
    """Releases in the namespace "bad" are answered so one after the other, as are pods there that are read.

    then: later releases there; all else is answered well.
    """
    left = {"PATCH": iter(releases), "GET": iter(reads)}
    last = {"PATCH": then, "GET": WELL}
    return lambda namespace, method: (
        next(left[method], last[method]) if namespace == "bad" and method in left else WELL
    )


def led_for_long(server: Server, planned: dict[str, PlannedPod]) -> Leader:
    """A leader that has planned these pods itself."""
    leader = Leader(server, planned)
    leader.sent = SentReleases(unconfirmed={})
    server.clock.now = 2 * LOST_SECONDS
    return leader
