"""For whom nodes are held where a gang may not go: who has waited longer, stages to come, bookings."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from webhook.kube.objects import Pod
from webhook.placement import Budget, Snapshot
from webhook.placement.capacity import rooms
from webhook.sweeper.decide.booked import BookedNodes, Booking
from webhook.sweeper.decide.kept import KeptNodes
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.replacing import Replacing
from webhook.sweeper.decide.reservations import Held, Reservations, most_nodes
from webhook.sweeper.decide.rest import Rest
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


class Holders:
    """All for whom nodes are held; together they hold no more than a share of the nodes."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        bookings: Callable[[], Iterable[Booking]] = lambda: (),
        avoided: Callable[[PodGang], frozenset[str]] = lambda _: frozenset(),
    ) -> None:
        """bookings: requests for nodes, as they are now. avoided: where a gang is not to go."""
        rest = Rest(clock)
        self.reservations = Reservations(settings, clock, rest=rest)
        self.kept = KeptNodes(settings, clock, rest=rest)
        self.booked = BookedNodes(settings, clock, rest=rest, bookings=bookings, avoided=avoided)
        self.replacing = Replacing()
        self._settings = settings
        self._promised: frozenset[str] = frozenset()

    def saw(self, gangs: Sequence[PodGang], view: View, snapshot: Snapshot | None) -> None:
        """Take in what a pass sees: all gangs of which some pod waits."""
        self._promised = frozenset()
        self.replacing.saw(view)
        held = self.reservations.nodes
        self.kept.saw(view, held | self.booked.beside_plans(view), self.booked.made)
        self.booked.saw(gangs, view, snapshot, held | self.kept.nodes)
        self.keep_only({gang.key for gang in gangs})

    def keep_only(self, living: set[GangKey]) -> None:
        """Nothing is reserved for other gangs than these."""
        made = self.kept.made.union(*self.booked.made.values())
        self.reservations.keep_only(living, self.kept.nodes | self.booked.nodes, made)

    def why_not_kept(self, gang: PodGang, nodes: frozenset[str], view: View) -> str:
        """Why a plan's nodes for later pods cannot be kept now, "" if they can.

        More nodes than may be held at all are kept as far as may be, once nobody else holds any. What gangs
        hold that have waited long keeps back those alone whose later pods are bound to one domain: others'
        may go anywhere, and a large gang that waits is not to keep all of these from beginning.
        """
        most = most_nodes(view, self._settings)
        key = gang.key.placement_key
        wanted = nodes - self.booked.made.get(key, frozenset())
        others = self.kept.beside(gang.key) | self._promised | self.booked.beside_plans(view, but=key)
        if gang.required_level or gang.slices or gang.parts:
            others |= self.reservations.beside(gang.key)
        if not most or len(wanted | others) <= most or not others:
            return ""
        return (
            f"{len(wanted)} nodes are to be kept for the {len(gang.later)} pods that are made once its first "
            f"ones run, and others hold {len(others)} of the {most} that may be held at once (reserve_share)"
        )

    def promise(self, nodes: Iterable[str]) -> None:
        """A plan of this pass keeps these from now on."""
        self._promised |= frozenset(nodes)
        self.reservations.keep_beside(self._promised)

    @property
    def held(self) -> dict[str, Held]:
        """What is held for whom, by Placement: for gangs that wait, or for pods that come later."""
        waiting = {key.placement_key: held for key, held in self.reservations.held.items()}
        return together(self.booked.held, self.kept.held, waiting)

    def before(
        self, gang: PodGang, waiting: Iterable[Pod], view: View, rank: Mapping[GangKey, int]
    ) -> dict[str, Held]:
        """By Placement, what each holder holds. rank: each gang's place in the order of urgency.

        A gang whose pods fill up what it had goes there whoever holds it since.
        """
        waiting = list(waiting)
        if self.replacing.fills_up(gang, waiting, view):
            return {}
        return self.kept_from(gang, waiting, rank)

    def kept_from(
        self, gang: PodGang, waiting: Iterable[Pod], rank: Mapping[GangKey, int]
    ) -> dict[str, Held]:
        """The same, also of a gang whose pods fill up what it had."""
        found = self.reservations.before(rank, gang, waiting)
        reserved = {key.placement_key: held for key, held in found.items()}
        return together(reserved, self.kept.before(gang, waiting), self.booked.before(gang, waiting))


def together(*found: Mapping[str, Held]) -> dict[str, Held]:
    """What each holds in one way or another: who has waited long may get new nodes beside what it holds."""
    all_: dict[str, Held] = {}
    for holder, held in (each for some in found for each in some.items()):
        all_[holder] = held.beside(all_[holder]) if holder in all_ else held
    return all_


def have_room(
    holding: Mapping[str, Held],
    asked: GangQuestion,
    snapshot: Snapshot,
    budget: Budget | None,
    avoided: frozenset[str] = frozenset(),
) -> bool:
    """Whether nodes that are held for others would take a pod of the gang, but for new ones.

    avoided: where it would not go, were they held for nobody.
    """
    names = held_off({holder: held for holder, held in holding.items() if not held.is_new}) - avoided
    some = [snapshot.nodes[name] for name in sorted(names & snapshot.nodes.keys())]
    kinds = dict.fromkeys(member.pod_class for member in asked.gang.members)
    return bool(some) and any(any(rooms(kind, some, budget).counts) for kind in kinds)


def held_off(found: Mapping[str, Held]) -> frozenset[str]:
    """All of these nodes."""
    return frozenset[str]().union(*(held.nodes for held in found.values()))
