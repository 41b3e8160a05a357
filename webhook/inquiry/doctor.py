"""Is an installation well? Each check reads one thing, says what it found, and what to do about it.

Nothing is changed: the one pod that is sent to the API server is a dry run. A check whose object the user may
not read says so; that is neither well nor ill.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from cryptography import x509

from labeler.contract import keys
from webhook.kube.client import Api, ApiError

SYSTEM: Final = "topogate-system"
NAME: Final = "topogate"
GUARDS: Final = (
    "topogate-pods",
    "topogate-new-pods",
    "topogate-deleted-pods",
    "topogate-tiers",
    "topogate-labeler",
)
OLDEST: Final = (1, 32)
"""The first version of Kubernetes that topogate runs on."""

CERTIFICATE_DAYS: Final = 7
LEASE_SECONDS: Final = 60
SKEW_SECONDS: Final = 10
GATED_SECONDS: Final = 1800
REAPPLY: Final = "Apply manifests/overlays/default."
RENEW: Final = f"kubectl rollout restart deployment/certs -n {SYSTEM}; its log says more."
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


class State(StrEnum):
    """How a check ended."""

    WELL = "well"
    ODD = "odd"
    ILL = "ill"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """What a check found. remedy: what to do, "" where nothing is to be done."""

    check: str
    state: State
    sentence: str
    remedy: str = ""


Check = Callable[[Api, datetime], Iterator[Finding]]


def examine(api: Api, now: datetime | None = None) -> Iterator[Finding]:
    """All findings, check by check. now: the local clock, for tests."""
    for name, check in CHECKS.items():
        try:
            for finding in check(api, now or datetime.now(UTC)):
                yield Finding(name, finding.state, finding.sentence, finding.remedy)
        except ApiError as error:
            if error.status in (401, 403):
                yield Finding(name, State.UNKNOWN, f"you may not look: {error}")
            elif error.status == 404:
                yield Finding(name, State.ILL, f"not there: {error}", REAPPLY)
            else:
                yield Finding(name, State.ILL, f"the API server did not answer: {error}", "Run this again.")


def _found(state: State, sentence: str, remedy: str = "") -> Finding:
    return Finding("", state, sentence, remedy)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")


def _version(api: Api, now: datetime) -> Iterator[Finding]:
    answer = api.json("GET", "/version")
    digits = ["".join(filter(str.isdigit, str(answer.get(part, "0")))) for part in ("major", "minor")]
    version = tuple(int(each or 0) for each in digits)
    if version < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        yield _found(
            State.ILL, f"Kubernetes {answer['gitVersion']} is too old", f"Upgrade to {wanted} or newer."
        )
    else:
        yield _found(State.WELL, f"Kubernetes {answer['gitVersion']}")


def _placements(api: Api, now: datetime) -> Iterator[Finding]:
    api.json("GET", "/apis/topogate.io/v1alpha1/placements", query={"limit": "1"})
    yield _found(State.WELL, "Placements are served")


def _certificate(api: Api, now: datetime) -> Iterator[Finding]:
    """The caBundle of the webhook configuration: there, readable, and not near its end."""
    body = api.json("GET", f"{_ADMISSION}/mutatingwebhookconfigurations/{NAME}")
    for hook in body["webhooks"]:
        bundle = hook["clientConfig"].get("caBundle", "")
        if not bundle:
            yield _found(
                State.ILL,
                "the webhook configuration has no caBundle, so GPU pods are created ungated",
                f"See the log of deployment/certs in {SYSTEM}.",
            )
            continue
        yield _expiry(bundle, now)


def _expiry(bundle: str, now: datetime) -> Finding:
    try:
        found = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except ValueError as error:
        return _found(State.ILL, f"the caBundle cannot be read: {error}", RENEW)
    last = max(each.not_valid_after_utc for each in found)
    left = last - now
    if left < timedelta(0):
        return _found(State.ILL, f"the caBundle ended at {last:%F %T}", RENEW)
    if left < timedelta(days=CERTIFICATE_DAYS):
        return _found(State.ODD, f"the caBundle ends at {last:%F %T}", RENEW)
    return _found(State.WELL, f"the caBundle holds until {last:%F}")


def _admission(api: Api, now: datetime) -> Iterator[Finding]:
    """A dry run of a GPU pod in an opted-in namespace comes back gated: Service, TLS and policy at once."""
    query = {"labelSelector": f"{keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}", "limit": "1"}
    found = api.json("GET", "/api/v1/namespaces", query=query)["items"]
    if not found:
        label = f"{keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}"
        yield _found(State.ODD, "no namespace is opted in", f"kubectl label namespace NAME {label}")
        return
    namespace = found[0]["metadata"]["name"]
    amounts = {"cpu": "1m", "memory": "1Mi", "nvidia.com/gpu": "1"}
    pod = {
        "metadata": {"generateName": "topogate-doctor-"},
        "spec": {"containers": [{"name": "c", "image": "none", "resources": {"limits": amounts}}]},
    }
    answer = api.json("POST", f"/api/v1/namespaces/{namespace}/pods", query={"dryRun": "All"}, body=pod)
    yield from _skew(answer["metadata"]["creationTimestamp"], now)
    gates = [gate["name"] for gate in answer["spec"].get("schedulingGates") or ()]
    if gates:
        yield _found(State.WELL, f"a GPU pod in {namespace} gets the gate {', '.join(gates)}")
    else:
        yield _found(
            State.ILL,
            f"a GPU pod in {namespace} gets no gate: the webhook did not answer, or the policy spares it",
            f"kubectl get endpointslices,pods -n {SYSTEM}; the webhook's /readyz says more.",
        )


def _skew(stamped: str, now: datetime) -> Iterator[Finding]:
    skew = abs((datetime.fromisoformat(stamped) - now).total_seconds())
    if skew > SKEW_SECONDS:
        yield _found(
            State.ODD, f"this machine's clock and the API server's differ by {skew:.0f} s", "Use NTP."
        )


def _programs(api: Api, now: datetime) -> Iterator[Finding]:
    body = api.json("GET", f"/apis/apps/v1/namespaces/{SYSTEM}/deployments")
    wanted = {"webhook", "sweeper"}
    for item in body["items"]:
        name, status = item["metadata"]["name"], item.get("status") or {}
        wanted.discard(name)
        ready, replicas = status.get("readyReplicas", 0), item["spec"].get("replicas", 1)
        state = State.WELL if ready >= replicas else State.ODD if ready else State.ILL
        remedy = "" if state is State.WELL else f"kubectl describe deployment/{name} -n {SYSTEM}"
        yield _found(state, f"{name}: {ready} of {replicas} replicas are ready", remedy)
    for name in sorted(wanted):
        yield _found(State.ILL, f"there is no deployment/{name}", REAPPLY)


def _leader(api: Api, now: datetime) -> Iterator[Finding]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/topogate-sweeper"
    spec = api.json("GET", path)["spec"]
    holder, renewed = spec.get("holderIdentity", ""), spec.get("renewTime", "")
    age = (now - datetime.fromisoformat(renewed)).total_seconds() if renewed else float("inf")
    if not holder or age > LEASE_SECONDS:
        silent = f"for {age:.0f} s" if renewed else "at all"
        yield _found(
            State.ILL,
            f"no sweeper leads: the Lease was not renewed {silent}; gated pods wait",
            f"kubectl logs deployment/sweeper -n {SYSTEM}",
        )
    else:
        yield _found(State.WELL, f"{holder} leads, seen {max(0, age):.0f} s ago")


def _guards(api: Api, now: datetime) -> Iterator[Finding]:
    body = api.json("GET", f"{_ADMISSION}/validatingadmissionpolicybindings")
    bound = {item["spec"]["policyName"] for item in body["items"] if item["spec"].get("validationActions")}
    missing = [name for name in GUARDS if name not in bound]
    if missing:
        remedy = REAPPLY
        yield _found(State.ILL, f"these guards are not bound: {', '.join(missing)}", remedy)
    else:
        yield _found(State.WELL, f"{len(GUARDS)} guards are in force")


def _nodes(api: Api, now: datetime) -> Iterator[Finding]:
    """GPU nodes without a place are used last, and never for a gang that requires a level."""
    items = api.json("GET", "/api/v1/nodes", timeout_seconds=60)["items"]
    with_gpus = [item for item in items if _has_gpus(item)]
    unplaced = [item["metadata"]["name"] for item in with_gpus if not _has_place(item)]
    if not with_gpus:
        yield _found(
            State.ODD, "no node has a GPU in its allocatable resources", "Is a device plugin installed?"
        )
    elif unplaced:
        yield _found(
            State.ODD,
            f"{len(unplaced)} of {len(with_gpus)} GPU nodes have no topology labels: {_some(unplaced)}",
            "manifests/README.md, Where the topology comes from.",
        )
    else:
        yield _found(State.WELL, f"all {len(with_gpus)} GPU nodes have topology labels")


def _has_gpus(node: dict[str, Any]) -> bool:
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return any("gpu" in name and "/" in name and amount != "0" for name, amount in amounts.items())


def _has_place(node: dict[str, Any]) -> bool:
    labels = node["metadata"].get("labels") or {}
    return any(all(labels.get(key) for key in family) for family in keys.TOPOLOGY_FAMILIES)


def _waiting(api: Api, now: datetime) -> Iterator[Finding]:
    body = api.json("GET", "/apis/topogate.io/v1alpha1/placements", timeout_seconds=60)
    waits = [item for item in body["items"] if (item.get("status") or {}).get("state") == "Waiting"]
    before = now - timedelta(seconds=GATED_SECONDS)
    old = [
        f"{item['metadata']['namespace']}/{item['spec'].get('gang', '')}"
        for item in waits
        if datetime.fromisoformat(item["metadata"]["creationTimestamp"]) < before
    ]
    if old:
        sentence = f"{len(old)} gangs wait for over {GATED_SECONDS // 60} minutes: {_some(old)}"
        yield _found(State.ODD, sentence, "topogate gangs says why.")
    else:
        yield _found(State.WELL, f"{len(waits)} gangs wait, none for long")


CHECKS: Final[dict[str, Check]] = {
    "version": _version,
    "definitions": _placements,
    "certificate": _certificate,
    "admission": _admission,
    "programs": _programs,
    "leader": _leader,
    "guards": _guards,
    "nodes": _nodes,
    "gangs": _waiting,
}
