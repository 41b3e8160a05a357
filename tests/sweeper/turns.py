"""A node with cards, leaders whose passes release pods there, and an API server that answers as told."""

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import jsonpatch
import msgspec

from labeler.contract import keys
from tests.sweeper.clock import Clock
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.test_defects import Never
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.planned import PlannedPod
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.expectations import Expectations
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.decide.tries import LOST_SECONDS, Tries
from webhook.sweeper.decide.turns import Turns
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

FIRST_STAMP = 1_764_000_000_000_000_000
BIND_SECONDS = 5.0
TURN = "TURN"
ANSWERED_SECONDS = 29.0
"""A release may be late by as much where it was answered that something is wrong."""


@dataclass(frozen=True)
class Answer:
    """What the API server answers a release. arrives: after how many seconds it is done all the same.

    is_undone: whether somebody's mutating webhook has put back what was to be written. body: what a write of
    a plan is answered once it is done, the plan if there is none. takes: how many seconds that takes.
    """

    error: ApiError | None = None
    arrives: float | None = None
    is_undone: bool = False
    body: bytes = b""
    takes: float = 0.0


WELL = Answer()
DENIED = Answer(ApiError(503, "", 'PATCH /p: admission webhook "w" denied the request: not now'))
BROKEN = Answer(
    ApiError(500, "InternalError", 'PATCH /p: Internal error occurred: failed calling webhook "w": refused')
)
BUSY = Answer(ApiError(429, "TooManyRequests", "PATCH /p: too many requests"))
FORBIDDEN = Answer(ApiError(403, "Forbidden", "PATCH /p: a policy forbids it"))
NO_CONNECTION = Answer(ApiError(0, "Unreachable", "PATCH /p: refused", is_sent=False))
SAYS_NOTHING = ApiError(504, "Timeout", "PATCH /p: request did not complete within requested timeout")
LOST = ApiError(0, "Unreachable", "PATCH /p: got no answer")
SAID_GONE = Answer(
    ApiError(404, "NotFound", 'PATCH /p: admission webhook "w" denied the request: no such pod')
)
SAID_LATE = Answer(ApiError(408, "Timeout", 'PATCH /p: admission webhook "w" denied the request: too late'))
UNDONE = Answer(is_undone=True)
HANGS = Answer(SAYS_NOTHING)
IS_LOST = Answer(LOST)


@dataclass
class Server(Api):
    """One node, pods planned there in this order, and what becomes of their releases, and of their plans."""

    raws: dict[str, dict[str, Any]]
    planned: dict[str, PlannedPod]
    """By uid, as the plans say: a Placement for each namespace. Tests change it."""
    answers: Any
    """(namespace, method) -> the next Answer, of the pod that is asked for; TURN for writes of plans."""
    asked: str = ""
    bind_seconds: float = BIND_SECONDS
    clock: Clock = field(default_factory=Clock)
    arriving: list[tuple[float, str, Any]] = field(default_factory=list)
    released: dict[str, float] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    busy: threading.Lock = field(default_factory=threading.Lock)
    version: int = 1
    """Of all plans together."""
    seen: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    _host = "server"

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        if "/placements/" in path:
            return self.write_plan(path.split("/")[-3], body)
        name = self.asked = path.rpartition("/")[2]
        raw = self.raws[name]
        answer = self.answers(raw["metadata"]["namespace"], method)
        if method == "GET":
            self.read.append(name)
            if answer.error:
                raise answer.error
            return msgspec.json.encode(raw)
        self.tried.append(name)
        if answer.arrives is not None:
            self.arriving.append((self.clock.now + answer.arrives, name, body))
        if answer.error:
            raise answer.error
        if not answer.is_undone and not self.write(name, body):
            raise ApiError(422, "Invalid", "PATCH /p: a test failed")
        return b"{}"

    def placements(self) -> dict[str, Placement]:
        found: dict[str, list[PlannedPod]] = {}
        for planned in self.planned.values():
            found.setdefault(self.raws[planned.name]["metadata"]["namespace"], []).append(planned)
        return {
            f"{namespace}/plan": Placement(
                Metadata(name="plan", namespace=namespace, resource_version=str(self.version)),
                PlacementSpec(pods=pods),
            )
            for namespace, pods in found.items()
        }

    def write_plan(self, namespace: str, body: Any) -> bytes:
        answer = self.answers(namespace, TURN)
        with self.busy:
            self.clock.now += answer.takes
        if answer.arrives is not None:
            self.arriving.append((self.clock.now + answer.arrives, "", body))
        if answer.error:
            raise answer.error
        if not answer.is_undone and not self.take_plan(body):
            raise ApiError(409, "Conflict", "PATCH /p: the object has been modified")
        return answer.body or msgspec.json.encode(self.placements()[f"{namespace}/plan"])

    def take_plan(self, body: Any) -> bool:
        if body["metadata"]["resourceVersion"] != str(self.version):
            return False
        self.version += 1
        pods = msgspec.convert(body["spec"]["pods"], list[PlannedPod])
        self.planned.update((planned.uid, planned) for planned in pods if planned.uid in self.planned)
        return True

    def write(self, name: str, body: Any) -> bool:
        if not name:
            return self.take_plan(body)
        try:
            self.raws[name] = jsonpatch.apply_patch(copy.deepcopy(self.raws[name]), body)
        except jsonpatch.JsonPatchException:
            return False
        node = self.planned[f"uid-{name}"].node
        there = [each for each in self.released if self.planned[f"uid-{each}"].node == node]
        pending = [each for each in there if not self.is_bound(each)]
        assert not pending, f"{name} is released while {pending} are under way"
        self.released[name] = self.clock.now
        return True

    def lose_plans(self) -> None:
        """What a leader that has died wrote of plans arrives no more."""
        self.arriving = [each for each in self.arriving if each[1]]

    def is_bound(self, name: str) -> bool:
        return name in self.released and self.clock.now >= self.released[name] + self.bind_seconds

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
        raw = copy.deepcopy(self.raws[name])
        if self.is_bound(name):
            raw["spec"]["nodeName"] = "n0"
        return raw


class Leader:
    """What a leader knows, and its passes. behind: by how much its time of day has been set back."""

    def __init__(self, server: Server, planned: dict[str, PlannedPod], lag: float = 0.0) -> None:
        self.server, self.planned, self.lag = server, planned, lag
        clock = server.clock
        cache = cast(Any, SimpleNamespace(expect=lambda _: None, written=lambda _: None))
        event = cast(Any, Never())
        self.applier = Applier(Pass(server, cache, Settings(), stopping=event, clock=clock), cast(Any, None))
        self.expectations, self.began = Expectations(clock), clock.now
        self.behind = 0.0
        self.tries = Tries(clock, lambda: FIRST_STAMP + int((clock.now - self.behind) * 1e9))
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
            gated, others, {}, server.placements(), dict(self.planned), named=named, written=written
        )
        self.expectations.seen(view)
        self.tries.look(view)
        turns = self.turns = Turns(view, self.expectations, frozenset(), self.tries)
        waiting = [
            (pod, self.planned[pod.metadata.uid])
            for pod in gated
            if pod.metadata.uid in self.planned
            and pod.metadata.uid not in self.expectations
            and self.paused.get(pod.metadata.namespace, 0.0) <= now
        ]
        taken = turns.take(waiting)
        done = self.applier.apply(
            Orders(
                releases=taken,
                ahead=tuple(turns.ahead),
                looks=tuple(turns.looks),
                unseen=tuple(turns.unseen),
            ),
            view,
        )
        self.expectations.hear(done)
        self.tries.hear(done)
        self.paused |= {refused.gang.namespace: now + 5 for refused in done.refused}
        return min(turns.due_seconds, done.again_seconds, 30.0)

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
    return sorted(server.released.items(), key=lambda each: each[1])


def given_to(hostile: Answer) -> Any:
    """Releases in the namespace "bad" are answered so; others, and pods that are read, well."""
    return lambda namespace, method: hostile if namespace == "bad" and method == "PATCH" else WELL


def in_turn(*releases: Answer, then: Answer, reads: Sequence[Answer] = ()) -> Any:
    """Releases in the namespace "bad" are answered so one after the other, as are pods there that are read.

    then: later releases there; all else is answered well.
    """
    left = {"PATCH": iter(releases), "GET": iter(reads)}
    last = {"PATCH": then, "GET": WELL}
    return lambda namespace, method: (
        next(left[method], last[method]) if namespace == "bad" and method in left else WELL
    )


def led_for_long(server: Server, planned: dict[str, PlannedPod]) -> Leader:
    leader = Leader(server, planned)
    server.clock.now = 2 * LOST_SECONDS
    return leader
