"""Carry out what is to become of requests for nodes: PodTemplates first, then the request that names them.

A crash between the two leaves PodTemplates whose names say for what they are: the next leader makes them
again, which is refused as they are there, and goes on; or, where the gang wants them no more, removes them.
One that is there without our label is somebody else's, and refused.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from labeler.contract import keys
from webhook.kube import placements, provisioning
from webhook.kube.client import Api, ApiError
from webhook.kube.informer import Informer
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement
from webhook.kube.provisioning import ProvisioningRequest, RequestTemplate
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause
from webhook.sweeper.metrics import replace
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.scaleup.steps import (
    MOST_WRITES,
    NodeAsk,
    Progress,
    Steps,
    owner_uid,
    standing_of,
    steps,
)
from webhook.sweeper.scaleup.wants import Want, members, want_of
from webhook.workloads import marks

UNREAD_SECONDS: Final = 10.0
"""After this long it is told that requests cannot be read."""
PAUSE_SECONDS: Final = 60.0
"""A gang whose request the API server refuses is not asked for again before."""
UNREAD: Final = (
    "no nodes are asked for: the sweeper cannot read ProvisioningRequests and PodTemplates; are the "
    "autoscaler's CustomResourceDefinition and the component scale-up installed?"
)

BEHIND: Final = "no nodes are asked for yet: other gangs of its namespace come first"

_ASKING: Final = frozenset({Cause.NO_ROOM, Cause.UNDECIDED})
"""Causes for which more nodes may help."""
_PASSING: Final = frozenset({Cause.HELD, Cause.CHANGED, Cause.INCOMPLETE, Cause.REFUSED, Cause.DEFECT})
"""Causes that may be over in the next pass, so that what was asked for is not withdrawn."""

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
        self._choices = choices = surroundings.settings.scale_up
        self._salt = repr((choices.provisioning_class, sorted(choices.parameters.items())))
        self._now = now
        api, changed = surroundings.api, surroundings.cache.changed.set
        label = keys.SCALE_UP_LABEL
        self._requests = Informer(
            api,
            provisioning.REQUESTS,
            ProvisioningRequest,
            on_event=lambda *_: changed(),
            label_selector=label,
        )
        self._templates = Informer(
            api, provisioning.TEMPLATES, RequestTemplate, on_event=lambda *_: changed(), label_selector=label
        )
        self._is_started = False
        self._started_at = 0.0
        self._since: dict[GangKey, float] = {}
        self._wants: dict[GangKey, tuple[frozenset[tuple[str, str]], Want]] = {}
        self._paused: dict[GangKey, tuple[float, str]] = {}
        self._made: dict[str, float] = {}
        self._removed: set[str] = set()
        self._early: set[GangKey] = set()
        self._behind: set[GangKey] = set()
        self._heard: dict[GangKey, Progress] = {}
        self.notes: Mapping[GangKey, str] = {}

    def close(self) -> None:
        """End the watches."""
        if self._is_started:
            self._requests.stop()
            self._templates.stop()

    def step(self, view: View, gangs: Sequence[PodGang], causes: Mapping[GangKey, Cause]) -> float:
        """Bring the requests to what the gangs want; returns the seconds after which it is due again.

        gangs: the most urgent first. causes: why each that waits does.
        """
        if not self._choices.is_on:
            return float("inf")
        if not self._is_started:
            self._is_started, self._started_at = True, self._pass.clock()
            self._requests.start()
            self._templates.start()
        found = self._pass.cache.current_placements()
        asking, due = self._asking(view, gangs, causes, found)
        if not (self._requests.synced and self._templates.synced):
            is_told = self._pass.clock() - self._started_at >= UNREAD_SECONDS
            self.notes = {want.gang.key: UNREAD for want in asking} if is_told else {}
            return min(due, 1.0) if asking else due
        requests = self._live()
        decided = steps(asking, self._kept(gangs, causes, found), requests, self._choices, self._now())
        self._made = {name: until for name, until in self._made.items() if until > self._pass.clock()}
        self._count(requests)
        self._tell(asking, decided)
        notes = {**dict.fromkeys(self._behind, BEHIND), **decided.told}
        for ask in decided.asks:
            notes[ask.want.gang.key] = self._ask(ask)
        done = [self._withdraw(each.metadata) for each in decided.withdrawn]
        done.append(self._clear())
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
            for each in self._live()
            if standing_of(each).state is Progress.PROVIDED
            for owner in each.metadata.owner_references
            if owner.kind == placements.KIND
        }

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
        self._paused = {key: each for key, each in self._paused.items() if key in waiting and each[0] > now}
        self._early, self._behind = set(), set()
        asked_for = {owner_uid(each) for each in self._requests.items().values()}
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
        """Placements whose requests stay: of gangs on their way to nodes, or that wait for a moment."""
        passing = {
            gang.key.placement_key
            for gang in gangs
            if gang.key not in causes or causes[gang.key] in _PASSING or gang.key in self._early
        }
        under_way = (placements.RELEASING, placements.RELEASED)
        return {
            placement.metadata.uid
            for name, placement in found.items()
            if name in passing or placement.status.state in under_way
        }

    # --- what is there --------------------------------------------------------------------------

    def _live(self) -> list[ProvisioningRequest]:
        """Our requests, but for those that are being deleted."""
        there = self._requests.items().values()
        seen = {each.metadata.uid for each in there}
        self._removed &= seen | {each.metadata.uid for each in self._templates.items().values()}
        return [
            each
            for each in there
            if not each.metadata.deletion_timestamp and each.metadata.uid not in self._removed
        ]

    def _clear(self) -> bool:
        """Remove PodTemplates of requests that are gone; returns whether none is left."""
        live = {each.metadata.name for each in self._live()} | self._made.keys()
        orphans = [
            each.metadata
            for each in self._templates.items().values()
            if each.metadata.labels.get(keys.SCALE_UP_LABEL, "") not in live
            and each.metadata.uid not in self._removed
        ]
        done = [self._remove(each, provisioning.delete_template) for each in orphans[: 4 * MOST_WRITES]]
        return all(done) and len(orphans) <= len(done)

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

    # --- writes ---------------------------------------------------------------------------------

    def _ask(self, ask: NodeAsk) -> str:
        """Make a request; returns what the gang is told."""
        want, key = ask.want, ask.want.gang.key
        name = want.name(ask.attempt, self._salt)
        told = f"nodes are asked for by ProvisioningRequest {name}"
        if key in self._paused:
            return self._paused[key][1]
        if name in self._made or not self._pass.may_act():
            return told
        self._pass.beat()
        try:
            self._write(want, name, want.labels(name, ask.attempt))
        except ApiError as error:
            logger.warning("ask_failed gang=%s error=%r", key, str(error))
            self._pass.metrics.errors.labels(str(error.status)).inc()
            told = f"nodes cannot be asked for: {error}"
            self._paused[key] = self._pass.clock() + (1.0 if error.is_transient else PAUSE_SECONDS), told
            return told
        self._made[name] = self._pass.clock() + PAUSE_SECONDS
        self._pass.metrics.scale_ups.labels(Progress.ASKED).inc()
        logger.info("asks_for_nodes gang=%s request=%s pods=%d attempt=%d", key, name, want.pods, ask.attempt)
        self._pass.announcer.say(want.gang.gated[0], "NodesRequested", told, warning=False)
        return told

    def _write(self, want: Want, name: str, labels: dict[str, str]) -> None:
        """The PodTemplates, then the request. Raises ApiError."""
        api, owner = self._pass.api, want.owner.metadata
        reference = {
            "apiVersion": placements.GROUP_VERSION,
            "kind": placements.KIND,
            "name": owner.name,
            "uid": owner.uid,
        }
        common = {"namespace": owner.namespace, "labels": labels, "ownerReferences": [reference]}
        sets = [(f"{name}-{number}", kind.count) for number, kind in enumerate(want.kinds)]
        for (template, _), kind in zip(sets, want.kinds, strict=True):
            provisioning.create_template(api, {**common, "name": template}, kind.template)
        provisioning.create_request(
            api, {**common, "name": name}, self._choices.provisioning_class, sets, self._choices.parameters
        )

    def _withdraw(self, metadata: Metadata) -> bool:
        logger.info("withdraws request=%s/%s", metadata.namespace, metadata.name)
        self._made.pop(metadata.name, None)
        return self._remove(metadata, provisioning.delete_request)

    def _remove(self, metadata: Metadata, delete: Callable[[Api, Metadata], None]) -> bool:
        """Delete it; returns whether that is done."""
        if not self._pass.may_act():
            return False
        self._pass.beat()
        try:
            delete(self._pass.api, metadata)
        except ApiError as error:
            if error.status not in (404, 409):  # gone, or another by now
                logger.warning(
                    "removal_failed object=%s/%s error=%r", metadata.namespace, metadata.name, str(error)
                )
                return False
        self._removed.add(metadata.uid)
        return True
