"""Checks that an assignment keeps every rule: simple code that is independent of the solver."""

from collections import Counter
from collections.abc import Iterator

from webhook.placement import capacity
from webhook.placement.model import (
    Assignment,
    Card,
    CardRequest,
    CardShare,
    Gang,
    Member,
    Placed,
    PodClass,
    Slice,
)
from webhook.placement.snapshot import NodeState, Path, Snapshot, key_of


def check(assignment: Assignment, gang: Gang, snapshot: Snapshot) -> list[str]:
    """The broken rules as sentences, [] if there are none."""
    members = {member.name: member for member in gang.members}
    problems = list(_names(assignment, members))
    known = [p for p in assignment.placed if p.member in members and p.node in snapshot.nodes]
    problems += [
        f"{p.member}: node {p.node} does not exist" for p in assignment.placed if p.node not in snapshot.nodes
    ]
    by_node: dict[str, list[Placed]] = {}
    for placed in known:
        by_node.setdefault(placed.node, []).append(placed)
    for name, residents in by_node.items():
        if name in gang.excluded_nodes:
            problems.append(f"node {name} is excluded for the gang")
        problems += faults_on(snapshot.nodes[name], residents, members)
    problems += _required(known, gang, snapshot)
    problems += _slices(known, members, gang, snapshot)
    problems += _spread(known, members, gang, snapshot)
    return problems


def _names(assignment: Assignment, members: dict[str, Member]) -> Iterator[str]:
    names = [placed.member for placed in assignment.placed]
    for name in sorted(set(members) - set(names)):
        yield f"{name} is not placed"
    for name in sorted(set(names) - set(members)):
        yield f"{name} is not a member of the gang"
    if len(set(names)) != len(names):
        yield "a member is placed twice"


def faults_on(state: NodeState, residents: list[Placed], members: dict[str, Member]) -> Iterator[str]:
    """The rules that these members break on this node, as sentences."""
    wanted: dict[str, int] = {}
    for placed in residents:
        pod_class = members[placed.member].pod_class
        reason = pod_class.problem or capacity.reason_against_node(pod_class, state)
        if reason:
            yield f"{placed.member} cannot run on {state.name}: {reason}"
        for resource, amount in pod_class.requests:
            wanted[resource] = wanted.get(resource, 0) + amount
    for resource, amount in wanted.items():
        if amount > state.free.get(resource, 0):
            free = state.free.get(resource, 0)
            yield f"{state.name} has {free} of {resource} free, but its pods ask for {amount}"
    yield from _cards(state, residents, members)


def _cards(state: NodeState, residents: list[Placed], members: dict[str, Member]) -> Iterator[str]:
    free = {card.card.name: dict(card.free) for card in state.cards}
    tiles = {card.card.name: set(card.tiles) for card in state.cards}
    for placed in residents:
        pod = members[placed.member].pod_class
        if not state.cards and pod.takes_any_cards and not any(placed.cards):
            continue
        if misfit := _misfit(placed, pod):
            yield misfit
        elif pod.wants_cards:
            yield from _slots(state, placed, pod, free, tiles)


def _misfit(placed: Placed, pod: PodClass) -> str:
    """Why the card slots do not match the pod's containers, "" if they do."""
    if not pod.wants_cards:
        return f"{placed.member} has cards that it does not ask for" if any(placed.cards) else ""
    if len(placed.cards) != len(pod.cards):
        return f"{placed.member} has {len(placed.cards)} card slots for {len(pod.cards)} containers"
    return ""


def _slots(
    state: NodeState,
    placed: Placed,
    pod: PodClass,
    free: dict[str, dict[str, int]],
    tiles: dict[str, set[int]],
) -> Iterator[str]:
    """The rules that a pod's cards break. Takes the cards from `free` and `tiles`."""
    shared = pod.same_card[:1]
    if any(placed.cards[index] != placed.cards[shared[0]] for index in pod.same_card):
        yield f"{placed.member}: containers that share a card have different ones"
    for index, (request, slot) in enumerate(zip(pod.cards, placed.cards, strict=True)):
        where = f"{placed.member} container {index}"
        yield from _slot_rules(where, state, pod, request, slot)
        for share in slot:
            yield from _take(where, share, dict(request.per_card), free, tiles)


def _slot_rules(
    where: str, state: NodeState, pod: PodClass, request: CardRequest, slot: tuple[CardShare, ...]
) -> Iterator[str]:
    names = [share.card for share in slot]
    if len(names) != request.count or len(set(names)) != len(names):
        yield f"{where} asks for {request.count} distinct cards and has {names}"
    for share in slot:
        yield from _share_rules(where, state, pod, request, share)
    numas = {card.numa for card in state.node.cards if card.name in names}
    if pod.single_numa and len(numas) > 1:
        yield f"{where}: its cards {names} are on different NUMA nodes"
    if pod.linked and not _paired(slot, state.node.cards):
        yield f"{where}: its cards {names} are not linked in pairs"


def _share_rules(
    where: str, state: NodeState, pod: PodClass, request: CardRequest, share: CardShare
) -> Iterator[str]:
    card = next((card for card in state.node.cards if card.name == share.card), None)
    if card is None or card.disabled or share.card in pod.denied_cards:
        yield f"{where}: card {share.card} of {state.name} is not allowed"
    if pod.allowed_cards is not None and share.card not in pod.allowed_cards:
        yield f"{where}: card {share.card} is not among the allowed cards"
    if len(share.tiles) != request.tiles:
        yield f"{where} asks for {request.tiles} tiles of {share.card} and has {share.tiles}"


def _paired(slot: tuple[CardShare, ...], cards: tuple[Card, ...]) -> bool:
    """Whether the cards form pairs with a direct link, between the assigned tiles if there are any."""
    if not slot:
        return True
    first, *others = slot
    return any(
        _are_linked(first, other, cards)
        and _paired(tuple(share for share in others if share is not other), cards)
        for other in others
    )


def _are_linked(first: CardShare, other: CardShare, cards: tuple[Card, ...]) -> bool:
    links = {card.name: card.links for card in cards}
    ends = [(a, b) for a, name, b in links.get(first.card, ()) if name == other.card]
    ends += [(b, a) for a, name, b in links.get(other.card, ()) if name == first.card]
    return any(
        (not first.tiles or a in first.tiles) and (not other.tiles or b in other.tiles) for a, b in ends
    )


def _take(
    where: str,
    share: CardShare,
    amounts: dict[str, int],
    free: dict[str, dict[str, int]],
    tiles: dict[str, set[int]],
) -> Iterator[str]:
    left = free.get(share.card, {})
    for resource, amount in amounts.items():
        left[resource] = left.get(resource, 0) - amount
        if left[resource] < 0:
            yield f"{where}: card {share.card} lacks {-left[resource]} {resource}"
    have = tiles.get(share.card, set())
    if not set(share.tiles) <= have:
        yield f"{where}: tiles {sorted(set(share.tiles) - have)} of {share.card} are not free"
    have -= set(share.tiles)


def _required(known: list[Placed], gang: Gang, snapshot: Snapshot) -> Iterator[str]:
    if gang.required_level is None:
        return
    level = snapshot.topology.level(gang.required_level)
    nodes = {placed.node for placed in known} | {a.node for a in gang.anchors if a.node in snapshot.nodes}
    domains = {_domain(snapshot, node, level) for node in nodes}
    if len(domains) > 1:
        yield f"the gang is in {len(domains)} domains of the required level {gang.required_level}"
    if level < len(snapshot.topology.level_names):
        for node in sorted(nodes):
            if snapshot.nodes[node].path is None:
                yield f"node {node} is in no {gang.required_level}"


def _slices(known: list[Placed], members: dict[str, Member], gang: Gang, snapshot: Snapshot) -> Iterator[str]:
    """Checks slices: by rank where a placed pod has begun one, else each run of workers in rank order."""
    for part in gang.slices:
        level = snapshot.topology.level(part.level)
        begun = _begun(gang, part, snapshot)
        new = []
        for placed in _workers(known, members):
            rank, domain = members[placed.member].rank, _domain(snapshot, placed.node, level)
            if rank is not None and rank // part.size in begun:
                begun[rank // part.size].add(domain)
            else:
                new.append(domain)
        runs = (set(new[first : first + part.size]) for first in range(0, len(new), part.size))
        for number, domains in (*sorted(begun.items()), *enumerate(runs)):
            if len(domains) > 1:
                yield f"slice {number} of {part.size} is in {len(domains)} domains of level {part.level}"


def _begun(gang: Gang, part: Slice, snapshot: Snapshot) -> dict[int, set[Path]]:
    """The slices in which placed pods have ranks, and the domains of these pods."""
    level = snapshot.topology.level(part.level)
    begun: dict[int, set[Path]] = {}
    for anchor in gang.anchors:
        if anchor.rank is not None and anchor.rank >= 0 and anchor.node in snapshot.nodes:
            begun.setdefault(anchor.rank // part.size, set()).add(_domain(snapshot, anchor.node, level))
    return begun


def _workers(known: list[Placed], members: dict[str, Member]) -> list[Placed]:
    """The members of the largest class without leaders, in rank order."""
    classes: dict[PodClass, list[Placed]] = {}
    for placed in known:
        if not _leads(members[placed.member]):
            classes.setdefault(members[placed.member].pod_class, []).append(placed)
    workers = max(classes.values(), key=len, default=[])
    return sorted(workers, key=lambda p: (members[p.member].rank is None, members[p.member].rank or 0))


def _spread(known: list[Placed], members: dict[str, Member], gang: Gang, snapshot: Snapshot) -> Iterator[str]:
    """Checks the cap of each domain, or that no pod could move to a domain with two pods fewer."""
    request = gang.spread
    if request is None:
        return
    level = snapshot.topology.level(request.level)
    there = (*(anchor.node for anchor in gang.anchors), *request.peers)
    names = [placed.node for placed in known] + [name for name in there if name in snapshot.nodes]
    pods_in = Counter(_domain(snapshot, name, level) for name in names)
    if request.most is None:
        yield from _uneven(known, members, gang, snapshot, pods_in)
        return
    for domain in sorted({_domain(snapshot, placed.node, level) for placed in known}):
        if pods_in[domain] > request.most:
            where = "/".join(domain[1:])
            yield f"{pods_in[domain]} pods are in {where}, where at most {request.most} are allowed"


def _uneven(
    known: list[Placed], members: dict[str, Member], gang: Gang, snapshot: Snapshot, pods_in: Counter[Path]
) -> Iterator[str]:
    """Finds a node for a pod of the fullest domain in a domain with two pods fewer. pods_in: by domain."""
    if gang.spread is None or not known:
        return
    level = snapshot.topology.level(gang.spread.level)
    worst = max(known, key=lambda placed: pods_in[_domain(snapshot, placed.node, level)])
    most = pods_in[_domain(snapshot, worst.node, level)] - 2
    pod_class = members[worst.member].pod_class
    on_node = Counter(placed.node for placed in known)
    for name, state in snapshot.nodes.items():
        if pods_in[_domain(snapshot, name, level)] > most or not _may_move(
            worst, name, level, gang, snapshot
        ):
            continue
        if capacity.reason_against_node(pod_class, state):
            continue
        if capacity.count_slots(pod_class, state).pods > on_node[name]:
            yield f"{worst.member} on {worst.node} would make the spread more even on {name}"
            return


def _may_move(placed: Placed, name: str, level: int, gang: Gang, snapshot: Snapshot) -> bool:
    """Whether a pod may use a node: not excluded, labelled for the spread's level, in the required domain."""
    is_labelled = level < len(snapshot.topology.level_names)
    if name in gang.excluded_nodes or (is_labelled and snapshot.nodes[name].path is None):
        return False
    if gang.required_level is None:
        return True
    required = snapshot.topology.level(gang.required_level)
    return _domain(snapshot, name, required) == _domain(snapshot, placed.node, required)


def _leads(member: Member) -> bool:
    return member.rank is not None and member.rank < 0


def _domain(snapshot: Snapshot, node: str, level: int) -> Path:
    state = snapshot.nodes[node]
    return key_of(state, len(snapshot.topology.level_names))[: level + 2]
