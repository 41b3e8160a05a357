"""Which pods have their `managedFields` emptied at creation; otherwise a release does it.

The API server then tracks no fields while the pod waits, is released, bound and runs, and what it stores,
watches and converts is smaller. It accepts an empty list from admission
(managedFieldsValidatingAdmissionController in k8s.io/apiserver), and tracks again from the first Apply on.

They stay where they show that another than topogate wrote a field; see webhook.admission.injection.
"""

from typing import Any

from webhook.admission import injection, patch
from webhook.admission.injection import RequestNote
from webhook.admission.review import NewPod
from webhook.policy.values import Policy


def forget(pod: NewPod, policy: Policy, evidence: RequestNote) -> list[patch.Operation]:
    """Empty them, unless the policy keeps them, no controller created the pod, or a client applied it.

    evidence: labels and a class that others wrote. With any, the list stays, and has each of them.
    """
    metadata = pod.metadata
    managers = metadata.managed_fields
    if evidence != RequestNote():
        return _record(pod, evidence)
    if policy.keep_managed_fields or not managers:
        return []
    if not any(owner.controller for owner in metadata.owner_references or ()):
        return []
    if any(manager.operation != "Update" for manager in managers):
        return []
    return [patch.put_member(("metadata",), "managedFields", [])]


def _record(pod: NewPod, written: RequestNote) -> list[patch.Operation]:
    """List what others wrote: the API server lists only the author's fields, and selectors without labels."""
    missing = injection.not_recorded(pod, written)
    fields: dict[str, Any] = {}
    if missing.node_selector:
        fields["f:nodeSelector"] = {f"f:{key}": {} for key in missing.node_selector}
    if missing.priority_class:
        fields["f:priorityClassName"] = {}
    if not fields:
        return []
    entry = {
        "manager": injection.RECORDER,
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": fields},
    }
    return [patch.append(("metadata", "managedFields"), pod.metadata.managed_fields, entry)]
