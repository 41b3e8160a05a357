"""Write down in its plan who goes out of line on a node with cards, before its release is sent.

The next leader knows no more than the plans: it sends first for whoever is first by them, and what this one
has sent may still arrive then. One write for each plan, however many of its pods go.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from labeler.contract import keys
from webhook.kube import placements
from webhook.kube.client import ApiError
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.kube.planned import PlannedPod
from webhook.sweeper.apply.put_off import answered
from webhook.sweeper.apply.release import Outcome, Release, doubt_of
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.tries import LOST_SECONDS
from webhook.sweeper.observe.view import View

logger = logging.getLogger(__name__)


class TurnWriter:
    """Writes plans anew with the turns of those that go ahead."""

    def __init__(self, surroundings: Pass, pool: ThreadPoolExecutor) -> None:
        """pool: in which plans are written side by side."""
        self._pass = surroundings
        self._pool = pool
        self._written: dict[str, tuple[Placement, Placement]] = {}
        """By plan, as it was seen and as it was then written."""

    def newest(self, seen: Placement | None) -> Placement | None:
        """A plan as it was written here since: who writes it next in the pass goes on from that."""
        if seen is None or seen.key not in self._written:
            return seen
        before, written = self._written[seen.key]
        return written if before is seen else seen

    def write(
        self,
        ahead: Mapping[str, PlannedPod],
        pods: Mapping[str, Pod],
        view: View,
        turn: Callable[[str], float] = lambda _: 0.0,
    ) -> list[Release]:
        """Of those that are not to be released, as their plan could not be written: why, as a failed release.

        ahead: by uid, entries as they are to be; pods: likewise, at least those, in the order of the line.
        turn: of a uid; plans with less are written first, as those that failed might else take all the time.
        """
        if not ahead:
            return []
        self._written = {}
        deadline = self._pass.clock() + self._pass.settings.pass_seconds
        place = {uid: (turn(uid), number) for number, uid in enumerate(pods)}
        naming = [
            (placement, found)
            for placement in view.placements.values()
            if (found := _entries(placement, ahead, pods))
        ]
        unknown = ahead.keys() - {uid for _, found in naming for uid in found}
        changed = "its plan has changed"
        failed = [Release(ahead[uid], Outcome.FAILED, changed, is_tried=False) for uid in unknown]
        naming.sort(key=lambda each: min(place[uid] for uid in each[1]))
        for releases in self._pool.map(lambda each: self._write(each[0], each[1], deadline), naming):
            failed += releases
        return failed

    def _write(self, before: Placement, found: Mapping[str, PlannedPod], deadline: float) -> list[Release]:
        self._pass.beat()
        if not self._pass.may_act() or self._pass.clock() >= deadline:
            return [Release(each, Outcome.FAILED, is_tried=False) for each in found.values()]
        pods = [
            found[each.uid] if each.uid in found and _is_same(each, found[each.uid]) else each
            for each in before.spec.pods
        ]
        metadata = {"namespace": before.metadata.namespace, "name": before.metadata.name}
        try:
            written = placements.write_plan(self._pass.api, before, metadata, replace(before.spec, pods=pods))
        except ApiError as error:
            self._pass.metrics.errors.labels(str(error.status)).inc()
            detail = f"its turn before others could not be written: {error}"
            return _failed(found.values(), detail, answered(error), error.status, doubt_of(error))
        except Exception:  # one bad plan never stops the others' releases
            logger.exception("turn_failed plan=%s", before.key)
            detail = "its turn before others could not be written: what was answered is no plan"
            return _failed(found.values(), detail, detail, doubt_seconds=LOST_SECONDS)
        self._pass.cache.written(written)
        self._written[before.key] = before, written
        logger.info("out_of_line plan=%s pods=%d", before.key, len(found))
        there = {each.uid: each for each in written.spec.pods if each.uid in found}
        detail = "its turn before others was written and is not in its plan: see whether a webhook undoes it"
        return _failed((each for each in found.values() if there.get(each.uid) != each), detail, detail)


def _failed(
    entries: Iterable[PlannedPod], detail: str, answer: str, status: int = 0, doubt_seconds: float = 0.0
) -> list[Release]:
    return [
        Release(each, Outcome.FAILED, detail, answer=answer, status=status, doubt_seconds=doubt_seconds)
        for each in entries
    ]


def _entries(
    placement: Placement, ahead: Mapping[str, PlannedPod], pods: Mapping[str, Pod]
) -> dict[str, PlannedPod]:
    """Those that this plan speaks of: another may name the pod as well, as an earlier gang's."""
    return {
        each.uid: entry
        for each in placement.spec.pods
        if (entry := ahead.get(each.uid)) is not None
        and pods[each.uid].metadata.namespace == placement.metadata.namespace
        and _is_same(each, entry)
    }


def _is_same(one: PlannedPod, other: PlannedPod) -> bool:
    """Whether they differ in their turns alone."""
    return replace(one, annotations=_but_turn(one)) == replace(other, annotations=_but_turn(other))


def _but_turn(planned: PlannedPod) -> dict[str, str]:
    return {key: text for key, text in planned.annotations.items() if key != keys.TURN_ANNOTATION}
