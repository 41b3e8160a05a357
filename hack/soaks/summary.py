"""What a soak has drawn, and how much each of its checkers had to judge: what never was comes first."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hack.soaks.crowd import KINDS

if TYPE_CHECKING:
    from hack.soaks.soak import Soak

_TROUBLES: Final = (
    "delete_pod",
    "cordon",
    "fail_node",
    "remove_node",
    "API server restarts",
    "leaders killed",
)
_PREEMPTION: Final = ("long", "preempting", "foreign preempting")


def exercised(counts: Mapping[str, int]) -> list[str]:
    """Lines that say how often each thing was done or judged; what never was comes first."""
    never = [name for name, count in counts.items() if not count]
    lines = [f"NOT TRIED: {', '.join(never)}."] if never else []
    return [*lines, ", ".join(f"{name} {count}" for name, count in counts.items() if count)]


def drawn(soak: "Soak") -> dict[str, int]:
    """How often each kind of gang came, and each kind of trouble."""
    kinds = [*KINDS, *soak.crowd.more]
    more = _PREEMPTION if soak.waves is not None else ()
    return {name: soak.done[name] for name in ("gangs", *kinds, *more, *_TROUBLES)}


def tried(soak: "Soak") -> list[str]:
    """All of it as sentences."""
    ledger, done = soak.ledger, soak.done
    judged = {
        "releases": ledger.released,
        "bindings": ledger.bound,
        "bindings with cards": ledger.stamped,
        "deletions by the sweeper": ledger.losses.judged,
    }
    if soak.waves is not None:
        judged |= {"pods preempted": len(ledger.partial.preempted)}
    refused = {name: count for name, count in sorted(done.items()) if name.startswith("refused")}
    return [
        *(f"Drawn: {line}" for line in exercised(drawn(soak))),
        *(f"Judged: {line}" for line in exercised(judged)),
        f"No gang was half dead for more than {ledger.partial.longest:.0f} s.",
        f"Order: {soak.plan.fair_order or 'by age'}. Bind: {soak.bind}.",
        f"The order of {ledger.unjudged} cards was not judged, seen in a list after a restart.",
        f"The hostile tenant did {dict(sorted(soak.tenant.done.items()))}; "
        f"refused: {dict(soak.tenant.refused)}.",
        f"Refused by the API server beside that: {refused}; buried: {done['buried']}; "
        f"the tenant's pods ended at the end: {'yes' if done['capacity made at the end'] else 'no'}.",
        f"Not judged: {done['Jobs without pods']} Jobs whose controller had made no pods for failed ones.",
    ]
