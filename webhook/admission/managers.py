"""Which pods have their `managedFields` emptied at creation; otherwise a release does it.

The API server then tracks no fields while the pod waits, is released, bound and runs, and what it stores,
watches and converts is smaller. It accepts an empty list from admission
(managedFieldsValidatingAdmissionController in k8s.io/apiserver), and tracks again from the first Apply on.

They stay where they show that another than topogate wrote a field; see webhook.admission.injection.
"""

from collections.abc import Collection
from typing import Final

from webhook.admission import injection, patch
from webhook.admission.review import NewPod
from webhook.policy.values import Policy

_BEFORE: Final = "before-topogate"
"""The manager of what was there before topogate's first call; the API server has "before-first-apply"."""


def forget(pod: NewPod, policy: Policy, evidence: Collection[str]) -> list[patch.Operation]:
    """Empty them, unless the policy keeps them, no controller created the pod, or a client applied it.

    evidence: fields of the spec that others wrote. With any, the list stays, and has each of them.
    """
    metadata = pod.metadata
    managers = metadata.managed_fields
    if evidence:
        return _list_fields(pod, evidence)
    if policy.keep_managed_fields or not managers:
        return []
    if not any(owner.controller for owner in metadata.owner_references or ()):
        return []
    if any(manager.operation != "Update" for manager in managers):
        return []
    return [patch.put_member(("metadata",), "managedFields", [])]


def _list_fields(pod: NewPod, fields: Collection[str]) -> list[patch.Operation]:
    """List what an earlier webhook wrote: the API server lists only what the author did."""
    missing = sorted(frozenset(fields) - injection.listed_fields(pod))
    if not missing:
        return []
    entry = {
        "manager": _BEFORE,
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {name: {} for name in missing}},
    }
    return [patch.append(("metadata", "managedFields"), pod.metadata.managed_fields, entry)]
