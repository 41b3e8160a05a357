"""The end of a soak: nothing is disturbed any more, and all gangs must run to their end."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from hack.soaks.crowd import FOREIGN, OURS, UNFINISHED
from hack.soaks.reader import PLACEMENTS, PODS
from hack.soaks.takes import take_of
from webhook.kube.client import Api, ApiError
from webhook.workloads.builtin import JobSpec, at_once

Json = dict[str, Any]

BACK_OFF_SECONDS: Final = 600.0
"""The Job controller makes a pod for one that failed after so long at most: seen were 9 min 59 s, after the
eight pods of a Job were preempted at once."""


def unfinished(
    api: Api,
    seconds: float,
    meanwhile: Callable[[], None],
    done: Counter[str],
    add_nodes: Callable[[], None],
) -> list[str]:
    """Wait until all pods have run to their end; returns those that have not after so long, and why.

    A pod that its controller makes during that has as much time from then on: after its time and the
    longest back-off nothing may be left, so that what is recreated once more is reported too.
    meanwhile: what happens until then. make_room: ends what others run for ever, called after half of the
    time: a pod whose volume is on a node that they fill by right would wait in vain. Raises ApiError.
    """
    deadline = time.monotonic() + seconds
    began, has_capacity = datetime.now(UTC), False
    while True:
        left = api.json("GET", PODS, query=UNFINISHED)["items"]
        left = [pod for pod in left if pod["metadata"]["namespace"] in (OURS, FOREIGN)]
        if not left:
            return []
        meanwhile()
        for pod in left:
            _bury(pod, api, done)
        if not has_capacity and time.monotonic() > deadline - seconds / 2:
            add_nodes()
            has_capacity = True
        late = time.monotonic() - deadline
        if late > BACK_OFF_SECONDS + seconds:
            overdue = left
        else:
            overdue = [pod for pod in left if late > 0 and _is_overdue(pod, began, seconds, api)]
        if overdue:
            plans = api.json("GET", PLACEMENTS)["items"]
            return [_why(pod, plans, api) for pod in overdue]
        time.sleep(0.5)


def without_pods(api: Api) -> int:
    """How many Jobs have neither ended nor a pod: their controller makes them after its back-off."""
    jobs = api.json("GET", "/apis/batch/v1/jobs")["items"]
    ends = {"Complete", "Failed", "Suspended"}
    return sum(
        job["metadata"]["namespace"] in (OURS, FOREIGN)
        and not any(
            each["type"] in ends and each["status"] == "True" for each in job["status"].get("conditions", ())
        )
        for job in jobs
    )


def _is_overdue(pod: Json, began: datetime, seconds: float, api: Api) -> bool:
    """Whether a pod has had its time, and does not wait for others of its Job."""
    since = max(began, datetime.fromisoformat(pod["metadata"]["creationTimestamp"]))
    has_had = datetime.now(UTC) - since > timedelta(seconds=seconds)
    return has_had and not _waits_for_its_controller(pod, api)


def _waits_for_its_controller(pod: Json, api: Api) -> bool:
    """Whether a pod's Job lacks pods after others failed."""
    owner: Json = next(iter(pod["metadata"].get("ownerReferences", ())), {})
    if owner.get("kind") != "Job":
        return False
    namespace, name = pod["metadata"]["namespace"], owner["name"]
    try:
        job = api.json("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
    except ApiError:
        return False
    status = job["status"]
    to_come = at_once(msgspec.convert(job["spec"], JobSpec), status.get("succeeded", 0))
    return bool(status.get("failed")) and status.get("active", 0) < to_come


def _bury(pod: Json, api: Api, done: Counter[str]) -> None:
    """Remove a pod that keeps terminating: the simulated kubelet of a node that came back under its
    old name does not know it, as with a machine that was replaced; there an administrator does this."""
    since = pod["metadata"].get("deletionTimestamp")
    if since and datetime.now(UTC) - datetime.fromisoformat(since) > timedelta(seconds=10):
        done["buried"] += 1
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        with contextlib.suppress(ApiError):
            api.request("DELETE", path, query={"gracePeriodSeconds": "0"})


def _why(pod: Json, plans: list[Json], api: Api) -> str:
    spec, metadata = pod["spec"], pod["metadata"]
    name, uid = metadata["name"], metadata["uid"]
    events = api.json("GET", f"/api/v1/namespaces/{metadata['namespace']}/events")["items"]
    notes = [each.get("message") for each in events if each["involvedObject"].get("name") == name]
    state = "is gated" if spec.get("schedulingGates") else f"is on {spec.get('nodeName') or 'no node'}"
    state += ", being deleted" if metadata.get("deletionTimestamp") else ""
    owners = [each["name"] for each in metadata.get("ownerReferences", ())]
    messages = [
        f"{plan['spec'].get('gang')}: {plan.get('status', {}).get('reason') or 'no reason'}"
        for plan in plans
        if any(entry["uid"] == uid for entry in plan["spec"].get("pods", ()))
        or plan["spec"].get("gang", "").partition("/")[2] in owners
    ]
    return (
        f"{name}, made at {metadata['creationTimestamp']}, has not come to its end: it {state}, "
        f"{pod['status'].get('phase')}; {notes[-3:]}; plans: {messages}; on nodes: {_on_nodes(api)}"
    )


def _on_nodes(api: Api) -> str:
    """What stands on nodes still, also of the hostile tenant."""
    pods = api.json("GET", PODS, query=UNFINISHED)["items"]
    takes = [take_of(pod, node, is_ours=True) for pod in pods if (node := pod["spec"].get("nodeName"))]
    described = [
        f"{take.name} ({take.gpus or take.cards} on {take.node})" for take in takes if take.gpus or take.cards
    ]
    return ", ".join(described) or "nothing"
