"""Parts of a gang: pods that wish levels or slices unlike the others', as a leader and its workers may. Pure.

A wish on some pods holds for all of the gang. Only where pods wish different things each of them stands for
itself, together with those that wish the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.placement import PlacementError, Slice
from webhook.sweeper.observe.membership import Claim, claims_of
from webhook.sweeper.observe.topology_wishes import preferred_of, slices_of

MOST_PARTS: Final = 4
"""Ways in which the pods of one gang may wish: each is a question of its own."""

_WISHES: Final = (
    keys.REQUIRED_TOPOLOGY_ANNOTATION,
    keys.PREFERRED_TOPOLOGY_ANNOTATION,
    keys.SLICE_TOPOLOGY_ANNOTATION,
    keys.SLICE_SIZE_ANNOTATION,
)


@dataclass(frozen=True)
class GangPart:
    """Pods by uid, and what they wish. claim: the domain that they alone want to have.

    closed: nodes where they may not be, as others have domains of their own there.
    """

    uids: frozenset[str]
    required_level: str | None = None
    preferred_levels: tuple[str, ...] = ()
    slices: tuple[Slice, ...] = ()
    claim: Claim | None = None
    closed: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What a sentence calls it."""
        wishes = [f"require one {self.required_level}"] if self.required_level else []
        wishes += [f"prefer one {level}" for level in self.preferred_levels]
        wishes += [f"stand in slices of {each.size} a {each.level}" for each in self.slices]
        if self.claim is not None:
            wishes.append(f"want a domain of {self.claim.over} of their own as {self.claim.group}")
        return f"the {len(self.uids)} pods that {' and '.join(wishes) or 'name no level'}"


def parts_of(pods: Sequence[Pod]) -> tuple[GangPart, ...]:
    """The parts of a gang, one where all pods wish the same; what a part of all wants alone, all want.

    Raises PlacementError for wishes that cannot be read, and for too many.
    """
    said = {
        key: {value for pod in pods if (value := pod.metadata.annotations.get(key)) is not None}
        for key in _WISHES
    }
    common = {key: next(iter(values), None) for key, values in said.items() if len(values) <= 1}
    claims = {pod.metadata.uid: next(filter(_is_of_a_group, claims_of(pod)), None) for pod in pods}
    if len(set(claims.values())) == 1:
        claims = dict.fromkeys(claims)  # what all want together is the gang's
    if len(common) == len(_WISHES) and not any(claims.values()):
        return (_part(frozenset(claims), common),)
    uids: dict[tuple[tuple[str | None, ...], Claim | None], set[str]] = {}
    for pod in pods:
        own = tuple(common[key] if key in common else pod.metadata.annotations.get(key) for key in _WISHES)
        uids.setdefault((own, claims[pod.metadata.uid]), set()).add(pod.metadata.uid)
    ways = {own for own, _ in uids}
    if len(ways) > MOST_PARTS:
        raise PlacementError(f"its pods name levels or slices in {len(ways)} ways; at most {MOST_PARTS}")
    if len({claim for _, claim in uids if claim is not None}) < sum(claim is not None for _, claim in uids):
        raise PlacementError("the pods of one domain of their own name unlike levels or slices")
    found = (
        _part(frozenset(of), dict(zip(_WISHES, own, strict=True)), claim) for (own, claim), of in uids.items()
    )
    return tuple(sorted(found, key=lambda part: (-len(part.uids), part.name)))


def _is_of_a_group(claim: Claim) -> bool:
    return bool(claim.group)


def _part(uids: frozenset[str], wishes: Mapping[str, str | None], claim: Claim | None = None) -> GangPart:
    required, preferred, level, size = (wishes[key] for key in _WISHES)
    return GangPart(uids, required, preferred_of(preferred), slices_of(level, size), claim)
