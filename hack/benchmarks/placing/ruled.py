"""Rules on other pods, claims on devices, volumes: each beside the same without."""

import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from hack.benchmarks import claimed, volumed
from hack.benchmarks.placing import instances
from hack.benchmarks.placing.row import Row, answered, timed
from labeler.contract import keys
from webhook.kube.objects import Node, Pod
from webhook.placement import Assignment, Member, NodeInfo, NoFit, Options, Snapshot, place
from webhook.scheduling.acceptance import Acceptance
from webhook.scheduling.label_domains import LabelDomains
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.sweeper.decide.pod_rules import ask_by_rules

ZONES: Final = 3


def claims(repeats: int, quick: bool) -> Iterator[Row]:
    """Pods that claim their GPUs."""
    note = claimed.row(instances.cluster(5000, 8), instances.gang(1000, 8), repeats).strip()
    yield Row("claims", "1000 pods, 5000 nodes of 8", note=note)


def volumes(repeats: int, quick: bool) -> Iterator[Row]:
    """Pods with volumes."""
    note = volumed.row(instances.cluster(5000, 8), instances.gang(1000, 8), repeats).strip()
    yield Row("volumes", "1000 pods, 5000 nodes of 8", note=note)


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    """Gangs with rules on one another; half as many other pods as nodes run."""
    for slots in (1, 8):
        yield from _ruled(5000, slots, 1000, repeats)


def _wishes() -> dict[str, dict[str, object]]:
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


def _pod(name: str, app: str, spec: dict[str, object]) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}, Pod)


def _zoned(nodes: int, slots: int) -> list[NodeInfo]:
    made = []
    for number, each in enumerate(instances.cluster(nodes, slots)):
        block = int(each.labels[keys.GCE_TOPOLOGY[0]].removeprefix("b"))
        zone = {keys.ZONE_LABEL: f"z{block % ZONES}", keys.HOSTNAME_LABEL: f"h{number}"}
        made.append(replace(each, labels={**each.labels, **zone}))
    return made


def _ruled(nodes: int, slots: int, pods: int, repeats: int) -> Iterator[Row]:
    made = _zoned(nodes, slots)
    objects = {
        each.name: msgspec.convert({"metadata": {"name": each.name, "labels": each.labels}}, Node)
        for each in made
    }
    there = [(_pod(f"r{n}", "other", {}), made[n % nodes].name) for n in range(nodes // 2)]
    alike = instances.gang(pods, slots)
    domains = LabelDomains(objects)  # as by the sweeper, for as long as no node's labels change

    members = {
        name: {each.name: _pod(each.name, "g", spec) for each in alike.members}
        for name, spec in {"none": {}, **_wishes()}.items()
    }

    def work(name: str, snapshot: Snapshot) -> Assignment | NoFit:
        if name == "none":
            asked = tuple(Member(each.name, each.rank, each.pod_class) for each in alike.members)
            return place(replace(alike, members=asked), snapshot)
        own = members[name]
        near = Neighbourhood(objects, there, {}, own.values(), domains)
        asked = tuple(
            Member(each.name, each.rank, near.pod_class(own[each.name], each.pod_class))
            for each in alike.members
        )
        return ask_by_rules(replace(alike, members=asked), Acceptance(near, own), snapshot, Options())

    rounds = [{name: timed(work, name, Snapshot.build(made, [])) for name in members} for _ in range(repeats)]
    plain = statistics.median(one["none"][0] for one in rounds)
    for name in members:
        seconds = tuple(one[name][0] for one in rounds)
        found = rounds[-1][name][1]
        assert isinstance(found, Assignment), f"{name}: {found}"
        beside = statistics.median(seconds) / plain
        what = f"{pods} pods, {nodes} nodes of {slots}, {name}"
        yield Row("rules", what, seconds, answer=answered(found), beside=beside)
