"""Which devices a container gets: those that its pod's annotations name, else a default. Pure.

Slots, the order of cards, and devices that must be included are read as Intel's device plugin 0.24 to 0.32
reads them. Other than there, a slot belongs to the container of its place (the plugin counted the slots that
are not empty, and so gave tiles to the wrong container), and what cannot be given is refused: the kubelet
would put any other device in its place.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from labeler.allocator.identify import Kind, is_planned
from labeler.allocator.values import Listing, LocalCard, LocalContainer, LocalPod, PodName, Refusal, card_of
from labeler.contract import keys
from labeler.contract.annotations import Allocation, Slot, SlotCard, decode_allocation
from labeler.contract.errors import ContractError

Cards = Mapping[int, LocalCard]
"""The cards of this node by their numbers."""


def planned_shares(
    pod: LocalPod, kind: Kind, container: LocalContainer, resource: str, cards: Cards
) -> tuple[SlotCard, ...]:
    """The cards of a resource that the annotations give a container, in their order.

    Annotations have slots for regular containers alone. An init container gets cards of the first container
    that asks for the resource, because the kubelet hands its devices on to that one; a sidecar gets cards of
    its pod's containers, so that it runs on no card of another pod. Where one card is all there is, several
    shares of it count. Raises Refusal.
    """
    size = container.wants(resource)
    own = _own_shares(pod, kind, container, resource, cards)
    if kind is Kind.REGULAR:
        if len(own) != size:
            raise Refusal(
                f"container {container.name} asks for {size} {resource}, but annotation "
                f"{keys.GAS_CARDS_ANNOTATION} names {_names(own) or 'no card'} of that resource for it"
            )
        return own
    if size <= len(own):
        return own[:size]
    every = _own_shares(pod, Kind.SIDECAR, container, resource, cards)
    if len(every) == 1:
        return every * size
    reason = (
        "the kubelet hands its devices on to the next containers as chance will have it"
        if kind is Kind.INIT
        else "annotations name no cards of its own for it"
    )
    raise Refusal(
        f"{kind.value} {container.name} asks for {size} {resource} and can have {len(own)}: {reason}; "
        "let it ask for as many as the first container, or for none"
    )


def confirmed_shares(
    pod: LocalPod, kind: Kind, container: LocalContainer, resource: str, cards: Cards, devices: Sequence[str]
) -> tuple[SlotCard, ...]:
    """The same for devices that the kubelet has settled on. Raises Refusal where they are of other cards.

    Before a container the kubelet hands out again what an init container had, without asking which: there any
    cards of the pod's own will do.
    """
    if kind is Kind.REGULAR:
        planned = planned_shares(pod, kind, container, resource, cards)
        check_devices([cards[share.card].label for share in planned], devices)
        return planned
    every = _own_shares(pod, Kind.SIDECAR, container, resource, cards)
    shares = every if len(every) == 1 else _own_shares(pod, kind, container, resource, cards)
    own = {cards[share.card].label: share for share in shares}
    given = {card_of(device) for device in devices}
    if not given <= own.keys() or (len(given) < len(devices) and len(own) > 1):
        check_devices(sorted(own), devices)
    return tuple(own[card] for card in sorted(given))


def _own_shares(
    pod: LocalPod, kind: Kind, container: LocalContainer, resource: str, cards: Cards
) -> tuple[SlotCard, ...]:
    """What a container's devices are chosen from."""
    slots = _slots(pod, resource, cards)
    if kind is Kind.REGULAR:
        return slots[pod.containers.index(container)]
    if kind is Kind.INIT:
        return next((slots[i] for i, each in enumerate(pod.containers) if each.wants(resource)), ())
    return _distinct(share for slot in slots for share in slot)


def _names(shares: Iterable[SlotCard]) -> str:
    return ", ".join(f"card{share.card}" for share in shares)


def _slots(pod: LocalPod, resource: str, cards: Cards) -> tuple[Slot, ...]:
    """The pod's slots with the cards of one resource alone."""
    slots = decoded(pod).slots
    for share in (share for slot in slots for share in slot):
        card = cards.get(share.card)
        if card is None:
            have = ", ".join(each.label for each in cards.values()) or "none"
            raise Refusal(f"its annotations name card{share.card}, and the cards of this node are {have}")
        beyond = [tile for tile in share.tiles if tile >= card.tiles]
        if beyond:
            raise Refusal(
                f"its annotations name tile gt{beyond[0]} of card{share.card}, which has {card.tiles}"
            )
    return tuple(tuple(share for share in slot if cards[share.card].resource == resource) for slot in slots)


def decoded(pod: LocalPod) -> Allocation:
    """The pod's annotations. Raises Refusal for a text without a clear meaning, and for none."""
    try:
        allocation = decode_allocation(pod.annotations, len(pod.containers))
    except ContractError as error:
        raise Refusal(str(error)) from error
    if allocation is None:
        raise Refusal(f"it has no annotation {keys.GAS_CARDS_ANNOTATION}")
    return allocation


def _distinct(shares: Iterable[SlotCard]) -> tuple[SlotCard, ...]:
    return tuple({share.card: share for share in shares}.values())


def devices_of(
    wanted: Sequence[str], available: Iterable[str], must_include: Iterable[str] = ()
) -> list[str]:
    """A device of each card wanted, by the card's name; a name that stands twice gives two devices of it.

    Devices that must be included come first, then those with lower numbers. A card without a free device is
    skipped, so that the answer may be short.
    """
    must = set(must_include)
    pool: dict[str, list[str]] = {}
    for device in sorted({*available, *must}, key=lambda each: (each not in must, _share(each), each)):
        pool.setdefault(card_of(device), []).append(device)
    return [pool[card].pop(0) for card in wanted if pool.get(card)]


def planned_devices(
    wanted: Sequence[str], available: Iterable[str], must_include: Iterable[str] = ()
) -> list[str]:
    """The same, complete and with all that must be included. Raises Refusal."""
    must = sorted(must_include)
    devices = devices_of(wanted, available, must)
    if len(devices) < len(wanted):
        lacking = Counter(wanted) - Counter(map(card_of, devices))
        raise Refusal(
            f"its annotations name {', '.join(sorted(lacking))}, of which no device is free and healthy here"
        )
    strange = [device for device in must if device not in devices]
    if strange:
        raise Refusal(
            f"the kubelet insists on {', '.join(strange)}, but the annotations name {', '.join(wanted)}"
        )
    return devices


def check_devices(wanted: Sequence[str], devices: Sequence[str]) -> None:
    """Refuse where the kubelet gives devices of other cards than were chosen. Raises Refusal."""
    if Counter(wanted) != Counter(map(card_of, devices)):
        raise Refusal(
            f"the kubelet gives {', '.join(sorted(devices))}, but the annotations name {', '.join(wanted)}; "
            "recreate the pod (a Topology Manager policy that prefers other devices causes this too)"
        )


def promised(pods: Iterable[LocalPod], listing: Listing, cards: Cards, resource: str) -> Counter[str]:
    """Devices by card that pods of this node were promised and do not have yet (as far as can be read)."""
    open_shares: Counter[str] = Counter()
    for pod in pods:
        if pod.over or not is_planned(pod):
            continue
        try:
            slots = _slots(pod, resource, cards)
        except Refusal:
            continue
        devices_of = listing.get(pod.key, {})
        for container, slot in zip(pod.containers, slots, strict=True):
            if not devices_of.get(container.name, {}).get(resource):
                open_shares.update(cards[share.card].label for share in slot)
    return open_shares


def default_devices(
    available: Iterable[str], must_include: Iterable[str], size: int, taken: Mapping[str, int]
) -> list[str]:
    """A default for pods without a plan: different cards if possible, from the highest number down.

    The sweeper plans from the lowest number up, so both meet last of all. Until it knows which cards such a
    pod got (card_report.py) it takes it to have just these (webhook.placement.cards.state). taken: devices of
    each card that are promised to others; cards with others free come before these.
    """
    must = sorted(must_include)
    chosen = list(must)
    free = sorted(set(available) - set(must), key=lambda each: (_share(each), each))
    left = Counter(map(card_of, free))
    left.subtract(taken)
    used = Counter(map(card_of, must))
    while len(chosen) < size and free:
        device = min(
            free, key=lambda each: (used[card_of(each)], left[card_of(each)] <= 0, _from_the_top(each))
        )
        free.remove(device)
        chosen.append(device)
        used[card_of(device)] += 1
        left[card_of(device)] -= 1
    return chosen


def _from_the_top(device: str) -> tuple[int, str, int]:
    number, card, share = _number(device)
    return -number, card, share


def _share(device: str) -> int:
    text = device.rpartition("-")[2]
    return int(text) if text.isdecimal() else 0


def _number(device: str) -> tuple[int, str, int]:
    """Cards by their numbers (card2 before card10), then shares."""
    card = card_of(device)
    digits = card.lstrip("abcdefghijklmnopqrstuvwxyz")
    return (int(digits) if digits.isdecimal() else 0, card, _share(device))


def by_number(cards: Iterable[LocalCard]) -> Cards:
    """Cards as annotations name them; only of vendors whose cards annotations name."""
    return {card.number: card for card in cards}


def by_name(pods: Iterable[LocalPod]) -> dict[PodName, LocalPod]:
    """Pods by namespace and name."""
    return {pod.key: pod for pod in pods}
