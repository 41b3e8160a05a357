"""Checks of an installation: each reads one thing and reports what it found, with a remedy.

Nothing is changed: the one pod that is sent to the API server is a dry run. A check whose object the user may
not read reports that; its result is then unknown.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from webhook.configuration.document import ConfigurationError
from webhook.inquiry import (
    agents,
    bind_check,
    claims_check,
    enforcement,
    extension_checks,
    gpu_nodes,
    kueue_topology,
    left_gangs,
    memory_limit,
    trust,
    waiting_gangs,
)
from webhook.inquiry.findings import REAPPLY, SYSTEM, Check, Finding, State, found
from webhook.kube.client import Api, ApiError

OLDEST: Final = (1, 32)
"""The oldest version of Kubernetes that topogate supports."""

LEASE_SECONDS: Final = 60
SKEW_SECONDS: Final = 10


def examine(api: Api, now: datetime | None = None) -> Iterator[Finding]:
    """All findings, check by check. now: the local clock, for tests.

    Raises ApiError if the first of them gets no answer.
    """
    for name, check in CHECKS.items():
        try:
            for finding in check(api, now or datetime.now(UTC)):
                yield Finding(name, finding.state, finding.sentence, finding.remedy)
        except ConfigurationError as error:
            yield Finding(name, State.UNKNOWN, f"the configuration cannot be used: {error}")
        except ApiError as error:
            if error.status == 0 and check is _version:
                raise  # the others would fail in the same way
            if error.status in (401, 403):
                yield Finding(name, State.UNKNOWN, f"you are not allowed to check: {error}")
            elif error.status == 404:
                yield Finding(name, State.ILL, f"not found: {error}", REAPPLY)
            else:
                yield Finding(name, State.ILL, f"the API server did not answer: {error}", "Run this again.")


def _version(api: Api, now: datetime) -> Iterator[Finding]:
    answer = api.json("GET", "/version")
    digits = ["".join(filter(str.isdigit, str(answer.get(part, "0")))) for part in ("major", "minor")]
    version = tuple(int(each or 0) for each in digits)
    if version < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        yield found(
            State.ILL, f"Kubernetes {answer['gitVersion']} is too old", f"Upgrade to {wanted} or newer."
        )
    else:
        yield found(State.WELL, f"Kubernetes {answer['gitVersion']}")


def _definitions(api: Api, now: datetime) -> Iterator[Finding]:
    for path in ("topogate.io/v1alpha1/placements", "falldio.com/v1/gputasks"):
        api.json("GET", f"/apis/{path}", query={"limit": "1"})
    yield found(State.WELL, "Placements and GPUTasks are served")


def _clock(api: Api, now: datetime) -> Iterator[Finding]:
    """Ages and leases depend on clocks; this machine's is compared in place of those of the nodes."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = api.json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
    there = datetime.fromisoformat(answer["metadata"]["creationTimestamp"])
    skew = abs((there - now).total_seconds())
    if skew > SKEW_SECONDS:
        yield found(
            State.ODD, f"this machine's clock and the API server's differ by {skew:.0f} s", "Use NTP."
        )
    else:
        yield found(State.WELL, "this machine's clock and the API server's agree")


def _programs(api: Api, now: datetime) -> Iterator[Finding]:
    body = api.json("GET", f"/apis/apps/v1/namespaces/{SYSTEM}/deployments")
    wanted = {"webhook", "sweeper", "tasks"}
    if not trust.is_issued_by_others(api):
        wanted.add("certs")
    images: dict[str, list[str]] = {}
    for item in body["items"]:
        name, status = item["metadata"]["name"], item.get("status") or {}
        if name in wanted:
            image = item["spec"]["template"]["spec"]["containers"][0]["image"]
            images.setdefault(image, []).append(name)
            wanted.discard(name)
        ready, replicas = status.get("readyReplicas", 0), item["spec"].get("replicas", 1)
        state = State.ILL if not ready else State.WELL if ready >= replicas else State.ODD
        remedy = "" if state is State.WELL else f"kubectl describe deployment/{name} -n {SYSTEM}"
        yield found(state, f"{name}: {ready} of {replicas} replicas are ready", remedy)
    for name in sorted(wanted):
        yield found(State.ILL, f"deployment/{name} does not exist", REAPPLY)
    if len(images) > 1:
        versions = "; ".join(f"{', '.join(names)}: {image}" for image, names in images.items())
        yield found(State.ODD, f"the programs have different versions: {versions}", REAPPLY)


def _leader(api: Api, now: datetime) -> Iterator[Finding]:
    for name, waits in (("sweeper", "gated pods wait"), ("tasks", "GPUTasks wait")):
        path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/topogate-{name}"
        spec = api.json("GET", path)["spec"]
        holder, renewed = spec.get("holderIdentity", ""), spec.get("renewTime", "")
        age = (now - datetime.fromisoformat(renewed)).total_seconds() if renewed else float("inf")
        if not holder or age > LEASE_SECONDS:
            silent = f"for {age:.0f} s" if renewed else "at all"
            yield found(
                State.ILL,
                f"{name} has no leader: its Lease was not renewed {silent}; {waits}",
                f"kubectl logs deployment/{name} -n {SYSTEM}",
            )
        else:
            yield found(State.WELL, f"{holder} leads {name}, renewed {max(0, age):.0f} s ago")


CHECKS: Final[dict[str, Check]] = {
    "version": _version,
    "clock": _clock,
    "definitions": _definitions,
    "classes": enforcement.classes,
    "levels": agents.levels,
    "bundle": trust.bundle,
    "certificate": trust.served,
    "admission": enforcement.admission,
    "programs": _programs,
    "memory": memory_limit.examine,
    "leader": _leader,
    "guards": enforcement.guards,
    "nodes": gpu_nodes.places,
    "models": gpu_nodes.models,
    "card-labels": gpu_nodes.card_labels,
    "cards": gpu_nodes.broken,
    **extension_checks.extension_checks(),
    "labeler": agents.labeler,
    "allocator": agents.allocator,
    "kueue": kueue_topology.examine,
    "native-gangs": left_gangs.examine,
    "bind": bind_check.examine,
    "claims": claims_check.examine,
    "gangs": waiting_gangs.examine,
}
