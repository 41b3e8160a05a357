"""What gangs ask for by annotations: size, levels, slices and spread, for all pods or by pod set. Pure.

An invalid size is ignored, since a controller may state it as well. With an invalid topology or spread
request, or a level that does not exist, the gang waits. A request on some pods holds for the whole gang.
Where pods ask for different things, each pod set is those that ask for the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.placement import (
    Assignment,
    Budget,
    Gang,
    NoFit,
    Options,
    PlacementError,
    Slice,
    Snapshot,
    Spread,
)
from webhook.sweeper.observe.membership import GangKey
from webhook.text import few
from webhook.workloads import marks
from webhook.workloads.own_domains import DomainRequest
from webhook.workloads.ranks import COUNT

_QUOTED: Final = 40
"""Characters of an author's text that a sentence repeats."""


def size_of(key: GangKey, stated: int | None, from_owner: int | None) -> int | None:
    """The expected number of pods, None if unknown. from_owner: as stated by the gang's controller."""
    if key.kind == "Pod":
        return 1
    return from_owner if stated is None else stated


def stated_size(pods: Sequence[Pod], problems: list[str]) -> int | None:
    """The number of pods that annotations state, None without one.

    problems: gains a sentence for each value that is not used.
    """
    for annotation in marks.GANG_SIZE_KEYS:
        value = common_value(pods, annotation, problems)
        if value is None:
            continue
        if COUNT.fullmatch(value) and int(value) > 0:
            return int(value)
        problems.append(f"{annotation}: {value[:_QUOTED]!r} is not a positive integer, and is ignored")
    return None


def minimum_of(
    pods: Sequence[Pod], size: int | None, from_owner: int | None, problems: list[str]
) -> int | None:
    """How many pods are enough, None where all are needed; as stated_size.

    No more than the size: a minimum above it would never be reached.
    """
    value = common_value(pods, keys.GANG_MIN_SIZE_ANNOTATION, problems)
    least = from_owner
    if value is not None and COUNT.fullmatch(value) and int(value) > 0:
        least = int(value)
    elif value is not None:
        fault = f"{value[:_QUOTED]!r} is not a positive integer, and is ignored"
        problems.append(f"{keys.GANG_MIN_SIZE_ANNOTATION}: {fault}")
    return least if least is None or size is None else min(least, size)


def common_value(pods: Sequence[Pod], annotation: str, problems: list[str]) -> str | None:
    """The value of an annotation of the pods, the first in text order of several; None without one."""
    values = sorted(
        {pod.metadata.annotations[annotation] for pod in pods if annotation in pod.metadata.annotations}
    )
    if len(values) > 1:
        listed = few([value[:_QUOTED] for value in values], most=5)
        problems.append(f"the pods differ in {annotation}: {listed}; the first one counts")
    return values[0] if values else None


_SPREAD: Final = re.compile(r"([^\s:]+)(?::([1-9][0-9]{0,8}))?", re.ASCII)


def spread_of(value: str | None) -> Spread | None:
    """The spread that the annotation's value asks for: a level, or a level, ":" and the most pods a domain.

    None without a request. Raises PlacementError for an invalid value.
    """
    if value is None:
        return None
    read = _SPREAD.fullmatch(value)
    if read is None:
        raise PlacementError(
            f"{keys.SPREAD_TOPOLOGY_ANNOTATION}: {value[:_QUOTED]!r} is neither a level, as block, nor "
            "a level and the most pods in a domain of it, as block:2"
        )
    return Spread(read[1], int(read[2]) if read[2] else None)


def preferred_of(value: str | None) -> tuple[str, ...]:
    """The preferred levels that the annotation's value names, with commas between, () where it is not there.

    Raises PlacementError for a level that is named twice, and where one is missing.
    """
    if value is None:
        return ()
    names = tuple(value.split(","))
    if not all(names):
        raise PlacementError(
            f"{keys.PREFERRED_TOPOLOGY_ANNOTATION}: {value[:_QUOTED]!r} names no level; write a level, as "
            "subblock, or several, coarsest first, as block,subblock"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlacementError(f"{keys.PREFERRED_TOPOLOGY_ANNOTATION} names {twice[:_QUOTED]!r} twice")
    return names


def slices_of(levels: str | None, sizes: str | None) -> tuple[Slice, ...]:
    """The slices that the values of the two annotations ask for, () where neither is there.

    Of slices in slices both name several, coarsest first, with commas between: "block,host" and "16,4".
    Raises PlacementError for one without the other, for a size that is none, and where they do not match.
    """
    if levels is None and sizes is None:
        return ()
    if levels is None:
        raise PlacementError(
            f"{keys.SLICE_SIZE_ANNOTATION} needs {keys.SLICE_TOPOLOGY_ANNOTATION}: the level"
        )
    if sizes is None:
        raise PlacementError(
            f"{keys.SLICE_TOPOLOGY_ANNOTATION} needs {keys.SLICE_SIZE_ANNOTATION}: how many pods"
        )
    found = [_slice_size(size) for size in sizes.split(",")]
    names = levels.split(",")
    if len(names) != len(found):
        raise PlacementError(
            f"{keys.SLICE_TOPOLOGY_ANNOTATION} names {len(names)} levels and {keys.SLICE_SIZE_ANNOTATION} "
            f"{len(found)} sizes; write one size for each level, coarsest first, as block,host and 16,4"
        )
    for (above, larger), (below, smaller) in pairwise(zip(names, found, strict=True)):
        if larger % smaller or larger == smaller:
            raise PlacementError(
                f"{keys.SLICE_SIZE_ANNOTATION}: slices of {larger} in a {above[:_QUOTED]} do not divide into "
                f"slices of {smaller} in a {below[:_QUOTED]}"
            )
    return tuple(starmap(Slice, zip(names, found, strict=True)))


def _slice_size(text: str) -> int:
    if not COUNT.fullmatch(text) or not int(text):
        raise PlacementError(f"{keys.SLICE_SIZE_ANNOTATION}: {text[:_QUOTED]!r} is not a positive integer")
    return int(text)


MOST_PARTS: Final = 4
"""Ways in which the pods of one gang may ask for a topology: each is a question of its own."""

_REQUESTS: Final = (
    keys.REQUIRED_TOPOLOGY_ANNOTATION,
    keys.PREFERRED_TOPOLOGY_ANNOTATION,
    keys.SLICE_TOPOLOGY_ANNOTATION,
    keys.SLICE_SIZE_ANNOTATION,
)


@dataclass(frozen=True)
class GangPart:
    """Pods by uid, and their request. request: the domain that they alone want to have, of divided gangs.

    excluded_nodes: that they may not use, since others have domains of their own there.
    """

    uids: frozenset[str]
    required_level: str | None = None
    preferred_levels: tuple[str, ...] = ()
    slices: tuple[Slice, ...] = ()
    request: DomainRequest | None = None
    excluded_nodes: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of this request in sentences."""
        s = "s" if len(self.uids) == 1 else ""  # of the verb: the pod that requires, the pods that require
        requests = [f"require{s} one {self.required_level}"] if self.required_level else []
        requests += [f"prefer{s} one {level}" for level in self.preferred_levels]
        requests += [f"form{s} slices of {each.size} a {each.level}" for each in self.slices]
        if self.request is not None:
            requests.append(f"need{s} {self.request.name}")
        pods = "pod" if s else f"{len(self.uids)} pods"
        return f"the {pods} that {' and '.join(requests) or f'name{s} no level'}"


def parts_of(pods: Sequence[Pod]) -> tuple[GangPart, ...]:
    """The parts of a gang, one where all pods ask for the same.

    Raises PlacementError for requests that cannot be read, and for too many.
    """
    asked = {
        key: {value for pod in pods if (value := pod.metadata.annotations.get(key)) is not None}
        for key in _REQUESTS
    }
    common = {key: next(iter(values), None) for key, values in asked.items() if len(values) <= 1}
    if len(common) == len(_REQUESTS):
        return (_part(frozenset(pod.metadata.uid for pod in pods), common),)
    uids: dict[tuple[str | None, ...], set[str]] = {}
    for pod in pods:
        own = {**dict.fromkeys(_REQUESTS), **pod.metadata.annotations, **common}
        uids.setdefault(tuple(own[key] for key in _REQUESTS), set()).add(pod.metadata.uid)
    if len(uids) > MOST_PARTS:
        raise PlacementError(f"its pods name levels or slices in {len(uids)} ways; at most {MOST_PARTS}")
    return in_order(_part(frozenset(of), dict(zip(_REQUESTS, own, strict=True))) for own, of in uids.items())


def in_order(parts: Iterable[GangPart]) -> tuple[GangPart, ...]:
    """The parts of a gang, the largest first."""
    return tuple(sorted(parts, key=lambda part: (-len(part.uids), part.name)))


def _part(uids: frozenset[str], requests: Mapping[str, str | None]) -> GangPart:
    required, preferred, level, size = (requests[key] for key in _REQUESTS)
    return GangPart(uids, required, preferred_of(preferred), slices_of(level, size))


# --- divided gangs ------------------------------------------------------------------------------------
# Some pods of a gang may have topology domains to themselves. The core knows undivided gangs alone: an
# extension divides them, see divided in decide.core_questions. What the core needs of a divided gang it
# asks the Division that the extension has given it.


@dataclass(frozen=True)
class DomainLayout:
    """The places of a gang's groups that have domains of their own.

    answers: each group with members, and its place. nodes: of all groups. closed_to_others: nodes that the
    other pods of the gang may not use.
    """

    answers: tuple[tuple[Gang, Assignment], ...]
    nodes: frozenset[str]
    closed_to_others: frozenset[str]


class Division:
    """How an extension has divided a gang; the defaults are those of an undivided one."""

    def own_labels(self, pod: Pod) -> frozenset[str]:
        """Labels over which a pod has a domain to itself, so that its rules on other pods over these hold."""
        return frozenset()

    def place_groups(
        self,
        groups: Sequence[tuple[Gang, DomainRequest]],
        snapshot: Snapshot,
        options: Options,
        budget: Budget,
    ) -> DomainLayout | NoFit:
        """A domain for each of these groups, or why there is none. Raises PlacementError."""
        raise NotImplementedError

    def excluded_beside(self, placed: Mapping[str, str]) -> frozenset[str]:
        """Nodes where pods of the gang may not be that want no domain. placed: uid -> node of its others."""
        return frozenset()

    def domains(self, placed: Mapping[str, str]) -> Mapping[str, str]:
        """The domains that the gang has to itself, as its plan records them, see PlacementSpec.domains.

        placed: uid -> node of its pods, with those that are not created yet.
        """
        return {}


UNDIVIDED: Final = Division()
