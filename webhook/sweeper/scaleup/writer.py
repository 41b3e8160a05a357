"""Requests for nodes in the API server: our copy of them, and how one is made and removed.

PodTemplates come first, then the request that names them. A crash between the two leaves PodTemplates whose
names say for what they are: the next leader makes them again, which is refused as they are there, and goes
on; or, where the gang wants them no more, removes them. One that is there without our label is somebody
else's, and refused.
"""

import logging
from collections.abc import Callable, Collection
from typing import Final

from labeler.contract import keys
from webhook.kube import placements, provisioning
from webhook.kube.client import Api, ApiError
from webhook.kube.informer import Informer
from webhook.kube.objects import Metadata
from webhook.kube.provisioning import ProvisioningRequest, RequestTemplate
from webhook.sweeper.context import Pass
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.scaleup.steps import MOST_WRITES, NodeAsk, Progress
from webhook.sweeper.scaleup.wants import Want

PAUSE_SECONDS: Final = 60.0
"""A gang whose request the API server refuses is not asked for again before."""

logger = logging.getLogger(__name__)


class RequestWriter:
    """What is remembered are writes that the watch is yet to show, and refusals: losing them costs a try."""

    def __init__(self, surroundings: Pass) -> None:
        self._pass = surroundings
        self._choices = choices = surroundings.settings.scale_up
        self._salt = repr((choices.provisioning_class, sorted(choices.parameters.items())))
        api, changed = surroundings.api, surroundings.cache.changed.set
        label = keys.SCALE_UP_LABEL
        self.requests = Informer(
            api,
            provisioning.REQUESTS,
            ProvisioningRequest,
            on_event=lambda *_: changed(),
            label_selector=label,
        )
        self.templates = Informer(
            api, provisioning.TEMPLATES, RequestTemplate, on_event=lambda *_: changed(), label_selector=label
        )
        self._paused: dict[GangKey, tuple[float, str]] = {}
        self._made: dict[str, float] = {}
        self._removed: set[str] = set()

    def start(self) -> None:
        """Begin to watch."""
        self.requests.start()
        self.templates.start()

    def stop(self) -> None:
        """End the watches."""
        self.requests.stop()
        self.templates.stop()

    @property
    def synced(self) -> bool:
        """Whether both have been read."""
        return self.requests.synced and self.templates.synced

    def forget(self, waiting: Collection[GangKey]) -> None:
        """What is over, and what is remembered of other gangs than these, counts no more."""
        now = self._pass.clock()
        self._paused = {key: each for key, each in self._paused.items() if key in waiting and each[0] > now}
        self._made = {name: until for name, until in self._made.items() if until > now}

    def live(self) -> list[ProvisioningRequest]:
        """Our requests, but for those that are being deleted."""
        there = self.requests.items().values()
        seen = {each.metadata.uid for each in there}
        self._removed &= seen | {each.metadata.uid for each in self.templates.items().values()}
        return [
            each
            for each in there
            if not each.metadata.deletion_timestamp and each.metadata.uid not in self._removed
        ]

    def ask(self, ask: NodeAsk) -> str:
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

    def withdraw(self, metadata: Metadata) -> bool:
        """Remove a request; returns whether that is done."""
        logger.info("withdraws request=%s/%s", metadata.namespace, metadata.name)
        self._made.pop(metadata.name, None)
        return self._remove(metadata, provisioning.delete_request)

    def clear(self) -> bool:
        """Remove PodTemplates of requests that are gone; returns whether none is left."""
        live = {each.metadata.name for each in self.live()} | self._made.keys()
        orphans = [
            each.metadata
            for each in self.templates.items().values()
            if each.metadata.labels.get(keys.SCALE_UP_LABEL, "") not in live
            and each.metadata.uid not in self._removed
        ]
        done = [self._remove(each, provisioning.delete_template) for each in orphans[: 4 * MOST_WRITES]]
        return all(done) and len(orphans) <= len(done)

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
