"""Checks of pod creation: policy, PriorityClasses, the webhook's answer, guards."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from labeler.contract import keys
from webhook.configuration.cluster import read_configuration
from webhook.configuration.document import ConfigurationError
from webhook.inquiry.findings import REAPPLY, SYSTEM, Finding, State, found, some
from webhook.inquiry.trust import is_issued_by_others
from webhook.kube.client import Api, ApiError

GUARDS: Final = (
    "topogate-pods",
    "topogate-new-pods",
    "topogate-deleted-pods",
    "topogate-evicted-pods",
    "topogate-podgroups",
    "topogate-tiers",
    "topogate-labeler",
    "topogate-labeler-events",
    "topogate-gputasks",
    "topogate-tasks",
)
ISSUER_GUARDS: Final = ("topogate-certs-secrets", "topogate-certs-webhook")
"""Guards of our own issuer of certificates, which is not installed with cert-manager."""

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_PLAIN: Final = frozenset("*?[").isdisjoint


def classes(api: Api, now: datetime) -> Iterator[Finding]:
    """The policy can be read, and each of its tiers has its PriorityClass."""
    try:
        policy = read_configuration(api).policy
    except ConfigurationError as error:
        yield found(State.ILL, f"the configuration cannot be used: {error}", "Run `topogate config check`.")
        return
    there = {
        each["metadata"]["name"]
        for each in api.json("GET", "/apis/scheduling.k8s.io/v1/priorityclasses")["items"]
    }
    named = [tier.priority_class_name for tier in policy.tiers]
    missing = [name for name in named if name not in there]
    if missing:
        sentence = f"tiers of the configuration name PriorityClasses that do not exist: {some(missing)}"
        yield found(State.ILL, sentence, f"Create them, or correct the configuration. {REAPPLY}")
    else:
        yield found(State.WELL, f"the PriorityClasses of all {len(named)} tiers exist")


def admission(api: Api, now: datetime) -> Iterator[Finding]:
    """A dry run of a GPU pod in an opted-in namespace is gated: checks Service, TLS and policy at once."""
    label = f"{keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}"
    query = {"labelSelector": label, "fieldSelector": "status.phase=Active", "limit": "1"}
    namespaces = api.json("GET", "/api/v1/namespaces", query=query)["items"]
    if not namespaces:
        yield found(State.ODD, "no namespace is opted in", f"kubectl label namespace NAME {label}")
        return
    namespace = namespaces[0]["metadata"]["name"]
    if not _may_create_pods(api, namespace):
        yield found(State.UNKNOWN, f"you may not create pods in {namespace}, even as a dry run")
        return
    remedy = f"kubectl get endpointslices,pods -n {SYSTEM}; see also the webhook's /readyz."
    try:
        path, pod = f"/api/v1/namespaces/{namespace}/pods", _pod(_resource(api))
        gates = api.json("POST", path, query={"dryRun": "All"}, body=pod)["spec"].get("schedulingGates")
    except ApiError as error:
        if error.status != 403:
            raise
        # A user who may create pods was refused by admission: by a quota, or under the overlay strict.
        if "exceeded quota" in error.message:
            yield found(State.UNKNOWN, f"the quota of {namespace} does not allow a test pod: {error.message}")
        else:
            yield found(State.ILL, f"a GPU pod in {namespace} is refused: {error.message}", remedy)
        return
    if gates:
        names = ", ".join(gate["name"] for gate in gates)
        yield found(State.WELL, f"a GPU pod in {namespace} gets the gate {names}")
    else:
        sentence = f"a GPU pod in {namespace} gets no gate: the webhook did not answer, or it is excluded"
        yield found(State.ILL, sentence, remedy)


def _may_create_pods(api: Api, namespace: str) -> bool:
    attributes = {"namespace": namespace, "verb": "create", "resource": "pods"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = api.json("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
    return bool(answer["status"].get("allowed"))


def _resource(api: Api) -> str:
    """A resource that makes a pod a GPU pod by the cluster's policy, or by ours if that cannot be read."""
    try:
        policy = read_configuration(api).policy
    except (ApiError, ConfigurationError):
        return "nvidia.com/gpu"
    return next(filter(_PLAIN, policy.gpu_resources), "nvidia.com/gpu")


def _pod(resource: str) -> dict[str, Any]:
    """As small and as restricted as a pod can be, so that no other admission refuses it."""
    limits = {"cpu": "1m", "memory": "1Mi", resource: "1"}
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "c", "image": "none", "resources": {"limits": limits}, "securityContext": security}
    return {"metadata": {"generateName": "topogate-doctor-"}, "spec": {"containers": [container]}}


def guards(api: Api, now: datetime) -> Iterator[Finding]:
    """Each guard exists, and a binding makes it deny."""
    wanted = GUARDS if is_issued_by_others(api) else GUARDS + ISSUER_GUARDS
    policies = _named(api, "validatingadmissionpolicies")
    denying = {
        each["spec"]["policyName"]
        for each in _named(api, "validatingadmissionpolicybindings").values()
        if "Deny" in (each["spec"].get("validationActions") or ())
    }
    missing = [name for name in wanted if name not in policies]
    idle = [name for name in wanted if name in policies and name not in denying]
    if missing:
        yield found(State.ILL, f"these guards do not exist: {', '.join(missing)}", REAPPLY)
    if idle:
        yield found(State.ILL, f"these guards have no binding that denies: {', '.join(idle)}", REAPPLY)
    if not missing and not idle:
        yield found(State.WELL, f"{len(wanted)} guards are in force")


def _named(api: Api, resource: str) -> dict[str, dict[str, Any]]:
    items = api.json("GET", f"{_ADMISSION}/{resource}")["items"]
    return {item["metadata"]["name"]: item for item in items}
