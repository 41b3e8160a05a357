"""What `topogate doctor` says of scale-up: does any autoscaler answer? Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from webhook.extensions.scale_up.attempts import SILENT_SECONDS
from webhook.extensions.scale_up.provisioning import REQUESTS, ProvisioningRequest
from webhook.sweeper.extension import DoctorCheck, DoctorInput, DoctorLine
from webhook.text import sentence_list

_NAMED: Final = 3
"""Requests that a line names."""


def examine(given: DoctorInput) -> Iterator[DoctorLine]:
    """Whether requests wait that no autoscaler has said anything of."""
    name = given.settings.scale_up.provisioning_class
    silent = sorted(
        f"{each.metadata.namespace}/{each.metadata.name}"
        for each in given.objects
        if _is_unanswered(each, given.now)
    )
    if silent:
        more = [f"{len(silent) - _NAMED} more"] if len(silent) > _NAMED else []
        names = sentence_list([*silent[:_NAMED], *more])
        yield DoctorLine(
            f"requests for nodes of which no autoscaler has said anything: {len(silent)} ({names})",
            f"Is there one that serves the class {name}? The Kubernetes cluster-autoscaler needs "
            "--enable-provisioning-requests; Karpenter serves no ProvisioningRequests.",
        )
    else:
        yield DoctorLine(f"nodes are asked for by the class {name}; requests now: {len(given.objects)}")


def _is_unanswered(request: ProvisioningRequest, now: datetime) -> bool:
    if request.status.conditions:
        return False
    created = datetime.fromisoformat(request.metadata.creation_timestamp or "")
    return now - created >= timedelta(seconds=SILENT_SECONDS)


CHECK: Final = DoctorCheck(
    "scale-up",
    off="no nodes are asked for: scale-up is off",
    component="scale-up",
    served_by="the autoscaler",
    reads=REQUESTS,
    examine=examine,
)
