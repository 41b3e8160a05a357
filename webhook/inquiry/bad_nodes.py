"""Which nodes the sweeper avoids since pods fail there, and its failure records of the others."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from webhook.extensions.node_health.avoided_nodes import NAME, avoided_now, failures_in
from webhook.kube.client import Api
from webhook.kube.state_config_map import path_of


@dataclass(frozen=True)
class NodeRow:
    """A node with failures.

    by: who avoids it: a namespace, or "*" for all gangs, "" if it is not avoided; until, last: seconds since
    1970, 0 for none. gangs: how many have failed there and proven it; failures: how many are recorded.
    """

    node: str
    by: str
    until: int
    gangs: int
    failures: int
    last: int
    cause: str


def rows(data: dict[str, Any], now: float) -> list[NodeRow]:
    """The nodes of the sweeper's ConfigMap, the avoided ones first. Raises msgspec.MsgspecError."""
    failures = failures_in(data)
    counts = {each.node: 0 for each in failures if each.node}
    for each in failures:
        if each.node:
            counts[each.node] += 1
    bad = avoided_now(data, now)
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
    return dict(api.json("GET", path_of(NAME), timeout_seconds=5).get("data") or {})


def day_and_time(seconds: int) -> str:
    """A time in local notation, "-" for none."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%SZ}" if seconds else "-"
