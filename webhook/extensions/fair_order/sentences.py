"""Whose turn it is, in sentences. Percent are of GPU time, by its models' costs, of those that take part."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from webhook.extensions.fair_order.scores import AccountScore


@dataclass(frozen=True)
class Shares:
    """used: of what all that take part have used of late, by account. due: of what they weigh."""

    used: Mapping[str, float]
    due: Mapping[str, float]


def shares(known: Mapping[str, AccountScore], taking_part: Collection[str]) -> Shares:
    """Of those that wait or have GPUs; what others have used before counts for nobody's share."""
    some = {account: known[account] for account in taking_part}
    used = sum(each.used for each in some.values()) or 1.0
    weight = sum(each.weight for each in some.values()) or 1.0
    return Shares(
        {account: each.used / used for account, each in some.items()},
        {account: each.weight / weight for account, each in some.items()},
    )


def own_position(account: str, known: Mapping[str, AccountScore], of: Shares, others_first: bool) -> str:
    """For people of an account, without a word on who the others are."""
    comes = "those of others, that have used less for their weight, come" if others_first else "it comes"
    return f"fair order: {_of(account, known, of)}; {comes} first"


def full_position(
    account: str, known: Mapping[str, AccountScore], of: Shares, waiting: Collection[str], window: float
) -> str:
    """For whoever may read everybody's use. waiting: accounts with gangs of that priority."""
    gpus = known[account].used / window
    own = f"{_of(account, known, of)}, {gpus:.1f} GPUs on average"
    before = [each for each in waiting if known[each].score < known[account].score]
    if not before:
        return f"Fair order: {own}; it comes first."
    first = min(before, key=lambda each: (known[each].score, each))
    more = f" and {len(before) - 1} more" if len(before) > 1 else ""
    one = f"{first} ({of.used[first]:.0%} used, {of.due[first]:.0%} due)"
    return f"Fair order: {own}; {one}{more} {'come' if more else 'comes'} first."


def _of(account: str, known: Mapping[str, AccountScore], of: Shares) -> str:
    used, due = of.used[account], of.due[account]
    weight = f"weight {known[account].weight:g}"
    return f"{account} has used {used:.0%} of the GPU time of late, and is due {due:.0%} ({weight})"
