"""How a cluster's admission changes a pod, asked by a server-side dry run, which stores nothing.

So all webhooks, policies, quotas and defaults count, not only topogate's decision.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from webhook.admission.decide import DENIED, LEFT_ALONE, MUTATED, Decision
from webhook.inquiry.admission_outcome import NOT_GATED, Admitted
from webhook.kube.client import Api, ApiError

_REFUSALS: Final = (400, 403, 404, 409, 413, 422)
_NOT_SERVED: Final = (401, 405, 501)
_MAY_NOT: Final = 'cannot create resource "pods"'


class DryRun:
    """Asks about each pod once. notes: why the cluster could not be asked, if it could not."""

    def __init__(self, api: Api) -> None:
        """api: connected as the person who would create the pods."""
        self._api = api
        self._known: dict[bytes, Admitted] = {}
        self.notes: dict[str, None] = {}

    def __call__(self, pod: Mapping[str, Any], namespace: str, local: Admitted) -> Admitted:
        """What the cluster answers; local where it cannot be asked. Raises ApiError if it does not answer.

        local: the decision of topogate's policy on the pod.
        """
        metadata = {**_written(pod), "generateName": "topogate-dry-run-"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}
        key = msgspec.json.encode((namespace, body))
        if key not in self._known:
            self._known[key] = self._asked(body, namespace, local)
        return self._known[key]

    def _asked(self, body: dict[str, Any], namespace: str, local: Admitted) -> Admitted:
        path = f"/api/v1/namespaces/{namespace}/pods"
        try:
            found = self._api.json("POST", path, query={"dryRun": "All"}, body=body)
        except ApiError as error:
            words = error.message.partition(": ")[2] or error.message
            if _cannot_be_asked(error):
                self.notes[f"decided by topogate's policy, not by a dry run: {words}"] = None
                return local
            if error.status not in _REFUSALS:
                raise
            denial = local.decision.denial or words
            decision = msgspec.structs.replace(local.decision, outcome=DENIED, denial=denial)
            return replace(local, decision=decision)
        return _accepted(body, found, local)


def _cannot_be_asked(error: ApiError) -> bool:
    """Whether the person has no right to try, or something in the cluster refuses dry runs in general."""
    message = error.message.lower().replace("-", " ")
    no_dry_run = error.status == 400 and ("dry run" in message or "dryrun" in message)
    return error.status in _NOT_SERVED or no_dry_run or (error.status == 403 and _MAY_NOT in error.message)


def _accepted(body: Mapping[str, Any], found: Mapping[str, Any], local: Admitted) -> Admitted:
    """The pod as the cluster would store it, with the decision that this shows."""
    import jsonpatch  # loaded only if a cluster was asked

    before = {"metadata": _written(body), "spec": body["spec"]}
    after = {"metadata": _written(found), "spec": found.get("spec") or {}}
    pod = {**local.pod, "metadata": {**local.pod["metadata"], **after["metadata"]}, "spec": after["spec"]}
    stored = Admitted(local.decision, pod, list(jsonpatch.make_patch(before, after)))
    return replace(stored, decision=_decision(stored.is_gated, local))


def _decision(is_gated: bool, local: Admitted) -> Decision:
    """The decision by the policy, unless the cluster made another one."""
    if is_gated and (local.is_denied or local.is_placed_by_others):
        return msgspec.structs.replace(local.decision, outcome=MUTATED, reason="gated", denial=None)
    if not is_gated and (local.is_denied or local.is_gated):
        return msgspec.structs.replace(local.decision, outcome=LEFT_ALONE, reason=NOT_GATED, denial=None)
    return local.decision


def _written(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a pod's metadata that admission may change."""
    metadata = pod.get("metadata") or {}
    return {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
