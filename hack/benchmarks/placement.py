"""What placing a gang costs and how good the answer is, beside two other placers on the same instances.

Times include everything from the snapshot to the assignment: eligibility, rooms, search, ranks. "cold" is
the first gang on a new snapshot, "one block changed" the next one after a pod appeared in one block.
Times are CPU seconds of this process, so that other work on the machine does not count, the median and in
brackets the range; absolute figures belong to the machine all the same, ratios are meant to be compared.
numpy, which the knapsack loads with the first gang of a process, is loaded before and timed by itself.
"""

import argparse
import gc
import importlib
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from hack.benchmarks import claimed, jointly, volumed
from hack.comparing.clusters import fragmented
from hack.comparing.rivals import Leaf, best_fit, window
from labeler.contract import keys
from webhook.kube.objects import Node, Pod
from webhook.placement import (
    Assignment,
    Gang,
    Member,
    NodeInfo,
    Options,
    PodClass,
    Slice,
    Snapshot,
    Spread,
    Usage,
    check,
    place,
    vector,
)
from webhook.scheduling.acceptance import Acceptance
from webhook.scheduling.label_domains import KeptDomains
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.sweeper.decide.ruled import ask_by_rules

GPU = "nvidia.com/gpu"


def cluster(nodes: int, slots: int, seed: int) -> list[NodeInfo]:
    """Nodes in blocks of 8-24 subblocks of 8-24 nodes; four subblocks in ten are partly busy."""
    spots = fragmented(random.Random(seed), nodes, slots, subblocks=(8, 24), nodes=(8, 24), whole=0.9)
    return [
        node(number, f"b{spot.block}", f"r{spot.subblock}", spot.free, slots)
        for number, spot in enumerate(itertools.islice(spots, nodes))
    ]


def node(number: int, block: str, rack: str, free: int, slots: int) -> NodeInfo:
    """A node with eight GPUs, of which the free slots' share is allocatable."""
    labels = dict(zip(keys.GCE_TOPOLOGY, (block, rack, f"h{number}"), strict=True))
    amounts = {"cpu": 96_000, "memory": 2**40, "pods": 110, GPU: 8 * free // slots}
    return NodeInfo(f"n{number}", labels, allocatable=amounts)


def gang(pods: int, slots: int, name: str = "g") -> Gang:
    """Pods that take one slot each."""
    kind = PodClass(vector({"cpu": 1000, "pods": 1, GPU: 8 // slots}))
    return Gang(name, tuple(Member(f"{name}-{rank}", rank, kind) for rank in range(pods)))


def timed(work: Callable[[], object], repeats: int) -> tuple[float, object]:
    """Median CPU seconds, and the last result."""
    seconds = []
    result: object = None
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds), result


def leaves_of(nodes: Sequence[NodeInfo], slots: int) -> list[Leaf]:
    """What the rivals start from; the leaf counts are part of their time, as they are of ours."""
    need = 8 // slots
    return [
        Leaf(tuple(n.labels[key] for key in keys.GCE_TOPOLOGY), n.allocatable[GPU] // need) for n in nodes
    ]


def domains(chosen: Sequence[Leaf]) -> tuple[int, ...]:
    """Blocks, subblocks and hosts used."""
    return tuple(len({leaf.place[:length] for leaf in chosen}) for length in (1, 2, 3))


def size(nodes: int, slots: int, pods: int, repeats: int, with_window: bool) -> None:
    """One line of the table of times."""
    made = cluster(nodes, slots, seed=nodes + slots)
    asked = gang(pods, slots)
    cold, changed = [], []
    found: object = None
    for _ in range(repeats):
        snapshot = Snapshot.build(made, [])
        seconds, found = timed(lambda snapshot=snapshot: place(asked, snapshot), 1)  # type: ignore[misc]
        cold.append(seconds)
        usage = [(made[-1].name, Usage({"cpu": 1000, "pods": 1}))]
        later = Snapshot.build(made, usage, previous=snapshot)
        seconds, _ = timed(lambda later=later: place(asked, later), 1)  # type: ignore[misc]
        changed.append(seconds)
    ours = statistics.median(cold)
    assert isinstance(found, Assignment)
    assert not check(found, asked, later)
    greedy, _ = timed(lambda: best_fit(leaves_of(made, slots), pods), repeats)
    proven = found.proven
    spread = found.spread
    rivals = f"greedy {greedy / ours:6.2f}x"
    if with_window and slots == 1:
        seconds, _ = timed(lambda: window(leaves_of(made, slots), pods), 1)
        rivals += f", window {seconds / ours:6.1f}x"
    print(
        f"{nodes:7} nodes {slots} slots {pods:6} pods: cold {span(cold)}, one block changed {span(changed)}; "
        f"{rivals}; {'optimum' if proven else 'not proven'}: {spread}",
        flush=True,
    )


def span(seconds: Sequence[float]) -> str:
    """Median and range in milliseconds."""
    low, high = min(seconds) * 1e3, max(seconds) * 1e3
    return f"{statistics.median(seconds) * 1e3:6.1f} ms ({low:.1f}-{high:.1f})"


def load() -> None:
    """What the first gang of a process pays once."""
    start = time.process_time()
    importlib.import_module("webhook.placement.alike.layers")
    print(f"loading numpy, once in a process: {(time.process_time() - start) * 1e3:.0f} ms")


def quality(instances: int) -> None:
    """How often a rival uses more domains than we do, on small fragmented clusters."""
    dice = random.Random(7)
    worse = {"greedy": 0, "window": 0}
    tried = {"greedy": 0, "window": 0}
    for _ in range(instances):
        slots = dice.choice((1, 8))
        made: list[NodeInfo] = []
        for block in range(dice.randint(2, 3)):
            for rack in range(dice.randint(2, 4)):
                for _ in range(dice.randint(2, 4)):
                    free = dice.choice((0, 0, 1, 1, 1)) if slots == 1 else dice.choice((0, 0, 1, 2, 4, 8, 8))
                    made.append(node(len(made), f"b{block}", f"r{rack}", free, slots))
        leaves = leaves_of(made, slots)
        asked = gang(dice.randint(2, max(2, sum(leaf.room for leaf in leaves))), slots)
        snapshot = Snapshot.build(made, [])
        found = place(asked, snapshot)
        if not isinstance(found, Assignment):
            continue
        assert not check(found, asked, snapshot)
        for name, rival in (("greedy", best_fit), ("window", window)):
            if name == "window" and slots != 1:
                continue
            chosen = rival(leaves, len(asked.members))
            tried[name] += 1
            assert chosen is None or domains(chosen) >= found.objective.domains[:3], (
                "a rival beats the optimum"
            )
            worse[name] += chosen is None or domains(chosen) > found.objective.domains[:3]
    for name, count in worse.items():
        print(
            f"quality: {name} misses the optimum of (blocks, subblocks, hosts) in {count} of {tried[name]} "
            f"instances ({100 * count / max(1, tried[name]):.1f} %); it is never better"
        )


LEADER = PodClass(vector({"cpu": 4000, "pods": 1, GPU: 2}))
LAUNCHER = PodClass(vector({"cpu": 8000, "pods": 1}))
SERVER = PodClass(vector({"cpu": 64_000, "pods": 1, GPU: 1}))


def shapes(nodes: int, slots: int, workers: int, repeats: int) -> None:
    """Gangs that are more than identical pods, each beside as many identical pods on the same nodes."""
    made = cluster(nodes, slots, seed=nodes + slots)
    alike = gang(workers, slots)
    of_all, asked = [], {"identical": alike}
    for number, kind in enumerate([LEADER, *[LAUNCHER] * 3, *[SERVER] * 4]):
        of_all.append(Member(f"o{number}", workers + number, kind))
    asked["a leader"] = replace(alike, members=(*alike.members, of_all[0]))
    asked["8 odd pods of 3 classes"] = replace(alike, members=(*alike.members, *of_all))
    asked["slices of 2 a subblock"] = replace(alike, slices=(Slice("subblock", 2),))
    nested = (Slice("block", 40), Slice("subblock", 4))
    asked["slices of 40 a block, 4 a subblock"] = replace(alike, slices=nested)
    blocks = len({each.labels[keys.GCE_TOPOLOGY[0]] for each in made})
    most = -(-3 * workers // blocks)
    asked["spread over the blocks"] = replace(alike, spread=Spread("block"))
    for level, cap in (("block", most), ("block", 2 * most), ("host", 2)):
        asked[f"at most {cap} a {level}"] = replace(alike, spread=Spread(level, cap))
    asked["slices of 4 and a leader"] = replace(asked["a leader"], slices=(Slice("subblock", 4),))
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    found: object = None
    for _ in range(repeats):
        for name, each in asked.items():
            snapshot = Snapshot.build(made, [])
            taken, found = timed(lambda each=each, snapshot=snapshot: place(each, snapshot), 1)  # type: ignore[misc]
            seconds[name].append(taken)
            assert not isinstance(found, Assignment) or not check(found, each, snapshot)
    plain = statistics.median(seconds["identical"])
    for name, each in asked.items():
        found = place(each, Snapshot.build(made, []))
        what = found.spread if isinstance(found, Assignment) else "no place"
        print(
            f"{nodes:7} nodes {slots} slots {workers:6} workers, {name}: {span(seconds[name])}, "
            f"{statistics.median(seconds[name]) / plain:.2f} of identical pods; "
            f"{'optimum' if found.proven else 'not proven'}: {what}",
            flush=True,
        )


ZONES = 3


def rules() -> dict[str, dict[str, object]]:
    """What pods of a gang demand of one another, by what it is called."""
    selector = {"matchLabels": {"app": "g"}}

    def spread(key: str, skew: int) -> dict[str, object]:
        return {
            "topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }  # fmt: skip

    term = {"topologyKey": keys.ZONE_LABEL, "labelSelector": selector}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    zone, host = spread(keys.ZONE_LABEL, 1), spread(keys.HOSTNAME_LABEL, 8)
    return {
        "spread over zones": {"topologySpreadConstraints": [zone]},
        "spread over hosts": {"topologySpreadConstraints": [host]},
        "spread over zones and hosts": {"topologySpreadConstraints": [zone, host]},
        "in one zone": {"affinity": {"podAffinity": required}},
    }


def ruled(nodes: int, slots: int, pods: int, repeats: int) -> None:
    """Gangs with rules on one another, each beside the same gang without; half as many others run."""
    made = []
    for number, each in enumerate(cluster(nodes, slots, seed=nodes + slots)):
        block = int(each.labels[keys.GCE_TOPOLOGY[0]].removeprefix("b"))
        zone = {keys.ZONE_LABEL: f"z{block % ZONES}", keys.HOSTNAME_LABEL: f"h{number}"}
        made.append(replace(each, labels={**each.labels, **zone}))
    objects = {
        each.name: msgspec.convert({"metadata": {"name": each.name, "labels": each.labels}}, Node)
        for each in made
    }

    def pod(name: str, app: str, spec: dict[str, object]) -> Pod:
        return msgspec.convert({"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}, Pod)

    there = [(pod(f"r{n}", "other", {}), made[n % nodes].name) for n in range(nodes // 2)]
    alike = gang(pods, slots)
    plain: list[float] = []
    kept = KeptDomains()  # as by the sweeper, for as long as no node's labels change
    seconds: dict[str, list[float]] = {name: [] for name in rules()}
    answers: dict[str, object] = {}
    for _ in range(repeats):
        snapshot = Snapshot.build(made, [])

        def without(snapshot: Snapshot = snapshot) -> object:
            asked = tuple(Member(each.name, each.rank, each.pod_class) for each in alike.members)
            return place(replace(alike, members=asked), snapshot)

        plain.append(timed(without, 1)[0])
        for name, spec in rules().items():
            members = {each.name: pod(each.name, "g", spec) for each in alike.members}
            fresh = Snapshot.build(made, [])

            def work(members: dict[str, Pod] = members, snapshot: Snapshot = fresh) -> object:
                near = Neighbourhood(objects, there, {}, members.values(), kept.of(objects))
                asked = tuple(
                    Member(each.name, each.rank, near.pod_class(members[each.name], each.pod_class))
                    for each in alike.members
                )
                rules = Acceptance(near, members)
                return ask_by_rules(replace(alike, members=asked), rules, snapshot, Options())

            taken, answers[name] = timed(work, 1)
            seconds[name].append(taken)
    for name, found in answers.items():
        assert isinstance(found, Assignment), f"{name}: {found}"
        print(
            f"{nodes:7} nodes {slots} slots {pods:6} pods, {name}: {span(seconds[name])}, "
            f"{statistics.median(seconds[name]) / statistics.median(plain):.2f} of the same without; "
            f"{'optimum' if found.proven else 'not proven'}: {found.spread}",
            flush=True,
        )


def sequence(gangs: int) -> None:
    """Gangs placed one after another on 5,000 nodes, each seeing those before it."""
    snapshot = Snapshot.build(cluster(5000, 8, seed=5), [])
    seconds = []
    for number in range(gangs):
        asked = gang(64, 8, f"g{number}")
        start = time.process_time()
        found = place(asked, snapshot)
        assert isinstance(found, Assignment)
        snapshot = snapshot.assume(found, asked)
        seconds.append(time.process_time() - start)
    early, late = statistics.median(seconds[1:9]), statistics.median(seconds[-8:])
    print(
        f"sequence: {gangs} gangs of 64 pods on 5000 nodes: first {seconds[0] * 1e3:.1f} ms, then "
        f"{early * 1e3:.1f} ms each; the last eight {late * 1e3:.1f} ms each ({late / early:.2f}x)"
    )


def main(argv: list[str] | None = None) -> int:
    """Print the measurements."""
    parser = argparse.ArgumentParser(prog="hack/bench placement", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="leave out 100,000 nodes")
    parser.add_argument("--instances", type=int, default=2000, help="of the comparison of quality")
    args = parser.parse_args(argv)
    sizes = [(1000, 1, 100), (5000, 1, 128), (5000, 1, 1000), (5000, 8, 1000), (5000, 8, 5000)]
    if not args.quick:
        sizes += [(100_000, 1, 1000), (100_000, 8, 1000), (100_000, 8, 10_000), (100_000, 1, 10_000)]
    load()
    for nodes, slots, pods in sizes:
        size(nodes, slots, pods, args.repeats, with_window=nodes <= 5000)
    print(claimed.row(cluster(5000, 8, seed=5008), gang(1000, 8), args.repeats))
    print(volumed.row(cluster(5000, 8, seed=5008), gang(1000, 8), args.repeats))
    mixed = [(5000, 8, 1000), (5000, 1, 1000)]
    if not args.quick:
        mixed += [(100_000, 8, 10_000), (100_000, 1, 10_000)]
    for nodes, slots, workers in mixed:
        shapes(nodes, slots, workers, args.repeats)
    for nodes, slots, pods in ((5000, 1, 1000), (5000, 8, 1000)):
        ruled(nodes, slots, pods, args.repeats)
    sequence(64)
    print(jointly.row(args.instances // 4), flush=True)
    quality(args.instances)
    return 0


if __name__ == "__main__":
    sys.exit(main())
