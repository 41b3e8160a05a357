"""The end of a soak: nothing is disturbed any more, and all gangs must be whole and run to their end."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime
from typing import Final

from hack.local import pods as facts
from hack.local.pods import Json, name_of
from hack.soaks.checks import PLACEMENTS
from hack.soaks.load import FOREIGN, OURS
from webhook.kube.client import Api, ApiError

WHOLE_SECONDS: Final = 60.0
"""So long after the last disturbance no gang may run partially."""
END_SECONDS: Final = 240.0
"""So long after it, or after they were created, all pods must have run to their end: long gangs run for
150 s, and others wait for their nodes."""
_BURY_SECONDS: Final = 10.0


def wait_for_end(
    api: Api, look: Callable[[float], list[Json]], end_tenant: Callable[[], None], done: Counter[str]
) -> list[str]:
    """Wait until all pods have run to their end; returns those that have not in time, and why.

    Excused are Jobs that lack pods: after failures their controller waits for up to ten minutes.

    look: checks the cluster, by the seconds for which a gang may run partially, and returns the pods.
    end_tenant: ends what the hostile tenant runs for ever, once gangs had their time to be whole.
    Raises ApiError.
    """
    began, has_left = time.time(), False
    while True:
        pods = [pod for pod in look(WHOLE_SECONDS) if not facts.is_finished(pod)]
        pods = [pod for pod in pods if pod["metadata"]["namespace"] in (OURS, FOREIGN)]
        now = time.time()
        if not pods:
            done["seconds until all had ended"] = round(now - began)
            return []
        if now > began + WHOLE_SECONDS and not has_left:
            end_tenant()
            has_left = True
        _bury(pods, api, done)
        if now > began + END_SECONDS:
            lacking = _jobs_that_lack_pods(api)
            late = overdue(pods, lacking, began, now)
            if late or all(_is_of(pod, lacking) for pod in pods):
                done["Jobs that lack pods"] = len(lacking)
                return _sentences(late, api)
        time.sleep(0.5)


def overdue(pods: Sequence[Json], lacking: Set[str], began: float, now: float) -> list[Json]:
    """Those of the unfinished pods that have had their time. lacking: uids of Jobs that are excused.

    What is created again and again has no more than twice the time.
    """

    def until(pod: Json) -> float:
        return max(began, min(_created(pod), began + END_SECONDS)) + END_SECONDS

    return [pod for pod in pods if now > until(pod) and not _is_of(pod, lacking)]


def _created(pod: Json) -> float:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()


def _is_of(pod: Json, owners: Set[str]) -> bool:
    return any(owner["uid"] in owners for owner in pod["metadata"].get("ownerReferences", ()))


def _jobs_that_lack_pods(api: Api) -> set[str]:
    """The uids of Jobs some of whose pods have not been created again yet."""
    jobs = api.json("GET", f"/apis/batch/v1/namespaces/{OURS}/jobs")["items"]
    return {
        job["metadata"]["uid"]
        for job in jobs
        if job["status"].get("active", 0) + job["status"].get("succeeded", 0) < job["spec"]["completions"]
    }


def _bury(pods: Sequence[Json], api: Api, done: Counter[str]) -> None:
    """Remove pods that keep terminating: the simulated kubelet of a node that came back under its old name
    does not know them, as with a machine that was replaced; there an administrator does this.
    """
    for pod in pods:
        since = pod["metadata"].get("deletionTimestamp")
        if since and time.time() > datetime.fromisoformat(since).timestamp() + _BURY_SECONDS:
            done["buried"] += 1
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            with contextlib.suppress(ApiError):
                path = f"/api/v1/namespaces/{namespace}/pods/{name}"
                api.request("DELETE", path, query={"gracePeriodSeconds": "0"})


def _sentences(pods: Sequence[Json], api: Api) -> list[str]:
    """Where each pod is, and what its plan reports."""
    placements = api.json("GET", PLACEMENTS)["items"]
    found = []
    for pod in pods:
        state = "is gated" if facts.is_gated(pod) else f"is on {facts.bound_node(pod) or 'no node'}"
        reasons = [
            placement.get("status", {}).get("reason", "")
            for placement in placements
            if placement["spec"].get("gang", "").partition("/")[2] in name_of(pod)
        ]
        created = f"{datetime.fromtimestamp(_created(pod), UTC):%T}"
        found.append(f"{name_of(pod)}, created at {created}, has not run to its end: it {state}; {reasons}")
    return found
