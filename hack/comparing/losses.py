"""topogate's answer beside first-fit's, in the documented order down to the leftover."""

from dataclasses import dataclass

from hack.comparing.first_fit import FirstFit, Value
from hack.comparing.realistic_gangs import DrawnQuestion
from webhook.placement import Assignment, Gang, Options, check, place


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two answers to one question.

    ours, floor: domains and leftover of each level, None without an answer. With cards the leftover is left
    out, as capacity in pods that share cards is itself a packing problem. wrong: rules that either breaks.
    """

    what: str
    ours: Value | None
    floor: Value | None
    proven: bool
    wrong: tuple[str, ...] = ()

    @property
    def loss(self) -> str:
        """In words why topogate is worse than first-fit, or wrong; "" if it is neither."""
        if self.wrong:
            return f"{self.what}: wrong: {'; '.join(self.wrong)}"
        if self.floor is None or (self.ours is not None and self.ours <= self.floor):
            return ""
        return f"{self.what}: topogate {words(self.ours)}, first-fit {words(self.floor)}"


def compare(draw: DrawnQuestion, options: Options | None = None) -> Comparison:
    """Ask both the same."""
    baseline = FirstFit(draw.gang, draw.snapshot)
    found, simple = place(draw.gang, draw.snapshot, options or Options()), baseline.place()
    wrong, ours, floor = [], None, None
    if simple is not None:
        wrong += [f"first-fit: {fault}" for fault in check(simple, draw.gang, draw.snapshot)]
        floor = baseline.value(simple)
    if isinstance(found, Assignment):
        wrong += [f"topogate: {fault}" for fault in check(found, draw.gang, draw.snapshot)]
        ours = baseline.value(found)
        stated = found.objective.domains, found.objective.leftover
        with_cards = any(pod.wants_cards for pod in baseline.members)
        if stated[0] != ours[0] or (stated != ours and not with_cards):
            wrong.append(f"topogate says {words(stated)}, its nodes are {words(ours)}")
        if with_cards:
            ours, floor = (ours[0], ()), floor and (floor[0], ())
    elif found.proven and simple is not None:
        wrong.append("topogate says that there is proof of no place")
    return Comparison(f"{draw.what}: {describe(draw.gang)}", ours, floor, found.proven, tuple(wrong[:3]))


def describe(gang: Gang) -> str:
    """What a gang asks for, in a few words."""
    classes = len({member.pod_class for member in gang.members})
    parts = [f"{len(gang.members)} pods, {classes} class{'es' if classes > 1 else ''}"]
    parts += [f"required {gang.required_level}"] if gang.required_level else []
    parts += [f"preferred {','.join(gang.preferred_levels)}"] if gang.preferred_levels else []
    parts += [f"slices of {each.size} in a {each.level}" for each in gang.slices]
    parts += [f"{len(gang.anchors)} placed already"] if gang.anchors else []
    return ", ".join(parts)


def words(value: Value | None) -> str:
    """Domains of each level, the coarsest first, and leftover, the finest first."""
    if value is None:
        return "no place"
    domains, leftover = ("/".join(map(str, each)) for each in value)
    return f"{domains}{f' (leftover {leftover})' if leftover else ''}"
