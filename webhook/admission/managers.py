"""Which pods have their `managedFields` emptied at creation; otherwise a release does it.

The API server then tracks no fields while the pod waits, is released, bound and runs, and what it stores,
watches and converts is smaller. It accepts an empty list from admission
(managedFieldsValidatingAdmissionController in k8s.io/apiserver), and tracks again from the first Apply on.
"""

from webhook.admission import patch
from webhook.admission.review import NewPod
from webhook.policy.values import Policy


def forget(pod: NewPod, policy: Policy) -> list[patch.Operation]:
    """Empty them, unless the policy keeps them, no controller created the pod, or a client applied it."""
    metadata = pod.metadata
    managers = metadata.managed_fields
    if policy.keep_managed_fields or not managers:
        return []
    if not any(owner.controller for owner in metadata.owner_references or ()):
        return []
    if any(manager.operation != "Update" for manager in managers):
        return []
    return [patch.put_member(("metadata",), "managedFields", [])]
