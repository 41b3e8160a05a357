"""Gangs that wait for long, and those that no waiting helps: more than the nodes that they may use have."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from labeler.contract import keys
from webhook.inquiry.findings import Finding, State, found, some
from webhook.inquiry.reading import ClusterReading
from webhook.kube import placements
from webhook.kube.client import Api
from webhook.kube.objects import Pod
from webhook.placement import Gang, Member, PodClass, Snapshot
from webhook.sweeper.decide.impossible_requests import impossible
from webhook.sweeper.observe.fewest_domains import FewestDomains
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

LONG_SECONDS: Final = 600


def examine(api: Api, now: datetime) -> Iterator[Finding]:
    """Waiting is no fault of the installation; but nobody may have looked."""
    there = api.json("GET", placements.ALL, timeout_seconds=60)["items"]
    waits = [each for each in there if (each.get("status") or {}).get("state") == "Waiting"]
    never = list(never_placed(api)) if waits else []
    for name, why in never:
        yield found(
            State.ODD,
            f"gang {name} can never be placed as it is written: {why}",
            "topogate explain says more.",
        )
    before = now - timedelta(seconds=LONG_SECONDS)
    old = [
        f"{each['metadata']['namespace']}/{each['spec'].get('gang', '')}"
        for each in waits
        if datetime.fromisoformat(each["metadata"]["creationTimestamp"]) < before
    ]
    if old:
        gangs = "1 gang waits" if len(old) == 1 else f"{len(old)} gangs wait"
        sentence = f"{gangs} for over {LONG_SECONDS // 60} minutes: {some(old)}"
        yield found(State.ODD, sentence, "topogate gangs -A says why.")
    elif not never:
        yield found(State.WELL, f"{len(waits)} gangs wait, none for long")


def never_placed(api: Api) -> Iterator[tuple[str, str]]:
    """Name and reason of each gang for which even empty nodes are too few. Raises ApiError."""
    settings = Settings()
    cluster = ClusterReading.read_usage(api)
    snapshotter = Snapshotter(cluster, settings)
    view = snapshotter.view()
    snapshot = snapshotter.snapshot(view)
    by_gang: dict[GangKey, list[Pod]] = {}
    for pod in view.gated:
        by_gang.setdefault(view.gang_of(pod), []).append(pod)
    fewest = FewestDomains()
    for key, pods in sorted(by_gang.items(), key=lambda item: str(item[0])):
        if why := _why_never(pods, view, snapshot, settings, fewest):
            yield str(key), why


def _why_never(
    pods: list[Pod], view: View, snapshot: Snapshot, settings: Settings, fewest: FewestDomains
) -> str:
    try:
        classes = Counter(view.class_of(pod) for pod in pods)
    except ValueError as error:
        return str(error)
    wishes = (pod.metadata.annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION) for pod in pods)
    level = next(filter(None, wishes), None)
    asked = Gang("", tuple(Member(str(n), n, each) for n, each in enumerate(classes)))
    return impossible(asked, snapshot, settings.counting) or _too_large(classes, level, snapshot, fewest)


def _too_large(
    classes: Counter[PodClass], level: str | None, snapshot: Snapshot, fewest: FewestDomains
) -> str:
    domains, names = fewest.of(classes, snapshot), snapshot.topology.level_names
    count = sum(classes.values())
    if not domains:
        return f"the nodes that it may use have no room for {count} pods even without any other"
    number = names.index(level) if level in names else None
    if number is not None and domains[number] > 1:
        return f"no {level} has room for {count} pods even without any other"
    return ""
