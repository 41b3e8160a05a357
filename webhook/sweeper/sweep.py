"""One pass: finish what is planned, place what is complete, say why the rest waits.

A pass reads levels, not events: it looks at everything that is there and moves it one step on. It may
stop anywhere; the next one, of this process or of another, goes on from what the API server holds.
"""

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from webhook.kube import convert, placements
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement, PlacementStatus, PlannedPod
from webhook.placement import Assignment, NoFit, PlacementError, Snapshot, check, place
from webhook.sweeper import patches, plan
from webhook.sweeper.cache import ClusterCache, occupied_node
from webhook.sweeper.gangs import GangKey, PodGang, gather
from webhook.sweeper.release import Outcome, Release, Releaser
from webhook.sweeper.settings import Settings

logger = logging.getLogger(__name__)


@dataclass
class View:
    """The cluster at the beginning of a pass. planned: uid -> entry of a plan for a pod still gated."""

    gated: list[Pod]
    others: list[Pod]
    nodes: dict[str, Node]
    placements: dict[str, Placement]
    planned: dict[str, PlannedPod] = field(default_factory=dict)


@dataclass
class _Growth:
    """When a gang was last seen to grow, so that quiet can be told."""

    members: frozenset[str]
    since: float


class Sweeper:
    """The passes of one process."""

    def __init__(self, api: Api, cache: ClusterCache, settings: Settings, stopping: threading.Event) -> None:
        """cache must be started; stopping ends waits inside a pass."""
        self._api = api
        self._cache = cache
        self._settings = settings
        self._releaser = Releaser(api, stopping)
        self._timestamps = plan.Timestamps()
        self._growth: dict[GangKey, _Growth] = {}
        self._snapshot: Snapshot | None = None
        self._said: dict[GangKey, str] = {}

    def close(self) -> None:
        """End the threads."""
        self._releaser.close()

    def sweep(self) -> float:
        """One pass; returns the seconds after which another is due even if nothing is heard."""
        view = self._look()
        self._timestamps.saw(view.others)
        self._finish(view)
        gangs = gather(view.gated, view.others, self._cache.gang_size)
        self._growth = {gang.key: self._grown(gang) for gang in gangs}
        due = self._settings.interval_seconds
        for gang in gangs:
            waiting = [pod for pod in gang.gated if pod.metadata.uid not in view.planned]
            if not waiting:
                continue
            remaining = self._seconds_to_completion(gang)
            if remaining > 0:
                due = min(due, remaining)
                continue
            try:
                self._place(gang, waiting, view)
            except (ApiError, PlacementError) as error:
                self._say(gang, f"not placed in this pass: {error}")
            except Exception:  # one bad gang never stops the others
                logger.exception("gang_failed gang=%s", gang.key)
        self._report(view)
        return due

    # --- what is there --------------------------------------------------------------------------

    def _look(self) -> View:
        ignored = self._settings.ignored_namespaces
        gated: list[Pod] = []
        others: list[Pod] = []
        for pod in self._cache.pods.items().values():
            mine = patches.is_gated(pod) and pod.metadata.namespace not in ignored
            if mine and not pod.metadata.deletion_timestamp:
                gated.append(pod)
            else:
                others.append(pod)
        view = View(gated, others, dict(self._cache.nodes.items()), dict(self._cache.current_placements()))
        uids = {pod.metadata.uid for pod in gated}
        for placement in view.placements.values():
            for planned in placement.spec.pods:
                if planned.uid in uids and planned.node in view.nodes:
                    view.planned[planned.uid] = planned
        return view

    def _take_snapshot(self, view: View) -> Snapshot:
        nodes = {name: convert.node_of(node) for name, node in view.nodes.items()}
        usage = [
            (node, convert.usage_of(pod))
            for pod in view.others
            if (node := occupied_node(pod)) is not None and node in nodes
        ]
        for pod in view.gated:
            planned = view.planned.get(pod.metadata.uid)
            if planned is not None:
                usage.append((planned.node, convert.usage_of(pod, annotations=planned.annotations)))
        self._snapshot = Snapshot.build(
            nodes.values(), usage, self._settings.topology, previous=self._snapshot
        )
        return self._snapshot

    # --- when a gang is complete ----------------------------------------------------------------

    def _grown(self, gang: PodGang) -> _Growth:
        members = frozenset(pod.metadata.uid for pod in gang.pods)
        known = self._growth.get(gang.key)
        return known if known and known.members == members else _Growth(members, time.monotonic())

    def _seconds_to_completion(self, gang: PodGang) -> float:
        """0 for a gang that is complete, else how long its present pods must stay the only ones."""
        if gang.size is not None and len(gang.pods) >= gang.size:
            return 0.0
        settings = self._settings
        wanted = settings.settle_seconds if gang.size is None else settings.patience_seconds
        return max(0.0, self._growth[gang.key].since + wanted - time.monotonic())

    # --- place and commit -----------------------------------------------------------------------

    def _place(self, gang: PodGang, waiting: list[Pod], view: View) -> None:
        placed_on = {
            pod.metadata.uid: node for pod in gang.released if (node := occupied_node(pod)) is not None
        } | {uid: planned.node for uid, planned in view.planned.items()}
        asked = plan.question(gang, waiting, placed_on)
        snapshot = self._take_snapshot(view)
        answer = place(asked.gang, snapshot, self._settings.options)
        if isinstance(answer, NoFit):
            self._say(gang, answer.sentence)
            self._note(
                gang, view, PlacementStatus(placements.WAITING, len(gang.pods), reason=answer.sentence)
            )
            return
        faults = check(answer, asked.gang, snapshot)
        if faults:
            raise PlacementError(f"the assignment does not hold: {'; '.join(faults)}")
        self._commit(gang, asked, answer, view)

    def _commit(self, gang: PodGang, asked: plan.Question, answer: Assignment, view: View) -> None:
        added = plan.planned_pods(gang, asked, answer, self._timestamps, time.time_ns())
        key = f"{gang.key.namespace}/{gang.key.placement_name}"
        before = view.placements.get(key)
        written = placements.write_plan(
            self._api, before, plan.plan_metadata(gang), plan.plan_spec(gang, before, added)
        )
        self._cache.written(written)
        view.placements[key] = written
        view.planned |= {planned.uid: planned for planned in added}
        logger.info(
            "placed gang=%s pods=%d spread=%r proven=%s", gang.key, len(added), answer.spread, answer.proven
        )
        status = PlacementStatus(
            placements.RELEASING,
            len(gang.pods),
            spread=answer.spread,
            proven=answer.proven,
            reason="; ".join(gang.problems),
        )
        self._note(gang, view, status)
        self._release((asked.pods[planned.uid], planned) for planned in added)

    def _finish(self, view: View) -> None:
        """Release what an earlier pass, or an earlier leader, planned and did not come to release."""
        self._release(
            (pod, view.planned[pod.metadata.uid]) for pod in view.gated if pod.metadata.uid in view.planned
        )

    def _release(self, pairs: Iterable[tuple[Pod, PlannedPod]]) -> list[Release]:
        releases = self._releaser.release(pairs)
        for release in releases:
            if release.outcome in (Outcome.REFUSED, Outcome.FAILED):
                logger.warning(
                    "release_%s pod=%s node=%s detail=%r",
                    release.outcome,
                    release.planned.name,
                    release.planned.node,
                    release.detail,
                )
        return releases

    # --- say why --------------------------------------------------------------------------------

    def _say(self, gang: PodGang, sentence: str) -> None:
        if self._said.get(gang.key) != sentence:
            self._said[gang.key] = sentence
            logger.info("waits gang=%s pods=%d reason=%r", gang.key, len(gang.pods), sentence)

    def _note(self, gang: PodGang, view: View, status: PlacementStatus) -> None:
        """Write a gang's state into its Placement, made without a plan if there is none yet."""
        key = f"{gang.key.namespace}/{gang.key.placement_name}"
        placement = view.placements.get(key)
        if placement is None:
            placement = placements.write_plan(
                self._api, None, plan.plan_metadata(gang), plan.plan_spec(gang, None, [])
            )
        if placement.status != status:
            placement = placements.write_status(self._api, placement, status)
            self._cache.written(placement)
        view.placements[key] = placement

    def _report(self, view: View) -> None:
        """Bring the status of every plan up to date and remove Placements whose gang is gone."""
        pods = {pod.metadata.uid: pod for pod in [*view.gated, *view.others]}
        living = {f"{gang.namespace}/{gang.placement_name}" for gang in self._growth}
        for key, placement in view.placements.items():
            if placement.metadata.namespace in self._settings.ignored_namespaces:
                continue
            members = [pods[planned.uid] for planned in placement.spec.pods if planned.uid in pods]
            try:
                if not members and key not in living:
                    placements.delete(self._api, placement)
                    self._cache.forgotten(placement)
                elif placement.spec.pods:
                    self._progress(placement, members)
            except ApiError as error:
                if error.status not in (404, 409):  # gone, or written by somebody since: look again later
                    logger.warning("status_failed placement=%s error=%r", key, str(error))

    def _progress(self, placement: Placement, members: list[Pod]) -> None:
        released = sum(not patches.is_gated(pod) for pod in members)
        bound = sum(bool(pod.spec.node_name) for pod in members)
        state = placements.RELEASING
        if bound == len(members):
            state = placements.BOUND
        elif released == len(members):
            state = placements.RELEASED
        before = placement.status
        status = PlacementStatus(
            state,
            max(before.pods, len(members)),
            released,
            bound,
            before.spread,
            before.proven,
            before.reason,
        )
        if status != before:
            self._cache.written(placements.write_status(self._api, placement, status))
