"""Which gangs ask an autoscaler for nodes in a pass, what they are told of it, and what they have booked."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from webhook.kube import placements
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.kube.provisioning import CHECK_CAPACITY, ProvisioningRequest
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.metrics import replace
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.scaleup.new_nodes import Booking
from webhook.sweeper.scaleup.sightings import Sightings
from webhook.sweeper.scaleup.steps import Progress, Steps, owner_uid, standing_of, steps
from webhook.sweeper.scaleup.wants import Want, members, want_of
from webhook.sweeper.scaleup.writer import RequestWriter
from webhook.workloads import marks

UNREAD_SECONDS: Final = 10.0
"""After this long it is told that requests cannot be read."""
UNREAD: Final = (
    "no nodes are asked for: the sweeper cannot read ProvisioningRequests and PodTemplates; are the "
    "autoscaler's CustomResourceDefinition and the component scale-up installed?"
)

BEHIND: Final = "no nodes are asked for yet: other gangs of its namespace come first"

_ASKING: Final = frozenset({Cause.NO_ROOM, Cause.UNDECIDED})
"""Causes for which more nodes may help."""
_PASSING: Final = frozenset({Cause.RESERVED, Cause.CHANGED, Cause.INCOMPLETE, Cause.REFUSED, Cause.DEFECT})
"""Causes that may be over in the next pass, so that what was asked for is not withdrawn."""

_COMING: Final = frozenset({Progress.ASKED, Progress.PROVIDED})
"""While a request is in one of these, new nodes may be for it."""

_NEWS: Final = {
    Progress.DELAYED: ("NodesDelayed", True),
    Progress.PROVIDED: ("NodesProvided", False),
    Progress.FAILED: ("NodesRefused", True),
    Progress.EXPIRED: ("NodesExpired", True),
    Progress.REVOKED: ("NodesRevoked", True),
}
"""Events: the reason, and whether it is a warning."""

logger = logging.getLogger(__name__)


class Asker:
    """Asks for nodes for gangs that wait for room. Does nothing where no class of provisioning is chosen."""

    def __init__(self, surroundings: Pass, now: Callable[[], float] = time.time) -> None:
        """now: seconds since 1970."""
        self._pass = surroundings
        self._choices = surroundings.settings.scale_up
        self._now = now
        self._writer = RequestWriter(surroundings)
        self._sightings = Sightings()
        self._is_started = False
        self._started_at = 0.0
        self._since: dict[GangKey, float] = {}
        self._wants: dict[GangKey, tuple[frozenset[tuple[str, str]], Want]] = {}
        self._early: set[GangKey] = set()
        self._behind: set[GangKey] = set()
        self._heard: dict[GangKey, Progress] = {}
        self.notes: Mapping[GangKey, str] = {}

    def close(self) -> None:
        """End the watches."""
        if self._is_started:
            self._writer.stop()

    def step(self, view: View, gangs: Sequence[PodGang], causes: Mapping[GangKey, Cause]) -> float:
        """Bring the requests to what the gangs want; returns the seconds after which it is due again.

        gangs: the most urgent first. causes: why each that waits does.
        """
        if not self._choices.is_on:
            return float("inf")
        if not self._is_started:
            self._is_started, self._started_at = True, self._pass.clock()
            self._writer.start()
        found = self._pass.cache.current_placements()
        asking, due = self._asking(view, gangs, causes, found)
        if not self._writer.synced:
            is_told = self._pass.clock() - self._started_at >= UNREAD_SECONDS
            self.notes = {want.gang.key: UNREAD for want in asking} if is_told else {}
            return min(due, 1.0) if asking else due
        requests, now = self._writer.live(), self._now()
        self._sightings.saw(requests, now)
        kept, placed = self._kept(gangs, causes, found), _placed(found)
        decided = steps(asking, kept | placed, requests, self._choices, now, self._sightings.since, placed)
        self._count(requests)
        self._tell(asking, decided)
        notes = {**dict.fromkeys(self._behind, BEHIND), **decided.told}
        for ask in decided.asks:
            notes[ask.want.gang.key] = self._writer.ask(ask)
        done = [self._writer.withdraw(each.metadata) for each in decided.withdrawn]
        done.append(self._writer.clear())
        self.notes = notes
        return min(due, decided.due_seconds, float("inf") if all(done) else 1.0)

    def provided(self) -> dict[str, dict[str, str]]:
        """By Placement ("namespace/name"), what to write on the pods of its gang when they are released.

        So they use the nodes that were provided for them. Gangs without such nodes are not named.
        """
        if not self._choices.is_on or not self._is_started:
            return {}
        return {
            f"{each.metadata.namespace}/{owner.name}": {
                marks.CONSUMED_REQUEST: each.metadata.name,
                marks.PROVISIONING_CLASS: each.spec.provisioning_class_name,
            }
            for each in self._writer.live()
            if standing_of(each).state is Progress.PROVIDED
            for owner in each.metadata.owner_references
            if owner.kind == placements.KIND
        }

    def bookings(self) -> list[Booking]:
        """The requests that an autoscaler has heard and may yet make nodes for, or has."""
        if not self._choices.is_on or not self._is_started:
            return []
        return [
            Booking(
                f"{each.metadata.namespace}/{owner.name}",
                each.metadata.uid,
                each.metadata.creation_timestamp or "",
                each.pods,
                standing.state is Progress.PROVIDED,
                each.spec.provisioning_class_name != CHECK_CAPACITY,
            )
            for each in self._writer.live()
            if (standing := standing_of(each)).state in _COMING and standing.is_heard
            for owner in each.metadata.owner_references
            if owner.kind == placements.KIND
        ]

    # --- what is wanted -------------------------------------------------------------------------

    def _asking(
        self,
        view: View,
        gangs: Sequence[PodGang],
        causes: Mapping[GangKey, Cause],
        found: Mapping[str, Placement],
    ) -> tuple[list[Want], float]:
        """What gangs want that have waited long enough, and when the next one has.

        Of gangs without a request no more are looked at than their namespace may have requests: one of many
        thousand gangs must not hold up a pass.
        """
        now, due = self._pass.clock(), float("inf")
        wants: list[Want] = []
        waiting = {gang.key for gang in gangs if causes.get(gang.key) in _ASKING}
        self._since = {key: self._since.get(key, now) for key in waiting}
        self._wants = {key: known for key, known in self._wants.items() if key in waiting}
        self._writer.forget(waiting)
        self._early, self._behind = set(), set()
        asked_for = {owner_uid(each) for each in self._writer.requests.items().values()}
        first: Counter[str] = Counter()
        for gang in gangs:
            owner = found.get(gang.key.placement_key)
            if gang.key not in waiting or owner is None:
                continue
            left = self._since[gang.key] + self._choices.after_seconds - now
            if left > 0:
                self._early.add(gang.key)
                due = min(due, left)
                continue
            pods = members(gang, view)
            if owner.metadata.uid not in asked_for and len(pods) <= self._choices.pods:
                first[gang.key.namespace] += 1
                if first[gang.key.namespace] > self._choices.requests:
                    self._behind.add(gang.key)
                    continue
            if pods:
                wants.append(self._want(gang, pods, owner))
        return wants, due

    def _want(self, gang: PodGang, pods: Sequence[Pod], owner: Placement) -> Want:
        """The same as before where nothing of the pods has changed."""
        of = frozenset((pod.metadata.uid or pod.metadata.name, pod.metadata.resource_version) for pod in pods)
        known = self._wants.get(gang.key)
        if known is None or known[0] != of or known[1].owner.metadata.uid != owner.metadata.uid:
            known = self._wants[gang.key] = of, want_of(gang, pods, owner)
        return known[1]

    def _kept(
        self, gangs: Sequence[PodGang], causes: Mapping[GangKey, Cause], found: Mapping[str, Placement]
    ) -> set[str]:
        """Placements whose requests stay although their gangs ask for none now: these wait for a moment."""
        passing = {
            gang.key.placement_key
            for gang in gangs
            if gang.key not in causes or causes[gang.key] in _PASSING or gang.key in self._early
        }
        return {placement.metadata.uid for name, placement in found.items() if name in passing}

    # --- what is told ---------------------------------------------------------------------------

    def _tell(self, asking: Sequence[Want], decided: Steps) -> None:
        """Say once what an autoscaler has said."""
        heard: dict[GangKey, Progress] = {}
        for want in asking:
            key = want.gang.key
            standing = decided.standings.get(key)
            if standing is None:
                continue
            heard[key] = standing.state
            if standing.state is not self._heard.get(key, Progress.ASKED):
                self._pass.metrics.scale_ups.labels(standing.state).inc()
                reason, is_warning = _NEWS[standing.state]
                logger.info("nodes_%s gang=%s said=%r", standing.state, key, standing.message)
                self._pass.announcer.say(
                    want.gang.gated[0], reason, decided.told.get(key, ""), warning=is_warning
                )
        self._heard = heard

    def _count(self, requests: Sequence[ProvisioningRequest]) -> None:
        states = Counter((standing_of(each).state,) for each in requests)
        replace(self._pass.metrics.scale_up_requests, {(state,): states[state,] for state in Progress})


def _placed(found: Mapping[str, Placement]) -> set[str]:
    """uids of the Placements of gangs that are on their way to nodes."""
    under_way = (placements.RELEASING, placements.RELEASED)
    return {each.metadata.uid for each in found.values() if each.status.state in under_way}
