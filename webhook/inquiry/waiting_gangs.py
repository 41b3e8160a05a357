"""Gangs that wait for long, and those that would wait for ever: they need more than their nodes have."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from labeler.contract import keys
from webhook.configuration.cluster import read_if_allowed
from webhook.configuration.file import Configuration
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.fewest_domains import EmptyCluster
from webhook.inquiry.findings import Finding, State, found, some
from webhook.inquiry.next_pass import PassFacts, moment, run_pass
from webhook.inquiry.resource_adder import view_of
from webhook.kube import placements
from webhook.kube.client import Api
from webhook.kube.objects import Pod
from webhook.placement import Gang, Member, Snapshot
from webhook.scheduling.impossible_requests import impossible
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.text import counted

LONG_SECONDS: Final = 600

_FOR_EVER: Final = (Cause.INVALID_REQUEST, Cause.OTHER_SCHEDULER)
"""Only who has written the pods, or the settings, ends such a wait."""


def examine(api: Api, now: datetime) -> Iterator[Finding]:
    """Waiting is no fault of the installation, but may go unnoticed."""
    there = api.json("GET", placements.ALL, timeout_seconds=60)["items"]
    waits = [each for each in there if (each.get("status") or {}).get("state") == "Waiting"]
    sizes = {_key(each): int(each["spec"].get("size", 0)) for each in waits}
    never = list(never_placed(api, sizes)) if waits else []
    for name, why in never:
        yield found(
            State.ODD,
            f"gang {name} can never be placed as it is written: {why}",
            "Run topogate explain.",
        )
    before = now - timedelta(seconds=LONG_SECONDS)
    old = [
        f"{each['metadata']['namespace']}/{each['spec'].get('gang', '')}"
        for each in waits
        if datetime.fromisoformat(each["metadata"]["creationTimestamp"]) < before
    ]
    if old:
        gangs = counted(len(old), "gang waits", "gangs wait")
        sentence = f"{gangs} for over {LONG_SECONDS // 60} minutes: {some(old)}"
        yield found(State.ODD, sentence, "See topogate gangs -A.")
    elif not never:
        yield found(State.WELL, f"{counted(len(waits), 'gang waits', 'gangs wait')}, none for long")


def _key(placement: Mapping[str, Any]) -> str:
    """The key, as GangKey.placement_key writes it."""
    metadata = placement["metadata"]
    return f"{metadata['namespace']}/{metadata.get('name', '')}"


def never_placed(api: Api, sizes: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Name and reason of each gang that no free node helps, or that does not fit even into empty nodes.

    The first is the sweeper's own reason. Gangs whose controller is gone are left out: they are not to be
    placed. sizes: by the key of the Placement, how many pods a waiting gang has in total. Raises ApiError.
    """
    settings = (read_if_allowed(api) or Configuration()).settings
    settings = replace(settings, settle_seconds=0.0, patience_seconds=math.inf)
    cluster = ClusterReading.read_usage(api)
    snapshotter = Snapshotter(cluster, settings)
    view = replace(view_of(snapshotter, cluster, settings), now=moment())
    snapshot = snapshotter.snapshot(view)
    facts = PassFacts(lambda key: OwnerFacts(sizes.get(key.placement_key) or None))
    made = run_pass(view, snapshot, settings, facts)
    empty, found_of = EmptyCluster(snapshot), dict[GangKey, str]()
    for gang in sorted(made.seen.gangs, key=lambda each: str(each.key)):
        outcome = made.outcome(gang.key)
        if outcome is not None and outcome.cause in _FOR_EVER and not gang.lacks_pods:
            why = outcome.reason.removeprefix(f"gang {gang.key}: ")
        else:
            why = gang.fault
        if why := why or _why_never(list(gang.gated), view, snapshot, settings, empty):
            found_of[gang.key] = why
    lost_owner = cluster.lost_owners(lambda pod: view.gang_of(pod) in found_of)
    lost = {view.gang_of(pod) for pod in view.gated if lost_owner(pod) is not None}
    yield from ((str(key), why) for key, why in found_of.items() if key not in lost)


def _why_never(
    pods: list[Pod], view: View, snapshot: Snapshot, settings: Settings, empty: EmptyCluster
) -> str:
    try:
        classes = Counter(view.class_of(pod) for pod in pods)
    except ValueError as error:
        return str(error)
    levels = (pod.metadata.annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION) for pod in pods)
    level = next(filter(None, levels), None)
    members = tuple(Member(str(n), n, each) for n, each in enumerate(classes))
    asked = Gang("", members, required_level=level if level in snapshot.topology.level_names else None)
    return impossible(asked, snapshot, settings.counting) or empty.too_large(classes, level)
