"""The worst that each identity's token can do: refused by the API server, or documented in SECURITY.md.

What is allowed here is named there in the words of the table: who gives a program another right must
write down what a thief can do with it.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from hack.local.access import WaitedInVainError
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.admission.harness import manifest
from tests.stolen_tokens import SYSTEM, as_
from tests.support import create_namespace
from webhook.kube.client import JSON_PATCH, MERGE_PATCH, ApiError

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
JOBS: Final = "/apis/batch/v1/namespaces/{tenant}/jobs"
ACCESS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
POD: Final = {"containers": [{"name": "c", "image": "x"}]}
PIN: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
            ]
        }
    }
}


@dataclass(frozen=True)
class Deed:
    """One request. path: {tenant} is the tenant's namespace."""

    what: str
    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    query: dict[str, str] = field(default_factory=lambda: {"dryRun": "All"})


def change(path: str, value: Any) -> list[dict[str, Any]]:
    return [{"op": "add", "path": path, "value": value}]


def secret(name: str, kind: str = "kubernetes.io/tls", **metadata: Any) -> dict[str, Any]:
    data = {"tls.crt": "", "tls.key": ""} if kind == "kubernetes.io/tls" else {}
    return {"metadata": {"name": name, **metadata}, "type": kind, "data": data}


UID: Final = "of the pod that is there"


def lease(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"holderIdentity": "thief"}}


def eviction(name: str, uid: str | None = UID) -> dict[str, Any]:
    """An eviction of the pod with this uid."""
    options = {} if uid is None else {"deleteOptions": {"preconditions": {"uid": uid}}}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **options}


TOKEN_OF_SWEEPER: Final = secret(
    "topogate-webhook-tls-next",
    "kubernetes.io/service-account-token",
    annotations={"kubernetes.io/service-account.name": "sweeper"},
)
BINDING: Final = {
    "metadata": {"name": "thief"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
}
RESET_FAILURES: Final = {
    "metadata": {"annotations": {keys.RESET_FAILURES_ANNOTATION: "2026-01-01T00:00:00Z"}}
}
_POD: Final = "/api/v1/namespaces/{tenant}/pods"
_READS: Final = [
    Deed("reads the Secrets of all namespaces", "GET", "/api/v1/secrets", query={}),
    Deed("gives itself another role", "POST", f"{RBAC}/clusterrolebindings", BINDING),
    Deed("takes a token of another account", "POST", f"{SYSTEM}/serviceaccounts/certs/token", {}),
    Deed("runs a pod", "POST", _POD, {"metadata": {"name": "p"}, "spec": POD}),
    Deed("runs a command in a pod", "POST", f"{_POD}/running/exec", query={"command": "x"}),
    Deed("deletes a pod that was never held", "DELETE", f"{_POD}/running"),
    Deed("deletes all pods of a namespace", "DELETE", _POD),
    Deed("redirects the webhook of another", "PATCH", f"{HOOKS}/other", {}, MERGE_PATCH),
]

_HOOK: Final = "/webhooks/0"
SECOND: Final = manifest("webhook-configuration.yaml")["webhooks"][0] | {"name": "second.topogate.io"}
TURNED: Final = {
    "the address": ("replace", f"{_HOOK}/clientConfig", {"url": "https://127.0.0.1:1/"}),
    "the objects": ("replace", f"{_HOOK}/rules/0/resources", ["*"]),
    "the operations": ("replace", f"{_HOOK}/rules/0/operations", ["*"]),
    "the namespaces": ("remove", f"{_HOOK}/namespaceSelector", None),
    "the labels that select": ("add", f"{_HOOK}/objectSelector", {"matchLabels": {"a": "b"}}),
    "the conditions": ("remove", f"{_HOOK}/matchConditions", None),
    "what happens without an answer": ("replace", f"{_HOOK}/failurePolicy", "Fail"),
    "the time": ("replace", f"{_HOOK}/timeoutSeconds", 30),
    "the reinvocation": ("replace", f"{_HOOK}/reinvocationPolicy", "Never"),
    "the equivalence": ("replace", f"{_HOOK}/matchPolicy", "Exact"),
    "the number": ("add", "/webhooks/-", SECOND),
    "the labels": ("add", "/metadata/labels", {"a": "b"}),
    "the finalizers": ("add", "/metadata/finalizers", ["a.io/b"]),
}
"""Every field of a webhook configuration but the caBundle -> a patch of it: op, path, value."""

REFUSED: Final = {
    "sweeper": [
        *_READS,
        Deed("deletes a pod that waits", "DELETE", f"{_POD}/waiting"),
        Deed(
            "evicts a pod of the cluster",
            "POST",
            "/api/v1/namespaces/kube-system/pods/system/eviction",
            eviction("system"),
        ),
        Deed(
            "evicts a pod of topogate",
            "POST",
            f"{SYSTEM}/pods/system/eviction",
            eviction("system"),
        ),
        Deed("evicts whatever has a name", "POST", f"{_POD}/running/eviction", eviction("running", uid=None)),
        Deed("deletes a pod of the cluster", "DELETE", "/api/v1/namespaces/kube-system/pods/system"),
        Deed(
            "changes an image",
            "PATCH",
            f"{_POD}/running",
            change("/spec/containers/0/image", "evil"),
            JSON_PATCH,
        ),
        Deed(
            "changes a label",
            "PATCH",
            f"{_POD}/running",
            change("/metadata/labels", {"app": "x"}),
            JSON_PATCH,
        ),
        Deed("binds a pod", "POST", f"{_POD}/waiting/binding", {"target": {"kind": "Node", "name": "n"}}),
        Deed("changes a node", "PATCH", "/api/v1/nodes/n", {"spec": {"unschedulable": True}}, MERGE_PATCH),
        Deed(
            "takes the lease of kube-scheduler",
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
            lease("kube-scheduler"),
        ),
        Deed("deletes a Job", "DELETE", f"{JOBS}/j"),
        Deed("annotates a node", "PATCH", "/api/v1/nodes/n", RESET_FAILURES, MERGE_PATCH),
        Deed("removes what is kept of nodes", "DELETE", f"{SYSTEM}/configmaps/topogate-node-failures"),
        Deed(
            "rewrites the configuration",
            "PATCH",
            f"{SYSTEM}/configmaps/topogate-configuration",
            {},
            MERGE_PATCH,
        ),
        Deed("makes a ConfigMap", "POST", f"{SYSTEM}/configmaps", {"metadata": {"name": "x"}}),
    ],
    "certs": [
        *_READS,
        Deed("has the sweeper's token written into a Secret", "POST", f"{SYSTEM}/secrets", TOKEN_OF_SWEEPER),
        Deed("writes a Secret of another name", "POST", f"{SYSTEM}/secrets", secret("another")),
        Deed(
            "writes a Secret of a name to be made up",
            "POST",
            f"{SYSTEM}/secrets",
            {
                "metadata": {"generateName": "topogate-webhook-tls"},
                "type": "kubernetes.io/tls",
                "data": {"tls.crt": "", "tls.key": ""},
            },
        ),
        Deed(
            "writes a Secret of another type",
            "POST",
            f"{SYSTEM}/secrets",
            secret("topogate-webhook-tls-next", "Opaque"),
        ),
        Deed(
            "writes a Secret elsewhere",
            "POST",
            "/api/v1/namespaces/{tenant}/secrets",
            secret("topogate-webhook-tls"),
        ),
        Deed("reads a Secret of another name", "GET", f"{SYSTEM}/secrets/another", query={}),
        *(
            Deed(
                f"changes {what} of the webhook configuration",
                "PATCH",
                f"{HOOKS}/topogate",
                [{"op": operation, "path": path, "value": value}],
                JSON_PATCH,
            )
            for what, (operation, path, value) in TURNED.items()
        ),
    ],
    "webhook": [
        *_READS,
        Deed("reads the pods of all namespaces", "GET", "/api/v1/pods", query={}),
        Deed("reads a Secret", "GET", f"{SYSTEM}/secrets/topogate-webhook-tls", query={}),
        Deed("changes a PriorityClass", "DELETE", f"{CLASSES}/gpu-low-priority"),
    ],
    "tasks": [
        *_READS,
        Deed("deletes a Job that belongs to no GPUTask", "DELETE", f"{JOBS}/j"),
        Deed("deletes a pod that was released", "DELETE", f"{_POD}/released"),
    ],
}

ALLOWED: Final = {
    "sweeper": [
        Deed("deletes a pod that was released", "DELETE", f"{_POD}/released"),
        Deed(
            "evicts any pod outside of kube-system",
            "POST",
            f"{_POD}/strange/eviction",
            eviction("strange"),
        ),
        Deed(
            "releases a waiting pod to any node",
            "PATCH",
            f"{_POD}/waiting",
            [{"op": "remove", "path": "/spec/schedulingGates"}, *change("/spec/affinity", PIN)],
            JSON_PATCH,
        ),
        Deed(
            "says of any pod which cards it was given",
            "PATCH",
            f"{_POD}/running",
            change("/metadata/annotations", {keys.GAS_CARDS_ANNOTATION: "card0"}),
            JSON_PATCH,
        ),
        Deed(
            "writes a Placement in any namespace",
            "POST",
            "/apis/topogate.io/v1alpha1/namespaces/{tenant}/placements",
            {
                "apiVersion": "topogate.io/v1alpha1",
                "kind": "Placement",
                "metadata": {"name": "x"},
                "spec": {},
            },
        ),
        Deed("reads the pods of all namespaces", "GET", "/api/v1/pods", query={}),
        Deed(
            "makes a lease in the namespace topogate-system",
            "POST",
            "/apis/coordination.k8s.io/v1/namespaces/topogate-system/leases",
            lease("other"),
        ),
        Deed(
            "rewrites what each account has used",
            "PATCH",
            f"{SYSTEM}/configmaps/topogate-use",
            {"data": {"use.json": ""}},
            MERGE_PATCH,
        ),
        Deed(
            "says of any node that pods failed there",
            "PATCH",
            f"{SYSTEM}/configmaps/topogate-node-failures",
            {"data": {"failures": "[]"}},
            MERGE_PATCH,
        ),
    ],
    "certs": [
        Deed(
            "writes another caBundle into the webhook configuration",
            "PATCH",
            f"{HOOKS}/topogate",
            change("/webhooks/0/clientConfig/caBundle", ""),
            JSON_PATCH,
        ),
        Deed(
            "replaces the webhook's certificate and key",
            "POST",
            f"{SYSTEM}/secrets",
            secret("topogate-webhook-tls"),
        ),
    ],
    "webhook": [Deed("reads the PriorityClasses", "GET", CLASSES, query={})],
    "tasks": [
        Deed(
            "makes a Job in any namespace under any ServiceAccount",
            "POST",
            JOBS,
            {
                "metadata": {
                    "name": "t",
                    "ownerReferences": [
                        {
                            "apiVersion": "falldio.com/v1",
                            "kind": "GPUTask",
                            "name": "t",
                            "uid": "0",
                            "controller": True,
                        }
                    ],
                },
                "spec": {
                    "template": {"spec": {**POD, "restartPolicy": "Never", "serviceAccountName": "admin"}}
                },
            },
        )
    ],
}


@pytest.fixture(scope="module")
def tenant(module_cluster: Cluster) -> Iterator[str]:
    """The manifests, and a tenant's pods: one that runs, one that waits, one that was released."""
    Installation(module_cluster).apply()
    api = module_cluster.api()
    name = create_namespace(module_cluster)
    pods = f"/api/v1/namespaces/{name}/pods"
    gates = [{"name": keys.GATE}]
    job = {"template": {"spec": {**POD, "restartPolicy": "Never"}}, "suspend": True}
    api.request(
        "POST", f"/apis/batch/v1/namespaces/{name}/jobs", body={"metadata": {"name": "j"}, "spec": job}
    )
    api.request("POST", "/api/v1/nodes", body={"metadata": {"name": "n"}})
    for pod, spec in (
        ("running", {**POD, "nodeName": "n"}),
        ("strange", {**POD, "nodeName": "n"}),
        ("waiting", {**POD, "schedulingGates": gates}),
        ("released", {**POD, "affinity": PIN}),
    ):
        api.request("POST", pods, body={"metadata": {"name": pod}, "spec": spec})
    body = {"metadata": {"name": "system"}, "spec": {**POD, "schedulerName": "none"}}
    api.request("POST", "/api/v1/namespaces/kube-system/pods", body=body)
    api.request("POST", f"{SYSTEM}/pods", body=restricted("system"))

    yield name
    for path in ("/api/v1/namespaces/kube-system/pods/system", f"{SYSTEM}/pods/system"):
        api.request("DELETE", path, query={"gracePeriodSeconds": "0"})


def restricted(name: str) -> dict[str, Any]:
    """A pod that topogate's own namespace takes, and that no scheduler binds."""
    security = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {**POD["containers"][0], "securityContext": security}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "schedulerName": "none"}}


def do(cluster: Cluster, account: str, deed: Deed, tenant: str) -> None:
    path, body = deed.path.format(tenant=tenant), deed.body
    if path.endswith("/eviction"):
        there = cluster.api().json("GET", path.removesuffix("/eviction"))
        body = json.loads(json.dumps(body).replace(UID, there["metadata"]["uid"]))
    as_(cluster, account).request(
        deed.method,
        path,
        body=body,
        content_type=deed.content_type,
        query=deed.query,
    )


def answer_to(cluster: Cluster, account: str, deed: Deed, tenant: str) -> int:
    """The status of the API server's answer."""
    try:
        do(cluster, account, deed, tenant)
    except ApiError as error:
        return error.status
    return 200


@pytest.mark.promise("R10", "S9", "S10", "S11", "S12", "S14", "S17", "S22")
def test_with_a_stolen_token_nobody_gets_more_than_the_trust_model_lists(
    module_cluster: Cluster, tenant: str
) -> None:
    """A deed that is not refused yet is tried again: the API server takes up one policy after the other."""
    answers = {(account, deed.what): 0 for account, deeds in REFUSED.items() for deed in deeds}

    def are_refused() -> bool:
        for account, deeds in REFUSED.items():
            for deed in deeds:
                if answers[account, deed.what] != 403:
                    answers[account, deed.what] = answer_to(module_cluster, account, deed, tenant)
        return set(answers.values()) == {403}

    with contextlib.suppress(WaitedInVainError):
        module_cluster.wait_for("the guards to be enforced", are_refused)
    assert {deed: status for deed, status in answers.items() if status != 403} == {}


@pytest.mark.promise("S9", "S11")
def test_what_cannot_be_refused_is_reported(module_cluster: Cluster, tenant: str) -> None:
    rows = (ROOT / "SECURITY.md").read_text().splitlines()
    faults = []
    for account, deeds in ALLOWED.items():
        (row,) = [line for line in rows if line.startswith(f"| `topogate-system/{account}` |")]
        for deed in deeds:
            if deed.what not in row:
                faults.append(f"SECURITY.md does not say that {account} {deed.what}")
            if (status := answer_to(module_cluster, account, deed, tenant)) != 200:
                faults.append(f"that {account} {deed.what} gets {status}")
    assert faults == []


@pytest.mark.promise("S10")
def test_the_webhooks_account_may_read_priority_classes_and_nothing_else(
    module_cluster: Cluster, tenant: str
) -> None:
    """What everybody may is what any account without a role may."""
    nobody = module_cluster.api().acting_as(f"system:serviceaccount:{tenant}:nobody")
    for namespace in (tenant, "topogate-system"):
        body = {"apiVersion": "authorization.k8s.io/v1", "spec": {"namespace": namespace}}
        own, everybodys = (
            who.json("POST", REVIEW, body=body)["status"]["resourceRules"]
            for who in (as_(module_cluster, "webhook"), nobody)
        )
        more = [rule for rule in own if rule not in everybodys]
        assert [(rule["apiGroups"], rule["resources"]) for rule in more] == [
            (["scheduling.k8s.io"], ["priorityclasses"])
        ]
        assert set(more[0]["verbs"]) <= {"get", "list", "watch"}


READS: Final = ("list", "watch")
OF_FEATURES: Final[dict[str, list[tuple[tuple[str, ...], str, tuple[str, ...]]]]] = {
    "claims on devices": [
        (
            READS,
            "resource.k8s.io",
            ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates"),
        )
    ],
    "volumes": [
        (READS, "", ("persistentvolumeclaims", "persistentvolumes")),
        (READS, "storage.k8s.io", ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities")),
    ],
    "spread rules and affinity": [(READS, "", ("namespaces",))],
    "preemption": [(("create",), "", ("pods/eviction",)), (READS, "policy", ("poddisruptionbudgets",))],
    "avoidance of failing nodes": [(("get", "patch"), "", ("configmaps:topogate-node-failures",))],
    "fair order": [(("get", "patch"), "", ("configmaps:topogate-use",))],
}
"""Feature of the table in docs/operators/sizing.md -> verbs, API group, and resources."""


def test_the_sweeper_has_the_rights_that_its_features_need_from_the_base(
    module_cluster: Cluster, tenant: str
) -> None:
    page = (ROOT / "docs/operators/sizing.md").read_text()
    assert [feature for feature in OF_FEATURES if f"| {feature}" not in page] == []
    assert [
        f"{feature}: {verb} {resource}"
        for feature, rights in OF_FEATURES.items()
        for verbs, group, resources in rights
        for verb in verbs
        for resource in resources
        if not may_sweeper(module_cluster, verb, group, resource)
    ] == []


def may_sweeper(cluster: Cluster, verb: str, group: str, resource: str) -> bool:
    """Whether the API server lets the sweeper do this. resource: its kind, /part or :name of one object."""
    kind, _, name = resource.partition(":")
    kind, _, part = kind.partition("/")
    asked = {"verb": verb, "group": group, "resource": kind, "subresource": part, "name": name}
    if name:
        asked["namespace"] = "topogate-system"
    body = {"apiVersion": "authorization.k8s.io/v1", "spec": {"resourceAttributes": asked}}
    return bool(as_(cluster, "sweeper").json("POST", ACCESS, body=body)["status"]["allowed"])


@pytest.mark.promise("S9")
def test_every_account_of_the_manifests_is_tried() -> None:
    texts = (path.read_text() for path in (ROOT / "manifests" / "base").glob("*.yaml"))
    named = {
        found for text in texts for found in re.findall(r"^ +serviceAccountName: (\S+)$", text, re.MULTILINE)
    }
    assert named == {*REFUSED, "labeler"}, "the labeler's is tried in tests/labeler/test_policy.py"
