"""A tenant who may `edit` one namespace alone, and does there what would hurt others, as hostile.py draws it.

The operator has done what an operator does: given the namespace a quota and a maximum of priority. Much of
what the tenant tries is refused.
"""

import random
from collections import Counter
from contextlib import suppress
from typing import Final

from hack.local.pods import GPUS, Json
from hack.soaks.hostile import HIGHEST, JOBS, LINES, PODS, Drawing
from labeler.contract import keys
from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.policy import rendering
from webhook.policy.values import NamespaceRules, Policy, Tier
from webhook.workloads import marks

USER: Final = "mallory"
QUOTA: Final = {
    f"requests.{GPUS}": "16",
    f"requests.{keys.I915}": "6",
    f"requests.{keys.MILLICORES}": "3000",
    "count/pods": "80",
}
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


class Tenant:
    """Writes what is drawn, with the rights of `edit` in one namespace and none elsewhere."""

    def __init__(self, api: Api, namespace: str, drawing: Drawing, choices: random.Random) -> None:
        """api: with the right to impersonate; requests are made as another user."""
        self._api = api.acting_as(USER)
        self._namespace = namespace
        self._drawing = drawing
        self._random = choices
        self.done: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()

    def act(self) -> None:
        """Write one thing more, and now and then change or delete something. Raises ApiError: no answer."""
        what, objects = self._drawing.draw()
        self.done[what] += 1
        for each in objects:
            self._try("POST", each.path, each.body)
        if self._random.random() < 0.5:
            self._meddle()

    def leave(self) -> None:
        """Delete its Jobs and pods, finalizers and all. Raises ApiError."""
        path = JOBS.format(namespace=self._namespace)
        self._api.request("DELETE", path, query={"propagationPolicy": "Background"})
        for name in self._names():
            self._remove(name)

    def _try(self, method: str, path: str, body: Json, content_type: str = "application/json") -> None:
        try:
            at = path.format(namespace=self._namespace)
            self._api.request(method, at, body=body, content_type=content_type)
        except ApiError as error:
            self.refused[error.status] += 1
            if error.is_transient:
                raise
            if "exceeded quota" in str(error):
                names = self._names()
                for name in self._random.sample(names, min(len(names), 12)):
                    self._remove(name)

    def _names(self) -> list[str]:
        items = self._api.json("GET", PODS.format(namespace=self._namespace))["items"]
        return [item["metadata"]["name"] for item in items]

    def _meddle(self) -> None:
        """Rewrite what only the sweeper writes, take a gate away, or delete."""
        names = self._names()
        if not names:
            return
        path = f"{PODS}/{self._random.choice(names)}"
        changes: tuple[Json, ...] = (
            _annotated({keys.GAS_CARDS_ANNOTATION: "card0", keys.GAS_TIMESTAMP_ANNOTATION: "1"}),
            _annotated({keys.GAS_CARDS_ANNOTATION: None, keys.GAS_TIMESTAMP_ANNOTATION: None}),
            _annotated({keys.GANG_ANNOTATION: LINES}),
            {"metadata": {"labels": {marks.JOB_NAME_LABEL: self._random.choice(names)}}},
            {"spec": {"schedulingGates": []}},
            {"spec": {"nodeSelector": {keys.HOSTNAME_LABEL: "nowhere"}}},
        )
        change = self._random.choice((*changes, None))
        if change is None:
            self._try("DELETE", path, {})
        else:
            self._try("PATCH", path, change, MERGE_PATCH)

    def _remove(self, name: str) -> None:
        path = f"{PODS}/{name}".format(namespace=self._namespace)
        with suppress(ApiError):
            free = {"metadata": {"finalizers": None}}
            self._api.request("PATCH", path, body=free, content_type=MERGE_PATCH)
            self._api.request("DELETE", path, query={"gracePeriodSeconds": "0"})


def _annotated(annotations: Json) -> Json:
    return {"metadata": {"annotations": annotations}}


def admit(api: Api, namespace: str) -> None:
    """Give the tenant `edit` in the (labelled) namespace, a quota, and a maximum of priority."""
    binding = {
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    }
    api.request("POST", f"{_RBAC}/namespaces/{namespace}/rolebindings", body=binding)
    quota = {"metadata": {"name": "tenant"}, "spec": {"hard": QUOTA}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", body=quota)
    rules = {namespace: NamespaceRules(maximum_tier="low"), "*": NamespaceRules()}
    policy = Policy(tiers=(Tier("low", HIGHEST),), namespaces=rules)
    spec = rendering.tiers(policy, {HIGHEST: 1})
    found = api.json("GET", f"{_POLICIES}/topogate-tiers")
    api.request("PUT", f"{_POLICIES}/topogate-tiers", body=found | {"spec": spec})
