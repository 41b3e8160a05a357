"""A plain greedy placer of identical pods: what placing costs at least, if nothing is proven.

It counts the free slots of each node, takes the smallest domain of the finest level with capacity for all
pods, and fills its nodes, those with most free slots first. It knows no rules, cards or anchors.
"""

from collections import Counter

from webhook.placement import Gang, Snapshot
from webhook.placement.snapshot import NodeState, key_of


def place_greedily(gang: Gang, snapshot: Snapshot) -> dict[str, int] | None:
    """Node name -> pods; None if the cluster has no capacity for all of them."""
    states = list(snapshot.nodes.values())
    levels, wanted = len(snapshot.topology.level_names), len(gang.members)
    each = [
        [state.free.get(resource, 0) // amount for state in states]
        for resource, amount in gang.members[0].pod_class.requests
    ]
    free = list(map(min, zip(*each, strict=True)))
    paths = [key_of(state, levels) for state in states]
    for level in range(levels, -2, -1):
        domains = [path[: level + 2] if level >= 0 else () for path in paths]
        capacity: Counter[tuple[str, ...]] = Counter()
        for domain, slots in zip(domains, free, strict=True):
            capacity[domain] += max(0, slots)
        enough = [domain for domain, slots in capacity.items() if slots >= wanted]
        if enough:
            chosen = min(enough, key=lambda domain: (capacity[domain], domain))
            nodes = [n for n, domain in enumerate(domains) if domain == chosen]
            return _filled(wanted, [(free[n], states[n]) for n in nodes])
    return None


def _filled(wanted: int, nodes: list[tuple[int, NodeState]]) -> dict[str, int]:
    taken: dict[str, int] = {}
    for free, state in sorted(nodes, key=lambda node: -node[0]):
        if wanted <= 0:
            break
        taken[state.name] = min(free, wanted)
        wanted -= free
    return taken
