"""Placers of gang_arrivals: topogate's own core, first-fit, tight fit, and the rule of Kueue's TAS.

First-fit and tight fit try single subblocks, then the fewest subblocks of single blocks, then the cluster.
Tight fit starts with the domain that has the fewest free GPUs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

from hack.comparing.gang_arrivals import BLOCK, GPUS, NODES, SUBBLOCK, ArrivingGang, Fleet, Role, Taken
from hack.comparing.trace_placer import with_mix
from labeler.contract import keys
from webhook.placement import Assignment, Gang, Member, NodeInfo, PodClass, Snapshot, place, vector

GPU: Final = "nvidia.com/gpu"
SIZES: Final = (NODES, BLOCK, SUBBLOCK, 1)
"""Nodes of a domain of each level, the coarsest first."""

Search = Callable[[list[int], ArrivingGang], Taken | None]


class Simple:
    """A placer that knows free GPUs alone."""

    def __init__(self, search: Search) -> None:
        self.search = search

    def place(self, fleet: Fleet, job: ArrivingGang) -> Taken | None:
        """See gang_arrivals.Placer."""
        return self.search(list(fleet.free), job)

    def end(self, job: ArrivingGang) -> None:
        """See gang_arrivals.Placer."""


class Topogate:
    """topogate's core, with a snapshot of its own."""

    def __init__(self) -> None:
        self.snapshot = empty_cluster()
        self.running: dict[int, tuple[Gang, set[str]]] = {}

    def place(self, fleet: Fleet, job: ArrivingGang) -> Taken | None:
        """See gang_arrivals.Placer."""
        gang = gang_of(job)
        self.snapshot = with_mix(self.snapshot, [member.pod_class for member in gang.members])
        found = place(gang, self.snapshot, explained=False)
        if not isinstance(found, Assignment):
            return None
        self.snapshot = self.snapshot.assume(found, gang)
        self.running[job.number] = gang, set(found.nodes.values())
        gpus = {member.name: dict(member.pod_class.requests)[GPU] for member in gang.members}
        taken: Taken = Counter()
        for member, name in found.nodes.items():
            taken[int(name[1:])] += gpus[member]
        return taken

    def end(self, job: ArrivingGang) -> None:
        """See gang_arrivals.Placer."""
        gang, names = self.running.pop(job.number)
        self.snapshot = self.snapshot.without(names, lambda usage: usage.gang == gang.identity)


def empty_cluster() -> Snapshot:
    """The nodes of gang_arrivals, without pods."""
    return Snapshot.build([_node(number) for number in range(NODES)], [])


def gang_of(job: ArrivingGang) -> Gang:
    """A job as the core sees it."""
    classes = [pod for role in job.roles for pod in [_pod_class(role.gpus)] * role.pods]
    members = tuple(Member(f"p{rank}", rank, pod) for rank, pod in enumerate(classes))
    return Gang(f"g{job.number}", members, required_level=job.required or None)


def _node(number: int) -> NodeInfo:
    place_of = (f"b{number // BLOCK}", f"s{number // SUBBLOCK}", f"h{number}")
    labels = dict(zip(keys.GCE_TOPOLOGY, place_of, strict=True))
    return NodeInfo(f"n{number}", labels, allocatable={"cpu": 128_000, "pods": 110, GPU: GPUS})


def _pod_class(gpus: int) -> PodClass:
    return PodClass(vector({"cpu": 8000 * gpus, "pods": 1, GPU: gpus}))


def first_fit(free: list[int], job: ArrivingGang) -> Taken | None:
    """The first place."""
    return _placed(free, job, lambda domains: domains, lambda nodes, _: nodes)


def tight_fit(free: list[int], job: ArrivingGang) -> Taken | None:
    """The tightest place; a single pod gets the fullest node."""
    if not job.is_gang:
        fitting = [node for node in range(NODES) if free[node] >= job.gpus]
        sums = [sum(free[start : start + SUBBLOCK]) for start in range(0, NODES, SUBBLOCK)]
        best = min(fitting, key=lambda node: (free[node], sums[node // SUBBLOCK]), default=None)
        return None if best is None else Counter({best: job.gpus})
    return _placed(
        free,
        job,
        lambda domains: sorted(domains, key=lambda nodes: sum(free[node] for node in nodes)),
        lambda nodes, gpus: sorted(nodes, key=lambda node: (free[node] % gpus, free[node])),
    )


def _placed(
    free: list[int],
    job: ArrivingGang,
    order: Callable[[list[range]], list[range]],
    of_nodes: Callable[[Iterable[int], int], Iterable[int]],
) -> Taken | None:
    """The first of the ordered domains that holds the job. of_nodes: the order of nodes for a pod's GPUs."""
    for nodes in order(_domains(range(NODES), SUBBLOCK)):
        if (taken := _filled(free, nodes, job, of_nodes)) is not None:
            return taken
    if job.required == "subblock":
        return None
    for block in order(_domains(range(NODES), BLOCK)):
        parts = sorted(_domains(block, SUBBLOCK), key=lambda nodes: -sum(free[node] for node in nodes))
        for some in accumulate([list(part) for part in parts]):
            if (taken := _filled(free, some, job, of_nodes)) is not None:
                return taken
    return None if job.required else _filled(free, range(NODES), job, of_nodes)


def _domains(nodes: range, size: int) -> list[range]:
    return [range(start, start + size) for start in range(nodes.start, nodes.stop, size)]


def _filled(
    free: Sequence[int],
    nodes: Sequence[int],
    job: ArrivingGang,
    of_nodes: Callable[[Iterable[int], int], Iterable[int]],
) -> Taken | None:
    """The job on these nodes, the largest pods first."""
    if sum(free[node] for node in nodes) < job.gpus:
        return None
    left = {node: free[node] for node in nodes}
    taken: Taken = Counter()
    for pods, gpus in sorted(job.roles, key=lambda role: -role.gpus):
        wanted = pods
        for node in of_nodes(nodes, gpus):
            count = min(wanted, left[node] // gpus)
            if count:
                left[node] -= count * gpus
                taken[node] += count * gpus
                wanted -= count
        if wanted:
            return None
    return taken


def kueue(free: list[int], job: ArrivingGang) -> Taken | None:
    """The rule of Kueue's topology-aware scheduling (BestFit), one role after the other.

    A role gets the domain with the least capacity that holds it, at the finest level that has one. If none
    holds it, domains are taken by descending capacity, and the last one is the tightest for what is left.
    """
    taken: Taken = Counter()
    for role in job.roles:
        mine = _by_best_fit(free, role, job.required)
        if mine is None:
            return None
        taken += mine
        for node, gpus in mine.items():
            free[node] -= gpus
    return taken


_LEVEL_OF: Final = {"": 0, "block": 1, "subblock": 2}


def _by_best_fit(free: Sequence[int], role: Role, required: str) -> Taken | None:
    slots = [each // role.gpus for each in free]
    for level in range(len(SIZES) - 1, _LEVEL_OF[required] - 1, -1):
        domains = _domains(range(NODES), SIZES[level])
        chosen = _tightest(slots, domains, role.pods)
        if chosen is not None:
            return Counter({node: n * role.gpus for node, n in _spread(slots, chosen, level, role.pods)})
    return None


def _tightest(slots: Sequence[int], domains: Iterable[range], pods: int) -> range | None:
    sums = [(sum(slots[nodes.start : nodes.stop]), nodes) for nodes in domains]
    return min((each for each in sums if each[0] >= pods), key=lambda each: each[0], default=(0, None))[1]


def _spread(slots: Sequence[int], inside: range, level: int, pods: int) -> Iterable[tuple[int, int]]:
    """The pods on the nodes of one domain, as nodes and counts."""
    if len(inside) == 1:
        return [(inside.start, pods)]
    parts = _domains(inside, SIZES[level + 1])
    found: list[tuple[int, int]] = []
    while pods:
        part = _tightest(slots, parts, pods)
        if part is None:
            part = max(parts, key=lambda nodes: sum(slots[nodes.start : nodes.stop]))
        count = min(pods, sum(slots[part.start : part.stop]))
        found += _spread(slots, part, level + 1, count)
        parts.remove(part)
        pods -= count
    return found
