"""At least how many domains any placement of a gang uses: a bound that costs next to nothing beside one."""

from bisect import bisect_left

from webhook.placement.bounds import room_sums
from webhook.placement.budget import Budget
from webhook.placement.model import Gang, Mode, Options
from webhook.placement.question import Impossible, ask
from webhook.placement.snapshot import Snapshot
from webhook.placement.tree import build


def least_domains(gang: Gang, snapshot: Snapshot, options: Options, budget: Budget) -> tuple[int, ...] | None:
    """At least so many domains of each level, the coarsest first, and nodes; None if there is no room.

    Each level for itself: the roomiest domains that together hold the gang. For pods that are alike, without
    placed ones, in modes in which the fewest domains are best; of others an empty tuple, which says nothing:
    so also where the rooms of cards are not decided within the budget, as there may be more than is known.
    What is found out about the blocks of the snapshot is kept for place. Raises PlacementError as place does.
    """
    try:
        question, _ = ask(gang, snapshot, options)
    except Impossible:
        return None
    if options.mode is not Mode.BEST_FIT or len(question.counts) != 1 or question.slices or question.anchored:
        return ()
    tree = build(question, snapshot, budget.part(budget.left // 2))
    if not tree.exact:
        return ()
    wanted = question.counts[0]
    if tree.root.room < wanted:
        return None
    return tuple(bisect_left(sums, wanted) + 1 for sums in room_sums(tree.root))
