"""What a gang is told that is one only because nothing is known of its owner. Pure."""

from labeler.contract import keys
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import unknown_owner
from webhook.workloads.owners import OwnerRules


def owner_told(gang: PodGang, rules: OwnerRules, room: int) -> str:
    """What to write where some of its pods could run if they need not wait; "" where that is not so.

    room: for how many of its pods there is room.
    """
    if not room or gang.minimum is not None or len(gang.pods) < 2:
        return ""
    owner = unknown_owner(gang.pods[0], gang.key, rules)
    if not owner:
        return ""
    return (
        f"nothing is known of {owner}, so its pods wait for one another: if each may run alone, write "
        f"loose_owners: [{owner}] in the sweeper's settings, or {keys.GANG_MIN_SIZE_ANNOTATION}: "
        f'"1" on the pods; if they may not, gang_owners: [{owner}]'
    )
