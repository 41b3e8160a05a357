"""Asks the kubelet and the API server until it is certain whose devices are asked for, and which they are.

No state matters: every answer is made from what both report at that moment, so that the
allocator and the kubelet may be restarted between any two calls. The kubelet waits meanwhile, hence briefly.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from labeler.allocator import events
from labeler.allocator.choose import (
    Cards,
    by_name,
    confirmed_shares,
    planned_devices,
    planned_shares,
    promised,
)
from labeler.allocator.identify import Ambiguous, Nobody, Served, identify, is_planned, oldest_plan
from labeler.allocator.listing import ListingError
from labeler.allocator.masks import HIERARCHY
from labeler.allocator.settled_pods import SettledPods
from labeler.allocator.values import Listing, LocalContainer, LocalPod, PodName, Refusal
from labeler.api import NodeApiError
from labeler.contract.annotations import SlotCard
from labeler.contract.event_reasons import EventReason

log: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.2
_REMEMBERED: Final = 500
_MOST_EVENTS: Final = 5

PLANNED: Final = "planned"
DEFAULT: Final = "default"
OLDEST: Final = "oldest"


class ListsPods(Protocol):
    """The kubelet's word."""

    def now(self) -> Listing:
        """Its pods and their devices. Raises ListingError."""

    def lists_the_living_alone(self) -> bool:
        """Whether pods that have ended are left out. Raises ListingError."""


class KnowsPods(Protocol):
    """The API server's word."""

    def now(self) -> tuple[LocalPod, ...]:
        """The pods of this node. Raises NodeApiError."""


@dataclass(frozen=True)
class Patience:
    """How long the kubelet waits for an answer at most, in seconds.

    for_plan: for the annotations of a pod that has none. for_certainty: while several pods or none fit, or
    one of the two does not answer.
    """

    for_plan: float = 0.5
    for_certainty: float = 3.0


@dataclass(frozen=True)
class Grant:
    """What a container is given.

    pod, container: None where they are not known, which is so for a default only. shares: the planned cards
    with their tiles; () for a default. listing: what the kubelet listed then.
    """

    how: str
    pod: LocalPod | None = None
    container: LocalContainer | None = None
    shares: tuple[SlotCard, ...] = ()
    listing: Listing | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class _Found:
    """The pod that is served (None: one without a plan), and what both reported."""

    how: str
    served: Served | None
    listing: Listing
    pods: Mapping[PodName, LocalPod]


Default = Callable[[Mapping[str, int]], list[str]]
"""Chooses devices for a pod without a plan, given how many of each card are promised to others."""


class Resolver:
    """Answers for one node. Several threads may ask."""

    def __init__(
        self,
        listing: ListsPods,
        pods: KnowsPods,
        warner: events.Warns,
        patience: Patience | None = None,
        default_when_unsure: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """default_when_unsure: give any devices where several pods fit, instead of refusing all of them."""
        self._listing = listing
        self._pods = pods
        self._warner = warner
        self._patience = patience or Patience()
        self._default_when_unsure = default_when_unsure
        self._sleep = sleep
        self._clock = clock
        self._without_plan: dict[str, None] = {}
        self._settled_pods = SettledPods()

    def prefer(
        self,
        resource: str,
        size: int,
        available: Iterable[str],
        must_include: Iterable[str],
        cards: Cards,
        default: Default,
    ) -> tuple[list[str], Grant]:
        """The devices that the container being served should get. Raises Refusal."""
        with self._settled_pods.somebody_asks():
            found = self._who(resource, size)
        if found.served is None or found.how == DEFAULT:
            return default(promised(found.pods.values(), found.listing, cards, resource)), _by_default(found)
        pod = found.served.pod
        with events.reporting_refusals(self._warner, pod):
            # Whichever of them it is gets the same (see planned_shares), or one is refused and so are all.
            (container, shares), *_ = [
                (container, planned_shares(pod, kind, container, resource, cards))
                for kind, container in found.served.containers
            ]
            _check_hierarchies([each for _, each in found.served.containers], shares)
            labels = [cards[share.card].label for share in shares]
            grant = Grant(found.how, pod, container, shares, found.listing)
            return planned_devices(labels, available, must_include), grant

    def confirm(self, resource: str, devices: Sequence[str], cards: Cards) -> Grant:
        """What the container gets that the kubelet gives these devices. Raises Refusal if they are wrong."""
        with self._settled_pods.somebody_asks():
            found = self._who(resource, len(devices))
        if found.served is None or found.how == DEFAULT:
            return _by_default(found)
        pod = found.served.pod
        with events.reporting_refusals(self._warner, pod):
            first: Refusal | None = None
            for kind, container in found.served.containers:
                try:
                    shares = confirmed_shares(pod, kind, container, resource, cards, devices)
                    _check_hierarchies([each for _, each in found.served.containers], shares)
                    return Grant(found.how, pod, container, shares)
                except Refusal as refusal:
                    first = first or refusal
            assert first is not None, "a served pod has a container that is served"
            raise first

    def still_asks(self, grant: Grant) -> bool:
        """Whether the container of an answer is still the one that is served: the kubelet's list is the same.

        It changes when a container has its devices, when its pod is refused, and when the next pod comes.
        """
        try:
            return self._listing.now() == grant.listing
        except ListingError:
            return False

    def observe(self) -> None:
        """Note which pods are there while nobody asks for devices; to be called every few seconds.

        A pod that is listed twice so is admitted, and not one that asks next, for as long as it stays.
        """
        try:
            listed = self._listing.now()
        except ListingError:
            return
        self._settled_pods.update_while_idle(listed)

    def restarted(self) -> None:
        """Another kubelet may be there."""
        self._settled_pods.kubelet_restarted()

    def _who(self, resource: str, size: int) -> _Found:
        """The pod that is served. Raises Refusal when that stays uncertain."""
        deadline = self._clock() + self._patience.for_certainty
        plan_deadline = self._clock() + self._patience.for_plan
        pause = FIRST_PAUSE
        while True:
            try:
                listing = self._listing.now()
                self._settled_pods.update(listing)
                pods = by_name(self._pods.now())  # after the list, so that nobody in it is too new
            except (ListingError, NodeApiError) as error:
                if self._clock() >= deadline:
                    raise Refusal(f"it cannot be told which pod asks for {resource}: {error}") from error
            else:
                unknown = self._settled_pods.among(listing, pods)
                asking = {key: devices for key, devices in listing.items() if key not in unknown}
                found = identify(resource, size, asking, pods)
                if isinstance(found, Served):
                    if is_planned(found.pod):
                        return _Found(PLANNED, found, listing, pods)
                    if self._clock() >= plan_deadline or found.pod.uid in self._without_plan:
                        self._note_default(found.pod, resource)
                        return _Found(DEFAULT, found, listing, pods)
                elif self._clock() >= deadline:
                    return self._unsure(resource, size, found, listing, pods)
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _note_default(self, pod: LocalPod, resource: str) -> None:
        """Warn once a pod; its further containers need not wait again."""
        if pod.uid in self._without_plan:
            return
        self._without_plan[pod.uid] = None
        while len(self._without_plan) > _REMEMBERED:
            self._without_plan.pop(next(iter(self._without_plan)))
        text = f"no annotation names cards for it, so it gets any devices of {resource}"
        log.warning("pod %s: %s", pod, text)
        self._warner.warn(pod, EventReason.CARDS_BY_DEFAULT, text)

    def _unsure(
        self,
        resource: str,
        size: int,
        found: Ambiguous | Nobody,
        listing: Listing,
        pods: Mapping[PodName, LocalPod],
    ) -> _Found:
        """Several pods fit, or none: old kubelets' guess, a default where no plan is at stake, or no."""
        if isinstance(found, Nobody):
            raise Refusal(
                f"no pod of this node asks for {size} {resource} and lacks them; if the pod was just "
                "deleted or has other devices of it already, nothing is lost"
            )
        if not found.candidates or found.is_unmanaged:
            # Pods that the API server does not know are the kubelet's own (static), and have no plan.
            return _Found(DEFAULT, None, listing, pods)
        oldest = oldest_plan(found) if self._kubelet_is_old() else None
        if oldest is not None:
            text = (
                f"{len(found.candidates)} pods may be the one asking for {resource}; this kubelet is older "
                "than 1.34 and does not tell, so the one whose cards were chosen first is taken for it"
            )
            log.warning("pod %s: %s", oldest.pod, text)
            self._warner.warn(oldest.pod, EventReason.CARDS_GUESSED, text)
            return _Found(OLDEST, oldest, listing, pods)
        names = [str(each.pod) for each in found.candidates] + ["/".join(key) for key in found.unknown]
        text = f"any of {', '.join(sorted(names))} may be the one asking for {size} {resource}"
        if self._default_when_unsure:
            log.warning("%s: it gets any devices", text)
            for served in found.candidates[:_MOST_EVENTS]:
                self._warner.warn(served.pod, EventReason.CARDS_BY_DEFAULT, f"{text}: it gets any devices")
            return _Found(DEFAULT, None, listing, pods)
        for served in found.candidates[:_MOST_EVENTS]:
            self._warner.warn(served.pod, EventReason.CARDS_REFUSED, f"{text}: none of them is guessed")
        raise Refusal(f"{text}: none of them is guessed; recreate the pod")

    def _kubelet_is_old(self) -> bool:
        try:
            return not self._listing.lists_the_living_alone()
        except ListingError:
            return False


def _check_hierarchies(containers: Sequence[LocalContainer], shares: Sequence[SlotCard]) -> None:
    """One of these gets the shares: a mask of tiles must be right for whichever it is. Raises Refusal."""
    layouts = {(each.hierarchy, each.masked) for each in containers}
    if len(layouts) > 1 and any(share.tiles for share in shares):
        raise Refusal(
            f"it cannot be told which of {', '.join(each.name for each in containers)} is asking, and their "
            f"{HIERARCHY} differ, so that a mask of tiles could mean others than were chosen"
        )


def _by_default(found: _Found) -> Grant:
    if found.served is None:
        return Grant(DEFAULT, listing=found.listing)
    return Grant(DEFAULT, found.served.pod, found.served.containers[0][1], listing=found.listing)
