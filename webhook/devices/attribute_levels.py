"""Topology levels from drivers: a node's domain is an attribute of its devices. Pure.

For example, a GPU driver publishes the NVLink domain of each device. All devices of a node that have the
attribute must agree. Otherwise, or without the attribute, the node is in no domain of that level.
"""

from collections.abc import Iterable, Mapping, Sequence

from labeler.contract import keys
from webhook.devices.pools import UPDATED, NodePool
from webhook.placement.topology import Topology
from webhook.text import counted

Labels = Mapping[str, str]


def attribute_keys(topology: Topology) -> tuple[str, ...]:
    """The label keys of a topology that stand for a device attribute."""
    found = (key for family in topology.families for key in family if key.startswith(keys.DEVICE_ATTRIBUTE))
    return tuple(dict.fromkeys(found))


def labels_by_attributes(
    node: str, pools: Iterable[NodePool], attributes: Sequence[str], before: Labels
) -> tuple[dict[str, str], list[str]]:
    """A node's value for each of these keys, and a sentence for each key on which its devices disagree.

    before: the old values, which stay while a pool is being updated.
    """
    pools = list(pools)
    if any(pool.fault == UPDATED for pool in pools):
        return dict(before), []
    labels: dict[str, str] = {}
    problems: list[str] = []
    for key in attributes:
        domain, _, name = key.removeprefix(keys.DEVICE_ATTRIBUTE).partition("/")
        found: dict[str, str] = {}
        for pool in pools:
            for device in pool.devices:
                value = device.described.shown((domain, name))
                if value:
                    found.setdefault(value, device.id[2])
        if len(found) == 1:
            labels[key] = next(iter(found))
        elif found:
            values = " and ".join(f'"{value}" ({device})' for value, device in sorted(found.items())[:2])
            more = f" and {counted(len(found) - 2, 'other')}" if len(found) > 2 else ""
            problems.append(f"devices of node {node} differ in {domain}/{name}: {values}{more}")
    return labels, problems
