"""Of which pods `managedFields` are emptied at their creation; else a release does it.

The API server then tracks nobody's fields while the pod waits, nor when it is released, bound and run, and
what it stores, watches and converts is smaller. It takes an empty list from admission
(managedFieldsValidatingAdmissionController in k8s.io/apiserver), and tracks again from the first Apply on.
"""

from webhook.admission import patch
from webhook.admission.review import NewPod
from webhook.policy.values import Policy


def forget(pod: NewPod, policy: Policy) -> list[patch.Operation]:
    """Empty them, unless the policy keeps them, no controller made the pod, or somebody applied it."""
    metadata = pod.metadata
    managers = metadata.managed_fields
    if policy.keep_managed_fields or not managers:
        return []
    if not any(owner.controller for owner in metadata.owner_references or ()):
        return []
    if any(manager.operation != "Update" for manager in managers):
        return []
    return [patch.put_member(("metadata",), "managedFields", [])]
