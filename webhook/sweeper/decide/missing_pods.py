"""How long a gang waits for missing pods, and for changed requests to settle. Pure.

A gang is complete once its expected size is there, or no pod was added for some time (patience_for): for
`gangs.patience` if its size is known, else for `gangs.settle`, and at least for as long as the Job controller
may delay the replacement of failed pods. The end of a pod does not restart that time. A gang of unknown size
to which pods are added all the time is placed after a longest wait. A gang that was complete and has just
lost a pod waits for its replacement as long as for a new pod. Changed requests must be the same for the
settle time, as tools write them pod by pod.

A gang that is not complete, and has just lost a waiting pod, waits for the settle time at least. Its owner
may be deleted: nobody says so of a kind that may not be read, and of an owner that is no controller.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from labeler.contract import keys
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod, PodSpec
from webhook.sweeper.observe.gangs import PodGang
from webhook.workloads import marks

_FIRST_JOB_DELAY: Final = 10.0
_LONGEST_JOB_DELAY: Final = 600.0
_JOB_CREATES_SECONDS: Final = 10.0
"""After the delay, the Job controller creates all missing pods within this time."""
RECREATED_SECONDS: Final = _LONGEST_JOB_DELAY + _JOB_CREATES_SECONDS
"""A controller recreates a lost pod within this time."""

_REQUESTS: Final = keys.REQUEST_ANNOTATIONS | marks.ALL | {*keys.CARD_REQUESTS}
"""The annotations by which authors and controllers say what pods need."""


@dataclass(frozen=True)
class Growth:
    """The history of a gang. Times are of a monotonic clock.

    If it is lost, times begin again, but a gang whose requests are being changed is asked about at once.

    members: uids in the last pass. grown_at: the last pass in which one was new, or all were there.
    waiting_since: since when some wait for others, None while none does. waiting: the pods without a place in
    the last pass, by uid. changed_at: when the request of one of them was another than in the pass before.
    shrunk_at: when one of them was gone.
    """

    members: frozenset[str]
    grown_at: float
    waiting_since: float | None = None
    waiting: Mapping[str, Pod] = field(default_factory=dict)
    changed_at: float = -math.inf
    shrunk_at: float = -math.inf


def grown(known: Growth | None, gang: PodGang, waiting: Collection[Pod], now: float) -> Growth:
    """The state of a gang in a new pass. known: that of the last one; waiting: its pods without a place."""
    members = frozenset(pod.metadata.uid for pod in gang.pods)
    if known is None:
        known = Growth(members, now)
    elif members - known.members or _is_whole(gang):
        known = replace(known, grown_at=now)
    if known.waiting.keys() - members:
        known = replace(known, shrunk_at=now)
    since = known.waiting_since
    if not waiting or gang.lost_owner is not None:  # pods that are left behind one by one begin to wait then
        since = None
    elif since is None and not _has_all_pods(gang):
        since = now
    return replace(_compared(known, waiting, now), members=members, waiting_since=since)


def _compared(known: Growth, waiting: Collection[Pod], now: float) -> Growth:
    """With the waiting pods of a new pass; those that are the same objects as before are not compared."""
    before = known.waiting
    pairs = [(before[uid], pod) for pod in waiting if (uid := pod.metadata.uid) in before]
    is_changed = any(old is not pod and _request(old) != _request(pod) for old, pod in pairs)
    by_uid = {pod.metadata.uid: pod for pod in waiting}
    return replace(known, waiting=by_uid, changed_at=now if is_changed else known.changed_at)


def _request(pod: Pod) -> tuple[PodSpec, Mapping[str, str]]:
    annotations = pod.metadata.annotations
    return pod.spec, {key: annotations[key] for key in _REQUESTS & annotations.keys()}


def seconds_to_settle(growth: Growth, settings: Settings, now: float) -> float:
    """For how much longer the requests of its pods must stay as they are, 0 for none."""
    return max(0.0, growth.changed_at + settings.settle_seconds - now)


def seconds_to_complete(gang: PodGang, growth: Growth, settings: Settings, now: float) -> float:
    """0 for a gang that is complete, else how much longer its present pods must stay the only ones."""
    if _has_all_pods(gang):
        return 0.0
    patience = patience_for(gang, settings)
    settled = growth.grown_at + patience
    if not _has_known_pods(gang):
        # Waiting for all pods, or for no further ones, could take for ever.
        since = now if growth.waiting_since is None else growth.waiting_since
        settled = min(settled, since + max(settings.patience_seconds, patience))
    return max(0.0, settled - now, growth.shrunk_at + settings.settle_seconds - now)


def seconds_to_report(gang: PodGang, growth: Growth, settings: Settings, now: float) -> float:
    """How much longer a gang that lacks pods may lack them before that is reported."""
    if not _has_known_pods(gang):
        return math.inf  # it is placed as it is after that time
    return max(0.0, growth.grown_at + settings.settle_seconds - now)


def patience_for(gang: PodGang, settings: Settings) -> float:
    """For how many seconds without a new pod a gang waits for others.

    First pods that are placed alone would hold GPUs for nothing until the Job controller creates the others.
    """
    is_delayed = not gang.released and not gang.blocked_reason
    usual = settings.patience_seconds if _has_known_pods(gang) else settings.settle_seconds
    return max(usual, job_delay_seconds(gang.failed) if is_delayed else 0.0)


def job_delay_seconds(failed: int) -> float:
    """How long the Job controller may take to replace failed pods, 0 without any. failed: their number.

    It waits for 10 seconds after the last failure, doubled for each one, 600 at most (backoff_utils.go and
    job_controller.go of Kubernetes: 9 min 59 s were seen after eight failures at once). Pods that were
    deleted while they ran, as for a gang of higher priority, count as failed.
    """
    if not failed:
        return 0.0
    return min(_LONGEST_JOB_DELAY, _FIRST_JOB_DELAY * (1 << min(failed - 1, 10))) + _JOB_CREATES_SECONDS


def _has_all_pods(gang: PodGang) -> bool:
    return gang.is_stage_complete or _is_whole(gang)


def _has_known_pods(gang: PodGang) -> bool:
    """Whether it is known how many pods are created now; of stages, only how many there are in the end."""
    return gang.size is not None and not gang.staged


def _is_whole(gang: PodGang) -> bool:
    return gang.size is not None and len(gang.pods) >= gang.size
