"""Which nodes the sweeper avoids since pods fail there, and what it keeps of the others."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from labeler.contract import keys
from webhook.inquiry.findings import Finding, State, found, some
from webhook.kube.client import Api, ApiError
from webhook.sweeper.apply import failure_log
from webhook.sweeper.apply.failure_log import AvoidedNode
from webhook.sweeper.decide.verdicts import why_bad
from webhook.sweeper.observe.node_failures import seconds_of
from webhook.text import counted

RESET_COMMAND: Final = (
    f'kubectl annotate node NODE --overwrite {keys.FORGIVE_FAILURES_ANNOTATION}="$(date -u +%FT%TZ)"'
)

AGAIN_SECONDS: Final = 10.0


@dataclass(frozen=True)
class NodeRow:
    """A node with failures. by: who avoids it, a namespace or "*" for all, "" if nobody; until, last: seconds
    since 1970, 0 for none.

    gangs: how many have failed there and proven it; failures: how many failures are kept.
    """

    node: str
    by: str
    until: int
    gangs: int
    failures: int
    last: int
    cause: str


def rows(data: dict[str, Any], now: float) -> list[NodeRow]:
    """Of the data of the sweeper's ConfigMap, the avoided nodes first. Raises msgspec.MsgspecError."""
    failures = failure_log.decoded(data.get("failures", ""))
    counts = {each.node: 0 for each in failures if each.node}
    for each in failures:
        if each.node:
            counts[each.node] += 1
    bad = _now(data, now)
    made = [
        NodeRow(each.node, each.by, each.until, each.gangs, counts.get(each.node, 0), each.last, each.cause)
        for each in bad
    ]
    for name in sorted(counts.keys() - {each.node for each in bad}):
        own = [each for each in failures if each.node == name]
        last = max(own, key=lambda each: each.at)
        proven = len({(each.namespace, each.gang) for each in own if each.state == "proven"})
        made.append(NodeRow(name, "", 0, proven, len(own), last.at, last.cause))
    return made


def read(api: Api) -> dict[str, Any]:
    """The data of the ConfigMap. Raises ApiError."""
    return dict(api.json("GET", failure_log.PATH, timeout_seconds=5).get("data") or {})


def avoided(api: Api, now: float, namespace: str = "") -> dict[str, str]:
    """Node -> why all gangs, and those of the namespace, avoid it; nothing for whoever may not read it.

    now: seconds since 1970. Raises ApiError.
    """
    try:
        found = _now(read(api), now)
    except msgspec.MsgspecError:
        return {}  # see examine
    except ApiError as error:
        if error.status not in (401, 403, 404):
            raise
        return {}
    return {
        each.node: why_bad(each.gangs, each.last, each.cause)
        for each in found
        if each.by in (failure_log.EVERYBODY, namespace)
    }


class AvoidedNodes:
    """What all gangs avoid, read again now and then; what was known stays where the API server is away."""

    def __init__(
        self, api: Api, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        """now: seconds since 1970."""
        self._api = api
        self._clock = clock
        self._now = now
        self._due_at = float("-inf")
        self._known: Mapping[str, str] = {}

    def __call__(self) -> Mapping[str, str]:
        """Node -> why it is avoided."""
        if self._clock() >= self._due_at:
            self._due_at = self._clock() + AGAIN_SECONDS
            with contextlib.suppress(ApiError):
                self._known = avoided(self._api, self._now())
        return self._known


def unforgiven(nodes: list[dict[str, Any]]) -> dict[str, str]:
    """Node -> what stands there to forgive failures and is no time."""
    texts = {
        each["metadata"]["name"]: (each["metadata"].get("annotations") or {}).get(
            keys.FORGIVE_FAILURES_ANNOTATION
        )
        for each in nodes
    }
    return {name: text for name, text in texts.items() if text is not None and seconds_of(text) is None}


def examine(api: Api, now: datetime) -> Iterator[Finding]:
    """Nodes that are avoided want mending, and what an operator wrote there must be readable."""
    try:
        bad = _now(read(api), now.timestamp())
    except msgspec.MsgspecError as error:
        yield found(
            State.ODD,
            f"{failure_log.NAME} cannot be read: {error}",
            "Delete its data; the sweeper begins anew.",
        )
        return
    names = sorted({each.node for each in bad if each.by == failure_log.EVERYBODY})
    partly = sorted({each.node for each in bad} - set(names))
    if names:
        nodes = counted(len(names), "node is", "nodes are")
        yield found(
            State.ODD,
            f"{nodes} avoided since pods of several gangs failed there: {some(names)}",
            "topogate nodes says why, and how to have them used again.",
        )
    if partly:
        yield found(
            State.ODD,
            f"some namespaces avoid nodes where their pods failed: {some(partly)}",
            "topogate nodes",
        )
    wrong = unforgiven(api.json("GET", "/api/v1/nodes", timeout_seconds=60)["items"])
    if wrong:
        name, text = min(wrong.items())
        yield found(
            State.ODD,
            f"node {name}: {keys.FORGIVE_FAILURES_ANNOTATION} is no time: {text[:100]!r}",
            RESET_COMMAND.replace("NODE", name),
        )
    if not names and not partly and not wrong:
        yield found(State.WELL, "no node is avoided")


def _now(data: dict[str, Any], now: float) -> list[AvoidedNode]:
    """Those whose time is not over: while nothing leads, nobody takes them out."""
    return [each for each in failure_log.avoided(data) if each.until > now]


def day_and_time(seconds: int) -> str:
    """Of a time as people read it, "-" for none."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%SZ}" if seconds else "-"
