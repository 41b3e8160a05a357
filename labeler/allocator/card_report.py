"""Reports on this machine's Node which cards are in use by whom: the sweeper must know it to plan.

The report says which cards are handed out, by which resource and to how many containers (none while a card
is out of use); which cards pods have that were given without a plan; and whether the allocator knows which
pod the kubelet asks for, so that the sweeper need not release pods one by one. Each report is made from the
kubelet and the API server, so that nothing is lost with this process.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final
from urllib.parse import quote

from labeler.allocator.choose import by_name
from labeler.allocator.identify import is_planned
from labeler.allocator.listing import ListingError
from labeler.allocator.resolve import KnowsPods, ListsPods
from labeler.allocator.values import Listing, LocalCard, LocalPod, card_of
from labeler.api import ApiClient, NodeApiError
from labeler.contract import keys
from labeler.contract.offers import CardOffer, encode_offers, encode_unmanaged

log: Final = logging.getLogger(__name__)

SETTLED_SECONDS: Final = 3.0
"""How long after an answer the kubelet may take to list the devices."""
AGAIN_SECONDS: Final = 300.0
"""After so long all of it is reported again: a Node may have been recreated. Equal values are not written."""
_TRY_SECONDS: Final = 5.0
_CARD: Final = re.compile(r"card([0-9]{1,9})")


class CardReporter:
    """Reports for one node; `report` is to be called every second."""

    def __init__(
        self,
        listing: ListsPods,
        pods: KnowsPods,
        client: ApiClient,
        node: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listing = listing
        self._pods = pods
        self._client = client
        self._path = f"/api/v1/nodes/{quote(node, safe='')}?fieldManager=topogate-allocator"
        self._clock = clock
        self._reported: dict[str, str] = {}
        self._identifies = False
        self._again_at = self._look_until = clock()
        self._try_at = float("-inf")
        self._problem = ""

    def changed(self) -> None:
        """Devices were given to a container: who has what may have changed."""
        self._look_until = self._clock() + SETTLED_SECONDS

    def kubelet_began(self) -> None:
        """A kubelet begins to listen, perhaps an older one: what the last one could do does not count."""
        self._identifies = False
        self._try_at = float("-inf")
        self.changed()

    def report(self, cards: Collection[LocalCard], shares: int, *, serves: bool) -> None:
        """Report what has changed; shares: containers that may share a healthy card.

        serves: whether the kubelet asks this allocator for devices, and no other plugin.
        """
        now = self._clock()
        if now < self._try_at:
            return
        again = now >= self._again_at
        text = {keys.OFFERED_CARDS_ANNOTATION: encode_offers(offers(cards, shares))}
        trouble: ListingError | NodeApiError | None = None
        try:
            if again or now < self._look_until:
                text |= self._looked(cards)
        except (ListingError, NodeApiError) as error:
            trouble = error  # what needs no answer is reported all the same
        text |= self._identification(serves=serves)
        trouble = self._report(text, again=again and trouble is None) or trouble
        if trouble is not None:
            self._try_later(now, str(trouble))
            return
        self._problem = ""
        if again:
            self._again_at = now + AGAIN_SECONDS

    def _report(self, text: Mapping[str, str], *, again: bool) -> NodeApiError | None:
        """Write what differs, or all of it again; returns why it could not be written."""
        if not again and text.items() <= self._reported.items():
            return None
        try:
            self._write(text)
        except NodeApiError as error:
            return error
        self._reported |= text
        return None

    def _try_later(self, now: float, problem: str) -> None:
        self._try_at = now + _TRY_SECONDS
        self._look_until = max(self._look_until, self._try_at + SETTLED_SECONDS)
        if problem != self._problem:
            self._problem = problem
            log.warning("cannot write the cards of the Node, retrying: %s", problem)

    def _looked(self, cards: Collection[LocalCard]) -> dict[str, str]:
        """What kubelet and API server report now. Raises ListingError, NodeApiError."""
        listed = unmanaged(self._listing.now(), self._pods.now(), {card.resource for card in cards})
        self._identifies = self._listing.lists_the_living_alone()
        return {keys.UNPLANNED_CARDS_ANNOTATION: encode_unmanaged(listed)}

    def _identification(self, *, serves: bool) -> dict[str, str]:
        return {keys.IDENTIFIES_PODS_ANNOTATION: keys.IDENTIFIED if serves and self._identifies else ""}

    def withdraw(self) -> None:
        """Report, as the allocator ends, that it no longer serves: the next plugin may guess."""
        try:
            self._write({keys.IDENTIFIES_PODS_ANNOTATION: ""})
        except NodeApiError as error:
            log.warning("cannot write on the Node that this allocator no longer serves its cards: %s", error)

    def _write(self, text: Mapping[str, str]) -> None:
        # Without cards to offer the list is empty; the other annotations count as absent.
        stays = keys.OFFERED_CARDS_ANNOTATION
        notes = {key: value if value or key == stays else None for key, value in text.items()}
        body = {"metadata": {"annotations": notes}}
        self._client.call(
            "PATCH",
            self._path,
            json.dumps(body).encode(),
            {"Content-Type": "application/merge-patch+json", "Accept": "application/json"},
        )


def offers(cards: Iterable[LocalCard], shares: int) -> dict[int, CardOffer]:
    """Each card as it is handed out; one that is out of use to nobody (pure)."""
    return {card.number: CardOffer(card.resource, 0 if card.problem else shares) for card in cards}


def unmanaged(
    listing: Listing, pods: Iterable[LocalPod], resources: Iterable[str]
) -> dict[str, tuple[int, ...]]:
    """The cards of the pods for which nobody chose any, by uid, in the order of their containers (pure)."""
    known, wanted = by_name(pods), frozenset(resources)
    found: dict[str, tuple[int, ...]] = {}
    for key, listed in listing.items():
        pod = known.get(key)
        if pod is None or pod.over or is_planned(pod):
            continue
        devices = (
            device
            for container in (*pod.containers, *pod.sidecars)
            for resource, of_resource in listed.get(container.name, {}).items()
            if resource in wanted
            for device in sorted(of_resource)
        )
        # Another plugin's devices, of before this allocator, may have other names.
        cards = tuple(int(match[1]) for device in devices if (match := _CARD.fullmatch(card_of(device))))
        if cards:
            found[pod.uid] = cards
    return found
