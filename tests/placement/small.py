"""Small clusters in one line: block{subblock{host: free slots}}, a slot being the capacity for one pod."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from labeler.contract import keys
from webhook.placement import (
    Assignment,
    Gang,
    Member,
    NodeInfo,
    Objective,
    Options,
    PodClass,
    Snapshot,
    Usage,
    check,
    place,
    vector,
)

FAMILY = keys.GCE_TOPOLOGY
Tree = Mapping[str, Mapping[str, Mapping[str, int]]]


def seeds(count: int) -> range:
    """Seeds of random instances; TOPOGATE_INSTANCES times as many where that is set."""
    return range(count * int(os.environ.get("TOPOGATE_INSTANCES", "1")))


def node(name: str, place: tuple[str, ...] | None, cpu: int = 0, **amounts: int) -> NodeInfo:
    """A node with whole cpus and other amounts; place: block, subblock, host."""
    labels = dict(zip(FAMILY, place, strict=True)) if place else {}
    allocatable = {"cpu": cpu * 1000, "pods": 110, **amounts}
    return NodeInfo(name, labels, allocatable=allocatable)


def nodes_of(tree: Tree) -> list[NodeInfo]:
    return [
        node(host, (block, rack, host), cpu)
        for block, racks in tree.items()
        for rack, hosts in racks.items()
        for host, cpu in hosts.items()
    ]


def snapshot_of(tree: Tree, usage: list[tuple[str, Usage]] | None = None) -> Snapshot:
    return Snapshot.build(nodes_of(tree), usage or [])


def pod_class(cpu: int = 1, **amounts: int) -> PodClass:
    """A pod of whole cpus."""
    return PodClass(vector({"cpu": cpu * 1000, "pods": 1, **amounts}))


def gang_of(count: int, kind: PodClass | None = None, **rules: Any) -> Gang:
    kind = kind or pod_class()
    members = tuple(Member(f"p-{rank}", rank, kind) for rank in range(count))
    return Gang("g", members, **rules)


def taken(nodes: Mapping[str, str]) -> dict[str, int]:
    """Node -> members on it."""
    counts: dict[str, int] = {}
    for name in nodes.values():
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def without_headroom(objective: Objective) -> Objective:
    """The objective down to the leftover."""
    return replace(objective, headroom_penalty=0, preference_penalty=0)


def placed(gang: Gang, snapshot: Snapshot, options: Options | None = None) -> Assignment:
    """What `place` finds, which is there and keeps every rule."""
    found = place(gang, snapshot, options)
    assert isinstance(found, Assignment), found
    assert check(found, gang, snapshot) == []
    return found
