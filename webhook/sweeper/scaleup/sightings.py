"""Since when requests are as they are, by our own clock: an autoscaler's may be wrong by any time. Pure.

A leader that has just begun knows when the API server took a request, and by what the autoscaler says of the
time it believes no more than lies between that and now. So it asks again late, or at most once a pause.
"""

from collections.abc import Collection

from webhook.kube.provisioning import ProvisioningRequest
from webhook.kube.times import since_1970
from webhook.sweeper.scaleup.steps import Progress, standing_of


class Sightings:
    """Remembers when each request was first seen as it is."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Progress, float]] = {}

    def saw(self, requests: Collection[ProvisioningRequest], now: float) -> None:
        """Take in all requests as they are now (seconds since 1970); the others are forgotten."""
        before, self._seen = self._seen, {}
        for each in requests:
            uid, standing = each.metadata.uid, standing_of(each)
            known = before.get(uid)
            if known is None:
                taken = since_1970(each.metadata.creation_timestamp) or 0.0
                known = standing.state, min(now, max(taken, min(now, standing.since)))
            elif known[0] is not standing.state:
                known = standing.state, now
            self._seen[uid] = known[0], min(now, known[1])  # our own clock may have been ahead

    @property
    def since(self) -> dict[str, float]:
        """By uid, since when (seconds since 1970)."""
        return {uid: at for uid, (_, at) in self._seen.items()}
